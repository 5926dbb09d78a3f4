"""/v2/session: a browser signs in with the tenant's token, and gets a cookie that no script can read. The page of a
personal link gives a cookie of the same kind."""

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Request, Response
from pydantic import Field, StringConstraints

from snapapp.api.http import cookies
from snapapp.api.http.deps import MonolithDep, Transaction
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Asked, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import Own, Presented
from snapapp.domain import tenants
from snapapp.domain.rules import rights
from snapapp.domain.tables import Operator, OperatorRole, Tenant
from snapapp.process.monolith import Monolith

router = Router(prefix="/v2/session", tags=["session"], route_class=StrictRoute)


class SignIn(Asked):
    token: Annotated[str, StringConstraints(min_length=1, max_length=500)] = Field(
        description="The tenant's token.", examples=["dev-default-token"]
    )


class SignedIn(Shown):
    """The person who signed in by a personal link. They mark and correct under this name."""

    id: int = Field(description="The `operatorId` of their snaps.", examples=[7])
    nickname: str = Field(examples=["ana"])
    email: str = Field(examples=["ana@fazenda.example"])
    role: OperatorRole
    may_change_all: bool = Field(description="Whether they may change snaps that others marked.")
    may_change_settings: bool = Field(description="Whether they may see and change operators and webhooks.")


class Session(Shown):
    """The tenant that is signed in."""

    code: str = Field(description="The tenant's code.", examples=["default"])
    name: str = Field(examples=["Default"])
    operator: SignedIn | None = Field(None, description="Null for the tenant's own token, which may do everything.")

    @classmethod
    def of(cls, tenant: Tenant, who: Operator | None) -> "Session":
        return cls(code=tenant.code, name=tenant.name, operator=_signed_in(who) if who else None)


def _signed_in(who: Operator) -> SignedIn:
    assert who.role
    return SignedIn(
        id=who.id,
        nickname=who.nickname,
        email=who.email,
        role=who.role,
        may_change_all=rights.may_change_all(who),
        may_change_settings=rights.may_change_settings(who),
    )


@router.post("", responses=may_be(_401="It is no tenant's token.", _403="A page of another site asks."))
def sign_in(
    db: Transaction,
    monolith: MonolithDep,
    _credentials: Presented,
    wanted: SignIn,
    request: Request,
    response: Response,
) -> Session:
    """Signs a browser in: sets a cookie that lasts a week, or until the token is changed."""
    tenant = tenants.by_token(db, wanted.token)
    remember(response, request, monolith, tenant)
    return Session.of(tenant, None)


def remember(
    response: Response, request: Request, monolith: Monolith, tenant: Tenant, operator: Operator | None = None
) -> None:
    since, operator_id = (operator.link_changed_at, operator.id) if operator else (tenant.token_changed_at, None)
    assert since
    cookie = cookies.made(monolith.links.secret_texts, tenant.code, since, datetime.now(UTC), operator_id)
    response.set_cookie(
        cookies.NAME,
        cookie,
        max_age=int(cookies.LASTS.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=_is_encrypted(request, monolith.settings.public_base_url),
        path="/",
    )
    response.headers["Cache-Control"] = "no-store"


def _is_encrypted(request: Request, public: str | None) -> bool:
    """Whether the browser speaks TLS. Not every proxy says so: then the public address does, where the request came to
    it, or to this machine, as a proxy asks that keeps the name to itself."""
    base = urlsplit(public or "")
    at_proxy = request.url.hostname in (base.hostname, "localhost", "127.0.0.1")
    return request.url.scheme == "https" or (base.scheme == "https" and at_proxy)


@router.get("")
def show_session(own: Own) -> Session:
    """The tenant of this request, and who signed in."""
    return Session.of(own.tenant, own.operator)


@router.delete("", status_code=204)
async def sign_out(_credentials: Presented, response: Response) -> None:
    """Signs the browser out: removes the cookie."""
    forget(response)


def forget(response: Response) -> None:
    response.delete_cookie(cookies.NAME, path="/", httponly=True, samesite="lax")
