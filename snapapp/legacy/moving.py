"""The whole import: first the files, which a second run need not copy again; then every row in one transaction."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any
from uuid import UUID

import sqlalchemy.exc
from sqlalchemy.orm import Session

from snapapp.domain import marking, snaps, subject_index, tenants, videos
from snapapp.jobs import enqueue
from snapapp.legacy import shapes
from snapapp.legacy.errors import LegacyError
from snapapp.legacy.files import Archive, Artefact, files_of
from snapapp.legacy.old import Old
from snapapp.postgres import connections, database

Row = Mapping[str, Any]
Step = Callable[[], None]

_REMARKS = 20


@dataclass(slots=True)
class Moved:
    """How much this run brought over, without what was here already."""

    tenants: int = 0
    templates: int = 0
    users: int = 0
    videos: int = 0
    snaps: int = 0
    waiting: int = 0  # snaps that the old service had not processed: each gets a job here
    links: int = 0
    files: int = 0
    lost: int = 0  # files that were not copied and have no URL
    remarks: list[str] = field(default_factory=list)

    def in_words(self) -> Iterator[str]:
        yield (
            f"Brought over: {self.tenants} tenants, {self.templates} templates, {self.users} users, "
            f"{self.videos} videos, {self.snaps} snaps, {self.links} links, {self.files} files."
        )
        if self.waiting:
            yield f"{self.waiting} snaps were not done there: each has a job here."
        if self.lost:
            yield f"{self.lost} files have no URL and were not found: --media says where the old service kept them."
        yield from islice(self.remarks, _REMARKS)
        if len(self.remarks) > _REMARKS:
            yield f"And {len(self.remarks) - _REMARKS} more of this kind: --json has them all."


def move(old: Old, url: str, archive: Archive | None, step: Step = lambda: None) -> Moved:
    """Imports everything. The files come first: if the rows then fail, the sweep removes the copies. `step` is called
    once for each snap, and once more for each if there are files to copy."""
    copied = _copy_files(old, archive, step) if archive else {}
    moved = Moved(files=sum(map(len, copied.values())))
    with connections.transaction(url) as ours:
        ours.connection().exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('snapapp import-legacy'))")
        for row in old.tenants():
            _add_tenant(ours, row, moved)
        _make_way(old, ours)
        for row in old.tenants():
            _Tenant(ours, row["codigo"], moved).bring(old, row["id"], copied, step)
    return moved


def _copy_files(old: Old, archive: Archive, step: Step) -> dict[UUID, list[Artefact]]:
    by_snap = {}
    for tenant in old.tenants():
        for snap in old.snaps(tenant["id"]):
            if artefacts := archive.copied(snap):
                by_snap[snap["id"]] = artefacts
            step()
    return by_snap


# --- tenants ----------------------------------------------------------------------------------------------------

_ADD_TENANT = """
INSERT INTO tenant (code, name, token_hash, status, created_at, token_changed_at)
VALUES (%(code)s, %(name)s, %(token_hash)s, %(status)s, %(created_at)s, %(created_at)s)
ON CONFLICT (code) DO NOTHING RETURNING code
"""

_HASH = "SELECT token_hash FROM tenant WHERE code = %(code)s"

_SET_HASH = "UPDATE tenant SET token_hash = %(token_hash)s, token_changed_at = now() WHERE code = %(code)s"

_ACTIVE = {"ACTIVE", "ATIVO", "ATIVA"}


def _add_tenant(ours: Session, row: Row, moved: Moved) -> None:
    values = {
        "code": row["codigo"],
        "name": row["nome"] or row["codigo"],
        "token_hash": shapes.token_hash(row["api_token"]),
        "status": "ACTIVE" if str(row["status"]).upper() in _ACTIVE else "INACTIVE",
        "created_at": row["created_at"],
    }
    with _naming_old_row(f"assinatura {row['codigo']}"):
        if ours.connection().exec_driver_sql(_ADD_TENANT, values).fetchall():
            moved.tenants += 1
        else:
            _agree_on_token(ours, values, moved)


def _agree_on_token(ours: Session, values: Mapping[str, Any], moved: Moved) -> None:
    """Gives a tenant that exists here the old service's token, unless it was given a token of its own here. The
    documented development token counts as none."""
    [(current_hash,)] = ours.connection().exec_driver_sql(_HASH, values).fetchall()
    if current_hash == values["token_hash"]:
        return
    if current_hash in (None, shapes.token_hash(tenants.DEVELOPMENT_TOKEN)):
        ours.connection().exec_driver_sql(_SET_HASH, values)
    else:
        moved.remarks.append(f"{values['code']} has another token here, which was kept")


# --- templates keep their ids -----------------------------------------------------------------------------------

_TEMPLATES_HERE = "SELECT id, slug FROM template WHERE tenant = %(tenant)s"

_NEXT_TEMPLATE = """
SELECT setval(sequence, greatest(%(highest)s, nextval(sequence)))
  FROM pg_get_serial_sequence('template', 'id') AS sequence
"""

_RENUMBER = """
UPDATE template SET id = DEFAULT WHERE tenant = %(tenant)s AND id = %(id)s
   AND NOT EXISTS (SELECT FROM snap WHERE snap.tenant = template.tenant AND template_id = template.id)
RETURNING id
"""


def _make_way(old: Old, ours: Session) -> None:
    """Renumbers the templates that every tenant begins with here, where their ids or slugs are also those of old
    templates. A template that a snap here already names cannot be renumbered: both services were in use, and it would
    be unclear which template a snap means."""
    wanted = {
        (tenant["codigo"], template["slug"]): template["id"]
        for tenant in old.tenants()
        for template in old.templates(tenant["id"])
    }
    taken_ids = set(wanted.values())
    ours.connection().exec_driver_sql(_NEXT_TEMPLATE, {"highest": max(taken_ids, default=1)})
    for tenant in tenants.every(ours):
        with database.scope(ours, tenant.code):
            for template_id, slug in (
                ours.connection().exec_driver_sql(_TEMPLATES_HERE, {"tenant": tenant.code}).fetchall()
            ):
                old_id = wanted.get((tenant.code, slug))
                if old_id != template_id and (old_id is not None or template_id in taken_ids):
                    _renumber(ours, tenant.code, template_id, slug)


def _renumber(ours: Session, tenant: str, template_id: int, slug: str) -> None:
    if not ours.connection().exec_driver_sql(_RENUMBER, {"tenant": tenant, "id": template_id}).fetchall():
        raise LegacyError(
            f"The template {slug} of {tenant} has the id {template_id} here, which collides with the old service's, "
            "and snaps name it: bring the old rows into a database without snaps of its own. Nothing was brought over."
        )


# --- what belongs to a tenant -----------------------------------------------------------------------------------

_NO_OTHER_DEFAULT = """
UPDATE template SET is_default = false WHERE tenant = %(tenant)s AND is_default AND slug <> %(slug)s
"""

_ADD_TEMPLATE = """
INSERT INTO template (id, tenant, slug, name, fields, is_default, is_active, created_at, updated_at)
VALUES (%(id)s, %(tenant)s, %(slug)s, %(name)s, %(fields)s::jsonb, %(is_default)s, %(is_active)s, %(created_at)s,
        %(updated_at)s)
ON CONFLICT (tenant, slug) DO UPDATE
   SET id = excluded.id, name = excluded.name, fields = excluded.fields, is_active = excluded.is_active,
       is_default = excluded.is_default, created_at = excluded.created_at, updated_at = excluded.updated_at
 WHERE (template.id, template.name, template.fields, template.is_active, template.is_default)
       IS DISTINCT FROM (excluded.id, excluded.name, excluded.fields, excluded.is_active, excluded.is_default)
RETURNING id
"""

_DEFAULT_TEMPLATE = "SELECT id FROM template WHERE tenant = %(tenant)s AND is_default"

_ADD_OPERATOR = """
INSERT INTO operator (tenant, email, nickname, created_at)
VALUES (%(tenant)s, %(email)s, %(nickname)s, %(created_at)s)
ON CONFLICT (tenant, email_lower) DO NOTHING RETURNING id
"""

_OPERATOR = "SELECT id FROM operator WHERE tenant = %(tenant)s AND email_lower = lower(%(email)s)"

_ADD_VIDEO = """
INSERT INTO video (id, tenant, url, url_hash, probe, created_by, created_at)
VALUES (%(id)s, %(tenant)s, %(url)s, %(url_hash)s, %(probe)s::jsonb, %(created_by)s, %(created_at)s)
ON CONFLICT DO NOTHING RETURNING id
"""

_ADD_SNAP = """
INSERT INTO snap (
    id, tenant, video_id, operator_id, template_id, nickname, email, kind, filmed_at, start_seconds, start_frame,
    resolved_start_seconds, duration_seconds, clip_seconds, fps, max_width, format, quality, overlay, subject_id,
    subject, ended, error, probe, clip, frames, frame_count, extras, media_prefix, media_bytes, created_at, updated_at,
    processed_at)
VALUES (
    %(id)s, %(tenant)s, %(video_id)s, %(operator_id)s, %(template_id)s, %(nickname)s, %(email)s, %(kind)s,
    %(filmed_at)s, %(start_seconds)s, %(start_frame)s, %(resolved_start_seconds)s, %(duration_seconds)s,
    %(clip_seconds)s, %(fps)s, %(max_width)s, %(format)s, %(quality)s, %(overlay)s::jsonb, %(subject_id)s,
    %(subject)s::jsonb, %(ended)s, %(error)s, %(probe)s::jsonb, %(clip)s::jsonb, %(frames)s::jsonb, %(frame_count)s,
    %(extras)s::jsonb, %(media_prefix)s, %(media_bytes)s, %(created_at)s, %(updated_at)s, %(processed_at)s)
ON CONFLICT DO NOTHING RETURNING id
"""

# For a second import, with the files, of snaps that came without them. Snaps with files made here, and snaps whose
# files were removed by the retention, stay as they are.
_ADD_FILES = """
UPDATE snap
   SET frames = %(frames)s::jsonb, clip = %(clip)s::jsonb, extras = %(extras)s::jsonb, media_prefix = %(media_prefix)s,
       media_bytes = %(media_bytes)s
 WHERE tenant = %(tenant)s AND id = %(id)s AND ended IS NOT DISTINCT FROM 'COMPLETED' AND frames <> '[]'
   AND media_prefix IS NULL AND %(media_prefix)s::text IS NOT NULL
"""

_ADD_LINK = """
INSERT INTO share (token, tenant, snap_id, created_at) VALUES (%(token)s, %(tenant)s, %(id)s, %(created_at)s)
ON CONFLICT DO NOTHING RETURNING token
"""


@dataclass(slots=True)
class _Tenant:
    """The import of one tenant's rows, and the ids that its old rows have here."""

    ours: Session
    code: str
    moved: Moved
    operators: dict[int, int] = field(default_factory=dict)
    videos: dict[UUID, UUID] = field(default_factory=dict)
    default_template: int = 0

    def bring(self, old: Old, tenant: int, copied: Mapping[UUID, list[Artefact]], step: Step) -> None:
        with database.scope(self.ours, self.code):
            for template in old.templates(tenant):
                self._add_template(template)
            [(self.default_template,)] = self._run(_DEFAULT_TEMPLATE)
            for person in old.people(tenant):
                self._add_operator(person)
            for video in old.videos(tenant):
                self._add_video(video)
            waiting = []
            for snap in old.snaps(tenant):
                with _naming_old_row(f"snap {snap['id']}"):
                    if self._add_snap(snap, copied.get(snap["id"], [])) and shapes.ended(snap) is None:
                        waiting.append(snap["id"])
                step()
        self._enqueue(waiting)

    def _add_template(self, row: Row) -> None:
        with _naming_old_row(f"subject_template {row['id']}"):
            if row["is_default"]:
                self._run(_NO_OTHER_DEFAULT, slug=row["slug"])
            added = self._run(
                _ADD_TEMPLATE,
                id=row["id"],
                slug=row["slug"],
                name=row["nome"] or row["slug"],
                fields=shapes.fields_of(row),
                is_default=row["is_default"],
                is_active=row["ativo"] or row["is_default"],
                created_at=row["created_at"],
                updated_at=row["updated_at"],
            )
        self.moved.templates += len(added)

    def _add_operator(self, row: Row) -> None:
        with _naming_old_row(f"usuario {row['id']}"):
            added = self._run(_ADD_OPERATOR, **row)
            [(self.operators[row["id"]],)] = added or self._run(_OPERATOR, email=row["email"])
        self.moved.users += len(added)

    def _add_video(self, row: Row) -> None:
        """Adds an old video. Where its URL is already known here, the video keeps the id that it has here."""
        url = row["original_url"]
        with _naming_old_row(f"video {row['id']}"):
            added = self._run(
                _ADD_VIDEO,
                id=row["id"],
                url=url,
                url_hash=sha256(url.encode()).digest(),
                probe=shapes.probe_of(row, f"video {row['id']}"),
                created_by=self.operators.get(row["created_by_usuario_id"]),
                created_at=row["created_at"],
            )
            video_id = row["id"] if added else videos.at_url(self.ours, self.code, url).id
        self.videos[row["id"]] = video_id
        self.moved.videos += len(added)
        if video_id != row["id"]:
            self.moved.remarks.append(f"video {row['id']} of {self.code} is {video_id} here: its URL was known before")

    def _add_snap(self, row: Row, artefacts: list[Artefact]) -> bool:
        subject, files = shapes.subject_of(row), files_of(row, artefacts)
        values = shapes.columns_of(row, subject) | {
            "video_id": self.videos.get(row["video_id"]),
            "operator_id": self.operators.get(row["created_by_usuario_id"]),
            "template_id": row["subject_template_id"] or self.default_template,
            "frames": json.dumps(files.frames) if shapes.ended(row) == "COMPLETED" else None,
            "frame_count": len(files.frames),
            "clip": json.dumps(files.clip) if files.clip else None,
            "extras": json.dumps({"artefacts": files.artefacts}),
            "media_prefix": files.media_prefix,
            "media_bytes": snaps.bytes_of({"artefacts": files.artefacts}) if files.media_prefix else 0,
        }
        is_new = bool(self._run(_ADD_SNAP, **values))
        if is_new:
            subject_index.write(self.ours, self.code, row["id"], subject)
            self.moved.snaps += 1
            self.moved.lost += files.lost
        else:
            self._run(_ADD_FILES, **values)
        if row["is_public"] and row["public_share_token"]:
            link = {"token": row["public_share_token"], "id": row["id"], "created_at": row["updated_at"]}
            self.moved.links += len(self._run(_ADD_LINK, **link))
        return is_new

    def _enqueue(self, waiting: Iterable[UUID]) -> None:
        """Adds a job for each snap that the old service had not processed."""
        for snap_id in waiting:
            with database.scope(self.ours, self.code):
                snap = snaps.read(self.ours, self.code, snap_id)
                video = videos.read(self.ours, self.code, snap.video_id)
            marking.enqueue(enqueue, self.ours, snap, video)
            self.moved.waiting += 1

    def _run(self, statement: str, **values: Any) -> list[Any]:
        result = self.ours.connection().exec_driver_sql(statement, {"tenant": self.code} | values)
        return list(result.fetchall()) if result.returns_rows else []


@contextmanager
def _naming_old_row(what: str) -> Iterator[None]:
    """Turns an error of our tables into a LegacyError that names the old row."""
    try:
        yield
    except (sqlalchemy.exc.IntegrityError, sqlalchemy.exc.DataError) as error:
        why = str(error.orig).partition("\n")[0]
        raise LegacyError(f"The old {what} cannot be kept: {why}. Nothing was brought over.") from error
