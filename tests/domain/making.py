"""Tenants with everything that a tenant can have, for tests that ask who sees it."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.domain import idempotency, operators, sharing, snaps, templates, tenants, videos, webhooks
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.snaps import Evidence, NewSnap
from snapapp.domain.tables import OperatorRole, Share, Snap, Video
from snapapp.jobs import enqueue
from snapapp.postgres import database

OWN = "default"  # the seeded tenant

_counter = itertools.count(1)

EVIDENCE = Evidence(
    probe={"container_format": "mp4", "width": 1920},
    resolved_start_seconds=12.5,
    frames=[{"index": 1, "timestamp_seconds": 12.5, "file_name": "frame_00001.jpg"}],
    clip={"file_name": "snapshot.mp4", "duration_seconds": 2.0},
    extras={"poster": "poster.jpg"},
    media_prefix="snaps/some/1/",
)


@contextmanager
def begun(engine: sqlalchemy.Engine) -> Iterator[Session]:
    """A transaction outside of any scope, committed in the end."""
    with database.session(engine) as session, session.begin():
        yield session


@contextmanager
def acting(engine: sqlalchemy.Engine, tenant: str) -> Iterator[Session]:
    """The same in the tenant's scope."""
    with begun(engine) as session, database.scope(session, tenant):
        yield session


def subject(subject_id: str | None = None, **attributes: str | float) -> Subject:
    return Subject(subject_id, tuple(Attribute(key, value) for key, value in attributes.items()))


def new_snap(**given: Any) -> NewSnap:
    """One that is legal; a video of its own unless one is given."""
    usual: dict[str, Any] = {
        "video_url": f"https://example.org/{next(_counter)}.mp4",
        "nickname": "Ana",
        "email": "ana@example.org",
        "subject": subject(),
        "start_seconds": 12.5,
        "duration_seconds": 1.0,
        "clip_seconds": 2.0,
    }
    return NewSnap(**usual | given)


def make_snap(session: Session, tenant: str, **given: Any) -> Snap:
    snap, _ = snaps.create(session, tenant, new_snap(**given))
    return snaps.read(session, tenant, snap.id)


def process(session: Session, tenant: str, snap_id: UUID, **given: Any) -> int:
    """The job of a snap, as the HTTP layer enqueues it: outside of a scope."""
    job_id = enqueue(session, "snap.process", tenant=tenant, snap_id=snap_id, unique_key=str(snap_id), **given)
    assert job_id
    return job_id


@dataclass(frozen=True)
class Everything:
    """One row at least of every table, all of them of one tenant."""

    tenant: str
    snap: Snap
    share: Share
    draft: Snap
    template_id: int
    webhook_id: int
    operator_id: int
    personal_link: str
    upload: Video
    key: str


BODY = hashlib.sha256(b"{}").digest()


def furnish(engine: sqlalchemy.Engine, tenant: str) -> Everything:
    """Commits a tenant that has everything; its texts are the same as every other's, so that only the tenant tells
    them apart."""
    with begun(engine) as session:
        tenants.add(session, tenant, tenant.title())
        with database.scope(session, tenant):
            template = templates.resolve(session, tenant, None)
            video = videos.at_url(session, tenant, "https://example.org/same.mp4")
            same: dict[str, Any] = {"video_id": video.id, "template_id": template.id}
            snap_id = idempotency.hold_key(session, tenant, "same-key", BODY, uuid4())
            marked = subject("boi-7", brinco="A1", peso_referencia=450.5)
            snap = make_snap(session, tenant, id=snap_id, subject=marked, **same)
            snaps.correct(session, tenant, snap.id, marked, by="Ana")
            draft = make_snap(session, tenant, is_draft=True, **same)
            snaps.complete(session, tenant, snap.id, EVIDENCE)
            link = sharing.share(session, tenant, snap.id)
            webhook = webhooks.add(session, tenant, "https://example.org/hook", ["snap.completed"])
            operator, personal_link = operators.add(session, tenant, "Rui", "rui@example.org", OperatorRole.REVIEWER)
            upload = videos.add_upload(session, tenant, an_upload())
            snap = snaps.read(session, tenant, snap.id)
        process(session, tenant, draft.id)
    return Everything(
        tenant, snap, link, draft, template.id, webhook.id, operator.id, personal_link, upload, "same-key"
    )


def an_upload(content: bytes = b"bytes", **given: Any) -> videos.Upload:
    usual: dict[str, Any] = {
        "id": uuid4(),
        "storage_key": "videos/x/source",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "file_name": "a.mp4",
    }
    return videos.Upload(**usual | given)
