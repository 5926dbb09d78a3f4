"""Who asks: the tenant that headers or a browser's cookie name, and a transaction that sees nothing but its rows."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request
from sqlalchemy import Connection

from snapapp import db, tenants
from snapapp.api import cookies
from snapapp.api.cookies import Cookies
from snapapp.api.deps import House
from snapapp.errors import TenantNotFound
from snapapp.monolith import Monolith
from snapapp.tenants import Tenant

_SAFE = {"GET", "HEAD", "OPTIONS"}


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says of who it is; nothing of it is proven yet."""

    code: str | None
    token: str | None = field(repr=False)
    cookie: str | None = field(repr=False)


async def _claim(request: Request) -> Claim:
    """A page of another site can send a browser's cookie along, but none of our headers: for those it must ask first,
    and is refused."""
    code = request.headers.get("X-Assinatura-Codigo", "").strip() or None
    token = request.headers.get("X-Assinatura-Token", "").strip() or None
    if code is None and token is None and request.method not in _SAFE and comes_from_elsewhere(request):
        raise HTTPException(403, "A page of another site may not do this")
    return Claim(code, token, request.cookies.get(cookies.NAME))


def comes_from_elsewhere(request: Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = request.headers.get("Origin")  # from browsers that send no Sec-Fetch-Site; other clients send neither
    return origin is not None and origin.partition("://")[2].lower() not in _own_names(request)


def _own_names(request: Request) -> set[str]:
    """Behind a proxy the Host may be another than what the browser sees."""
    base = request.app.state.monolith.settings.public_base_url
    return {request.headers.get("Host", "").lower(), urlsplit(base or "").netloc.lower()} - {""}


Claimed = Annotated[Claim, Depends(_claim)]


# --- found out --------------------------------------------------------------------------------------------------


def identified(connection: Connection, house: Monolith, claim: Claim) -> Tenant:
    """A browser's cookie counts where no header says anything else."""
    if claim.code is None and claim.token is None and (tenant := _signed_in(connection, house, claim.cookie)):
        return tenant
    required = house.settings.require_api_token
    return tenants.identify(connection, code=claim.code, token=claim.token, tokens_required=required)


def _signed_in(connection: Connection, house: Monolith, cookie: str | None) -> Tenant | None:
    opened = Cookies(house.links.secret_texts).opened(cookie, datetime.now(UTC)) if cookie else None
    if opened is None:
        return None
    code, token_changed_at = opened
    try:
        tenant = tenants.by_code(connection, code)
    except TenantNotFound:
        return None
    return tenant if tenant.token_changed_at == token_changed_at else None


@dataclass(frozen=True, slots=True)
class Visit:
    """A transaction on behalf of a tenant. The queue is spoken to as the house, rows are seen as the tenant."""

    connection: Connection
    tenant: Tenant

    @property
    def code(self) -> str:
        return self.tenant.code

    def as_tenant(self) -> AbstractContextManager[None]:
        return db.scope(self.connection, self.tenant.code)


@contextmanager
def visiting(house: Monolith, claim: Claim) -> Iterator[Visit]:
    """For code that is not a plain route: it commits when it is left."""
    with house.web.begin() as connection:
        yield Visit(connection, identified(connection, house, claim))


def code_of(house: Monolith, claim: Claim) -> str:
    """For whoever needs no rows: it is over when this returns."""
    with visiting(house, claim) as visit:
        return visit.code


def _visit(house: House, claim: Claimed) -> Iterator[Visit]:
    with visiting(house, claim) as visit:
        yield visit


def _own(visit: Annotated[Visit, Depends(_visit, scope="function")]) -> Iterator[Visit]:
    with visit.as_tenant():
        yield visit


# The scope says when the part after `yield` runs: before the response leaves, so what it says is committed.
Visiting = Annotated[Visit, Depends(_visit, scope="function")]
Own = Annotated[Visit, Depends(_own, scope="function")]
