"""Pages for operators that work without scripts: two moments side by side, and all moments of one subject."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.routers import Router
from snapapp.api.http.tenancy import Presented
from snapapp.api.product.pages.language import Language
from snapapp.api.product.pages.moment import page_moment, said_of
from snapapp.api.product.pages.page import answered, here, shown
from snapapp.api.product.snap_views import SnapLine, line_of, lines_of
from snapapp.api.product.urls import for_page
from snapapp.domain import snaps
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Invalid

AT_ONCE = 24  # moments of a subject on a page

router = Router(include_in_schema=False)


@router.get("/snaps/compare", response_class=HTMLResponse)
@router.head("/snaps/compare")
def compare(monolith: MonolithDep, credentials: Presented, request: Request, a: str = "", b: str = "") -> Response:
    """The page that compares two moments: their clips, which a script plays together, and their attributes."""

    def page(own: TenantTransaction, t: Language) -> Response:
        places = for_page(monolith, credentials)
        both = [line_of(snaps.read(own.db, own.code, _id(each)), places) for each in (a, b)]
        sides = [page_moment(t, each) for each in both]
        return shown(request, t, "compare.html", own=own, sides=sides, rows=list(_rows(t, *both)), rate=_rate(both))

    return answered(monolith, credentials, request, page)


@router.get("/snaps/subject", response_class=HTMLResponse)
@router.head("/snaps/subject")
def subject(
    monolith: MonolithDep,
    credentials: Presented,
    request: Request,
    id: str = "",  # noqa: A002 - the parameter's name
    offset: str = "0",
) -> Response:
    """The page with every moment of one subject, the one filmed last first."""

    def page(own: TenantTransaction, t: Language) -> Response:
        start = int(offset) if re.fullmatch("[0-9]{1,7}", offset) else 0
        # one more than is shown, because each entry links to the moment before it
        window = Window(start, AT_ONCE + 1, sort_by="dataFilmagem")
        moments = search.by_subject(own.db, own.code, Criteria(subject_id=id), window).items
        sides = [page_moment(t, each) for each in lines_of(moments, for_page(monolith, credentials))]
        entries = [(side, sides[place + 1] if place + 1 < len(sides) else None) for place, side in enumerate(sides)]
        older = here(id=id, offset=start + AT_ONCE) if len(sides) > AT_ONCE else None
        newer = here(id=id, offset=max(0, start - AT_ONCE)) if start else None
        on_page = entries[:AT_ONCE]
        return shown(request, t, "subject.html", own=own, name=id, entries=on_page, older=older, newer=newer)

    return answered(monolith, credentials, request, page)


def _id(given: str) -> UUID:
    try:
        return UUID(given)
    except ValueError:
        raise Invalid("id: must be a UUID") from None


# --- the comparison -----------------------------------------------------------------------------------------------


def _rows(t: Language, one: SnapLine, other: SnapLine) -> Iterator[dict[str, Any]]:
    """The attributes of both moments, and the difference of those that are numbers."""
    left = {label: (value, number) for label, value, number in said_of(t, one)}
    right = {label: (value, number) for label, value, number in said_of(t, other)}
    yield {
        "label": t("Filmed"),
        "times": (one.data_filmagem, other.data_filmagem),
        "apart": _days(t, one.data_filmagem, other.data_filmagem),
    }
    for label in dict.fromkeys([*left, *right]):
        (value, number), (value_of_other, number_of_other) = left.get(label, ("", None)), right.get(label, ("", None))
        apart = "" if number is None or number_of_other is None else _with_sign(t, number_of_other - number)
        yield {"label": label, "values": (value, value_of_other), "apart": apart}


def _with_sign(t: Language, number: float) -> str:
    return f"{'+' if number > 0 else '−' if number < 0 else ''}{t.number(abs(number), 6)}"


def _days(t: Language, one: datetime | None, other: datetime | None) -> str:
    if one is None or other is None:
        return ""
    days = abs(other - one).days
    return f"{days} {t('day') if days == 1 else t('days')}" if days else ""


def _rate(both: list[SnapLine]) -> float:
    """Frames a second, of the video with more of them."""
    return max((each.video_probe.source_fps or 0.0 for each in both if each.video_probe), default=0.0) or 25.0
