"""Tenants with everything that a tenant can have, for tests that ask who sees it."""

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy
from sqlalchemy import Connection

from snapapp import db, sharing, snaps, templates, tenants, videos, webhooks
from snapapp.jobs import enqueue
from snapapp.snaps import Evidence, NewSnap, Snap
from snapapp.subjects import Attribute, Subject

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
def acting(engine: sqlalchemy.Engine, tenant: str) -> Iterator[Connection]:
    """A transaction in the tenant's scope, committed in the end."""
    with engine.begin() as connection, db.scope(connection, tenant):
        yield connection


def subject(subject_id: str | None = None, **attributes: str | float) -> Subject:
    return Subject(subject_id, tuple(Attribute(key, value) for key, value in attributes.items()))


def new_snap(connection: Connection, tenant: str, **given: Any) -> NewSnap:
    """One that is legal; a video of its own unless one is given."""
    if "video_id" not in given:
        given["video_id"] = videos.at_url(connection, tenant, f"https://example.org/{next(_counter)}.mp4").id
    if "template" not in given:
        given["template"] = templates.resolve(connection, tenant, None)
    usual: dict[str, Any] = {
        "nickname": "Ana",
        "email": "ana@example.org",
        "subject": subject(),
        "start_seconds": 12.5,
        "duration_seconds": 1.0,
        "clip_seconds": 2.0,
    }
    return NewSnap(**usual | given)


def make_snap(connection: Connection, tenant: str, **given: Any) -> Snap:
    return snaps.create(connection, tenant, new_snap(connection, tenant, **given))


def process(connection: Connection, tenant: str, snap_id: UUID, **given: Any) -> int:
    """The job of a snap, as the HTTP layer enqueues it: outside of a scope."""
    job_id = enqueue(connection, "snap.process", tenant=tenant, snap_id=snap_id, unique_key=str(snap_id), **given)
    assert job_id
    return job_id


@dataclass(frozen=True)
class Everything:
    """One row at least of every table, all of them of one tenant."""

    tenant: str
    snap: Snap
    share: sharing.Share
    draft: Snap
    template_id: int
    webhook_id: int
    upload: videos.Video
    key: str


BODY = hashlib.sha256(b"{}").digest()


def furnish(engine: sqlalchemy.Engine, tenant: str) -> Everything:
    """Commits a tenant that has everything; its texts are the same as every other's, so that only the tenant tells
    them apart."""
    with engine.begin() as connection:
        tenants.add(connection, tenant, tenant.title())
        with db.scope(connection, tenant):
            template = templates.resolve(connection, tenant, None)
            video = videos.at_url(connection, tenant, "https://example.org/same.mp4")
            same: dict[str, Any] = {"video_id": video.id, "template": template}
            snap_id = snaps.hold_key(connection, tenant, "same-key", BODY, uuid4())
            marked = subject("boi-7", brinco="A1", peso_referencia=450.5)
            snap = make_snap(connection, tenant, id=snap_id, subject=marked, **same)
            snaps.correct(connection, tenant, snap.id, marked, by="Ana")
            draft = make_snap(connection, tenant, is_draft=True, **same)
            snaps.complete(connection, tenant, snap.id, EVIDENCE)
            link = sharing.share(connection, tenant, snap.id)
            webhook, _ = webhooks.add(connection, tenant, "https://example.org/hook", ["snap.completed"])
            upload = videos.add_upload(connection, tenant, an_upload())
            snap = snaps.read(connection, tenant, snap.id)
        process(connection, tenant, draft.id)
    return Everything(tenant, snap, link, draft, template.id, webhook.id, upload, "same-key")


def an_upload(content: bytes = b"bytes", **given: Any) -> videos.Upload:
    usual: dict[str, Any] = {
        "id": uuid4(),
        "storage_key": "videos/x/source",
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "file_name": "a.mp4",
    }
    return videos.Upload(**usual | given)
