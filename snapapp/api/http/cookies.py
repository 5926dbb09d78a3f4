"""The session cookie: the tenant's code and the time of expiry, signed. A new token of the tenant ends it too."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from itsdangerous import BadData

from snapapp.signing import sealer

NAME = "snapapp_session"
LASTS = timedelta(days=7)
_PURPOSE = "session cookies"


def made(secret_texts: Sequence[str], code: str, token_changed_at: datetime, now: datetime) -> str:
    return sealer(secret_texts, _PURPOSE).dumps([code, token_changed_at.isoformat(), (now + LASTS).isoformat()])


def opened(secret_texts: Sequence[str], cookie: str, now: datetime) -> tuple[str, datetime] | None:
    """The tenant's code, and when its token was changed last; None if the cookie was not signed here or has expired."""
    try:
        code, token_changed_at, ends = sealer(secret_texts, _PURPOSE).loads(cookie)
    except BadData:
        return None
    return (code, datetime.fromisoformat(token_changed_at)) if now < datetime.fromisoformat(ends) else None
