"""The session cookie: the tenant's code and the time of expiry, signed. A new token of the tenant ends it too."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from itsdangerous import BadData, URLSafeSerializer

from snapapp.signing import sealer

NAME = "snapapp_session"
LASTS = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Cookies:
    secret_texts: Sequence[str] = field(repr=False)

    def made(self, code: str, token_changed_at: datetime, now: datetime) -> str:
        return self._sealer().dumps([code, token_changed_at.isoformat(), (now + LASTS).isoformat()])

    def opened(self, cookie: str, now: datetime) -> tuple[str, datetime] | None:
        """The tenant's code, and when its token was changed last; None if the cookie was not signed here or has
        expired."""
        try:
            code, token_changed_at, ends = self._sealer().loads(cookie)
        except BadData:
            return None
        return (code, datetime.fromisoformat(token_changed_at)) if now < datetime.fromisoformat(ends) else None

    def _sealer(self) -> URLSafeSerializer:
        return sealer(self.secret_texts, "session cookies")
