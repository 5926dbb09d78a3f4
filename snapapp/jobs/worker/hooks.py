"""The end of an attempt whose kind has a hook: one transaction settles the job, which fails if its lease is lost, and
then runs the hook."""

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from psycopg.errors import IdleInTransactionSessionTimeout, TransactionTimeout
from tenacity.wait import wait_base

from snapapp.jobs import tracing
from snapapp.jobs.context import Within
from snapapp.jobs.errors import LeaseLost
from snapapp.jobs.executors.attempt import judge
from snapapp.jobs.model import Buried, Finished, Job, Outcome, Status, Succeeded, describe
from snapapp.jobs.os.forks import end_if_forked
from snapapp.jobs.os.shortage import is_shortage
from snapapp.jobs.registry import Processor
from snapapp.jobs.rows import settle
from snapapp.jobs.rows.database import is_away, waited_in_vain, was_in_conflict

if TYPE_CHECKING:
    from sqlalchemy import Connection

Transaction = Callable[[Job], AbstractContextManager["Connection"]]


class HookFailed(Exception):
    """A hook raised, so the transaction was rolled back: the job is not settled."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(describe(error))


class CommitFailed(Exception):
    """The settle with a `commit` hook failed and was rolled back. `finished` is the failure to settle instead."""

    def __init__(self, finished: Finished) -> None:
        self.finished = finished
        super().__init__(finished.job.id)


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
    wait: wait_base,
    within: Within,
    *,
    was_unsure: bool = False,
    blames_the_job: bool = False,
) -> Status | None:
    """Settles the job, then runs the hook, in one transaction. Returns None when the lease is lost. Raises CommitFailed
    when the attempt counts as failed: the caller then settles `CommitFailed.finished`.

    `was_unsure`: an earlier call lost its connection, perhaps after its COMMIT. So a lost lease may be our own commit.
    `blames_the_job`: calls have failed several times in a way that `may_be_the_jobs_doing`. One more such failure is
    the attempt's; until then the database is taken for the cause, and the caller tries again.
    """
    job, is_success = finished.job, isinstance(finished.outcome, Succeeded)
    try:
        return _settle(finished, processor, transaction, within)
    except LeaseLost:
        if not was_unsure:
            return None
        with transaction(job) as db:
            return settle.landed_already(db, job.lease)
    except BaseException as error:
        if not is_success or (is_worth_another_try(error) and not (blames_the_job and may_be_the_jobs_doing(error))):
            raise
        cause = error.error if isinstance(error, HookFailed) else error
        raise CommitFailed(finished._replace(outcome=judge(job, cause, processor.wait or wait))) from cause


def _settle(finished: Finished, processor: Processor, transaction: Transaction, within: Within) -> Status | None:
    job = finished.job
    with transaction(job) as db:
        status = settle.settle(db, finished)
        if status is None:
            raise LeaseLost(f"job {job.id} is no longer ours at lease {job.lease_seq}")
        hook = _hook(finished, processor, status)
        if hook:
            try:
                with tracing.span("hook", job.kind, under=job.traceparent), within(job, db):
                    _call(hook, db)
            except BaseException as error:
                raise HookFailed(error) from error
    return status


def _call(hook: "Callable[[Connection], None]", db: "Connection") -> None:
    """A process that the hook forks ends here: it would commit or roll back its parent's transaction."""
    process = os.getpid()
    try:
        hook(db)
    except BaseException as error:
        end_if_forked(process, error)
        raise
    end_if_forked(process)


def _hook(finished: Finished, processor: Processor, status: Status) -> "Callable[[Connection], None] | None":
    """Returns the hook to call for this end of the job, or None."""
    job, outcome, commit, failed = finished.job, finished.outcome, processor.commit, processor.failed
    if status is Status.COMPLETED and commit and isinstance(outcome, Succeeded):
        return lambda db: commit(db, job, _decoded(outcome))
    if status is Status.FAILED and failed and isinstance(outcome, Buried):
        return lambda db: failed(db, job, outcome.failure)
    return None


def _decoded(outcome: Succeeded) -> object:
    return None if outcome.result is None else json.loads(outcome.result)


def is_worth_another_try(error: BaseException) -> bool:
    """Is it not the job's fault? The server is away, slow or takes no writes, the pool is empty, another transaction
    was in the way, or this process has no descriptor or memory left. For which locks a hook waits, it decides
    itself."""
    if isinstance(error, HookFailed):
        return is_away(error.error) or was_in_conflict(error.error) or _was_ended(error.error)
    return is_away(error) or was_in_conflict(error) or waited_in_vain(error) or is_shortage(error)


def may_be_the_jobs_doing(error: BaseException) -> bool:
    """Is it an error that its hook or its row may cause each time? The hook raised, the server ended the transaction,
    which only the COMMIT after the hook may find, or it says that there was a conflict."""
    return isinstance(error, HookFailed) or _was_ended(error) or was_in_conflict(error)


def _was_ended(error: BaseException) -> bool:
    """Did the server end the transaction, because it stood still or took too long?"""
    return isinstance(getattr(error, "orig", error), IdleInTransactionSessionTimeout | TransactionTimeout)
