"""The pages at /sign-in: a form for the tenant's token, which leads back to the page that was asked for, and the page
of a personal link. They work without scripts, as /sign-out does."""

import re

from fastapi import Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from snapapp.api.http.deps import MonolithDep, Transaction
from snapapp.api.http.routers import Router
from snapapp.api.product.pages.language import language_of
from snapapp.api.product.pages.page import OUR_FORM, Typed, shown
from snapapp.api.product.sessions import forget, remember
from snapapp.domain import operators, tenants
from snapapp.errors import LinkWrong, Unauthorized

# the pages that redirect here; never the address of another site
_OURS = re.compile(r"/(?:snaps|operators)(?:[/?][\x21-\x7e]*)?")

router = Router(include_in_schema=False)


@router.get("/sign-in", response_class=HTMLResponse)
@router.head("/sign-in")
def ask(request: Request, next: str = "") -> Response:  # noqa: A002 - as in the address
    return _form(request, next)


@router.post("/sign-in", response_class=HTMLResponse, dependencies=OUR_FORM)
def sign_in(db: Transaction, monolith: MonolithDep, request: Request, typed: Typed) -> Response:
    """`POST /v2/session` for a form."""
    wanted = typed.get("next", "")
    try:
        tenant = tenants.by_token(db, typed.get("token", "").strip())
    except Unauthorized:
        return _form(request, wanted, "token")
    answer = RedirectResponse(_place(wanted), 303)
    remember(answer, request, monolith, tenant)
    return answer


async def _opened(request: Request) -> None:
    """Refuses requests of pages that embed the address: another site's could use up the wrong tokens that its reader's
    address may try, and everybody else at that address would wait."""
    if request.headers.get("Sec-Fetch-Dest", "document") != "document":
        raise HTTPException(403, "A personal link is opened, and embedded in no page")


@router.get("/sign-in/{code}/{secret}", response_class=HTMLResponse, dependencies=[Depends(_opened)])
@router.head("/sign-in/{code}/{secret}", dependencies=[Depends(_opened)])
def show_link(db: Transaction, request: Request, code: str, secret: str) -> Response:
    """Says whose link it is, and asks. Only the answer signs in: a chat that previews links opens this page too."""
    try:
        tenant, operator = operators.whose(db, code, secret)
    except LinkWrong:
        return _form(request, "", "link")
    page = shown(request, language_of(request), "personal_link.html", tenant=tenant.name, who=operator.nickname)
    page.headers["Referrer-Policy"] = "strict-origin"  # the address is a secret
    return page


@router.post("/sign-in/{code}/{secret}", response_class=HTMLResponse, dependencies=OUR_FORM)
def sign_in_by_link(db: Transaction, monolith: MonolithDep, request: Request, code: str, secret: str) -> Response:
    try:
        tenant, operator = operators.whose(db, code, secret)
    except LinkWrong:
        return _form(request, "", "link")
    answer = RedirectResponse("/", 303)
    remember(answer, request, monolith, tenant, operator)
    return answer


@router.post("/sign-out", dependencies=OUR_FORM)
async def sign_out() -> Response:
    """`DELETE /v2/session` for a form."""
    answer = RedirectResponse("/sign-in", 303)
    forget(answer)
    return answer


def _form(request: Request, wanted: str, flaw: str = "") -> Response:
    t = language_of(request)
    return shown(request, t, "sign_in.html", 401 if flaw else 200, wanted=_place(wanted), flaw=flaw)


def _place(wanted: str) -> str:
    return wanted if _OURS.fullmatch(wanted) else "/snaps"
