"""What can go wrong in snapapp itself, as people read it. The queue's own errors are in jobs/errors.py."""

from collections.abc import Iterable


class SnapError(Exception):
    """The root of the application's errors: the message is meant for a person and names the thing and its value."""


class SettingsError(SnapError):
    """The environment holds settings that cannot be used; every mistake is named at once."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("Wrong settings:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes))


class PostgresError(SnapError):
    """The embedded PostgreSQL cannot be started, adopted or stopped."""


class MigrationError(SnapError):
    """The database cannot be brought to the schema that this code needs."""


# --- the domain -------------------------------------------------------------------------------------------------


class NotFound(SnapError):
    """There is no such thing, or it is another tenant's: the two look alike."""


class TenantNotFound(NotFound):
    def __init__(self, code: str) -> None:
        super().__init__(f"Assinatura not found: {code}")


class VideoNotFound(NotFound):
    def __init__(self, video_id: object) -> None:
        super().__init__(f"Video not found: {video_id}")


class SnapNotFound(NotFound):
    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap not found: {snap_id}")


class PublicSnapNotFound(NotFound):
    """No link has this token, or it is revoked or has expired."""

    def __init__(self, token: str) -> None:
        super().__init__(f"Public snap not found: {token}")


class TemplateNotFound(NotFound):
    def __init__(self, template: object) -> None:
        super().__init__(f"Subject template not found: {template}")


class WebhookNotFound(NotFound):
    def __init__(self, webhook_id: object) -> None:
        super().__init__(f"Webhook not found: {webhook_id}")


class Invalid(SnapError):
    """What was given cannot be meant; `details` has a line for each field, `field: reason`."""

    def __init__(self, *details: str, message: str = "Validation failed") -> None:
        self.details = details
        super().__init__(message)

    def __str__(self) -> str:
        return ": ".join([super().__str__(), *filter(None, ["; ".join(self.details)])])

    @property
    def message(self) -> str:
        return str(self.args[0])


class UnsupportedSort(Invalid):
    def __init__(self, sort_by: str, allowed: Iterable[str]) -> None:
        super().__init__(message=f"Unsupported sortBy: {sort_by}. Allowed: {', '.join(allowed)}")


class Unauthorized(SnapError):
    """Who asks did not say who they are, or not truly."""


class TokenRequired(Unauthorized):
    def __init__(self) -> None:
        super().__init__("Assinatura API token required")


class TokenWrong(Unauthorized):
    def __init__(self) -> None:
        super().__init__("Invalid assinatura API token")


class Conflict(SnapError):
    """It cannot be done to this thing as it is now."""


class KeyReused(Conflict):
    """An idempotency key came again with another request."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key was used for another request: {key}")


class SnapIsShared(Conflict):
    """What was ever shared is evidence: it is not changed any more."""

    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap was shared and cannot be changed: {snap_id}")


class SnapIsDraft(Conflict):
    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap is a draft, describe it before you share it: {snap_id}")
