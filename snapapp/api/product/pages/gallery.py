"""The page at /snaps: the moments of the tenant, newest first, filtered by the parameters of the address. A form
without scripts sets these; plain links lead to the next page."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Annotated
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.routers import Router
from snapapp.api.http.tenancy import Presented
from snapapp.api.product.exports import ExportFormat, exported
from snapapp.api.product.pages.language import Language
from snapapp.api.product.pages.moment import page_moment
from snapapp.api.product.pages.page import answered, shown
from snapapp.api.product.snap_views import lines_of
from snapapp.api.product.urls import Placed, for_page
from snapapp.domain import templates
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Page, Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.tables import Snap, SnapStatus
from snapapp.domain.transactions import TenantTransaction
from snapapp.errors import Invalid

AT_ONCE = 48  # moments on a page
_STATES = {SnapStatus.COMPLETED: "finished", SnapStatus.PENDING: "not finished", SnapStatus.FAILED: "failed"}
_LABELS = {
    "q": "Words in the description",
    "subjectId": "Subject, exactly",
    "status": "State",
    "nickname": "Marked by, whole name",
    "from": "Marked from",
    "to": "Marked until",
    "zone": "Time zone",
    "attrKey": "Field",
    "attrValue": "is",
    "attrMin": "at least",
    "attrMax": "at most",
}
_OF_FIELD = ("attrKey", "attrValue", "attrMin", "attrMax")
_FOLDED = (("subjectId",), ("status",), ("nickname",), ("from",), ("to",), _OF_FIELD)  # each is one filter

router = Router(include_in_schema=False)


@router.get("/snaps", response_class=HTMLResponse)
@router.head("/snaps")
def gallery(monolith: MonolithDep, credentials: Presented, request: Request) -> Response:
    def page(own: TenantTransaction, t: Language) -> Response:
        parameters = _parameters_of(request.query_params)
        page_found, mistakes = _page_or_mistakes(own, parameters)
        sides = (
            [page_moment(t, each) for each in lines_of(page_found.items, for_page(monolith, credentials))]
            if page_found
            else []
        )
        start = page_found.offset if page_found else 0
        return shown(
            request,
            t,
            "gallery.html",
            400 if mistakes else 200,
            own=own,
            tenant=own.code,
            asked=parameters,
            is_narrowed=bool(parameters.keys() - {"lang"}),
            everything=_address({"lang": parameters.get("lang", "")}),
            wrong=[t.mistake(each, _LABELS) for each in mistakes],
            filters=list(_filters(t, parameters)),
            states=_STATES,
            keys=_keys(own),
            sides=sides,
            start=start,
            newer=_address(parameters, offset=max(0, start - AT_ONCE)) if start else None,
            older=_address(parameters, offset=start + AT_ONCE) if page_found and page_found.has_more else None,
            exports={each.upper(): _export_of(parameters, each) for each in ExportFormat},
        )

    return answered(monolith, credentials, request, page)


@router.get("/snaps/export", response_class=StreamingResponse)
def export_found(
    monolith: MonolithDep,
    credentials: Presented,
    places: Placed,
    request: Request,
    form: Annotated[ExportFormat, Query(alias="format")] = ExportFormat.CSV,
) -> StreamingResponse:
    """All that the page with the same parameters finds, in a file."""
    asked = _parameters_of(request.query_params)
    criteria = _criteria(asked)
    return exported(
        monolith,
        credentials,
        places,
        form,
        lambda own, window: search.recent(own.db, own.code, window, criteria, nickname=asked.get("nickname")),
    )


# --- what is asked for ------------------------------------------------------------------------------------------


def _parameters_of(query: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the address as they were typed, without empty ones."""
    given = {name: query.get(name, "").strip() for name in (*_LABELS, "offset", "lang")}
    return {name: text for name, text in given.items() if text and (name != "lang" or text in ("en", "pt"))}


def _address(asked: Mapping[str, str], **changed: object) -> str:
    parameters = {name: value for name, value in {**asked, **changed}.items() if value}
    return f"/snaps?{urlencode(parameters)}" if parameters else "/snaps"


def _export_of(asked: Mapping[str, str], form: ExportFormat) -> str:
    parameters = {name: value for name, value in asked.items() if name not in ("offset", "lang")}
    return f"/snaps/export?{urlencode({**parameters, 'format': form.value})}"


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter in force, of those that the page folds away, and the address of the page without it."""

    label: str
    value: str
    without: str


def _filters(t: Language, asked: Mapping[str, str]) -> Iterator[Filter]:
    for names in _FOLDED:
        set_names = [name for name in names if name in asked]
        if not set_names:
            continue
        label, value = t(_LABELS[set_names[0]]), asked[set_names[0]]
        if set_names[0] == "status":
            value = t(next((words for state, words in _STATES.items() if state == value), value))
        if set_names[0] in _OF_FIELD:
            value = " ".join([value, *(f"{t(_LABELS[name])} {asked[name]}" for name in set_names[1:])])
        yield Filter(label, value, _address(asked, **dict.fromkeys(names), offset=None))


def _keys(own: TenantTransaction) -> list[str]:
    """The attributes to filter by: the fields of the templates, without the id, which has its own filter."""
    fields = (field.key for each in templates.every(own.db, own.code) for field in each.fields)
    return [key for key in dict.fromkeys(fields) if key != "id"]


# --- what is found ----------------------------------------------------------------------------------------------


def _page_or_mistakes(own: TenantTransaction, asked: Mapping[str, str]) -> tuple[Page[Snap] | None, tuple[str, ...]]:
    """A page of snaps, or None and what is wrong with the parameters, as `field: reason`."""
    try:
        return _search(own, asked), ()
    except Invalid as error:
        return None, error.details or (error.message,)


def _search(own: TenantTransaction, asked: Mapping[str, str]) -> Page[Snap]:
    """The snaps that match the parameters. Raises Invalid."""
    criteria, window = _criteria(asked), Window(_offset(asked.get("offset", "0")), AT_ONCE)
    return search.recent(own.db, own.code, window, criteria, nickname=asked.get("nickname"))


def _criteria(asked: Mapping[str, str]) -> Criteria:
    """The conditions, without the person's name. Raises Invalid."""
    since, until, status = _day("from", asked), _day("to", asked, days_on=1), _status(asked.get("status"))
    if "attrKey" not in asked and {*_OF_FIELD} & asked.keys():
        raise Invalid("attrKey: is missing")
    if "attrKey" in asked and not {*_OF_FIELD[1:]} & asked.keys():
        raise Invalid("attrKey: what is it, or at least, or at most?")
    return Criteria(
        subject_id=asked.get("subjectId"),
        q=asked.get("q"),
        attr_key=asked.get("attrKey"),
        attr_value=asked.get("attrValue"),
        attr_number=_read_number(asked.get("attrValue", "")),
        attr_min=_number("attrMin", asked),
        attr_max=_number("attrMax", asked),
        status=status,
        since=since,
        until=until,
    )


def _zone(name: str | None) -> tzinfo:
    try:
        return ZoneInfo(name) if name else UTC  # UTC needs no time zone files
    except (ValueError, OSError, LookupError):
        raise Invalid("zone: is no time zone") from None


def _day(name: str, asked: Mapping[str, str], *, days_on: int = 0) -> datetime | None:
    """When the given day, or the day `days_on` later, begins in the reader's time zone, which a script sends; without
    it in UTC."""
    if name not in asked:
        return None
    zone = _zone(asked.get("zone"))
    try:
        day = date.fromisoformat(asked[name]) + timedelta(days=days_on)
        return datetime.combine(day, time(), zone).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Invalid(f"{name}: is no day") from None


def _status(given: str | None) -> SnapStatus | None:
    try:
        return SnapStatus(given) if given else None
    except ValueError:
        raise Invalid("status: is not known") from None


def _number(name: str, asked: Mapping[str, str]) -> float | None:
    if name not in asked:
        return None
    number = _read_number(asked[name])
    if number is None:
        raise Invalid(f"{name}: is no number")
    return number


def _read_number(text: str) -> float | None:
    """The number that a person typed, with a point or, as the pages in Portuguese show it, with a comma."""
    text = text.replace(",", ".")
    return float(text) if re.fullmatch(r"[+-]?[0-9]{1,300}(\.[0-9]{1,300})?", text) else None


def _offset(given: str) -> int:
    if not re.fullmatch("[0-9]{1,7}", given):
        raise Invalid("offset: is no number")
    return int(given)
