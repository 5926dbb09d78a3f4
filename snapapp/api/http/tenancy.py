"""Finds the tenant of a request, by its headers or a browser's cookie, and begins a transaction that sees only the
tenant's rows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import APIKeyCookie, APIKeyHeader
from sqlalchemy.orm import Session

from snapapp.api.http import cookies
from snapapp.api.http.deps import MonolithDep, Turn
from snapapp.api.http.header_text import as_sent
from snapapp.domain import operators, tenants
from snapapp.domain.rules import rights
from snapapp.domain.tables import Tenant
from snapapp.domain.transactions import Begin, TenantTransaction
from snapapp.errors import TenantNotFound, TokenKnown, TokenRequired
from snapapp.postgres.database import scope, session
from snapapp.process.monolith import Monolith
from snapapp.settings.table import Environment
from snapapp.settings.types import is_address

_SAFE = {"GET", "HEAD", "OPTIONS"}


@dataclass(slots=True)
class Credentials:
    """What a request claims about its tenant. Nothing is proven until `tenant` is set."""

    code: str | None
    token: str | None = field(repr=False)
    cookie: str | None = field(repr=False)
    tenant: Tenant | None = None  # set by `identified`

    @property
    def is_empty(self) -> bool:
        """Whether no header names a tenant. A cookie does not count: browsers send it with every request."""
        return self.code is None and self.token is None

    @property
    def prove_nothing(self) -> bool:
        """Whether there is nothing that could prove who asks: a code alone does not."""
        return self.token is None and (self.code is not None or self.cookie is None)


TENANT_CODE = APIKeyHeader(
    name="X-Assinatura-Codigo",
    scheme_name="AssinaturaCodigo",
    description="The tenant's code. Without it: whoever the token is of; without that, `default`.",
    auto_error=False,
)
TENANT_TOKEN = APIKeyHeader(
    name="X-Assinatura-Token",
    scheme_name="AssinaturaToken",
    description="The tenant's token. Where `SNAPAPP_REQUIRE_API_TOKEN` is off, only `/v2/operators` looks at it.",
    auto_error=False,
)
_SESSION = APIKeyCookie(
    name=cookies.NAME,
    scheme_name="Session",
    description="What a browser was given: by `POST /v2/session` for the tenant's token, or by a personal link.",
    auto_error=False,
)


async def _credentials(
    request: Request,
    code: Annotated[str | None, Security(TENANT_CODE)],
    token: Annotated[str | None, Security(TENANT_TOKEN)],
    cookie: Annotated[str | None, Security(_SESSION)],
) -> Credentials:
    """What a request shows. A page of another site can make a browser send the cookie, but not our headers, for which
    the browser asks first and is refused. Where tokens are not required, the host name must be ours as well."""
    if not _is_ours(request):
        raise HTTPException(421, "Nobody has told this server that name: see SNAPAPP_TRUSTED_HOSTS")
    code, token = as_sent(code or "").strip() or None, (token or "").strip() or None
    if code is None and token is None and request.method not in _SAFE and comes_from_elsewhere(request):
        if not _is_named(request):
            raise HTTPException(403, "A page of another site may not do this")
        cookie = None  # a page of a sister domain sends the cookie too
    return Credentials(code, token, cookie)


def _is_ours(request: Request) -> bool:
    """Whether the host name is ours. Another site can point a name of its own to this server, and the browser then
    takes its page for ours (DNS rebinding). Such a name has a dot and is no IP address."""
    settings = request.app.state.monolith.settings
    if settings.require_api_token:
        return True
    try:
        name = urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return False
    trusted = {*settings.trusted_hosts, urlsplit(settings.public_base_url or "").hostname}
    return "." not in name or is_address(name) or name in trusted or "*" in trusted


def comes_from_elsewhere(request: Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site not in ("same-origin", "none")
    # for browsers that send no Sec-Fetch-Site; other clients send neither header
    origin = request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2].lower() not in _own_names(request)


def _is_named(request: Request) -> bool:
    """Whether the settings allow pages of the request's origin."""
    allowed = request.app.state.monolith.settings.cors_allowed_origins
    return "*" in allowed or request.headers.get("Origin") in allowed


def _own_names(request: Request) -> set[str]:
    """The names of this server: the Host header and the public address. Behind a proxy the two may differ."""
    base = request.app.state.monolith.settings.public_base_url
    return {request.headers.get("Host", "").lower(), urlsplit(base or "").netloc.lower()} - {""}


Presented = Annotated[Credentials, Depends(_credentials)]


# --- identified -------------------------------------------------------------------------------------------------


def identified(
    db: Session, monolith: Monolith, credentials: Credentials, *, must_prove: bool = False
) -> TenantTransaction:
    """The transaction of a request's tenant, and of who signed in. A browser's cookie counts only if no header names a
    tenant. With `must_prove` a code alone is not enough, whatever the settings say."""
    required = must_prove or monolith.settings.require_api_token
    own = _signed_in(db, monolith, credentials.cookie) if credentials.is_empty else None
    if own is None:
        tenant = tenants.identify(db, code=credentials.code, token=credentials.token, tokens_required=required)
        own = TenantTransaction(db, tenant)
    if credentials.tenant is not None and credentials.tenant.code != own.code:
        raise TokenRequired  # the session ended within this request: what it goes on with is not the default tenant's
    credentials.tenant = own.tenant
    return own


def _signed_in(db: Session, monolith: Monolith, cookie: str | None) -> TenantTransaction | None:
    said = cookies.opened(monolith.links.secret_texts, cookie, datetime.now(UTC)) if cookie else None
    if said is None:
        return None
    try:
        tenant = tenants.by_code(db, said.code)
    except TenantNotFound:
        return None
    if said.operator_id is None:
        return TenantTransaction(db, tenant) if tenant.token_changed_at == said.since else None
    with scope(db, tenant.code):
        operator = operators.signed_in(db, tenant.code, said.operator_id, said.since)
    return TenantTransaction(db, tenant, operator) if operator else None


@contextmanager
def begun(
    monolith: Monolith, credentials: Credentials, *, sees_one_moment: bool = False, must_prove: bool = False
) -> Iterator[TenantTransaction]:
    """A transaction as the request's tenant, committed at the end of the `with`. With `sees_one_moment` all its
    statements see the database as of the first one."""
    engine = monolith.web.execution_options(isolation_level="REPEATABLE READ") if sees_one_moment else monolith.web
    with session(engine) as db, db.begin():
        yield identified(db, monolith, credentials, must_prove=must_prove)


async def _begin(monolith: MonolithDep, credentials: Presented) -> Begin:
    if monolith.settings.require_api_token and credentials.prove_nothing:
        raise TokenRequired  # here, because the use case would ask only after a body is validated
    return partial(begun, monolith, credentials)


# For a use case, which itself begins and ends its transaction.
Begins = Annotated[Begin, Depends(_begin)]


def code_of(monolith: MonolithDep, credentials: Presented) -> str:
    with begun(monolith, credentials) as transaction:
        return transaction.code


# The code of the request's tenant, for routes that read no rows. Its transaction has ended when the route begins.
Code = Annotated[str, Depends(code_of)]


def _own(monolith: MonolithDep, credentials: Presented, _turn: Turn) -> Iterator[TenantTransaction]:
    with begun(monolith, credentials) as transaction:
        transaction.stay_tenant()
        yield transaction


# The whole route in one transaction, as the tenant. With this scope it is committed before the response is sent.
Own = Annotated[TenantTransaction, Depends(_own, scope="function")]


async def _own_settings(own: Own) -> TenantTransaction:
    rights.require_settings(own.operator)
    return own


# The same for the tenant's settings, of which operators and reviewers see nothing.
OwnSettings = Annotated[TenantTransaction, Depends(_own_settings, scope="function")]


@contextmanager
def begun_for_people(monolith: Monolith, credentials: Credentials) -> Iterator[TenantTransaction]:
    """`begun` for whoever may change who signs in; also where tokens are not required: a link works on when they are,
    so a stranger must not get one before."""
    with begun(monolith, credentials, must_prove=True) as transaction:
        if transaction.operator is None and monolith.settings.env is Environment.PROD:
            _refuse_known_token(transaction)
        rights.require_settings(transaction.operator)
        yield transaction


def _own_people(monolith: MonolithDep, credentials: Presented, _turn: Turn) -> Iterator[TenantTransaction]:
    with begun_for_people(monolith, credentials) as transaction:
        transaction.stay_tenant()
        yield transaction


def _refuse_known_token(transaction: TenantTransaction) -> None:
    if tenants.with_development_token(transaction.db) == transaction.code:
        raise TokenKnown


# The same for the people who sign in.
OwnPeople = Annotated[TenantTransaction, Depends(_own_people, scope="function")]
