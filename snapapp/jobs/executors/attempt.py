"""One attempt at one job: run it, and turn whatever happens into an Outcome."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from time import monotonic

from tenacity.wait import wait_base

from snapapp.jobs import payloads
from snapapp.jobs.context import Within
from snapapp.jobs.errors import InvalidJob, JobCancelled, JobInterrupted, JobTimeout, LeaseLost, Permanent, Snooze
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
    describe,
    to_json,
)
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import delay_after, wait_spread
from snapapp.jobs.settings import RetrySettings

WORKER_LOST = Failure("worker lost")
_NOTHING = Succeeded(None)
_LONGEST_SNOOZE = timedelta(days=3650).total_seconds()

_ANYBODY = Within()
_BACKOFF = wait_spread(RetrySettings())  # where a kind's own strategy raises


class Told(Exception):
    """A failure that we know by hearsay, from a child or a program; for strategies that look at the error."""


def run(job: Job, processor: Processor, wait: wait_base, within: Within | None = None) -> Outcome:
    """Runs the processor here and now. Nothing that it raises gets past this function."""
    if job.exhausted:
        return over(job, processor)
    try:
        payloads.fit(job, processor.function)
        result = processor.function(job) if within is None else within.run(job, processor.function)
        return _NOTHING if result is None else Succeeded(to_json(result, what="result"))
    except BaseException as error:  # noqa: BLE001 - SystemExit in a processor fails its job, not the worker
        return judge(job, error, processor.wait or wait)


async def run_async(
    job: Job, processor: Processor, wait: wait_base, timeout: float, within: Within | None = None
) -> Outcome:
    """The same on an event loop, where a deadline and a cancel can bite."""
    if job.exhausted:
        return over(job, processor)
    try:
        payloads.fit(job, processor.function)
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


def over(job: Job, processor: Processor) -> Outcome:
    """Its attempts were used up elsewhere. Its hook sees the payload as the others do."""
    with suppress(Exception):  # whatever is wrong with its type, it must end
        payloads.fit(job, processor.function)
    return Buried(WORKER_LOST, ran=False)


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
