"""Snaps: marked moments, the evidence made of them, and what may still be done to one."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Connection

from snapapp import checks, templates
from snapapp.errors import Invalid, KeyReused, SnapIsShared, SnapNotFound
from snapapp.subjects import Subject
from snapapp.templates import Template

NICKNAME_LONGEST, EMAIL_LONGEST, ERROR_LONGEST, KEY_LONGEST = 120, 320, 4000, 200
LONGEST_SECONDS = 5
_LATEST_SECOND, _LATEST_FRAME = 10_000_000, 10_000_000_000
_JSON_CAP = 16_384  # of an overlay


class Kind(StrEnum):
    INSTANT = "INSTANT"
    INTERVAL = "INTERVAL"


class Status(StrEnum):
    """As people see it; the finer state is the job's."""

    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Ended(StrEnum):
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


class Removal(StrEnum):
    DELETED = "DELETED"
    HIDDEN = "HIDDEN"  # it was shared: its links go on


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnap:
    """A moment as it was marked, with everything that was left out filled in."""

    video_id: UUID
    template: Template
    nickname: str
    email: str
    subject: Subject
    filmed_at: datetime | None = None
    start_seconds: float | None = None
    start_frame: int | None = None
    duration_seconds: float
    clip_seconds: float
    fps: int = 5
    max_width: int = 1280
    format: str = "jpg"
    quality: int | None = 3
    overlay: Mapping[str, Any] | None = None
    is_draft: bool = False
    request_id: str | None = None
    id: UUID = field(default_factory=uuid4)

    def __post_init__(self) -> None:
        if self.start_seconds is None and self.start_frame is None:
            raise Invalid(message="Provide at least one of startSeconds or startFrame")
        checks.insist(self._flaws(), [] if self.is_draft else templates.violations(self.template, self.subject))

    def _flaws(self) -> dict[str, str | None]:
        return {
            "nickname": checks.text(self.nickname, NICKNAME_LONGEST),
            "email": checks.text(self.email, EMAIL_LONGEST),
            "dataFilmagem": None if self.filmed_at is None else checks.moment(self.filmed_at),
            "startSeconds": None
            if self.start_seconds is None
            else checks.number(self.start_seconds, 0, _LATEST_SECOND),
            "startFrame": None if self.start_frame is None else checks.whole(self.start_frame, 0, _LATEST_FRAME),
            "durationSeconds": checks.number(self.duration_seconds, 0, LONGEST_SECONDS),
            "snapshotDurationSeconds": checks.number(self.clip_seconds, 0, LONGEST_SECONDS),
            "fps": checks.whole(self.fps, 1, 10),
            "maxWidth": checks.whole(self.max_width, 320, 1280),
            "format": None if self.format in ("jpg", "png") else "must be jpg or png",
            "quality": self._flaw_of_quality(),
            "overlay": _flaw_of_json(self.overlay),
            "requestId": None if self.request_id is None else checks.text(self.request_id, 200, shortest=0),
        }

    def _flaw_of_quality(self) -> str | None:
        if self.format == "png":
            return None if self.quality is None else "is not for png"
        return checks.whole(self.quality, 2, 10)

    @property
    def kind(self) -> Kind:
        return Kind.INSTANT if max(self.duration_seconds, self.clip_seconds) <= 1 else Kind.INTERVAL


def _flaw_of_json(value: Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "must be JSON"
    if len(text) > _JSON_CAP:
        return f"must have at most {_JSON_CAP} characters"
    return (
        None
        if checks.is_storable(json.dumps(value, ensure_ascii=False)) and "\\u0000" not in text
        else ("holds a character that cannot be stored")
    )


@dataclass(frozen=True, slots=True)
class SnapJob:
    """What works for a snap, as far as its tenant may see it."""

    id: int
    status: str
    attempts: int
    max_attempts: int
    next_run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    progress: Any
    cancel_requested_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Snap:
    id: UUID
    video_id: UUID
    video_url: str | None
    template_id: int
    nickname: str
    email: str
    kind: Kind
    is_draft: bool
    filmed_at: datetime | None
    start_seconds: float | None
    start_frame: int | None
    resolved_start_seconds: float | None
    duration_seconds: float
    clip_seconds: float
    fps: int
    max_width: int
    format: str
    quality: int | None
    overlay: dict[str, Any] | None
    subject: Subject  # with its id
    ended: Ended | None
    ended_error: str | None
    probe: dict[str, Any] | None
    clip: dict[str, Any] | None
    frames: list[dict[str, Any]] | None
    frame_count: int
    extras: dict[str, Any]
    media_prefix: str | None
    is_shared: bool  # now or once
    request_id: str | None
    created_at: datetime
    updated_at: datetime
    processed_at: datetime | None
    hidden_at: datetime | None
    job: SnapJob | None

    @property
    def status(self) -> Status:
        if self.ended is None:
            return Status.PENDING
        return Status.COMPLETED if self.ended is Ended.COMPLETED else Status.FAILED

    @property
    def error(self) -> str | None:
        """Why it failed; while it waits, why it did last."""
        return self.job.last_error if self.ended is None and self.job else self.ended_error


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What processing made: JSON-able values, and below which prefix the files lie."""

    probe: Mapping[str, Any]
    resolved_start_seconds: float
    frames: Sequence[Mapping[str, Any]]
    clip: Mapping[str, Any] | None
    extras: Mapping[str, Any]
    media_prefix: str


@dataclass(frozen=True, slots=True)
class Correction:
    by: str
    at: datetime
    before: dict[str, Any]
    after: dict[str, Any]


# --- marking ----------------------------------------------------------------------------------------------------

_OPERATOR = """
SELECT id FROM operator WHERE tenant = %(tenant)s AND email_lower = lower(%(email)s) AND nickname = %(nickname)s
"""

_SET_OPERATOR = """
INSERT INTO operator (tenant, email, nickname) VALUES (%(tenant)s, %(email)s, %(nickname)s)
ON CONFLICT (tenant, email_lower) DO UPDATE
   SET email = excluded.email, nickname = excluded.nickname, updated_at = now()
RETURNING id
"""

_CREATE = """
INSERT INTO snap (
    id, tenant, video_id, operator_id, template_id, nickname, email, kind, is_draft, filmed_at, start_seconds,
    start_frame, duration_seconds, clip_seconds, fps, max_width, format, quality, overlay, subject_id, subject,
    request_id)
VALUES (
    %(id)s, %(tenant)s, %(video_id)s, %(operator_id)s, %(template_id)s, %(nickname)s, %(email)s, %(kind)s,
    %(is_draft)s, %(filmed_at)s, %(start_seconds)s, %(start_frame)s, %(duration_seconds)s, %(clip_seconds)s, %(fps)s,
    %(max_width)s, %(format)s, %(quality)s, %(overlay)s::jsonb, %(subject_id)s, %(subject)s::jsonb, %(request_id)s)
"""

_AS_THEY_ARE = (
    *("id", "video_id", "nickname", "email", "is_draft", "filmed_at", "start_seconds", "start_frame"),
    *("duration_seconds", "clip_seconds", "fps", "max_width", "format", "quality", "request_id"),
)


def create(db: Connection, tenant: str, new: NewSnap) -> Snap:
    """The snap, which waits for the job that the caller enqueues in the same transaction."""
    subject = _with_id(new.subject, new.id)
    values = {name: getattr(new, name) for name in _AS_THEY_ARE} | {
        "tenant": tenant,
        "operator_id": _operator(db, tenant, new),
        "template_id": new.template.id,
        "kind": new.kind.value,
        "overlay": None if new.overlay is None else json.dumps(new.overlay),
        "subject_id": subject.id,
        "subject": json.dumps(subject.as_json()),
    }
    db.exec_driver_sql(_CREATE, values)
    index(db, tenant, new.id, subject)
    return read(db, tenant, new.id)


def _with_id(subject: Subject, snap_id: UUID) -> Subject:
    return Subject(subject.id or str(snap_id), subject.attributes)


def _operator(db: Connection, tenant: str, new: NewSnap) -> int:
    """Known by e-mail, the last nickname wins. Written only when something changed: else everybody's snaps of one
    moment would wait for each other's commit."""
    who = {"tenant": tenant, "email": new.email, "nickname": new.nickname}
    found = db.exec_driver_sql(_OPERATOR, who).fetchall() or db.exec_driver_sql(_SET_OPERATOR, who).fetchall()
    return int(found[0][0])


_INDEX_ATTRIBUTES = """
INSERT INTO subject_attribute (snap_id, tenant, position, key, type, text_value, number_value)
SELECT %(id)s, %(tenant)s, its.*
  FROM unnest(%(positions)s::integer[], %(keys)s::text[], %(types)s::text[], %(texts)s::text[],
              %(numbers)s::double precision[]) AS its
"""

_INDEX_WORDS = """
INSERT INTO subject_word (snap_id, word, tenant)
SELECT %(id)s, word, %(tenant)s FROM unnest(%(words)s::text[]) AS word
"""


def index(db: Connection, tenant: str, snap_id: UUID, subject: Subject) -> None:
    """So that a search finds it."""
    of_snap = {"tenant": tenant, "id": snap_id}
    its = subject.attributes
    if its:
        columns = {
            "positions": list(range(len(its))),
            "keys": [one.key for one in its],
            "types": [one.type for one in its],
            "texts": [one.value if isinstance(one.value, str) else None for one in its],
            "numbers": [None if isinstance(one.value, str) else float(one.value) for one in its],
        }
        db.exec_driver_sql(_INDEX_ATTRIBUTES, of_snap | columns)
    db.exec_driver_sql(_INDEX_WORDS, of_snap | {"words": subject.words()})


# --- the same request again -------------------------------------------------------------------------------------

# A key older than a day is nobody's any more. An update, so that of two that come at once the second sees the first.
_HOLD = """
INSERT INTO idempotency AS held (tenant, key, body_hash, snap_id)
VALUES (%(tenant)s, %(key)s, %(body_hash)s, %(snap_id)s)
ON CONFLICT (tenant, key) DO UPDATE
   SET body_hash = excluded.body_hash, snap_id = excluded.snap_id, created_at = now()
 WHERE held.created_at < now() - interval '24 hours'
RETURNING snap_id
"""

_HELD = """
SELECT snap_id, body_hash = %(body_hash)s FROM idempotency WHERE tenant = %(tenant)s AND key = %(key)s
"""

_FORGET = """
DELETE FROM idempotency WHERE tenant = %(tenant)s AND created_at < now() - interval '24 hours' RETURNING key
"""


def hold_key(db: Connection, tenant: str, key: str, body_hash: bytes, snap_id: UUID) -> UUID:
    """Whose the key is: `snap_id`, which the caller is to create in this transaction, or the snap that an equal
    request made in the last 24 hours."""
    checks.insist({"Idempotency-Key": checks.text(key, KEY_LONGEST)})
    values = {"tenant": tenant, "key": key, "body_hash": body_hash, "snap_id": snap_id}
    if db.exec_driver_sql(_HOLD, values).fetchall():
        return snap_id
    [(holder, is_same)] = db.exec_driver_sql(_HELD, values).fetchall()
    if not is_same:
        raise KeyReused(key)
    return UUID(str(holder))


def forget_keys(db: Connection, tenant: str) -> int:
    """Those older than 24 hours; returns how many."""
    return len(db.exec_driver_sql(_FORGET, {"tenant": tenant}).fetchall())


# --- reading ----------------------------------------------------------------------------------------------------

_READ = """
SELECT snap.id, snap.video_id, video.url, snap.template_id, snap.nickname, snap.email, snap.kind, snap.is_draft,
       snap.filmed_at, snap.start_seconds, snap.start_frame, snap.resolved_start_seconds, snap.duration_seconds,
       snap.clip_seconds, snap.fps, snap.max_width, snap.format, snap.quality, snap.overlay::text, snap.subject::text,
       snap.ended, snap.error, snap.probe::text, snap.clip::text, snap.frames::text, snap.frame_count,
       snap.extras::text, snap.media_prefix,
       EXISTS (SELECT FROM share WHERE share.tenant = snap.tenant AND share.snap_id = snap.id),
       snap.request_id, snap.created_at, snap.updated_at, snap.processed_at, snap.hidden_at,
       job.id, job.status, job.attempt_count, job.max_attempts, job.next_retry_at, job.started_at, job.finished_at,
       job.last_error, job.progress, job.cancel_requested_at, job.created_at
  FROM snap
  JOIN video ON video.tenant = snap.tenant AND video.id = snap.video_id
  LEFT JOIN LATERAL (
      -- infinity may stand in next_retry_at, which psycopg cannot read
      SELECT id, status, attempt_count, max_attempts,
             greatest(least(next_retry_at, '9999-01-01Z'), '1900-01-01Z') AS next_retry_at, started_at, finished_at,
             last_error, progress::text AS progress, cancel_requested_at, created_at
        FROM snap_job WHERE snap_job.snap_id = snap.id LIMIT 1) AS job ON true
 WHERE snap.tenant = %(tenant)s AND snap.id = ANY (%(ids)s::uuid[]) AND (snap.hidden_at IS NULL OR %(hidden_too)s)
"""

_OF_JOB = len(SnapJob.__dataclass_fields__)


def read(db: Connection, tenant: str, snap_id: UUID, *, hidden_too: bool = False) -> Snap:
    found = read_many(db, tenant, [snap_id], hidden_too=hidden_too)
    if not found:
        raise SnapNotFound(snap_id)
    return found[0]


def read_many(db: Connection, tenant: str, ids: Sequence[UUID], *, hidden_too: bool = False) -> list[Snap]:
    """In the order of the ids; what is not there, or not theirs, is left out."""
    rows = db.exec_driver_sql(_READ, {"tenant": tenant, "ids": list(ids), "hidden_too": hidden_too}).fetchall()
    found = {row[0]: _snap(tuple(row)) for row in rows}
    return [found[snap_id] for snap_id in ids if snap_id in found]


def _snap(row: tuple[Any, ...]) -> Snap:
    values = dict(zip(_SNAP_FIELDS, row[:-_OF_JOB], strict=True))
    for name in ("overlay", "probe", "clip", "frames", "extras"):
        values[name] = _decoded(values[name])
    values |= {
        "kind": Kind(values["kind"]),
        "ended": values["ended"] and Ended(values["ended"]),
        "subject": Subject.from_json(_decoded(values["subject"])),
    }
    return Snap(**values, job=_job(row[-_OF_JOB:]))


def _job(columns: tuple[Any, ...]) -> SnapJob | None:
    if columns[0] is None:
        return None
    values = dict(zip(SnapJob.__dataclass_fields__, columns, strict=True))
    return SnapJob(**values | {"progress": _decoded(values["progress"])})


def _decoded(text: str | None) -> Any:
    return None if text is None else json.loads(text)


_SNAP_FIELDS = tuple(name for name in Snap.__dataclass_fields__ if name != "job")


# --- what became of it ------------------------------------------------------------------------------------------

# Evidence that was shared stays as it is, whoever processes the snap again.
_COMPLETE = """
UPDATE snap
   SET ended = 'COMPLETED', error = NULL, cancelled_by = NULL, processed_at = clock_timestamp(), updated_at = now(),
       probe = %(probe)s::jsonb, resolved_start_seconds = %(resolved_start_seconds)s, frames = %(frames)s::jsonb,
       frame_count = %(frame_count)s, clip = %(clip)s::jsonb, extras = %(extras)s::jsonb,
       media_prefix = %(media_prefix)s
 WHERE tenant = %(tenant)s AND id = %(id)s
   AND NOT (ended IS NOT DISTINCT FROM 'COMPLETED'
            AND EXISTS (SELECT FROM share WHERE share.tenant = snap.tenant AND share.snap_id = snap.id))
RETURNING id
"""

_FAIL = """
UPDATE snap
   SET ended = 'FAILED', error = %(error)s, processed_at = coalesce(processed_at, clock_timestamp()), updated_at = now()
 WHERE tenant = %(tenant)s AND id = %(id)s AND ended IS DISTINCT FROM 'COMPLETED'
RETURNING id
"""

_NOTE_CANCEL = """
UPDATE snap SET cancelled_by = %(by)s, updated_at = now()
 WHERE tenant = %(tenant)s AND id = %(id)s AND hidden_at IS NULL AND ended IS NULL
"""


_LOCK = "SELECT id FROM snap WHERE tenant = %(tenant)s AND id = %(id)s FOR UPDATE"


def lock(db: Connection, tenant: str, snap_id: UUID) -> None:
    """Before it is looked at whether a snap was shared, in a statement of its own: one that waits for the lock still
    sees what was there before it waited."""
    db.exec_driver_sql(_LOCK, {"tenant": tenant, "id": snap_id})


def complete(db: Connection, tenant: str, snap_id: UUID, evidence: Evidence) -> bool:
    """Publishes what was made. False: the snap is gone, or shared and final, and nothing was published."""
    lock(db, tenant, snap_id)
    values = {
        "tenant": tenant,
        "id": snap_id,
        "probe": json.dumps(evidence.probe),
        "resolved_start_seconds": evidence.resolved_start_seconds,
        "frames": json.dumps(list(evidence.frames)),
        "frame_count": len(evidence.frames),
        "clip": None if evidence.clip is None else json.dumps(evidence.clip),
        "extras": json.dumps(evidence.extras),
        "media_prefix": evidence.media_prefix,
    }
    return bool(db.exec_driver_sql(_COMPLETE, values).fetchall())


def fail(db: Connection, tenant: str, snap_id: UUID, error: str) -> bool:
    """With a reason that a person can act on, instead of the job's own. Evidence that is there stays."""
    values = {"tenant": tenant, "id": snap_id, "error": _storable(error)}
    return bool(db.exec_driver_sql(_FAIL, values).fetchall())


def note_cancel(db: Connection, tenant: str, snap_id: UUID, by: str) -> None:
    """Said before its job is cancelled: the snap's error will name them."""
    db.exec_driver_sql(_NOTE_CANCEL, {"tenant": tenant, "id": snap_id, "by": _storable(by)[:NICKNAME_LONGEST]})


def _storable(text: str) -> str:
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:ERROR_LONGEST]


# --- corrections ------------------------------------------------------------------------------------------------

_CHANGEABLE = """
SELECT template_id, subject::text,
       EXISTS (SELECT FROM share WHERE share.tenant = snap.tenant AND share.snap_id = snap.id)
  FROM snap WHERE tenant = %(tenant)s AND id = %(id)s AND hidden_at IS NULL
"""

_CORRECT = """
UPDATE snap SET subject_id = %(subject_id)s, subject = %(subject)s::jsonb, is_draft = false, updated_at = now()
 WHERE tenant = %(tenant)s AND id = %(id)s
"""

_AUDIT = """
INSERT INTO correction (tenant, snap_id, by, before, after)
VALUES (%(tenant)s, %(id)s, %(by)s, %(before)s::jsonb, %(after)s::jsonb)
"""

_UNINDEX_ATTRIBUTES = "DELETE FROM subject_attribute WHERE tenant = %(tenant)s AND snap_id = %(id)s"
_UNINDEX_WORDS = "DELETE FROM subject_word WHERE tenant = %(tenant)s AND snap_id = %(id)s"

_CORRECTIONS = """
SELECT by, at, before::text, after::text FROM correction
 WHERE tenant = %(tenant)s AND snap_id = %(id)s ORDER BY id
"""


def correct(db: Connection, tenant: str, snap_id: UUID, subject: Subject, *, by: str) -> Snap:
    """Another subject, until the snap is shared; what it was is written down. A draft is thereby described."""
    checks.insist({"by": checks.text(by, EMAIL_LONGEST)})
    of_snap = {"tenant": tenant, "id": snap_id}
    template_id, before = _to_be_changed(db, of_snap)
    checks.insist({}, templates.violations(templates.read(db, tenant, template_id), subject))
    subject = _with_id(subject, snap_id)
    after = json.dumps(subject.as_json())
    db.exec_driver_sql(_CORRECT, of_snap | {"subject_id": subject.id, "subject": after})
    db.exec_driver_sql(_AUDIT, of_snap | {"by": by, "before": before, "after": after})
    db.exec_driver_sql(_UNINDEX_ATTRIBUTES, of_snap)
    db.exec_driver_sql(_UNINDEX_WORDS, of_snap)
    index(db, tenant, snap_id, subject)
    return read(db, tenant, snap_id)


def _to_be_changed(db: Connection, of_snap: dict[str, Any]) -> tuple[int, str]:
    """Its template and its subject."""
    lock(db, of_snap["tenant"], of_snap["id"])
    rows = db.exec_driver_sql(_CHANGEABLE, of_snap).fetchall()
    if not rows:
        raise SnapNotFound(of_snap["id"])
    template_id, subject, was_shared = rows[0]
    if was_shared:
        raise SnapIsShared(of_snap["id"])
    return template_id, subject


def corrections(db: Connection, tenant: str, snap_id: UUID) -> list[Correction]:
    """Oldest first."""
    rows = db.exec_driver_sql(_CORRECTIONS, {"tenant": tenant, "id": snap_id}).fetchall()
    return [Correction(by, at, json.loads(before), json.loads(after)) for by, at, before, after in rows]


# --- removing ---------------------------------------------------------------------------------------------------

_HIDE = """
UPDATE snap SET hidden_at = now(), updated_at = now()
 WHERE tenant = %(tenant)s AND id = %(id)s AND hidden_at IS NULL RETURNING id
"""

_DELETE = "DELETE FROM snap WHERE tenant = %(tenant)s AND id = %(id)s"


def remove(db: Connection, tenant: str, snap_id: UUID) -> Removal:
    """Deletes it; what was ever shared is only hidden. Files are the caller's to remove."""
    of_snap = {"tenant": tenant, "id": snap_id}
    try:
        _to_be_changed(db, of_snap)
    except SnapIsShared:
        db.exec_driver_sql(_HIDE, of_snap)
        return Removal.HIDDEN
    db.exec_driver_sql(_DELETE, of_snap)
    return Removal.DELETED


# --- files ------------------------------------------------------------------------------------------------------

_PUBLISHED = """
SELECT id, media_prefix, ARRAY(SELECT its ->> 'file_name' FROM jsonb_array_elements(extras -> 'artefacts') AS its)
  FROM snap WHERE tenant = %(tenant)s AND id > %(after)s AND media_prefix IS NOT NULL
 ORDER BY id LIMIT %(at_most)s
"""

_NAMED = "SELECT media_prefix FROM snap WHERE tenant = %(tenant)s AND media_prefix = ANY (%(prefixes)s::text[])"

_TOO_OLD = """
SELECT id, media_prefix FROM snap
 WHERE tenant = %(tenant)s AND media_prefix IS NOT NULL AND processed_at < %(before)s
   AND NOT EXISTS (SELECT FROM share WHERE share.tenant = snap.tenant AND share.snap_id = snap.id)
 LIMIT %(at_most)s FOR UPDATE SKIP LOCKED
"""

# The record stays, with the hash of each file: what was kept elsewhere can still be proven. Asked again whether it was
# shared, in a statement that begins when the row is locked: the one that locks may not see a link of that moment.
_EXPIRE = """
UPDATE snap
   SET media_prefix = NULL, frames = '[]', frame_count = 0, clip = NULL, updated_at = now(),
       extras = extras - 'poster' - 'thumbnail'
 WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::uuid[])
   AND NOT EXISTS (SELECT FROM share WHERE share.tenant = snap.tenant AND share.snap_id = snap.id)
RETURNING id
"""


def published(db: Connection, tenant: str, after: UUID, at_most: int) -> list[tuple[UUID, str, frozenset[str]]]:
    """Snaps with files, in the order of ids from `after` on: their prefix, and the names that must be below it."""
    values = {"tenant": tenant, "after": after, "at_most": at_most}
    rows = db.exec_driver_sql(_PUBLISHED, values).fetchall()
    return [(snap_id, prefix, frozenset(names)) for snap_id, prefix, names in rows]


def named(db: Connection, tenant: str, prefixes: Collection[str]) -> set[str]:
    """Which of the prefixes are those of snaps."""
    rows = db.exec_driver_sql(_NAMED, {"tenant": tenant, "prefixes": list(prefixes)}).fetchall()
    return {prefix for (prefix,) in rows}


def expire(db: Connection, tenant: str, before: datetime, at_most: int) -> list[str]:
    """Parts with the files of snaps that were processed before and never shared: the prefixes, for whoever deletes
    what is below them once this is committed."""
    values = {"tenant": tenant, "before": before, "at_most": at_most}
    too_old = dict(tuple(row) for row in db.exec_driver_sql(_TOO_OLD, values).fetchall())
    rows = db.exec_driver_sql(_EXPIRE, {"tenant": tenant, "ids": list(too_old)}).fetchall()
    return [too_old[snap_id] for (snap_id,) in rows]
