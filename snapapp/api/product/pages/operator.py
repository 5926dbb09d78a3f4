"""The operator's pages that need no scripts: two moments side by side, and everything of one subject along time."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from snapapp.api.http.deps import House
from snapapp.api.http.tenancy import Claimed, begun
from snapapp.api.product.pages.language import COOKIE, NAMES, Language, language_of
from snapapp.api.product.snap_views import SnapLine, line_of, lines_of
from snapapp.api.product.urls import for_page
from snapapp.domain import search, snaps
from snapapp.domain.paging import Window
from snapapp.domain.search import Criteria
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Invalid, NotFound, Unauthorized

AT_ONCE = 24  # moments of a subject on a page
_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)

router = APIRouter(include_in_schema=False)


@router.get("/snaps/compare", response_class=HTMLResponse)
@router.head("/snaps/compare")
def compare(house: House, claim: Claimed, request: Request, a: str = "", b: str = "") -> Response:
    """Two moments: their clips, which a script plays together, and what is said of each."""

    def page(own: TenantTransaction, t: Language) -> Response:
        places = for_page(house, claim)
        both = [line_of(snaps.read(own.db, own.code, _id(each)), places) for each in (a, b)]
        sides = [_side(t, each) for each in both]
        return _shown(request, t, "compare.html", sides=sides, rows=list(_rows(t, *both)), rate=_rate(both))

    return _answered(house, claim, request, page)


@router.get("/snaps/subject", response_class=HTMLResponse)
@router.head("/snaps/subject")
def subject(house: House, claim: Claimed, request: Request, id: str = "", offset: str = "0") -> Response:  # noqa: A002
    """Every moment of one subject, the one filmed last first."""

    def page(own: TenantTransaction, t: Language) -> Response:
        start = int(offset) if re.fullmatch("[0-9]{1,7}", offset) else 0
        # one more than is shown: each leads to the one before it
        window = Window(start, AT_ONCE + 1, sort_by="dataFilmagem")
        found = search.by_subject(own.db, own.code, Criteria(subject_id=id), window).items
        sides = [_side(t, each) for each in lines_of(found, for_page(house, claim))]
        entries = [(side, sides[place + 1] if place + 1 < len(sides) else None) for place, side in enumerate(sides)]
        older = _here(id=id, offset=start + AT_ONCE) if len(sides) > AT_ONCE else None
        newer = _here(id=id, offset=max(0, start - AT_ONCE)) if start else None
        shown = entries[:AT_ONCE]
        return _shown(request, t, "subject.html", name=id, entries=shown, older=older, newer=newer)

    return _answered(house, claim, request, page)


def _answered(
    house: House, claim: Claimed, request: Request, page: Callable[[TenantTransaction, Language], Response]
) -> Response:
    """Whoever is nobody signs in first; what is not there, or not theirs, is said in words."""
    t = language_of(request, chosen=request.cookies.get(COOKIE))
    try:
        with begun(house, claim) as own:
            own.stay_tenant()
            return page(own, t)
    except Unauthorized:
        return RedirectResponse("/", 303)
    except (NotFound, Invalid):
        return _shown(request, t, "missing.html", 404)


def _id(given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise Invalid("id: must be a UUID") from None


def _here(**query: object) -> str:
    return f"?{urlencode(query)}"


# --- what is shown of a moment ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """A moment, as a page shows it."""

    id: UUID
    name: str | None  # None: nobody has said
    snap: SnapLine
    facts: str
    picture: str | None


def _side(t: Language, snap: SnapLine) -> Side:
    name = None if snap.subject.id == str(snap.snap_id) else snap.subject.id
    best = next((frame.path for frame in snap.frames if frame.is_best), None)
    picture = snap.thumbnail_path or snap.poster_path or best
    facts = [f"{label} {value}" for label, value, _ in _said(t, snap) if value != name]
    return Side(snap.snap_id, name, snap, " · ".join(facts), picture)


def _said(t: Language, snap: SnapLine) -> Iterator[tuple[str, str, float | None]]:
    """The attributes: what each is called, its value in words, and as a number where it is one."""
    for each in snap.subject.attributes:
        number = each.number_value
        value = (each.string_value or "") if number is None else t.number(number)
        if value:
            yield t(NAMES.get(each.key, each.key)), value, number


def _rate(both: list[SnapLine]) -> float:
    """Frames a second, of the quicker one."""
    return max((each.video_probe.source_fps or 0.0 for each in both if each.video_probe), default=0.0) or 25.0


# --- two of them --------------------------------------------------------------------------------------------------


def _rows(t: Language, one: SnapLine, other: SnapLine) -> Iterator[dict[str, Any]]:
    """What is said of either, and by how much they differ where that is a number."""
    left = {label: (value, number) for label, value, number in _said(t, one)}
    right = {label: (value, number) for label, value, number in _said(t, other)}
    yield {
        "label": t("Filmed"),
        "times": (one.data_filmagem, other.data_filmagem),
        "apart": _days(t, one.data_filmagem, other.data_filmagem),
    }
    for label in dict.fromkeys([*left, *right]):
        (value, number), (value_of_other, number_of_other) = left.get(label, ("", None)), right.get(label, ("", None))
        apart = "" if number is None or number_of_other is None else _signed(t, number_of_other - number)
        yield {"label": label, "values": (value, value_of_other), "apart": apart}


def _signed(t: Language, number: float) -> str:
    return f"{'+' if number > 0 else '−' if number < 0 else ''}{t.number(abs(number))}"


def _days(t: Language, one: datetime | None, other: datetime | None) -> str:
    if one is None or other is None:
        return ""
    days = abs(other - one).days
    return f"{days} {t('day') if days == 1 else t('days')}" if days else ""


# --- the answer ---------------------------------------------------------------------------------------------------


def _shown(request: Request, t: Language, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    others = [(name, value) for name, value in request.query_params.multi_items() if name != "lang"]
    languages = [(code, _here(**dict(others), lang=code)) for code in ("en", "pt")]
    page = _PAGES.get_template(template).render(t=t, languages=languages, **values)
    # files that the old service made may lie elsewhere
    sources = "'self' https:" if 'src="https://' in page else "'self'"
    policy = (
        f"default-src 'none'; script-src 'self'; style-src 'self'; img-src {sources}; media-src {sources}; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Language, Cookie",
        "Cache-Control": "private, no-cache",
        "X-Robots-Tag": "noindex, nofollow",
    }
    return HTMLResponse(page, status, headers)
