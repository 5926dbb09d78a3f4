"""Snaps: marked moments, the evidence made of them, their corrections and their removal."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Boolean, Text, Update, Uuid, any_, bindparam, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import ARRAY, JSONPATH, insert
from sqlalchemy.orm import Session, aliased, contains_eager
from sqlalchemy.orm.attributes import set_committed_value

from snapapp.domain import templates, videos
from snapapp.domain.finding import subject_index
from snapapp.domain.rules import snaps as snap_rules
from snapapp.domain.rules import validation
from snapapp.domain.rules.snaps import INSTANT_SECONDS, NICKNAME_LONGEST
from snapapp.domain.rules.subjects import Subject
from snapapp.domain.tables import Correction, Ended, Kind, Operator, Snap, SnapJob, Video
from snapapp.errors import SnapIsShared, SnapNotFound

ERROR_LONGEST = 4000


class Removal(StrEnum):
    DELETED = "DELETED"
    HIDDEN = "HIDDEN"  # the snap was shared, so its links keep working


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnap:
    """A moment as a client marked it, with every default filled in. The API's schema has checked its values; what no
    row may hold, the table refuses."""

    video_id: UUID | None = None
    video_url: str | None = None
    template_id: int | None = None  # None: the tenant's default
    nickname: str
    email: str
    subject: Subject
    filmed_at: datetime | None = None
    start_seconds: float | None = None
    start_frame: int | None = None
    duration_seconds: float
    clip_seconds: float
    fps: int = snap_rules.DEFAULT_FPS
    max_width: int = snap_rules.DEFAULT_MAX_WIDTH
    format: str = snap_rules.DEFAULT_FORMAT.value
    quality: int | None = snap_rules.DEFAULT_QUALITY
    overlay: Mapping[str, Any] | None = None
    is_draft: bool = False
    request_id: str | None = None
    id: UUID = field(default_factory=uuid4)

    @property
    def kind(self) -> Kind:
        return Kind.INSTANT if max(self.duration_seconds, self.clip_seconds) <= INSTANT_SECONDS else Kind.INTERVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What processing made of a snap: values for JSON columns, and the prefix of the files in the storage."""

    probe: Mapping[str, Any]
    resolved_start_seconds: float
    frames: Sequence[Mapping[str, Any]]
    clip: Mapping[str, Any] | None
    extras: Mapping[str, Any]
    media_prefix: str


def bytes_of(extras: Mapping[str, Any]) -> int:
    """The size of all files that `extras` names."""
    return sum(artefact.get("size_bytes", 0) for artefact in extras.get("artefacts", ()))


# --- marking ----------------------------------------------------------------------------------------------------

_SAME_NAMES = (  # of fields of NewSnap and columns
    *("id", "nickname", "email", "kind", "is_draft", "filmed_at", "start_seconds", "start_frame", "duration_seconds"),
    *("clip_seconds", "fps", "max_width", "format", "quality", "overlay", "request_id"),
)
_ADD = insert(Snap).returning(Snap)  # the row as it is stored, without what a SELECT reads of other tables


def create(db: Session, tenant: str, new: NewSnap) -> tuple[Snap, Video]:
    """Creates a snap, and the video where its URL is new. The caller enqueues the snap's job in the same
    transaction."""
    video = videos.resolve(db, tenant, video_id=new.video_id, video_url=new.video_url)
    template = templates.resolve(db, tenant, new.template_id)
    if not new.is_draft:
        validation.insist({}, templates.violations(template, new.subject))
    subject = _with_id(new.subject, new.id)
    row = {
        "tenant": tenant,
        "video_id": video.id,
        "operator_id": _operator_id(db, tenant, new),
        "template_id": template.id,
        "subject_id": subject.id,
        "subject": subject,
    } | {name: getattr(new, name) for name in _SAME_NAMES}
    snap = db.scalars(_ADD, row).one()
    set_committed_value(snap, "is_shared", False)
    set_committed_value(snap, "video_url", video.url)
    subject_index.write(db, tenant, new.id, subject)
    return snap, video


def with_job(snap: Snap, job: SnapJob) -> Snap:
    """The snap that was just created, with the job that was enqueued for it."""
    set_committed_value(snap, "job", job)
    return snap


def _with_id(subject: Subject, snap_id: UUID) -> Subject:
    return Subject(subject.id or str(snap_id), subject.attributes)


_KNOWN = select(Operator.id).where(
    Operator.tenant == bindparam("tenant"),
    Operator.email_lower == func.lower(bindparam("email")),
    or_(Operator.nickname == bindparam("nickname"), Operator.role.is_not(None)),
)


def _operator_id(db: Session, tenant: str, new: NewSnap) -> int:
    """The id of the operator with this e-mail; the last nickname wins, but not over the name of one who signs in. The
    row is written only when something changed: otherwise snaps that one operator marks at the same time would wait for
    each other's commit."""
    who = {"tenant": tenant, "email": new.email, "nickname": new.nickname}
    operator_id = db.scalar(_KNOWN, who)
    if operator_id is not None:
        return operator_id
    upsert = insert(Operator).values(**who)
    changes = {"email": upsert.excluded.email, "nickname": upsert.excluded.nickname, "updated_at": func.now()}
    upsert = upsert.on_conflict_do_update(
        index_elements=[Operator.tenant, Operator.email_lower], set_=changes, where=Operator.role.is_(None)
    )
    added = db.scalar(upsert.returning(Operator.id))
    return added or db.scalars(_KNOWN, who).one()  # they got their link while the upsert waited


# --- reading ----------------------------------------------------------------------------------------------------

_JOB = aliased(SnapJob, select(SnapJob).where(SnapJob.snap_id == Snap.id).limit(1).lateral("job"))
_READ = (
    select(Snap)
    # The condition makes the alias's columns now: two threads that were first at once would each make their own.
    .outerjoin(_JOB, _JOB.snap_id == Snap.id)
    .options(contains_eager(Snap.job.of_type(_JOB)))
    .execution_options(populate_existing=True)  # reads the row anew: the snap's job changes it too
    .where(Snap.tenant == bindparam("tenant"), Snap.hidden_at.is_(None) | bindparam("hidden_too", type_=Boolean))
)
_READ_ONE = _READ.where(Snap.id == bindparam("id"))
_READ_MANY = _READ.where(Snap.id == any_(bindparam("ids", type_=ARRAY(Uuid))))


def read(db: Session, tenant: str, snap_id: UUID, *, hidden_too: bool = False) -> Snap:
    snap = db.scalar(_READ_ONE, {"tenant": tenant, "id": snap_id, "hidden_too": hidden_too})
    if snap is None:
        raise SnapNotFound(snap_id)
    return snap


def read_many(db: Session, tenant: str, ids: Sequence[UUID], *, hidden_too: bool = False) -> list[Snap]:
    """The snaps in the order of `ids`, without those that do not exist or are another tenant's."""
    rows = db.scalars(_READ_MANY, {"tenant": tenant, "ids": list(ids), "hidden_too": hidden_too})
    by_id = {snap.id: snap for snap in rows}
    return [by_id[snap_id] for snap_id in ids if snap_id in by_id]


# --- how processing ended ---------------------------------------------------------------------------------------


def lock(db: Session, tenant: str, snap_id: UUID) -> None:
    """Locks the snap's row. Callers do so in a statement of its own before they ask whether the snap was shared,
    because a statement that waits for a lock still sees the other tables as they were before the wait."""
    db.execute(select(Snap.id).where(Snap.tenant == tenant, Snap.id == snap_id).with_for_update())


def complete(db: Session, tenant: str, snap_id: UUID, evidence: Evidence) -> bool:
    """Publishes the evidence. Returns False, and publishes nothing, where the snap is gone, or complete and shared:
    shared evidence never changes, even if the snap is processed again."""
    lock(db, tenant, snap_id)
    is_final = Snap.ended.is_not_distinct_from(Ended.COMPLETED) & Snap.is_shared
    return _change(
        db,
        _of(tenant, snap_id).where(~is_final),
        ended=Ended.COMPLETED,
        ended_error=None,
        cancelled_by=None,
        processed_at=func.clock_timestamp(),
        frame_count=len(evidence.frames),
        media_bytes=bytes_of(evidence.extras),
        **asdict(evidence),
    )


def fail(db: Session, tenant: str, snap_id: UUID, error: str) -> bool:
    """Ends the snap as failed, with a reason for people instead of the job's error. A completed snap keeps its
    evidence."""
    return _change(
        db,
        _of(tenant, snap_id).where(Snap.ended.is_distinct_from(Ended.COMPLETED)),
        ended=Ended.FAILED,
        ended_error=storable(error),
        processed_at=func.coalesce(Snap.processed_at, func.clock_timestamp()),
    )


def note_cancel(db: Session, tenant: str, snap_id: UUID, by: str) -> None:
    """Notes who cancels the snap, before its job is cancelled: the snap's error will name them."""
    waiting = _of(tenant, snap_id).where(Snap.hidden_at.is_(None), Snap.ended.is_(None))
    _change(db, waiting, cancelled_by=storable(by)[:NICKNAME_LONGEST])


def _of(tenant: str, snap_id: UUID) -> Update:
    return update(Snap).where(Snap.tenant == tenant, Snap.id == snap_id)


def _change(db: Session, which: Update, **values: Any) -> bool:
    """Changes the snap in one statement, whose conditions decide whether it may change; returns whether it did."""
    return db.scalar(which.values(**values).returning(Snap.id)) is not None


def storable(text: str) -> str:
    """An error, or a name, as a column can hold it."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_LONGEST]


# --- corrections ------------------------------------------------------------------------------------------------


def correct(
    db: Session,
    tenant: str,
    snap_id: UUID,
    subject: Subject | None,
    filmed_at: datetime | None = None,
    *,
    by: str,
    operator: Operator | None = None,
) -> Snap:
    """Changes the subject or the filming date of a snap that was never shared, and records the old values, and the
    operator if one was signed in. None keeps a value. A new subject ends a snap's being a draft, a new date does
    not."""
    snap = locked(db, tenant, snap_id)
    if snap.is_shared:
        raise SnapIsShared(snap_id)
    before = _correctable(snap, with_date=filmed_at is not None)
    if subject is not None:
        _describe(db, tenant, snap, subject)
    if filmed_at is not None:
        snap.filmed_at = filmed_at
    after = _correctable(snap, with_date=filmed_at is not None)
    operator_id = operator.id if operator else None
    db.add(Correction(tenant=tenant, snap_id=snap_id, by=by, operator_id=operator_id, before=before, after=after))
    db.flush()
    return read(db, tenant, snap_id)


def _correctable(snap: Snap, *, with_date: bool) -> dict[str, Any]:
    """What a correction records: the subject, and the filming date where it is corrected."""
    filmed = snap.filmed_at.astimezone(UTC).isoformat() if snap.filmed_at else None
    return snap.subject.as_json() | ({"dataFilmagem": filmed} if with_date else {})


def _describe(db: Session, tenant: str, snap: Snap, subject: Subject) -> None:
    validation.insist({}, templates.violations(templates.read(db, tenant, snap.template_id), subject))
    subject = _with_id(subject, snap.id)
    assert subject.id
    snap.subject_id, snap.subject, snap.is_draft = subject.id, subject, False
    db.flush()
    subject_index.write_anew(db, tenant, snap.id, subject)


def locked(db: Session, tenant: str, snap_id: UUID) -> Snap:
    """The snap, to be changed: no other transaction changes or shares it until this one ends."""
    lock(db, tenant, snap_id)
    return read(db, tenant, snap_id)


def corrections(db: Session, tenant: str, snap_id: UUID) -> Sequence[Correction]:
    """The corrections of a snap, oldest first."""
    of_snap = select(Correction).where(Correction.tenant == tenant, Correction.snap_id == snap_id)
    return db.scalars(of_snap.order_by(Correction.id)).all()


# --- removing ---------------------------------------------------------------------------------------------------


def remove(db: Session, tenant: str, snap_id: UUID) -> Removal:
    """Deletes the snap, or only hides it where it was ever shared. The caller removes the files of a deleted snap."""
    snap = locked(db, tenant, snap_id)
    if snap.is_shared:
        snap.hidden_at = func.now()
        removal = Removal.HIDDEN
    else:
        db.delete(snap)
        removal = Removal.DELETED
    db.flush()
    return removal


# --- files ------------------------------------------------------------------------------------------------------


def published(db: Session, tenant: str, after: UUID, at_most: int) -> list[tuple[UUID, str, frozenset[str]]]:
    """Snaps with files, ordered by id, beginning after `after`: each one's id, its prefix, and the file names that must
    be below the prefix."""
    names = func.jsonb_path_query_array(Snap.extras, literal("$.artefacts[*].file_name", JSONPATH))
    with_files = select(Snap.id, Snap.media_prefix, names.label("names")).where(
        Snap.tenant == tenant, Snap.media_prefix.is_not(None), Snap.id > after
    )
    rows = db.execute(with_files.order_by(Snap.id).limit(at_most))
    return [(row.id, row.media_prefix or "", frozenset(row.names)) for row in rows]


def named(db: Session, tenant: str, prefixes: Collection[str]) -> set[str]:
    """Those of the prefixes that belong to snaps."""
    known = select(Snap.media_prefix).where(Snap.tenant == tenant, Snap.media_prefix.in_(prefixes))
    return {prefix for prefix in db.scalars(known) if prefix}


def existing(db: Session, tenant: str, ids: Collection[UUID]) -> set[UUID]:
    """Those of the ids that are of snaps."""
    return set(db.scalars(select(Snap.id).where(Snap.tenant == tenant, Snap.id.in_(ids))))


def expire(db: Session, tenant: str, before: datetime, at_most: int) -> list[str]:
    """Takes the files from the rows of snaps that were processed before `before` and never shared. Returns their
    prefixes; the caller deletes the objects below them after the commit. The hash of each file stays in the row, so
    that a copy kept elsewhere can still be proven."""
    expired = select(Snap.id, Snap.media_prefix).where(
        Snap.tenant == tenant, Snap.media_prefix.is_not(None), Snap.processed_at < before, ~Snap.is_shared
    )
    too_old = {row.id: row.media_prefix for row in db.execute(expired.limit(at_most).with_for_update(skip_locked=True))}
    # Asks again whether the snap was shared, in a statement that begins after the rows are locked: the statement that
    # locks them may not see a link that was committed while it waited.
    without_files = update(Snap).where(Snap.tenant == tenant, Snap.id.in_(list(too_old)), ~Snap.is_shared)
    without_pictures = Snap.extras.op("-")(literal(["poster", "thumbnail"], ARRAY(Text)))
    without_files = without_files.values(
        media_prefix=None, media_bytes=0, frames=[], frame_count=0, clip=None, extras=without_pictures
    )
    return [too_old[snap_id] for snap_id in db.scalars(without_files.returning(Snap.id))]
