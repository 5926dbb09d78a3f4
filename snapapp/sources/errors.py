"""Why a remote video cannot be read, in words for the person who gave its URL. What the job does next depends on the
class alone: `SourceRefused` will be the same tomorrow, `SourceUnavailable` is worth another attempt."""

from enum import StrEnum

from snapapp.errors import SnapError


class Reason(StrEnum):
    BAD_URL = "bad url"
    FORBIDDEN_ADDRESS = "forbidden address"
    UNTRUSTED = "untrusted"
    DENIED = "denied"
    NOT_FOUND = "not found"
    EMPTY = "empty"
    TOO_LARGE = "too large"
    UNREACHABLE = "unreachable"
    BUSY = "busy"
    BROKEN = "broken"
    CHANGED = "changed"
    TOO_SLOW = "too slow"
    NO_ROOM = "no room"


class SourceError(SnapError):
    """A remote video cannot be read. The message shows no query of a URL and no address: both may be secrets."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(reason, message)  # both, so that it can be pickled on its way out of a child

    def __str__(self) -> str:
        return self.message


class SourceRefused(SourceError):
    """Permanent: the same request would fail the same way until a person changes something."""


class SourceUnavailable(SourceError):
    """Transient: the network, the server or our disk could not do it now."""


class Dropped(SourceUnavailable):
    """The connection ended before its answer did. What is missing may be asked for again at once."""
