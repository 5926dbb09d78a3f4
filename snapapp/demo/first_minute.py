"""The first minute: a video that a child paints, and three moments of it, marked and processed as everybody's are."""

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

VIDEO = UUID("5eed0000-0000-4000-8000-000000000001")  # the page knows it
WAITING = HERD[4]  # the page pauses where this one is in the gate

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
    """The job that prepares it; it waits for a worker, as all do."""
    tenants.by_code(db, tenants.DEFAULT)
    return enqueue(db, PREPARE, tenant=tenants.DEFAULT, unique_key="demo", unique_scope="live")


def publish(db: Connection, job: Job, painted: dict[str, Any]) -> None:
    """Adds what is missing: nothing, the second time."""
    with scope(db, job.tenant) as own:
        video = _video(own, job.tenant, painted)
        marked = list(_marked(own, job.tenant))
    for snap in marked:
        marking.enqueue(enqueue, db, snap, video)
    if video.probe is None:
        enqueue(db, kinds.PROBE, payloads.of_video(video), tenant=job.tenant, unique_key=str(video.id))


def prepare(job: Job) -> dict[str, Any]:
    """Paints the demo's video, unless it is there."""
    from snapapp.demo import video as scene  # in the child alone, as in kinds
    from snapapp.processing import media_work

    room = media_work.here()
    if not room.storage.exists(_KEY):
        with scratch.folder(room.scratch) as folder:
            scene.film(folder / "herd.mp4", job.update_progress)
            room.storage.put(_KEY, folder / "herd.mp4")
    with room.storage.open(_KEY) as stored:
        return {"size_bytes": stored.stored.size, "sha256": hashlib.file_digest(stored, "sha256").hexdigest()}


def _video(db: Session, tenant: str, painted: dict[str, Any]) -> Video:
    try:
        return videos.read(db, tenant, VIDEO)
    except VideoNotFound:
        upload = Upload(id=VIDEO, storage_key=_KEY, file_name="herd.mp4", content_type="video/mp4", **painted)
        return videos.add_upload(db, tenant, upload)


def _marked(db: Session, tenant: str) -> Iterator[Snap]:
    """The new ones among them. One that somebody deleted comes back, one that is only hidden does not."""
    template = next((each for each in templates.every(db, tenant) if each.slug == "gado" and each.is_active), None)
    wanted = {uuid5(VIDEO, animal.tag): animal for animal in _MARKED}
    known = {snap.id for snap in snaps.read_many(db, tenant, list(wanted), hidden_too=True)}
    for snap_id, animal in wanted.items():
        if snap_id not in known:
            snap, _ = snaps.create(db, tenant, _snap(snap_id, animal, template))
            yield snap


def _snap(snap_id: UUID, animal: Animal, template: Template | None) -> NewSnap:
    said: dict[str, str | float] = {
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
        subject=Subject(animal.tag, tuple(Attribute(key, value) for key, value in said.items())),
        filmed_at=_FILMED + timedelta(seconds=animal.passes),
        start_seconds=animal.passes - 0.5,
        duration_seconds=1.0,
        clip_seconds=2.0,
        overlay=_OVERLAY if animal is _SIGNED else None,
    )
