"""What the end of a job changes in the product's rows, in the transaction that settles the job."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from snapapp.domain import kinds, payloads, snaps, videos, webhooks
from snapapp.domain.webhooks import Event
from snapapp.errors import VideoNotFound, error_for_client
from snapapp.jobs import Job, Snooze, enqueue
from snapapp.jobs.model import Failure
from snapapp.jobs.rows import lifecycle
from snapapp.postgres.database import scope


def publish(db: Connection, job: Job, evidence: dict[str, Any]) -> None:
    """Writes the evidence into the snap. Nothing of an attempt is visible before this commits, and only the attempt
    that holds the job's lease gets here."""
    assert job.snap_id is not None
    if not lifecycle.is_still_ordered(db, job):  # the frames name a subject that was corrected meanwhile
        raise Snooze(timedelta(seconds=1))
    with scope(db, job.tenant) as as_tenant:
        was_published = snaps.complete(as_tenant, job.tenant, job.snap_id, snaps.Evidence(**evidence))
    if was_published:
        webhooks.announce(enqueue, db, job.tenant, job.snap_id, Event.COMPLETED, job.request_id)


def fail_snap(db: Connection, job: Job, failure: Failure) -> None:
    assert job.snap_id is not None
    with scope(db, job.tenant) as as_tenant:
        is_news = snaps.fail(as_tenant, job.tenant, job.snap_id, failure.error)
    if is_news:
        webhooks.announce(enqueue, db, job.tenant, job.snap_id, Event.FAILED, job.request_id)


def keep_probe(db: Connection, job: Job, probe: dict[str, Any]) -> None:
    with scope(db, job.tenant) as as_tenant:
        try:
            videos.set_probe(as_tenant, job.tenant, payloads.video_of(job.payload), probe)
        except VideoNotFound:
            job.log("the video was removed meanwhile")


def keep_reason(db: Connection, job: Job, failure: Failure) -> None:
    """Writes into the video's probe why the video cannot be used, where people see it."""
    keep_probe(db, job, {"compatible": False, "reason": error_for_client(failure.error)})


def forget_without_video(db: Connection, job: Job, _: object) -> None:
    """Has a copy or a still deleted whose video was deleted before it was made: the job that deletes the video's files
    may have run already. Where the job fails, too: an earlier attempt may have been killed when it had stored the
    file."""
    video_id = payloads.video_of(job.payload)
    with scope(db, job.tenant) as as_tenant, suppress(VideoNotFound):
        videos.read(as_tenant, job.tenant, video_id)
        return
    enqueue(db, kinds.FORGET, {"videoId": str(video_id)}, tenant=job.tenant, request_id=job.request_id)
