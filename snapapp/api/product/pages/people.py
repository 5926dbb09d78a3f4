"""The page at /operators: who may sign in for the tenant. An admin, or whoever signed in with the tenant's token, adds
people, changes their roles, gives them new links and revokes them. Its forms work without scripts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.errors import status_of
from snapapp.api.http.routers import Router
from snapapp.api.http.tenancy import Credentials, Presented, begun_for_people
from snapapp.api.product.operators import OperatorId
from snapapp.api.product.pages.language import Language
from snapapp.api.product.pages.page import OUR_FORM, Typed, answered, shown
from snapapp.api.product.urls import url_of_personal_link
from snapapp.domain import operators
from snapapp.domain.rules import rights
from snapapp.domain.tables import Operator, OperatorRole
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Conflict, Invalid, OperatorNotFound
from snapapp.process.monolith import Monolith

_LABELS = {"nickname": "Name", "email": "E-mail", "role": "Role"}

router = Router(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class _Said:
    """What the page says of the form that was sent."""

    done: str = ""
    link: str = ""
    link_of: str = ""
    mistakes: tuple[str, ...] = ()
    typed: Mapping[str, str] = field(default_factory=dict)  # kept where it was refused
    status: int = 200


_Act = Callable[[TenantTransaction, Language], _Said]


@router.get("/operators", response_class=HTMLResponse)
@router.head("/operators")
def people(monolith: MonolithDep, credentials: Presented, request: Request) -> Response:
    return _page(monolith, credentials, request, lambda *_: _Said())


@router.post("/operators", response_class=HTMLResponse, dependencies=OUR_FORM)
def add(monolith: MonolithDep, credentials: Presented, request: Request, typed: Typed) -> Response:
    nickname, email, role = (typed.get(name, "") for name in _LABELS)

    def act(own: TenantTransaction, _t: Language) -> _Said:
        return _linked(monolith, own, *operators.add(own.db, own.code, nickname, email, _role(role)))

    return _page(monolith, credentials, request, act, {"nickname": nickname, "email": email, "role": role})


@router.post("/operators/{operator_id}/link", response_class=HTMLResponse, dependencies=OUR_FORM)
def renew_link(monolith: MonolithDep, credentials: Presented, request: Request, operator_id: OperatorId) -> Response:
    def act(own: TenantTransaction, _t: Language) -> _Said:
        return _linked(monolith, own, *operators.renew_link(own.db, own.code, operator_id))

    return _page(monolith, credentials, request, act)


@router.post("/operators/{operator_id}/role", response_class=HTMLResponse, dependencies=OUR_FORM)
def change_role(
    monolith: MonolithDep, credentials: Presented, request: Request, operator_id: OperatorId, typed: Typed
) -> Response:
    def act(own: TenantTransaction, t: Language) -> _Said:
        operators.change_role(own.db, own.code, operator_id, _role(typed.get("role", "")))
        return _Said(t("The new role holds from now on."))

    return _page(monolith, credentials, request, act)


@router.post("/operators/{operator_id}/revoke", response_class=HTMLResponse, dependencies=OUR_FORM)
def revoke(monolith: MonolithDep, credentials: Presented, request: Request, operator_id: OperatorId) -> Response:
    def act(own: TenantTransaction, t: Language) -> _Said:
        operators.revoke(own.db, own.code, operator_id)
        return _Said(t("That link signs nobody in any more."))

    return _page(monolith, credentials, request, act)


@router.get("/operators/{operator_id}/{form}")
async def to_the_page(request: Request) -> Response:
    """The address of a form, opened: by who chooses the other language, or has to sign in first."""
    return RedirectResponse(f"/operators?{request.url.query}", 303)


def _linked(monolith: Monolith, own: TenantTransaction, who: Operator, secret: str) -> _Said:
    return _Said(link=url_of_personal_link(monolith, own.code, secret), link_of=who.nickname)


def _role(given: str) -> OperatorRole:
    try:
        return OperatorRole(given)
    except ValueError:
        raise Invalid("role: is not known") from None


def _page(
    monolith: Monolith, credentials: Credentials, request: Request, act: _Act, typed: Mapping[str, str] | None = None
) -> Response:
    def page(own: TenantTransaction, t: Language) -> Response:
        said = _said(own, t, act, typed or {})
        if not rights.may_change_settings(own.operator):  # they have just changed themselves
            return RedirectResponse("/operators", 303)
        everybody = operators.every(own.db, own.code)
        me = own.operator.id if own.operator else None
        return shown(
            request, t, "people.html", said.status, own=own, said=said, everybody=everybody, me=me, roles=OperatorRole
        )

    return answered(monolith, credentials, request, page, begin=begun_for_people)


def _said(own: TenantTransaction, t: Language, act: _Act, typed: Mapping[str, str]) -> _Said:
    try:
        return act(own, t)
    except (Conflict, Invalid, OperatorNotFound) as error:
        reasons = error.details if isinstance(error, Invalid) else (str(error),)
        mistakes = tuple(t.mistake(each, _LABELS) for each in reasons)
        return _Said(mistakes=mistakes, typed=typed, status=status_of(error) or 400)
