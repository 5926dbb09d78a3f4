"""The end of an attempt whose kind has a hook: settled and hooked in one transaction, the fence first."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import psycopg
from tenacity.wait import wait_base

from snapapp.jobs import tracing
from snapapp.jobs.context import Within
from snapapp.jobs.errors import LeaseLost
from snapapp.jobs.executors.attempt import judge
from snapapp.jobs.model import Buried, Finished, Job, Outcome, Status, Succeeded
from snapapp.jobs.registry import Processor
from snapapp.jobs.rows import settle
from snapapp.jobs.rows.database import is_away, is_pool_empty

if TYPE_CHECKING:
    from sqlalchemy import Connection

Transaction = Callable[[Job], AbstractContextManager["Connection"]]

_ANYBODY = Within()


class HookFailed(Exception):
    """A hook raised, so nothing landed."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(f"{type(error).__name__}: {error}")


class CommitFailed(Exception):
    """The `commit` hook raised, so nothing landed: `finished` is what the attempt has come to instead."""

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
    within: Within = _ANYBODY,
    *,
    was_unsure: bool = False,
    hook_may_come_again: bool = True,
) -> tuple[Finished, Status | None]:
    """Settles and runs the hook in one transaction, the fence first. CommitFailed: the attempt has failed, settle that.

    `was_unsure`: an earlier call lost its connection, perhaps after its commit, so look before believing in a loss.
    `hook_may_come_again`: a database that went away under the hook is no failure of the attempt. Without it, it is one:
    then it is the hook that loses its connection, each time.
    """
    job, is_success = finished.job, isinstance(finished.outcome, Succeeded)
    try:
        return finished, _settle(finished, processor, transaction, within)
    except LeaseLost:
        return finished, _landed_already(job, transaction) if was_unsure else None
    except HookFailed as hook:
        if not is_success or (hook_may_come_again and is_away(hook.error)):
            raise
        raise _commit_failed(finished, hook.error, processor.wait or wait) from hook.error
    except BaseException as error:
        if not is_success or queue_is_away(error):
            raise
        raise _commit_failed(finished, error, processor.wait or wait) from error


def _commit_failed(finished: Finished, error: BaseException, wait: wait_base) -> CommitFailed:
    return CommitFailed(finished._replace(outcome=judge(finished.job, error, wait)))


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
                    hook(db)
            except BaseException as error:
                raise HookFailed(error) from error
    return status


def _hook(finished: Finished, processor: Processor, status: Status) -> "Callable[[Connection], None] | None":
    """What is to be called for this end, if anything."""
    job, outcome, commit, failed = finished.job, finished.outcome, processor.commit, processor.failed
    if status is Status.COMPLETED and commit and isinstance(outcome, Succeeded):
        return lambda db: commit(db, job, _decoded(outcome))
    if status is Status.FAILED and failed and isinstance(outcome, Buried):
        return lambda db: failed(db, job, outcome.failure)
    return None


def _landed_already(job: Job, transaction: Transaction) -> Status | None:
    with transaction(job) as db:
        return settle.landed_already(db, job.lease)


def _decoded(outcome: Succeeded) -> object:
    return None if outcome.result is None else json.loads(outcome.result)


def queue_is_away(error: BaseException) -> bool:
    """Outside of the hook: the connection is broken, the server is gone, the pool has none left, or somebody has locked
    the row. Not the job's fault, and worth trying again."""
    cause = getattr(error, "orig", error)
    return isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError) or is_pool_empty(cause)
