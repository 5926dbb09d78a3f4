"""/v2/operators: the people who sign in, with their roles and personal links. For the tenant's token, which is
asked for whatever the settings say, and for admins."""

from datetime import datetime
from typing import Annotated

from fastapi import Path, Response
from pydantic import Field

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.errors import may_be
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Asked, Id, Shown
from snapapp.api.http.strict_json import StrictRoute
from snapapp.api.http.tenancy import OwnPeople
from snapapp.api.product.snap_schema import Email, Nickname
from snapapp.api.product.urls import url_of_personal_link
from snapapp.domain import operators
from snapapp.domain.tables import OperatorRole

router = Router(prefix="/v2/operators", tags=["operators"], route_class=StrictRoute)

OperatorId = Annotated[Id, Path(description="The operator's id.", examples=[7])]
_ADMINS = may_be(_403="Who is signed in is no admin.")
_NO_OPERATOR = _ADMINS | may_be(_404="The tenant has no such operator.")


Role = Annotated[
    OperatorRole,
    Field(
        description="`operator` changes only snaps that they marked, `reviewer` all snaps, `admin` also operators and "
        "webhooks. All see everything."
    ),
]


class NewOperator(Asked):
    nickname: Nickname = Field(description="The name under which they mark moments.")
    email: Email
    role: Role


class OperatorChange(Asked):
    role: Role


class OperatorShown(Shown):
    id: int = Field(examples=[7])
    nickname: str = Field(examples=["ana"])
    email: str = Field(examples=["ana@fazenda.example"])
    role: OperatorRole
    link_changed_at: datetime = Field(description="When the personal link was made.")


class PersonalLink(Shown):
    link: str = Field(
        description="The personal link, shown only in this answer: whoever opens it can sign in as the operator. "
        "Without `SNAPAPP_PUBLIC_BASE_URL` it is a path.",
        examples=["https://snaps.example/sign-in/default/kq3v…"],
    )


class OperatorMade(OperatorShown, PersonalLink):
    """An operator, and the link to give to them."""


class OperatorList(Shown):
    items: list[OperatorShown]


@router.get("", responses=_ADMINS)
def list_operators(own: OwnPeople) -> OperatorList:
    """The people who may sign in."""
    return OperatorList(items=[OperatorShown.model_validate(each) for each in operators.every(own.db, own.code)])


@router.post("", status_code=201, responses=_ADMINS | may_be(_409="They can sign in already, or there are too many."))
def add_operator(own: OwnPeople, monolith: MonolithDep, wanted: NewOperator, response: Response) -> OperatorMade:
    """Lets a person sign in. What was marked with the tenant's token under their e-mail is theirs. Give them the link:
    it is not shown again."""
    who, secret = operators.add(own.db, own.code, wanted.nickname, wanted.email, wanted.role)
    response.headers["Cache-Control"] = "no-store"
    shown = OperatorShown.model_validate(who)
    return OperatorMade(**dict(shown), link=url_of_personal_link(monolith, own.code, secret))


@router.patch("/{operator_id}", responses=_NO_OPERATOR)
def change_operator(own: OwnPeople, operator_id: OperatorId, wanted: OperatorChange) -> OperatorShown:
    """Changes a person's role, which holds from their next request on. Their link and sessions stay."""
    return OperatorShown.model_validate(operators.change_role(own.db, own.code, operator_id, wanted.role))


@router.delete("/{operator_id}", status_code=204, responses=_NO_OPERATOR)
def revoke_operator(own: OwnPeople, operator_id: OperatorId) -> None:
    """Ends a person's link and sessions at once. What they marked stays."""
    operators.revoke(own.db, own.code, operator_id)


@router.post("/{operator_id}/link", responses=_NO_OPERATOR)
def renew_link(own: OwnPeople, monolith: MonolithDep, operator_id: OperatorId, response: Response) -> PersonalLink:
    """Makes a new personal link. The old one, and all sessions that began with it, end at once."""
    _, secret = operators.renew_link(own.db, own.code, operator_id)
    response.headers["Cache-Control"] = "no-store"
    return PersonalLink(link=url_of_personal_link(monolith, own.code, secret))
