"""Answers with a page that the server makes: finds the tenant and the language, and sets the headers. Also guards the
forms of such pages."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from snapapp.api.http import cookies
from snapapp.api.http.errors import answer
from snapapp.api.http.tenancy import Credentials, Presented, begun, comes_from_elsewhere
from snapapp.api.product.pages.language import Language, language_of
from snapapp.domain.rules import rights
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Invalid, NotAllowed, NotFound, TokenKnown, Unauthorized
from snapapp.process.monolith import Monolith

_PAGES = Environment(  # it escapes all values
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


async def _from_our_page(_credentials: Presented, request: Request) -> None:
    """Refuses forms of other sites, also where `CORS_ALLOWED_ORIGINS` names them: those send a token, and fill in no
    form of ours."""
    if comes_from_elsewhere(request):
        raise HTTPException(403, "A page of another site may not do this")


OUR_FORM = [Depends(_from_our_page)]

_FIELDS_MOST = 20


async def _typed(request: Request) -> Mapping[str, str]:
    """The fields of a form. Not FastAPI's `Form`, which takes 2 µs of the event loop for each `&`: a stranger may send
    two million of them."""
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        return {}
    body = (await request.body()).decode(errors="replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=_FIELDS_MOST))
    except ValueError:
        raise HTTPException(400, "Malformed form: it has too many fields") from None


Typed = Annotated[Mapping[str, str], Depends(_typed)]


def answered(
    monolith: Monolith,
    credentials: Credentials,
    request: Request,
    page: Callable[[TenantTransaction, Language], Response],
    *,
    begin: Callable[[Monolith, Credentials], AbstractContextManager[TenantTransaction]] = begun,
) -> Response:
    """Answers with the tenant's page. Without a tenant it redirects to the sign-in; for a thing that is missing, or
    another tenant's, or not for who is signed in, it shows a page that says so."""
    t = language_of(request)
    try:
        with begin(monolith, credentials) as own:
            own.stay_tenant()
            return page(own, t)
    except (NotAllowed, TokenKnown) as refusal:  # to sign in once more would lead here again
        return shown(request, t, "missing.html", 403, what=t(str(refusal)))
    except Unauthorized:
        if credentials.token is not None:
            raise  # 401, by which wrong tokens are counted: no browser that opens a page sends this header
        return RedirectResponse(f"/sign-in?{urlencode({'next': _address(request)})}", 303)
    except (NotFound, Invalid):
        return shown(request, t, "missing.html", 404, what=t("There is no such moment."))


async def nothing_there(request: Request, error: HTTPException) -> Response:
    """Answers a browser at an address that is none with a page, and everybody else as any error."""
    if error.detail != "Not Found" or "text/html" not in request.headers.get("Accept", ""):
        return answer(404, str(error.detail), headers=error.headers)
    t = language_of(request)
    return shown(request, t, "missing.html", 404, what=t("There is no such page."))


def _address(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def here(**query: object) -> str:
    return f"?{urlencode(query)}"


def rendered(t: Language, template: str, **values: Any) -> str:
    return _PAGES.get_template(template).render(t=t, **values)


def allowed_sources(page: str) -> str:
    """Where the pictures and clips of a page may come from. Files of the old service may be on other servers."""
    return "'self' https:" if 'src="https://' in page else "'self'"


def shown(
    request: Request,
    t: Language,
    template: str,
    status: int = 200,
    *,
    own: TenantTransaction | None = None,
    **values: Any,
) -> HTMLResponse:
    """The page. With the tenant's transaction its head leads to the people, for whoever signed in and may go there."""
    is_signed_in = cookies.NAME in request.cookies
    may_change_people = is_signed_in and own is not None and rights.may_change_settings(own.operator)
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    languages = [(code, here(**dict(others), lang=code)) for code in ("en", "pt")]
    head = {"languages": languages, "is_signed_in": is_signed_in, "may_change_people": may_change_people}
    page = rendered(t, template, **head, **values)
    sources = allowed_sources(page)
    forms = "'self'" if "<form" in page else "'none'"
    policy = (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src {sources}; media-src {sources}; "
        f"form-action {forms}; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Language, Cookie",
        "Cache-Control": "private, no-store",  # so that the back button shows nothing to the next person who signs in
        "X-Robots-Tag": "noindex, nofollow",
    }
    # what was typed into a form, and is shown again, may hold lone surrogates
    return HTMLResponse(page.encode(errors="replace"), status, headers)
