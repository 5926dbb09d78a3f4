"""The session cookie: the tenant's code, the time of expiry, and the operator who signed in by a link; signed. A new
token of the tenant ends its own sessions, a new link those of its operator."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from itsdangerous import BadData

from snapapp.signing import sealer

NAME = "snapapp_session"
LASTS = timedelta(days=7)
# Not "sessions", under which cookies that name no operator were signed: neither kind is read as the other.
_PURPOSE = "sessions of operators"


class SessionCookie(NamedTuple):
    """What a cookie says. It holds while the tenant's token or the operator's link is the one of that time."""

    code: str
    since: datetime
    operator_id: int | None


def made(secret_texts: Sequence[str], code: str, since: datetime, now: datetime, operator_id: int | None = None) -> str:
    content = [code, since.isoformat(), operator_id, (now + LASTS).isoformat()]
    return sealer(secret_texts, _PURPOSE).dumps(content)


def opened(secret_texts: Sequence[str], cookie: str, now: datetime) -> SessionCookie | None:
    """None if the cookie was not signed here or has expired."""
    try:
        code, since, operator_id, ends = sealer(secret_texts, _PURPOSE).loads(cookie)
    except BadData:
        return None
    is_over = datetime.fromisoformat(ends) <= now
    return None if is_over else SessionCookie(code, datetime.fromisoformat(since), operator_id)
