"""Why a remote video cannot be read, in words for the person who gave its URL. The class alone decides what the job
does next: after `SourceUnavailable` it tries again, after `SourceRefused` it does not."""

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
    """A remote video cannot be read. The message has neither a URL's query nor an IP address, because both may be
    secrets."""

    def __init__(self, reason: Reason, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(reason, message)  # both arguments, so that the error can be pickled in a child process

    def __str__(self) -> str:
        return self.message


class SourceRefused(SourceError):
    """Permanent: the same request would fail the same way until a person changes something."""


class SourceUnavailable(SourceError):
    """Transient: the network, the server or our disk could not do it now."""


class Dropped(SourceUnavailable):
    """The connection ended before the answer did. The rest may be requested again at once."""
