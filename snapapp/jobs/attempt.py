"""One attempt at one job: run it, turn whatever happens into an Outcome, and settle that in a transaction."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from time import monotonic

import psycopg
import sqlalchemy
from sqlalchemy import Connection
from tenacity.wait import wait_base

from snapapp.jobs import queue
from snapapp.jobs.context import Within
from snapapp.jobs.errors import InvalidJob, JobCancelled, JobInterrupted, JobTimeout, LeaseLost, Permanent, Snooze
from snapapp.jobs.model import (
    Buried,
    Dropped,
    Failure,
    Finished,
    Interrupted,
    Job,
    Outcome,
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
    describe,
    to_json,
)
from snapapp.jobs.notes import Notes
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import delay_after, wait_spread
from snapapp.jobs.settings import RetrySettings

WORKER_LOST = Failure("worker lost")
_NOTHING = Succeeded(None)
_LONGEST_SNOOZE = timedelta(days=3650).total_seconds()

_ANYBODY = Within()
_BACKOFF = wait_spread(RetrySettings())  # where a kind's own strategy raises

Transaction = Callable[[Job], AbstractContextManager[Connection]]


class Told(Exception):
    """A failure that we know by hearsay, from a child or a program; for strategies that look at the error."""


class CommitFailed(Exception):
    """The `commit` hook raised, so nothing landed: `finished` is what the attempt has come to instead."""

    def __init__(self, finished: Finished) -> None:
        self.finished = finished
        super().__init__(finished.job.id)


def run(job: Job, processor: Processor, wait: wait_base, within: Within | None = None) -> Outcome:
    """Runs the processor here and now. Nothing that it raises gets past this function."""
    if job.exhausted:
        return Buried(WORKER_LOST, ran=False)
    try:
        result = processor.function(job) if within is None else within.run(job, processor.function)
        return _NOTHING if result is None else Succeeded(to_json(result, what="result"))
    except BaseException as error:  # noqa: BLE001 - SystemExit in a processor fails its job, not the worker
        return judge(job, error, processor.wait or wait)


async def run_async(
    job: Job, processor: Processor, wait: wait_base, timeout: float, within: Within | None = None
) -> Outcome:
    """The same on an event loop, where a deadline and a cancel can bite."""
    if job.exhausted:
        return Buried(WORKER_LOST, ran=False)
    try:
        async with asyncio.timeout(timeout):
            result = await (processor.function(job) if within is None else within.wait(job, processor.function))
        return _NOTHING if result is None else Succeeded(to_json(result, what="result"))
    except asyncio.CancelledError as error:
        return judge(job, job.stop or error, processor.wait or wait)
    except TimeoutError as error:
        late = JobTimeout(f"{job.kind} job {job.id} ran longer than its {timeout:g} s")
        is_ours = job.deadline is not None and monotonic() >= job.deadline
        return judge(job, late if is_ours else error, processor.wait or wait)
    except BaseException as error:  # noqa: BLE001 - as above
        return judge(job, error, processor.wait or wait)


def judge(job: Job, error: BaseException, wait: wait_base) -> Outcome:
    """What an error means for the job."""
    match error:
        case Snooze():
            return snoozed(error.delay.total_seconds())
        case JobCancelled():
            return Stopped(Failure.of(error))
        case JobInterrupted():
            return Interrupted()
        case LeaseLost():
            return Dropped()
        case Permanent() | InvalidJob():
            return Buried(Failure.of(error))
    return failed(job, Failure.of(error), wait, error)


def snoozed(seconds: float) -> Snoozed:
    return Snoozed(timedelta(seconds=min(max(0.0, seconds), _LONGEST_SNOOZE)))


def failed(job: Job, failure: Failure, wait: wait_base, error: BaseException | None = None) -> Outcome:
    """An ordinary failure: again later, or over."""
    if job.attempt >= job.max_attempts:
        return Buried(failure)
    return Retried(failure, delay(job, failure, wait, error))


def delay(job: Job, failure: Failure, wait: wait_base, error: BaseException | None = None) -> timedelta:
    """A strategy is the application's code, and may raise: that must not take the place of what went wrong."""
    try:
        return delay_after(job.attempt, wait, error or Told(failure.error))
    except Exception as broken:  # noqa: BLE001 - its edge
        job.log(f"its wait strategy raised {describe(broken)}: the default delay is used", level="WARNING")
        return delay_after(job.attempt, _BACKOFF)


def needs_a_hook(processor: Processor, outcome: Outcome) -> bool:
    match outcome:
        case Succeeded():
            return processor.commit is not None
        case Buried():
            return processor.failed is not None
    return False


def settle_with_hook(
    finished: Finished,
    processor: Processor,
    transaction: Transaction,
    notes: Notes,
    wait: wait_base,
    within: Within = _ANYBODY,
    *,
    was_unsure: bool = False,
) -> tuple[Finished, Status | None]:
    """Settles and runs the hook in one transaction, the fence first. CommitFailed: the attempt has failed, settle that.

    `was_unsure`: an earlier call lost its connection, perhaps after its commit, so look before believing in a loss.
    """
    job = finished.job
    try:
        return finished, _settle(finished, processor, transaction, notes, within)
    except LeaseLost:
        return finished, _landed_already(job, transaction) if was_unsure else None
    except Exception as error:
        if not isinstance(finished.outcome, Succeeded) or queue_is_away(error):
            raise
        raise CommitFailed(finished._replace(outcome=judge(job, error, processor.wait or wait))) from error


def _settle(
    finished: Finished, processor: Processor, transaction: Transaction, notes: Notes, within: Within
) -> Status | None:
    job = finished.job
    with transaction(job) as db:
        notes.write(db, job.lease)
        status = queue.settle(db, finished)
        if status is None:
            raise LeaseLost(f"job {job.id} is no longer ours at lease {job.lease_seq}")
        if status is Status.COMPLETED and processor.commit and isinstance(finished.outcome, Succeeded):
            with within(job, db):
                processor.commit(db, job, _decoded(finished.outcome))
        elif status is Status.FAILED and processor.failed and isinstance(finished.outcome, Buried):
            with within(job, db):
                processor.failed(db, job, finished.outcome.failure)
    return status


def _landed_already(job: Job, transaction: Transaction) -> Status | None:
    with transaction(job) as db:
        return queue.landed_already(db, job.lease)


def _decoded(outcome: Succeeded) -> object:
    return None if outcome.result is None else json.loads(outcome.result)


def queue_is_away(error: BaseException) -> bool:
    """The connection is broken, the server is gone or the pool has none left: not the job's fault, and worth trying
    again."""
    cause = getattr(error, "orig", error)
    return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError | sqlalchemy.exc.TimeoutError)
