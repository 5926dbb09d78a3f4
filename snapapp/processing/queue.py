"""The queue's functions that the domain's use cases call, as one frozen value."""

from contextlib import suppress
from uuid import UUID

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, aliased

from snapapp.domain import kinds
from snapapp.domain.tables import SnapJob
from snapapp.domain.transactions import Queue
from snapapp.jobs import ProcessingJob, enqueue
from snapapp.jobs.errors import IllegalTransition
from snapapp.jobs.rows import lifecycle

# From the queue's table, because the view of snaps' jobs shows its rows to a tenant's role only. The condition names a
# column, and so makes the subquery's columns now: two threads that were first at once each made their own, and those
# of one were not in the statement that was kept.
_ROW = select(ProcessingJob).subquery()
_ENQUEUED = select(aliased(SnapJob, _ROW, adapt_on_names=True)).where(_ROW.c.id == bindparam("id"))


def _enqueued(db: Session, job_id: int) -> SnapJob:
    return db.scalars(_ENQUEUED, {"id": job_id}).one()


def _lock(db: Session, tenant: str, snap_id: UUID) -> int | None:
    """Locks the job of a snap. Callers do so before they lock the snap's row, in the same order as a worker that
    settles the job: in the other order the two could deadlock."""
    jobs_of_snap = select(ProcessingJob.id).where(
        ProcessingJob.snap_id == snap_id, ProcessingJob.tenant == tenant, ProcessingJob.kind == kinds.SNAP
    )
    return db.scalar(jobs_of_snap.order_by(ProcessingJob.id.desc()).limit(1).with_for_update())


def _give_up(db: Session, job_id: int) -> None:
    with suppress(IllegalTransition):  # the job has ended
        lifecycle.cancel(db, job_id)


QUEUE = Queue(
    enqueue=enqueue,
    enqueued=_enqueued,
    lock=_lock,
    cancel=lifecycle.cancel,
    give_up=_give_up,
    retry=lifecycle.retry_by_person,
    order_anew=lifecycle.order_anew,
)
