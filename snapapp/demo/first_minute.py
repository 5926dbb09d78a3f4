"""Prepares the demo: a child process paints a video, and three moments of it are marked and processed like any
others."""

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy import Connection
from sqlalchemy.orm import Session

from snapapp.demo import PREPARE
from snapapp.demo.animals import HERD, Animal
from snapapp.domain import kinds, marking, payloads, snaps, templates, tenants, videos
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.snaps import NewSnap
from snapapp.domain.tables import Snap, Template, Video
from snapapp.domain.videos import Upload
from snapapp.errors import VideoNotFound
from snapapp.jobs import Job, enqueue
from snapapp.postgres.database import scope
from snapapp.processing import scratch
from snapapp.storage import keys

VIDEO = UUID("5eed0000-0000-4000-8000-000000000001")  # home/home.js has the same id
WAITING = HERD[4]  # the page pauses the video when this animal is in the gate

_KEY = keys.of_video(tenants.DEFAULT, VIDEO) + "source"
_MARKED = (HERD[1], HERD[3], HERD[6])
_SIGNED = HERD[3]  # with an overlay
_FILMED = datetime.fromisoformat("2026-03-01T08:15:00-03:00")
_OVERLAY = {
    "mode": "SUBJECT_AND_TIMESTAMP",
    "position": "BOTTOM_LEFT",
    "font_size": 14,
    "box_color": "black@0.7",
    "font_color": "white",
    "margin": 12,
    "padding": 6,
}


def order(db: Session) -> int | None:
    """Enqueues the job that prepares the demo; returns its id."""
    tenants.by_code(db, tenants.DEFAULT)
    return enqueue(db, PREPARE, tenant=tenants.DEFAULT, unique_key="demo", unique_scope="live")


def publish(db: Connection, job: Job, painted: dict[str, Any]) -> None:
    """Adds the demo's video and snaps as far as they are missing, and the jobs of new snaps."""
    with scope(db, job.tenant) as as_tenant:
        video = _video(as_tenant, job.tenant, painted)
        new_snaps = list(_mark_missing(as_tenant, job.tenant))
    for snap in new_snaps:
        marking.enqueue(enqueue, db, snap, video)
    if video.probe is None:
        enqueue(db, kinds.PROBE, payloads.of_video(video), tenant=job.tenant, unique_key=str(video.id))


def prepare(job: Job) -> dict[str, Any]:
    """Paints the demo's video, unless it is there."""
    from snapapp.demo import video as scene  # imported in the child process only, as in kinds
    from snapapp.processing import media_work

    work = media_work.here()
    if not work.storage.exists(_KEY):
        with scratch.folder(work.scratch) as folder:
            scene.film(folder / "herd.mp4", job.update_progress)
            work.storage.put(_KEY, folder / "herd.mp4")
    with work.storage.open(_KEY) as stored:
        return {"size_bytes": stored.stored.size, "sha256": hashlib.file_digest(stored, "sha256").hexdigest()}


def _video(db: Session, tenant: str, painted: dict[str, Any]) -> Video:
    try:
        return videos.read(db, tenant, VIDEO)
    except VideoNotFound:
        upload = Upload(id=VIDEO, storage_key=_KEY, file_name="herd.mp4", **painted)
        return videos.add_upload(db, tenant, upload)


def _mark_missing(db: Session, tenant: str) -> Iterator[Snap]:
    """Marks the demo's snaps that are missing, and yields them. A deleted snap comes back; a hidden one does not."""
    template = next((each for each in templates.every(db, tenant) if each.slug == "gado" and each.is_active), None)
    animals = {uuid5(VIDEO, animal.tag): animal for animal in _MARKED}
    existing = {snap.id for snap in snaps.read_many(db, tenant, list(animals), hidden_too=True)}
    for snap_id, animal in animals.items():
        if snap_id not in existing:
            snap, _ = snaps.create(db, tenant, _snap(snap_id, animal, template))
            yield snap


def _snap(snap_id: UUID, animal: Animal, template: Template | None) -> NewSnap:
    values: dict[str, str | float] = {
        "brinco": animal.tag,
        "raca": animal.breed,
        "sexo": animal.sex,
        "peso_referencia": animal.weight,
    }
    return NewSnap(
        id=snap_id,
        video_id=VIDEO,
        template_id=template.id if template else None,
        nickname="demo",
        email="demo@snapapp.example",
        subject=Subject(animal.tag, tuple(Attribute(key, value) for key, value in values.items())),
        filmed_at=_FILMED + timedelta(seconds=animal.passes),
        start_seconds=animal.passes - 0.5,
        duration_seconds=1.0,
        clip_seconds=2.0,
        overlay=_OVERLAY if animal is _SIGNED else None,
    )
