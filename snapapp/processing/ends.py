"""What the end of a job changes, in the transaction that settles it."""

from typing import Any

from sqlalchemy import Connection

from snapapp.domain import payloads, snaps, videos, webhooks
from snapapp.errors import VideoNotFound
from snapapp.jobs import Job, enqueue
from snapapp.jobs.model import Failure
from snapapp.postgres.database import scope


def publish(db: Connection, job: Job, evidence: dict[str, Any]) -> None:
    """Writes the evidence into the snap. Nothing of an attempt is visible before this commits, and of two attempts only
    the one that holds the lease gets here."""
    assert job.snap_id is not None
    with scope(db, job.tenant) as own:
        was_published = snaps.complete(own, job.tenant, job.snap_id, snaps.Evidence(**evidence))
    if was_published:
        webhooks.announce(enqueue, db, job.tenant, job.snap_id, "snap.completed", job.request_id)


def give_up(db: Connection, job: Job, failure: Failure) -> None:
    assert job.snap_id is not None
    with scope(db, job.tenant) as own:
        is_news = snaps.fail(own, job.tenant, job.snap_id, failure.error)
    if is_news:
        webhooks.announce(enqueue, db, job.tenant, job.snap_id, "snap.failed", job.request_id)


def keep_probe(db: Connection, job: Job, probe: dict[str, Any]) -> None:
    with scope(db, job.tenant) as own:
        try:
            videos.set_probe(own, job.tenant, payloads.video_of(job.payload), probe)
        except VideoNotFound:
            job.log("the video was removed meanwhile")


def keep_reason(db: Connection, job: Job, failure: Failure) -> None:
    """Writes into the video's probe why it cannot be used: that is what the operator sees."""
    keep_probe(db, job, {"compatible": False, "reason": failure.error.partition(": ")[2] or failure.error})
