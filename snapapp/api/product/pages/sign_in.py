"""The page at /sign-in: a form that works without scripts, and leads back to the page that was asked for."""

import re
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from snapapp.api.http.deps import House, Transaction
from snapapp.api.http.tenancy import Claimed
from snapapp.api.product.pages.language import COOKIE, language_of
from snapapp.api.product.pages.page import shown
from snapapp.api.product.sessions import remember
from snapapp.domain import tenants
from snapapp.errors import Unauthorized

_OURS = re.compile(r"/snaps(?:[/?][\x21-\x7e]*)?")  # pages that redirect here; never the address of another site

router = APIRouter(include_in_schema=False)


@router.get("/sign-in", response_class=HTMLResponse)
@router.head("/sign-in")
def ask(request: Request, next: str = "") -> Response:  # noqa: A002 - as in the address
    return _form(request, next)


@router.post("/sign-in", response_class=HTMLResponse)
def sign_in(
    db: Transaction,
    house: House,
    _claim: Claimed,
    request: Request,
    token: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = "",  # noqa: A002
) -> Response:
    """`POST /v2/session` for a form. Requests from pages of other sites are refused."""
    try:
        tenant = tenants.by_token(db, token.strip())
    except Unauthorized:
        return _form(request, next, is_wrong=True)
    answer = RedirectResponse(_place(next), 303)
    remember(answer, request, house, tenant)
    return answer


def _form(request: Request, wanted: str, *, is_wrong: bool = False) -> Response:
    t = language_of(request, chosen=request.cookies.get(COOKIE))
    return shown(request, t, "sign_in.html", 401 if is_wrong else 200, wanted=_place(wanted), is_wrong=is_wrong)


def _place(wanted: str) -> str:
    return wanted if _OURS.fullmatch(wanted) else "/snaps"
