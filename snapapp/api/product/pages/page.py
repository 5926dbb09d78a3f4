"""Answers with a page that the server makes: finds the tenant and the language, and sets the headers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from snapapp.api.http import cookies
from snapapp.api.http.tenancy import Claim, begun
from snapapp.api.product.pages.language import COOKIE, Language, language_of
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Invalid, NotFound, Unauthorized
from snapapp.process.monolith import Monolith

_PAGES = Environment(  # it escapes all values
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def answered(
    house: Monolith, claim: Claim, request: Request, page: Callable[[TenantTransaction, Language], Response]
) -> Response:
    """Answers with the tenant's page. Without a tenant it redirects to the sign-in; for a thing that is missing, or
    another tenant's, it shows a page that says so."""
    t = language_of(request, chosen=request.cookies.get(COOKIE))
    try:
        with begun(house, claim) as own:
            own.stay_tenant()
            return page(own, t)
    except Unauthorized:
        if claim.token is not None:
            raise  # 401, by which wrong tokens are counted: no browser that opens a page sends this header
        return RedirectResponse(f"/sign-in?{urlencode({'next': _address(request)})}", 303)
    except (NotFound, Invalid):
        return shown(request, t, "missing.html", 404)


def _address(request: Request) -> str:
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path


def here(**query: object) -> str:
    return f"?{urlencode(query)}"


def rendered(t: Language, template: str, **values: Any) -> str:
    return _PAGES.get_template(template).render(t=t, **values)


def allowed_sources(page: str) -> str:
    """Where the pictures and clips of a page may come from. Files of the old service may be on other servers."""
    return "'self' https:" if 'src="https://' in page else "'self'"


def shown(request: Request, t: Language, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    languages = [(code, here(**dict(others), lang=code)) for code in ("en", "pt")]
    page = rendered(t, template, languages=languages, is_signed_in=cookies.NAME in request.cookies, **values)
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
    return HTMLResponse(page, status, headers)
