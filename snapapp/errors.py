"""The errors of the application; their messages are for people. The queue's own errors are in jobs/errors.py."""

import re
from collections.abc import Iterable


class SnapError(Exception):
    """The root of the application's errors. A message is for a person, and names the thing and its value."""


class SettingsError(SnapError):
    """The environment holds settings that cannot be used; the message names all mistakes."""

    def __init__(self, mistakes: list[str]) -> None:
        self.mistakes = mistakes
        super().__init__("Wrong settings:\n" + "\n".join(f"  - {mistake}" for mistake in mistakes))


class PostgresError(SnapError):
    """The embedded PostgreSQL cannot be started, adopted or stopped."""


class MigrationError(SnapError):
    """The database cannot be brought to the schema that this code needs."""


# --- the domain -------------------------------------------------------------------------------------------------


class NotFound(SnapError):
    """There is no such thing, or it is another tenant's. Both look alike, so that nobody can learn what others have."""


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
    """No link has this token, or the link was revoked or has expired."""

    def __init__(self, token: str) -> None:
        super().__init__(f"Public snap not found: {token}")


class TemplateNotFound(NotFound):
    def __init__(self, template: object) -> None:
        super().__init__(f"Subject template not found: {template}")


class WebhookNotFound(NotFound):
    def __init__(self, webhook_id: object) -> None:
        super().__init__(f"Webhook not found: {webhook_id}")


class OperatorNotFound(NotFound):
    def __init__(self, operator_id: object) -> None:
        super().__init__(f"Operator not found: {operator_id}")


class Invalid(SnapError):
    """A value is not allowed. `details` has one line for each field: `field: reason`."""

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
    """The request has no token, or a wrong one."""


class TokenRequired(Unauthorized):
    def __init__(self) -> None:
        super().__init__("Assinatura API token required")


class TokenWrong(Unauthorized):
    def __init__(self) -> None:
        super().__init__("Invalid assinatura API token")


class TokenKnown(Unauthorized):
    """It is the token of the documentation, which in prod proves nothing."""

    def __init__(self) -> None:
        super().__init__("Everybody knows this tenant's token: `snapapp tenants rotate-token CODE` makes another one")


class LinkWrong(Unauthorized):
    """It is nobody's personal link, or no longer."""

    def __init__(self) -> None:
        super().__init__("This link does not work any more: ask whoever gave it for a new one")


class NotAllowed(SnapError):
    """The person who is signed in may not do this; somebody else of the tenant may."""


class Conflict(SnapError):
    """The request conflicts with the present state of the thing."""


class KeyReused(Conflict):
    """An Idempotency-Key was used again for a different request."""

    def __init__(self, key: str) -> None:
        super().__init__(f"Idempotency-Key was used for another request: {key}")


class VideoHasSnaps(Conflict):
    """A video with snaps cannot be deleted, because the snaps refer to it."""

    def __init__(self, video_id: object, seen: int, hidden: int) -> None:
        if seen:
            reason = "1 snap is of it, delete it first" if seen == 1 else f"{seen} snaps are of it, delete them first"
        elif hidden == 1:
            reason = "1 snap of it was shared, and its link goes on"
        else:
            reason = f"{hidden} snaps of it were shared, and their links go on"
        super().__init__(f"Video cannot be deleted, {reason}: {video_id}")


class StorageUsedUp(SnapError):
    """The tenant uses all of the storage that it may use."""

    def __init__(self, max_mb: int) -> None:
        super().__init__(f"The tenant's {max_mb} MB of storage are used up: delete videos or snaps first")


class SnapHasChanged(SnapError):
    """Somebody else corrected the snap after the version that this correction is based on."""

    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap was corrected by somebody else meanwhile, look at it again: {snap_id}")


class SnapIsShared(Conflict):
    """A snap that was ever shared is evidence, and cannot be changed."""

    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap was shared and cannot be changed: {snap_id}")


class SnapHasNoJob(Conflict):
    """The snap's job was removed by the retention, or the snap came from the old service."""

    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap has no job any more: {snap_id}")


class SnapIsDraft(Conflict):
    def __init__(self, snap_id: object) -> None:
        super().__init__(f"Snap is a draft, describe it before you share it: {snap_id}")


# --- the error of a job, as clients read it ---------------------------------------------------------------------


def error_for_client(error: str | None) -> str | None:
    """An error for clients, receivers of webhooks among them: without the name of the class, a traceback, and paths on
    our disks."""
    if error is None:
        return None
    words = _CLASS.sub("", error, count=1).partition("\n")[0].strip()
    return _PATH.sub("(a file)", words) or "It failed without a reason"


_CLASS = re.compile(r"^([A-Za-z_]\w*\.)*[A-Z]\w*: ")
_PATH = re.compile(r"(?<![\w:/.])/(?:[\w.@+=-]+/)+[\w.@+=-]*")  # a path of at least two steps, not part of a URL
