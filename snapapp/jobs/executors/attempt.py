"""One attempt at one job: runs the processor and turns its return value or error into an Outcome."""

import asyncio
import os
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from tenacity.wait import wait_base

from snapapp.jobs import payloads
from snapapp.jobs.context import Within
from snapapp.jobs.errors import (
    InvalidJob,
    JobCancelled,
    JobInterrupted,
    JobTimeout,
    LeaseLost,
    NoPlace,
    Permanent,
    Snooze,
)
from snapapp.jobs.model import (
    Buried,
    Dropped,
    Failure,
    Interrupted,
    Job,
    Outcome,
    Retried,
    Snoozed,
    Stopped,
    Succeeded,
    deciding,
    describe,
    to_json,
)
from snapapp.jobs.os.forks import end_if_forked
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import delay_after, wait_spread
from snapapp.jobs.settings import RetrySettings

WORKER_LOST = Failure("worker lost")
_NOTHING = Succeeded(None)
# With a delay, because as the oldest job due it would otherwise be claimed again before all others.
WITHOUT_PLACE = Snoozed(timedelta(seconds=30), ran=False)
_SHORTEST_SNOOZE = 1.0  # seconds; no attempt is used up, so without a pause the job would run in a loop for ever
_LONGEST_SNOOZE = timedelta(days=3650).total_seconds()

_BACKOFF = wait_spread(RetrySettings())  # used when a kind's own wait strategy raises


class ReportedError(Exception):
    """Stands for an error of a child or a program, of which only the text is known; wait strategies look at it."""


def run(job: Job, processor: Processor, wait: wait_base, within: Within | None = None) -> Outcome:
    """Runs the processor on this thread. Whatever it raises becomes an Outcome."""
    if job.exhausted:
        return exhausted(job, processor)
    process = os.getpid()
    try:
        payloads.fit(job, processor.function)
        result = processor.function(job) if within is None else within.run(job, processor.function)
        end_if_forked(process)
        return _NOTHING if result is None else Succeeded(to_json(result, what="result"))
    except BaseException as error:  # noqa: BLE001 - SystemExit in a processor fails its job, not the worker
        end_if_forked(process, error)
        return judge(job, error, processor.wait or wait)


async def run_async(
    job: Job, processor: Processor, wait: wait_base, timeout: float, within: Within | None = None
) -> Outcome:
    """Like `run`, on an event loop: here the time limit and a cancellation interrupt the processor at its awaits."""
    if job.exhausted:
        return exhausted(job, processor)
    process = os.getpid()
    try:
        payloads.fit(job, processor.function)
        async with asyncio.timeout(timeout):
            result = await (processor.function(job) if within is None else within.run_async(job, processor.function))
        end_if_forked(process)
        return _NOTHING if result is None else Succeeded(to_json(result, what="result"))
    except asyncio.CancelledError as error:
        return judge(job, job.stop or error, processor.wait or wait)
    except TimeoutError as error:
        late = JobTimeout(f"{job.kind} ran longer than its {timeout:g} s")
        is_deadline = job.deadline is not None and monotonic() >= job.deadline
        return judge(job, late if is_deadline else error, processor.wait or wait)
    except BaseException as error:  # noqa: BLE001 - as above
        end_if_forked(process, error)
        return judge(job, error, processor.wait or wait)


def exhausted(job: Job, processor: Processor) -> Outcome:
    """The outcome of a job whose attempts were used up by lost workers: it does not run. The payload is still converted
    to its type, because the `failed` hook reads it."""
    with suppress(Exception):  # a payload that does not fit its type must not keep the job from ending
        payloads.fit(job, processor.function)
    return Buried(WORKER_LOST, ran=False)


def judge(job: Job, error: BaseException, wait: wait_base) -> Outcome:
    """Returns the outcome of an attempt that raised this error."""
    error = deciding(error)
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
        case NoPlace():
            job.log(describe(error), level="WARNING")
            return WITHOUT_PLACE
    return failed(job, Failure.of(error), wait, error)


def snoozed(seconds: float) -> Snoozed:
    return Snoozed(timedelta(seconds=min(max(_SHORTEST_SNOOZE, seconds), _LONGEST_SNOOZE)))


def failed(job: Job, failure: Failure, wait: wait_base, error: BaseException | None = None) -> Outcome:
    """The outcome of an ordinary failure: another attempt later, or none when this was the last."""
    if job.attempt >= job.max_attempts:
        return Buried(failure)
    return Retried(failure, delay(job, failure, wait, error))


def delay(job: Job, failure: Failure, wait: wait_base, error: BaseException | None = None) -> timedelta:
    """The wait before the next attempt. The kind's wait strategy is application code: if it raises, its error must not
    hide the error of the attempt, so the default wait is used."""
    try:
        return delay_after(job.attempt, wait, error or ReportedError(failure.error))
    except Exception as broken:  # noqa: BLE001 - the strategy's edge
        job.log(f"its wait strategy raised {describe(broken)}: the default delay is used", level="WARNING")
        return delay_after(job.attempt, _BACKOFF)
