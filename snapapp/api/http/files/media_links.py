"""Links to a tenant's files. The signed prefix says whose they are, and since when the tenant has its token: with
another token they are over, as everything is that was opened with the old one."""

from datetime import UTC, datetime, timedelta

from snapapp.domain import tenants
from snapapp.domain.tables import Tenant
from snapapp.errors import TenantNotFound
from snapapp.postgres.database import session
from snapapp.process.monolith import Monolith
from snapapp.signing import ExpiredLink

_OWNED = "@"  # no key of the storage begins with it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def base(house: Monolith, tenant: Tenant, prefix: str, now: datetime) -> str:
    """To be followed by a file's name."""
    return house.links.base(f"{_OWNED}{_since(tenant)}:{len(tenant.code)}:{tenant.code}{prefix}", now)


def opened(house: Monolith, token: str, now: datetime) -> tuple[str, datetime]:
    """The prefix, and when the link ends. Links of /v1 belong to no tenant, and only expire."""
    named, ends = house.links.opened(token, now)
    if not named.startswith(_OWNED):
        return named, ends
    since, length, rest = named.removeprefix(_OWNED).split(":", 2)
    code, prefix = rest[: int(length)], rest[int(length) :]
    if not _has_token(house, code, int(since)):
        raise ExpiredLink
    return prefix, ends


def _has_token(house: Monolith, code: str, since: int) -> bool:
    with session(house.web) as db:
        try:
            return _since(tenants.by_code(db, code)) == since
        except TenantNotFound:
            return False


def _since(tenant: Tenant) -> int:
    return (tenant.token_changed_at - _EPOCH) // timedelta(microseconds=1)
