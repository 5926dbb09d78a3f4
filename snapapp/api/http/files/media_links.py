"""Links to a tenant's files. The signed prefix names the tenant and the time when its token was changed last: a new
token ends all links that were made before."""

from datetime import UTC, datetime, timedelta

from snapapp.domain import tenants
from snapapp.domain.tables import Tenant
from snapapp.errors import TenantNotFound
from snapapp.postgres.database import session
from snapapp.process.monolith import Monolith
from snapapp.signing import ExpiredLink

_OWNED = "@"  # no key of the storage begins with it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def base(monolith: Monolith, tenant: Tenant, prefix: str, now: datetime) -> str:
    """The beginning of a link, to which a file's name is added."""
    return monolith.links.base(f"{_OWNED}{_since(tenant)}:{len(tenant.code)}:{tenant.code}{prefix}", now)


def opened(monolith: Monolith, token: str, now: datetime) -> tuple[str, datetime]:
    """The prefix of a link, and when the link ends. Links of /v1 belong to no tenant, and end only by time."""
    signed_text, ends = monolith.links.opened(token, now)
    if not signed_text.startswith(_OWNED):
        return signed_text, ends
    since, length, rest = signed_text.removeprefix(_OWNED).split(":", 2)
    code, prefix = rest[: int(length)], rest[int(length) :]
    if not _has_token(monolith, code, int(since)):
        raise ExpiredLink
    return prefix, ends


def _has_token(monolith: Monolith, code: str, since: int) -> bool:
    with session(monolith.web) as db:
        try:
            return _since(tenants.by_code(db, code)) == since
        except TenantNotFound:
            return False


def _since(tenant: Tenant) -> int:
    return (tenant.token_changed_at - _EPOCH) // timedelta(microseconds=1)
