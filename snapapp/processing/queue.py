"""The queue as the domain's use cases know it: functions in a frozen value."""

from contextlib import suppress
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.orm import Session

from snapapp.domain import kinds
from snapapp.domain.transactions import Queue
from snapapp.jobs import ProcessingJob, enqueue
from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.rows import lifecycle


def _lock(db: Session, tenant: str, snap_id: UUID) -> int | None:
    """Before the snap's own row is locked: a worker that settles goes in that order, and in the other one the two could
    wait for each other."""
    its = select(ProcessingJob.id).where(
        ProcessingJob.snap_id == snap_id, ProcessingJob.tenant == tenant, ProcessingJob.kind == kinds.SNAP
    )
    return db.scalar(its.order_by(ProcessingJob.id.desc()).limit(1).with_for_update())


def _give_up(db: Session, job_id: int) -> None:
    with suppress(IllegalTransition):  # it has ended
        lifecycle.cancel(db, job_id)


QUEUE = Queue(enqueue, _lock, lifecycle.cancel, _give_up, lifecycle.retry_by_person)
