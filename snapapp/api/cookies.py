"""What a browser carries for whoever signed in: the tenant's code and when it ends, sealed. A new token ends it too."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from snapapp.signing import Signer

NAME = "snapapp_session"
LASTS = timedelta(days=7)

_SEAL = 16  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Cookies:
    secret_texts: Sequence[str] = field(repr=False)

    def made(self, code: str, token_changed_at: datetime, now: datetime) -> str:
        content = _number(now + LASTS) + _number(token_changed_at) + code.encode()
        return urlsafe_b64encode(self._signer().seal(content) + content).rstrip(b"=").decode()

    def opened(self, cookie: str, now: datetime) -> tuple[str, datetime] | None:
        """The code and when its token was changed last; None: not ours, or over."""
        try:
            sealed = urlsafe_b64decode(cookie[:1000].encode("ascii") + b"=" * (-len(cookie) % 4))
        except (UnicodeEncodeError, NotBase64, ValueError):
            return None
        seal, content = sealed[:_SEAL], sealed[_SEAL:]
        if not self._signer().is_ours(content, seal) or _moment(content[:8]) <= now:
            return None
        return content[16:].decode(), _moment(content[8:16])

    def _signer(self) -> Signer:
        return Signer(self.secret_texts, "session cookies")


def _number(moment: datetime) -> bytes:
    return ((moment - _EPOCH) // _MICROSECOND).to_bytes(8)


def _moment(number: bytes) -> datetime:
    return _EPOCH + int.from_bytes(number) * _MICROSECOND
