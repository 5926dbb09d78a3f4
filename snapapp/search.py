"""Finding snaps: by video, by subject, by who marked them. A list picks its ids through an index, then reads those rows
whole."""

import math
import re
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from snapapp import checks, listing, snaps, subjects
from snapapp.errors import Invalid
from snapapp.listing import FIRST, Order, Page, Window
from snapapp.snaps import Snap, Status

_MOST_WORDS = 8  # of a free text search
_FEW = 5000
_AFTER_ALL = chr(0x10FFFF)  # the last character: `cat` and what begins with it lies before `cat` + this


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """What a search asks for: all of it must hold. An id, an attribute or free text is needed."""

    subject_id: str | None = None
    attr_key: str | None = None
    attr_value: str | None = None  # as it stands in the URL: a text, and a number too where it reads as one
    attr_min: float | None = None
    attr_max: float | None = None
    q: str | None = None
    status: Status | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self._has_range and self.attr_key is None:
            raise Invalid("attrKey: is needed with attrMin or attrMax")
        if (self.attr_key is None) != (self.attr_value is None) and not self._has_range:
            raise Invalid(message="Provide attrKey and attrValue together")
        if self.subject_id is None and self.attr_key is None and self.q is None:
            raise Invalid(message="Provide subjectId or attrKey+attrValue")
        checks.insist(self._flaws())

    @property
    def _has_range(self) -> bool:
        return self.attr_min is not None or self.attr_max is not None

    def _flaws(self) -> dict[str, str | None]:
        texts = {"subjectId": self.subject_id, "attrKey": self.attr_key, "attrValue": self.attr_value, "q": self.q}
        numbers = {"attrMin": self.attr_min, "attrMax": self.attr_max}
        flaws = {
            name: checks.text(text, 1000, shortest=int(name != "attrValue"))
            for name, text in texts.items()
            if text is not None
        }
        flaws |= {name: checks.number(each, -1e300, 1e300) for name, each in numbers.items() if each is not None}
        flaws |= _flaws_of_times(self.since, self.until)
        if self.q is not None and not flaws["q"] and not subjects.words(self.q):
            flaws["q"] = "must hold a letter or a digit"
        return flaws


def _flaws_of_times(since: datetime | None, until: datetime | None) -> dict[str, str | None]:
    return {name: checks.moment(each) for name, each in {"from": since, "to": until}.items() if each is not None}


@dataclass(frozen=True, slots=True)
class VideoSummary:
    """A video in which somebody marked snaps."""

    video_id: UUID
    video_url: str | None
    snap_count: int
    latest_snap_id: UUID
    latest_snap_created_at: datetime


_BY_CREATION = Order(
    {
        "createdAt": "snap.created_at",
        "processedAt": "snap.processed_at",
        "resolvedStartSeconds": "snap.resolved_start_seconds",
        "dataFilmagem": "snap.filmed_at",
        "subjectId": "snap.subject_id",
        "nickname": "snap.nickname_lower",
    },
    default_dir="desc",
    tie="snap.id",
)

_BY_MOMENT = Order(
    {
        "resolvedStartSeconds": "snap.resolved_start_seconds",
        "createdAt": "snap.created_at",
        "processedAt": "snap.processed_at",
        "nickname": "snap.nickname_lower",
    },
    default_dir="asc",
    tie="snap.id",
)

# --- of a video, of a person ------------------------------------------------------------------------

_OF_VIDEO = """
SELECT snap.id FROM snap
 WHERE snap.tenant = %(tenant)s AND snap.video_id = %(video_id)s AND snap.hidden_at IS NULL
   AND (%(nickname)s::text IS NULL OR snap.nickname_lower = lower(%(nickname)s))
 ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s + 1
"""

_MINE = """
SELECT snap.id FROM snap
 WHERE snap.tenant = %(tenant)s AND snap.nickname_lower = lower(%(nickname)s) AND snap.hidden_at IS NULL
 ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s + 1
"""


def of_video(
    db: Connection, tenant: str, video_id: UUID, window: Window = FIRST, *, nickname: str | None = None
) -> Page[Snap]:
    """By moment. A video that is not there has no snaps."""
    if nickname is not None:
        checks.insist({"nickname": checks.text(nickname, 1000)})
    return _page(db, tenant, _OF_VIDEO, _BY_MOMENT, window, {"video_id": video_id, "nickname": nickname})


def mine(db: Connection, tenant: str, nickname: str, window: Window = FIRST) -> Page[Snap]:
    """Newest first."""
    checks.insist({"nickname": checks.text(nickname, 1000)})
    return _page(db, tenant, _MINE, _BY_CREATION, window, {"nickname": nickname})


def _page(
    db: Connection, tenant: str, statement: str, order: Order, window: Window, conditions: Mapping[str, Any]
) -> Page[Snap]:
    by, direction = order.of(window)
    parameters = {"tenant": tenant, "offset": window.offset, "limit": window.limit, **conditions}
    rows = db.exec_driver_sql(statement.format(order=order.sql(by, direction)), parameters)
    ids = listing.page([row[0] for row in rows], window, by, direction)
    return ids.turned(lambda items: snaps.read_many(db, tenant, items))


# --- by subject -------------------------------------------------------------------------------------------------

# Put together of whole conditions, only those that are asked for: one that a null switches off keeps every index out.
_SEARCH = """
SELECT snap.id FROM snap
 WHERE snap.tenant = %(tenant)s AND snap.hidden_at IS NULL
   {conditions}
 ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s + 1
"""

_Condition = tuple[str, dict[str, Any]]

_IS_SUBJECT = "AND snap.subject_id = %(subject_id)s"

_HOW_MANY = "SELECT count(*) FROM ({having} LIMIT %(few)s) AS found"
_IS_ONE_OF_FEW = "AND snap.id = ANY (ARRAY({having}))"
_IS_ONE_OF_MANY = "AND snap.id IN ({having})"

# What is looked for in the tables beside: the snaps that have it.
_WITH_TEXT = """
       SELECT its.snap_id FROM subject_attribute AS its
        WHERE its.tenant = %(tenant)s AND its.key_lower = lower(%(attr_key)s) AND its.text_value IS NOT NULL
          AND its.text_head = left(%(attr_value)s, 200) AND its.text_value = %(attr_value)s"""

_WITH_TEXT_OR_NUMBER = """
       SELECT its.snap_id FROM subject_attribute AS its
        WHERE its.tenant = %(tenant)s AND its.key_lower = lower(%(attr_key)s) AND its.text_value IS NOT NULL
          AND its.text_head = left(%(attr_value)s, 200) AND its.text_value = %(attr_value)s
    UNION ALL
       SELECT its.snap_id FROM subject_attribute AS its
        WHERE its.tenant = %(tenant)s AND its.key_lower = lower(%(attr_key)s) AND its.number_value IS NOT NULL
          AND its.number_value = %(number)s"""

_WITHIN_RANGE = """
       SELECT its.snap_id FROM subject_attribute AS its
        WHERE its.tenant = %(tenant)s AND its.key_lower = lower(%(attr_key)s) AND its.number_value IS NOT NULL
          AND its.number_value BETWEEN %(attr_min)s AND %(attr_max)s"""

_WITH_WORD = """
       SELECT its.snap_id FROM subject_word AS its
        WHERE its.tenant = %(tenant)s AND its.word >= %(word)s AND its.word < %(word_end)s"""

_WITH_WORDS_TOO = """AND NOT EXISTS (
       SELECT FROM unnest(%(words)s::text[], %(word_ends)s::text[]) AS wanted (low, high)
        WHERE NOT EXISTS (SELECT FROM subject_word AS its
                           WHERE its.tenant = %(tenant)s AND its.snap_id = snap.id
                             AND its.word >= wanted.low AND its.word < wanted.high))"""

_IS_PENDING = "AND snap.ended IS NULL"
_IS_COMPLETED = "AND snap.ended = 'COMPLETED'"
_IS_FAILED = "AND snap.ended IN ('FAILED', 'CANCELLED')"
_STATUS = {Status.PENDING: _IS_PENDING, Status.COMPLETED: _IS_COMPLETED, Status.FAILED: _IS_FAILED}

_SINCE = "AND snap.created_at >= %(since)s"
_UNTIL = "AND snap.created_at < %(until)s"


def by_subject(db: Connection, tenant: str, criteria: Criteria, window: Window = FIRST) -> Page[Snap]:
    """Newest first."""
    conditions = [*_about(criteria), *_when(criteria.status, criteria.since, criteria.until)]
    conditions += [_among(db, {"tenant": tenant, **its}, having) for having, its in _beside(criteria)]
    return _search(db, tenant, conditions, window)


def recent(
    db: Connection,
    tenant: str,
    window: Window = FIRST,
    *,
    status: Status | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Page[Snap]:
    """All of a tenant's, newest first."""
    checks.insist(_flaws_of_times(since, until))
    return _search(db, tenant, list(_when(status, since, until)), window)


def _search(db: Connection, tenant: str, conditions: Sequence[_Condition], window: Window) -> Page[Snap]:
    statement = _SEARCH.replace("{conditions}", "\n   ".join(condition for condition, _ in conditions))
    parameters = ChainMap(*(its for _, its in conditions))
    return _page(db, tenant, statement, _BY_CREATION, window, parameters)


def _among(db: Connection, parameters: dict[str, Any], having: str) -> _Condition:
    """Few are all looked up and then sorted. Many are met soon by walking through the newest snaps; left to itself,
    PostgreSQL walks for few as well, and past all others where those few are old."""
    [(found,)] = db.exec_driver_sql(_HOW_MANY.replace("{having}", having), parameters | {"few": _FEW}).fetchall()
    return (_IS_ONE_OF_FEW if found < _FEW else _IS_ONE_OF_MANY).replace("{having}", having), parameters


def _about(criteria: Criteria) -> Iterator[_Condition]:
    if criteria.subject_id is not None:
        yield _IS_SUBJECT, {"subject_id": criteria.subject_id}
    if criteria.q is not None:
        yield _WITH_WORDS_TOO, _words(criteria.q)


def _beside(criteria: Criteria) -> Iterator[_Condition]:
    if criteria.attr_value is not None:
        number = _as_number(criteria.attr_value)
        its = {"attr_key": criteria.attr_key, "attr_value": criteria.attr_value, "number": number}
        yield (_WITH_TEXT if number is None else _WITH_TEXT_OR_NUMBER), its
    if criteria.attr_min is not None or criteria.attr_max is not None:
        yield _WITHIN_RANGE, {"attr_key": criteria.attr_key} | _range(criteria)
    if criteria.q is not None:
        yield _WITH_WORD, _words(criteria.q)


def _when(status: Status | None, since: datetime | None, until: datetime | None) -> Iterator[_Condition]:
    if status is not None:
        yield _STATUS[status], {}
    if since is not None:
        yield _SINCE, {"since": since}
    if until is not None:
        yield _UNTIL, {"until": until}


def _as_number(text: str) -> float | None:
    """Only as numbers are written: float() would take "nan", "1_000" and "٣"."""
    if not re.fullmatch(r"[+-]?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?", text.strip()):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _range(criteria: Criteria) -> dict[str, float]:
    low = -math.inf if criteria.attr_min is None else float(criteria.attr_min)
    high = math.inf if criteria.attr_max is None else float(criteria.attr_max)
    return {"attr_min": low, "attr_max": high}


def _words(q: str) -> dict[str, Any]:
    wanted = sorted(subjects.words(q), key=len, reverse=True)[:_MOST_WORDS]
    ends = [word + _AFTER_ALL for word in wanted]
    return {"word": wanted[0], "word_end": ends[0], "words": wanted[1:], "word_ends": ends[1:]}


# --- the videos somebody marked ---------------------------------------------------------------------------------

_VIDEOS_MINE = """
WITH its AS (
    SELECT marked.video_id, video.url AS video_url, marked.snap_count, marked.latest_at
      FROM (SELECT video_id, count(*) AS snap_count, max(created_at) AS latest_at FROM snap
             WHERE tenant = %(tenant)s AND nickname_lower = lower(%(nickname)s) AND hidden_at IS NULL
             GROUP BY video_id) AS marked
      JOIN video ON video.tenant = %(tenant)s AND video.id = marked.video_id
), shown AS MATERIALIZED (
    SELECT its.* FROM its ORDER BY {order} OFFSET %(offset)s LIMIT %(limit)s + 1
)
SELECT its.video_id, its.video_url, its.snap_count, latest.id, its.latest_at
  FROM shown AS its
 CROSS JOIN LATERAL (
      SELECT id FROM snap
       WHERE tenant = %(tenant)s AND nickname_lower = lower(%(nickname)s) AND video_id = its.video_id
         AND hidden_at IS NULL
       ORDER BY created_at DESC, id DESC LIMIT 1) AS latest
 ORDER BY {order}
"""

_OF_VIDEOS = Order(
    {"latestSnapCreatedAt": "its.latest_at", "snapCount": "its.snap_count", "videoUrl": "its.video_url"},
    default_dir="desc",
    tie="its.video_id",
)


def videos_mine(db: Connection, tenant: str, nickname: str, window: Window = FIRST) -> Page[VideoSummary]:
    """The one marked last comes first."""
    checks.insist({"nickname": checks.text(nickname, 1000)})
    by, direction = _OF_VIDEOS.of(window)
    statement = _VIDEOS_MINE.format(order=_OF_VIDEOS.sql(by, direction))
    parameters = {"tenant": tenant, "nickname": nickname, "offset": window.offset, "limit": window.limit}
    rows = db.exec_driver_sql(statement, parameters).fetchall()
    return listing.page([VideoSummary(*row) for row in rows], window, by, direction)
