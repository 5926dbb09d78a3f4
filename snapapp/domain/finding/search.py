"""Finds snaps by video, by subject and by the person who marked them. A first query picks the ids of a page through an
index, a second reads those rows whole."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, CompoundSelect, Select, and_, any_, exists, func, select, union_all
from sqlalchemy.orm import Session

from snapapp.domain import snaps
from snapapp.domain.finding.paging import FIRST, Order, Page, Window
from snapapp.domain.rules import subjects, validation
from snapapp.domain.rules.texts import composed
from snapapp.domain.tables import Ended, Snap, SnapStatus, SubjectAttribute, SubjectWord, Video
from snapapp.errors import Invalid

Condition = ColumnElement[bool]
SnapIds = Select[UUID] | CompoundSelect[UUID]

_MOST_WORDS = 8  # of a free text search; further words are ignored
_FEW = 5000  # matches up to which ids are looked up first and sorted then
_AFTER_ALL = chr(0x10FFFF)  # Unicode's last character: every word that begins with `cat` sorts before `cat` + this


@dataclass(frozen=True, slots=True, kw_only=True)
class Criteria:
    """The conditions of a search, all of which a snap must meet."""

    subject_id: str | None = None
    attr_key: str | None = None
    attr_value: str | None = None  # the URL's text, compared as a number too where it is one
    attr_number: float | None = None  # that number, where people may write it in their own way, as in 412,5
    attr_min: float | None = None
    attr_max: float | None = None
    q: str | None = None
    status: SnapStatus | None = None
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if self._has_range and self.attr_key is None:
            raise Invalid("attrKey: is needed with attrMin or attrMax")
        if (self.attr_key is None) != (self.attr_value is None) and not self._has_range:
            raise Invalid(message="Provide attrKey and attrValue together")
        validation.insist(self._flaws())

    @property
    def names_a_subject(self) -> bool:
        return not (self.subject_id is None and self.attr_key is None and self.q is None)

    @property
    def _has_range(self) -> bool:
        return self.attr_min is not None or self.attr_max is not None

    def _flaws(self) -> dict[str, str | None]:
        texts = {"subjectId": self.subject_id, "attrKey": self.attr_key, "attrValue": self.attr_value, "q": self.q}
        numbers = {"attrMin": self.attr_min, "attrMax": self.attr_max}
        flaws = {
            name: validation.text(text, 1000, shortest=int(name != "attrValue"))
            for name, text in texts.items()
            if text is not None
        }
        flaws |= {name: validation.number(each, -1e300, 1e300) for name, each in numbers.items() if each is not None}
        times = {"from": self.since, "to": self.until}
        flaws |= {name: validation.moment(each) for name, each in times.items() if each is not None}
        if self.q is not None and not flaws["q"] and not subjects.words(self.q):
            flaws["q"] = "must hold a letter or a digit"
        return flaws


ANY = Criteria()


@dataclass(frozen=True, slots=True)
class VideoSummary:
    """A video in which a person marked snaps."""

    video_id: UUID
    video_url: str | None
    snap_count: int
    latest_snap_id: UUID
    latest_snap_created_at: datetime


BY_CREATION = Order(
    {
        "createdAt": Snap.created_at,
        "processedAt": Snap.processed_at,
        "resolvedStartSeconds": Snap.resolved_start_seconds,
        "dataFilmagem": Snap.filmed_at,
        "subjectId": Snap.subject_id,
        "nickname": Snap.nickname_lower,
    },
    default_dir="desc",
    tie=Snap.id,
)

BY_MOMENT = Order(
    {
        "resolvedStartSeconds": Snap.resolved_start_seconds,
        "createdAt": Snap.created_at,
        "processedAt": Snap.processed_at,
        "nickname": Snap.nickname_lower,
    },
    default_dir="asc",
    tie=Snap.id,
)

# --- by video ---------------------------------------------------------------------------------------------------


def of_video(
    db: Session, tenant: str, video_id: UUID, window: Window = FIRST, *, nickname: str | None = None
) -> Page[Snap]:
    """The snaps of a video, ordered by moment; empty where there is no such video."""
    return _page(db, tenant, [Snap.video_id == video_id, *_marked_by(nickname)], BY_MOMENT, window)


def _marked_by(nickname: str | None) -> list[Condition]:
    if nickname is None:
        return []
    validation.insist({"nickname": validation.text(nickname, 1000)})
    return [Snap.nickname_lower == func.lower(composed(nickname))]


def _page(db: Session, tenant: str, conditions: Iterable[Condition], order: Order, window: Window) -> Page[Snap]:
    """One page of the snaps that meet the conditions. Only conditions that were asked for are in the statement: with a
    condition that a null switches off, PostgreSQL would use no index."""
    wanted = select(Snap.id).where(Snap.tenant == tenant, Snap.hidden_at.is_(None), *conditions)
    ids = order.page(db.scalars(order.cut(wanted, window)).all(), window)
    return ids.turned(lambda items: snaps.read_many(db, tenant, items))


# --- by subject -------------------------------------------------------------------------------------------------


def by_subject(
    db: Session, tenant: str, criteria: Criteria, window: Window = FIRST, *, nickname: str | None = None
) -> Page[Snap]:
    """The snaps of a subject, newest first. The criteria must have an id, an attribute or free text."""
    if not criteria.names_a_subject:
        raise Invalid(message="Provide subjectId or attrKey+attrValue")
    return recent(db, tenant, window, criteria, nickname=nickname)


def recent(
    db: Session,
    tenant: str,
    window: Window = FIRST,
    criteria: Criteria = ANY,
    *,
    nickname: str | None = None,
    video_id: UUID | None = None,
) -> Page[Snap]:
    """The snaps of a tenant that meet the criteria, newest first."""
    conditions = [*_subject_conditions(tenant, criteria), *_in_state_and_time(criteria), *_marked_by(nickname)]
    if video_id is not None:
        conditions.append(Snap.video_id == video_id)
    conditions += [_is_among(db, ids) for ids in _matching_ids(tenant, criteria)]
    return _page(db, tenant, conditions, BY_CREATION, window)


def _is_among(db: Session, ids: SnapIds) -> Condition:
    """The condition that a snap is among the rows of `ids`. Few matches are looked up by id and then sorted. For
    many matches a walk through the newest snaps fills a page sooner. PostgreSQL by itself would also walk for few
    matches, and through all snaps where the few are old."""
    matches = db.scalar(select(func.count()).select_from(ids.limit(_FEW).subquery())) or 0
    return Snap.id == any_(func.array(ids.scalar_subquery())) if matches < _FEW else Snap.id.in_(ids)


def _subject_conditions(tenant: str, criteria: Criteria) -> Iterator[Condition]:
    """The subject's id, and all words but the first, which `_matching_ids` looks up."""
    if criteria.subject_id is not None:
        yield Snap.subject_id == composed(criteria.subject_id)
    for word in _words(criteria.q)[1:]:
        yield exists().where(*_word_begins(tenant, word), SubjectWord.snap_id == Snap.id)


def _matching_ids(tenant: str, criteria: Criteria) -> Iterator[SnapIds]:
    """Queries on the tables of attributes and words; each yields the ids of the snaps that match."""
    attribute = select(SubjectAttribute.snap_id).where(
        SubjectAttribute.tenant == tenant,
        SubjectAttribute.key_lower == func.lower(composed(criteria.attr_key or "")),
    )
    if criteria.attr_value is not None:
        text, number = _has_text(composed(criteria.attr_value)), criteria.attr_number
        number = _as_number(criteria.attr_value) if number is None else number
        same = attribute.where(text)
        yield same if number is None else union_all(same, attribute.where(_has_number_between(number, number)))
    if criteria.attr_min is not None or criteria.attr_max is not None:
        yield attribute.where(_has_number_between(criteria.attr_min, criteria.attr_max))
    for word in _words(criteria.q)[:1]:
        yield select(SubjectWord.snap_id).where(*_word_begins(tenant, word))


def _has_text(value: str) -> Condition:
    """Compares the first 200 characters, which the index holds, and then the whole text."""
    attribute = SubjectAttribute
    return and_(
        attribute.text_value.is_not(None), attribute.text_head == func.left(value, 200), attribute.text_value == value
    )


def _has_number_between(low: float | None, high: float | None) -> Condition:
    number = SubjectAttribute.number_value
    bounds = (-math.inf if low is None else float(low), math.inf if high is None else float(high))
    return and_(number.is_not(None), number.between(*bounds))


def _word_begins(tenant: str, word: str) -> tuple[Condition, ...]:
    return SubjectWord.tenant == tenant, SubjectWord.word >= word, SubjectWord.word < word + _AFTER_ALL


_HAS_STATUS: Mapping[SnapStatus, Condition] = {
    SnapStatus.PENDING: Snap.ended.is_(None),
    SnapStatus.COMPLETED: Snap.ended == Ended.COMPLETED,
    SnapStatus.FAILED: Snap.ended.in_([Ended.FAILED, Ended.CANCELLED]),
}


def _in_state_and_time(criteria: Criteria) -> Iterator[Condition]:
    if criteria.status is not None:
        yield _HAS_STATUS[criteria.status]
    if criteria.since is not None:
        yield Snap.created_at >= criteria.since
    if criteria.until is not None:
        yield Snap.created_at < criteria.until


def _as_number(text: str) -> float | None:
    """The number that the text is, in plain notation; float() alone would accept "nan", "1_000" and "٣"."""
    if not re.fullmatch(r"[+-]?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?", text.strip()):
        return None
    number = float(text)
    return number if math.isfinite(number) else None


def _words(q: str | None) -> list[str]:
    """The words of a free text, the longest first, because the fewest snaps have it."""
    return sorted(subjects.words(q or ""), key=len, reverse=True)[:_MOST_WORDS]


# --- the videos that a person marked ----------------------------------------------------------------------------


def videos_mine(db: Session, tenant: str, nickname: str, window: Window = FIRST) -> Page[VideoSummary]:
    """The videos in which a person marked snaps; the video that was marked last comes first."""
    is_mine = and_(Snap.tenant == tenant, *_marked_by(nickname), Snap.hidden_at.is_(None))
    marked = (
        select(Snap.video_id, func.count().label("snap_count"), func.max(Snap.created_at).label("latest_at"))
        .where(is_mine)
        .group_by(Snap.video_id)
        .subquery("marked")
    )
    # PostgreSQL computes this subquery after sort and limit, so only for the videos on the page
    latest = select(Snap.id).where(is_mine, Snap.video_id == marked.c.video_id)
    latest = latest.order_by(Snap.created_at.desc(), Snap.id.desc()).limit(1)
    summaries = (
        select(
            marked.c.video_id,
            Video.url.label("video_url"),
            marked.c.snap_count,
            latest.scalar_subquery().label("latest_snap_id"),
            marked.c.latest_at.label("latest_snap_created_at"),
        )
        .join(Video, Video.id == marked.c.video_id)
        .where(Video.tenant == tenant)
    )
    order = Order(
        {"latestSnapCreatedAt": marked.c.latest_at, "snapCount": marked.c.snap_count, "videoUrl": Video.url},
        default_dir="desc",
        tie=marked.c.video_id,
    )
    rows = db.execute(order.cut(summaries, window)).all()
    return order.page([VideoSummary(**row._mapping) for row in rows], window)
