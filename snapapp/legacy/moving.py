"""The whole import: first the files, which a second run need not copy again; then every row in one transaction."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from typing import Any
from uuid import UUID

import sqlalchemy.exc
from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from snapapp.domain import marking, snaps, tenants, videos
from snapapp.domain.finding import subject_index
from snapapp.domain.tables import Ended, Operator, Share, Snap, Template, Tenant, Video
from snapapp.jobs import enqueue
from snapapp.jobs.amounts import counted
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
            f"Brought over: {counted(self.tenants, 'tenant', 'tenants')}, "
            f"{counted(self.templates, 'template', 'templates')}, {counted(self.users, 'user', 'users')}, "
            f"{counted(self.videos, 'video', 'videos')}, {counted(self.snaps, 'snap', 'snaps')}, "
            f"{counted(self.links, 'link', 'links')}, {counted(self.files, 'file', 'files')}."
        )
        if self.waiting:
            yield f"{counted(self.waiting, 'snap was', 'snaps were')} not done there: each has a job here."
        if self.lost:
            what = counted(self.lost, "file has no URL and was", "files have no URL and were")
            yield f"{what} not found: --media says where the old service kept its files."
        yield from islice(self.remarks, _REMARKS)
        if len(self.remarks) > _REMARKS:
            yield f"And {len(self.remarks) - _REMARKS} more of this kind: --json has them all."


def move(old: Old, url: str, archive: Archive | None, step: Step = lambda: None) -> Moved:
    """Imports everything. The files come first: if the rows then fail, the sweep removes the copies. `step` is called
    once for each snap, and once more for each if there are files to copy. A LegacyError names every video and snap that
    cannot be kept: the old service took any number, so they may be many, and one run is needed to see them."""
    copied = _copy_files(old, archive, step) if archive else {}
    moved, refusals = Moved(files=sum(map(len, copied.values()))), list[str]()
    with connections.transaction(url) as ours:
        ours.connection().exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext('snapapp import-legacy'))")
        for row in old.tenants():
            _add_tenant(ours, row, moved)
        _make_way(old, ours)
        for row in old.tenants():
            _Tenant(ours, row["codigo"], moved, refusals).bring(old, row["id"], copied, step)
        if refusals:
            raise LegacyError(_in_lines(refusals))
    if archive:
        _copy_lost_files(old, archive, copied)
    return moved


def _in_lines(refusals: list[str]) -> str:
    shown = "\n".join(refusals[:_REMARKS])
    more = f"\nAnd {len(refusals) - _REMARKS} more." if len(refusals) > _REMARKS else ""
    return f"{shown}{more}"


def _copy_files(old: Old, archive: Archive, step: Step) -> dict[UUID, list[Artefact]]:
    by_snap = {}
    for tenant in old.tenants():
        for snap in old.snaps(tenant["id"]):
            with suppress(LegacyError):  # the rows come later, and name the snap
                if artefacts := archive.copied(snap):
                    by_snap[snap["id"]] = artefacts
            step()
    return by_snap


def _copy_lost_files(old: Old, archive: Archive, copied: Mapping[UUID, list[Artefact]]) -> None:
    """Copies files again that were deleted before the rows named them: those of a snap that was deleted here while the
    import copied, and that the import brings again. From now on its row keeps them."""
    lost = {snap_id for snap_id, artefacts in copied.items() if not archive.has(snap_id, artefacts)}
    for tenant in old.tenants() if lost else ():
        for snap in old.snaps(tenant["id"]):
            if snap["id"] in lost:
                archive.copied(snap)


# --- tenants ----------------------------------------------------------------------------------------------------

_ACTIVE = {"ACTIVE", "ATIVO", "ATIVA"}


def _add_tenant(ours: Session, row: Row, moved: Moved) -> None:
    token_hash = tenants.hash_of(row["api_token"]) if row["api_token"] else None
    tenant = insert(Tenant).values(
        code=row["codigo"],
        name=row["nome"] or row["codigo"],
        token_hash=token_hash,
        status="ACTIVE" if str(row["status"]).upper() in _ACTIVE else "INACTIVE",
        created_at=row["created_at"],
        token_changed_at=row["created_at"],
    )
    with _naming_old_row(f"assinatura {row['codigo']}"):
        if ours.scalar(tenant.on_conflict_do_nothing(index_elements=[Tenant.code]).returning(Tenant.code)):
            moved.tenants += 1
        else:
            _agree_on_token(ours, row["codigo"], token_hash, moved)


def _agree_on_token(ours: Session, code: str, token_hash: bytes | None, moved: Moved) -> None:
    """Gives a tenant that exists here the old service's token, unless it was given a token of its own here. The
    documented development token counts as none."""
    current_hash = ours.scalar(select(Tenant.token_hash).where(Tenant.code == code))
    if current_hash == token_hash:
        return
    if current_hash in (None, tenants.hash_of(tenants.DEVELOPMENT_TOKEN)):
        change = update(Tenant).where(Tenant.code == code)
        ours.execute(change.values(token_hash=token_hash, token_changed_at=func.now()))
    else:
        moved.remarks.append(f"{code} has another token here, which was kept")


# --- templates keep their ids -----------------------------------------------------------------------------------

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
            here = select(Template.id, Template.slug).where(Template.tenant == tenant.code)
            for template_id, slug in ours.execute(here).all():
                old_id = wanted.get((tenant.code, slug))
                if old_id != template_id and (old_id is not None or template_id in taken_ids):
                    _renumber(ours, tenant.code, template_id, slug)


def _renumber(ours: Session, tenant: str, template_id: int, slug: str) -> None:
    if not ours.connection().exec_driver_sql(_RENUMBER, {"tenant": tenant, "id": template_id}).fetchall():
        raise LegacyError(
            f"The template {slug} of {tenant} has the id {template_id} here, which collides with the old service's, "
            "and snaps name it: bring the old rows into a database without snaps of its own."
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


@dataclass(slots=True)
class _Tenant:
    """The import of one tenant's rows, and the ids that its old rows have here."""

    ours: Session
    code: str
    moved: Moved
    refusals: list[str]  # of all tenants: why videos and snaps cannot be kept
    operators: dict[int, int] = field(default_factory=dict)
    videos: dict[UUID, UUID] = field(default_factory=dict)
    default_template: int = 0

    def bring(self, old: Old, tenant: int, copied: Mapping[UUID, list[Artefact]], step: Step) -> None:
        with database.scope(self.ours, self.code):
            for template in old.templates(tenant):
                self._add_template(template)
            its_default = select(Template.id).where(Template.tenant == self.code, Template.is_default)
            self.default_template = self.ours.scalars(its_default).one()
            for person in old.people(tenant):
                self._add_operator(person)
            refused_videos = set()
            for video in old.videos(tenant):
                with self._going_on_after(f"video {video['id']}"):
                    self._add_video(video)
                if video["id"] not in self.videos:
                    refused_videos.add(video["id"])
            waiting = []
            for snap in old.snaps(tenant):
                if snap["video_id"] in refused_videos:
                    continue
                with self._going_on_after(f"snap {snap['id']}"):
                    if self._add_snap(snap, copied.get(snap["id"], [])) and shapes.ended(snap) is None:
                        waiting.append(snap["id"])
                step()
        self._enqueue(waiting)

    @contextmanager
    def _going_on_after(self, what: str) -> Iterator[None]:
        """Notes why an old row cannot be kept, and undoes what was written of it."""
        try:
            with self.ours.begin_nested(), _naming_old_row(what):
                yield
        except LegacyError as error:
            self.refusals.append(error.why)

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
        operator = insert(Operator).values(
            tenant=self.code, email=row["email"], nickname=row["nickname"], created_at=row["created_at"]
        )
        known = select(Operator.id).where(
            Operator.tenant == self.code, Operator.email_lower == func.lower(row["email"])
        )
        with _naming_old_row(f"usuario {row['id']}"):
            added = self.ours.scalar(operator.on_conflict_do_nothing().returning(Operator.id))
            self.operators[row["id"]] = added or self.ours.scalars(known).one()
        self.moved.users += added is not None

    def _add_video(self, row: Row) -> None:
        """Adds an old video. Where its URL is already known here, the video keeps the id that it has here."""
        url = row["original_url"]
        video = insert(Video).values(
            id=row["id"],
            tenant=self.code,
            url=url,
            url_hash=sha256(url.encode()).digest(),
            probe=shapes.probe_of(row, f"video {row['id']}"),
            created_by=self.operators.get(row["created_by_usuario_id"]),
            created_at=row["created_at"],
        )
        added = self.ours.scalar(video.on_conflict_do_nothing().returning(Video.id))
        video_id = added or videos.at_url(self.ours, self.code, url).id
        self.videos[row["id"]] = video_id
        self.moved.videos += added is not None
        if video_id != row["id"]:
            self.moved.remarks.append(f"video {row['id']} of {self.code} is {video_id} here: its URL was known before")

    def _add_snap(self, row: Row, artefacts: list[Artefact]) -> bool:
        subject, (its_files, lost_count) = shapes.subject_of(row), files_of(row, artefacts)
        snap = insert(Snap).values(
            tenant=self.code,
            video_id=self.videos.get(row["video_id"]),
            operator_id=self.operators.get(row["created_by_usuario_id"]),
            template_id=row["subject_template_id"] or self.default_template,
            **shapes.columns_of(row, subject),
            **its_files,
        )
        is_new = self.ours.scalar(snap.on_conflict_do_nothing().returning(Snap.id)) is not None
        if is_new:
            subject_index.write(self.ours, self.code, row["id"], subject)
            self.moved.snaps += 1
            self.moved.lost += lost_count
        elif artefacts:
            self._add_files(row["id"], its_files)
        if row["is_public"] and row["public_share_token"]:
            link = insert(Share).values(
                token=row["public_share_token"], tenant=self.code, snap_id=row["id"], created_at=row["updated_at"]
            )
            self.moved.links += self.ours.scalar(link.on_conflict_do_nothing().returning(Share.token)) is not None
        return is_new

    def _add_files(self, snap_id: UUID, its_files: Mapping[str, Any]) -> None:
        """For a second import, with the files, of snaps that came without them. Snaps with files made here, and snaps
        whose files were removed by the retention, stay as they are."""
        without_files = update(Snap).where(
            Snap.tenant == self.code,
            Snap.id == snap_id,
            Snap.ended == Ended.COMPLETED,
            Snap.frames != [],
            Snap.media_prefix.is_(None),
        )
        self.ours.execute(without_files.values(**its_files, updated_at=Snap.updated_at))

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
        raise LegacyError(f"The old {what} cannot be kept: {why}.") from error
