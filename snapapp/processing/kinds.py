"""The processors of videos and snaps, and what their ends change. Whatever touches a video runs in a child: it may be
anybody's, and decoders have been broken into before. The darkroom is imported there: PyAV and Pillow take 21 MB."""

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection
from tenacity import wait_fixed

from snapapp import snaps, videos
from snapapp.db import scope
from snapapp.errors import VideoNotFound
from snapapp.jobs import Job, processor
from snapapp.jobs.model import Failure
from snapapp.processing import hooks, orders

_HEAVY, _LIGHT = "media", "light"  # a long clip never keeps a probe waiting


def publish(db: Connection, job: Job, evidence: dict[str, Any]) -> None:
    """Nothing of an attempt is seen before this commits, and of two attempts only one gets here."""
    assert job.snap_id is not None
    with scope(db, job.tenant):
        was_published = snaps.complete(db, job.tenant, job.snap_id, snaps.Evidence(**evidence))
    if was_published:
        hooks.announce(db, job.tenant, job.snap_id, "snap.completed", job.request_id)


def give_up(db: Connection, job: Job, failure: Failure) -> None:
    assert job.snap_id is not None
    with scope(db, job.tenant):
        is_news = snaps.fail(db, job.tenant, job.snap_id, failure.error)
    if is_news:
        hooks.announce(db, job.tenant, job.snap_id, "snap.failed", job.request_id)


@processor(orders.SNAP, queue=_HEAVY, executor="process", timeout=timedelta(minutes=5), commit=publish, failed=give_up)
def process_snap(job: Job) -> dict[str, Any]:
    """A moment becomes frames, a clip, and what is told of them."""
    from snapapp.processing import darkroom

    return darkroom.here().snap(job)


@processor(
    orders.EXTRACT, queue=_HEAVY, executor="process", timeout=timedelta(minutes=1), max_attempts=2, wait=wait_fixed(1)
)
def extract_frames(job: Job) -> dict[str, Any]:
    """The evidence of a moment for somebody who waits for it, so a second attempt comes soon, and a third never."""
    from snapapp.processing import darkroom

    return darkroom.here().frames(job)


def keep_probe(db: Connection, job: Job, probe: dict[str, Any]) -> None:
    with scope(db, job.tenant):
        try:
            videos.set_probe(db, job.tenant, orders.video_of(job.payload), probe)
        except VideoNotFound:
            job.log("the video was removed meanwhile")


def keep_reason(db: Connection, job: Job, failure: Failure) -> None:
    """What is no usable video says so, where the operator looks."""
    keep_probe(db, job, {"compatible": False, "reason": failure.error.partition(": ")[2] or failure.error})


@processor(
    orders.PROBE, queue=_LIGHT, executor="process", timeout=timedelta(minutes=1), commit=keep_probe, failed=keep_reason
)
def probe_video(job: Job) -> dict[str, Any]:
    """What a video is, as soon as it was uploaded."""
    from snapapp.processing import darkroom

    return darkroom.here().probe(job)


@processor(orders.PREVIEW, queue=_HEAVY, executor="process", timeout=timedelta(hours=1))
def make_preview(job: Job) -> None:
    """A copy that every browser plays, with the same timestamps."""
    from snapapp.processing import darkroom

    darkroom.here().preview(job)


@processor(orders.STILL, queue=_LIGHT, executor="process", timeout=timedelta(minutes=1), max_attempts=2)
def take_still(job: Job) -> None:
    """One frame, for stepping through a video."""
    from snapapp.processing import darkroom

    darkroom.here().still(job)
