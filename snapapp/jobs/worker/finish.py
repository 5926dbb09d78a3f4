"""How an attempt ends on its slot: an event reports it; then the slot settles a job that has a hook, and the settler
settles the others."""

import logging
import threading
from time import monotonic

from tenacity.wait import wait_base

from snapapp.jobs import events
from snapapp.jobs.model import Buried, Dropped, Finished, Interrupted, Job, Outcome, Retried, Succeeded, describe
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import pause_after
from snapapp.jobs.worker import hooks
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.watchdog import Watchdog

_TRIES = 3  # for a hook that raises, and for a row that PostgreSQL refuses, each time


class Finish:
    def __init__(
        self, parts: WorkerParts, settler: Settler, watchdog: Watchdog, wait: wait_base, closed: threading.Event
    ) -> None:
        self._parts = parts
        self._settler = settler
        self._watchdog = watchdog
        self._wait = wait
        self._closed = closed

    def settle(self, job: Job, processor: Processor, outcome: Outcome) -> None:
        finished = Finished(job, outcome, monotonic() - (job.started_at or 0.0))
        self._report_attempt(finished)
        if not self._settler.take_end(job):  # the worker stops, and has handed the job back
            return
        if hooks.needs_a_hook(processor, outcome):
            self._settle_with_hook(finished, processor)
        else:
            self._settler.put(finished)

    def drop(self, job: Job, error: BaseException) -> None:
        """Drops a job whose slot failed outside of the attempt: beats would keep the lease of a held job for ever."""
        self._parts.complain("work", error)
        self._settler.put(Finished(job, Dropped(), None))

    def _settle_with_hook(self, finished: Finished, processor: Processor) -> None:
        """Settles on the job's own slot: a slow hook holds up this slot only. Waits while the database is away, and
        hands the job back when the worker stops meanwhile."""
        failures = by_the_job = 0
        while True:
            try:
                with self._watchdog.expecting(finished.job, monotonic()):
                    status = hooks.settle_with_hook(
                        finished,
                        processor,
                        self._parts.transaction,
                        self._wait,
                        self._parts.within,
                        was_unsure=failures > 0,
                        blames_the_job=by_the_job + 1 >= _TRIES,
                    )
                self._settler.settled_elsewhere(finished, status)
                return
            except hooks.CommitFailed as refused:
                finished = refused.finished  # from here on a failure, even if its `failed` hook has to be dropped
                by_the_job = 0  # the `failed` hook gets its own tries
            except BaseException as error:  # noqa: BLE001 - a hook may raise anything, SystemExit too
                failures += 1
                by_the_job += hooks.may_be_the_jobs_doing(error)
                self._parts.complain("settle with hook", error)
                if by_the_job >= _TRIES or (failures >= _TRIES and not hooks.is_worth_another_try(error)):
                    self._drop_hook(finished, error)
                    return
                if self._closed.wait(pause_after(failures)):
                    self._settler.put(Finished(finished.job, Interrupted(), None))
                    return

    def _drop_hook(self, finished: Finished, error: BaseException) -> None:
        """Settles without the `failed` hook when that keeps raising: the job must reach the dead letters. A `commit`
        hook is never dropped: when it raises, `hooks` turns the attempt into a failure (CommitFailed)."""
        assert not isinstance(finished.outcome, Succeeded)
        job = finished.job
        about = {"worker_id": self._parts.id, "job_id": job.id, "kind": job.kind}
        self._parts.events.emit(events.HOOK_DROPPED, logging.ERROR, **about, error=describe(error))
        self._settler.put(finished)

    def _report_attempt(self, finished: Finished) -> None:
        """Emits how the processor ended. What becomes of the job is the settler's event."""
        hears, emit = self._parts.events.hears, self._parts.events.emit
        if not (hears(events.JOB_PROCESSED) or hears(events.JOB_ERRORED)):
            return
        facts = self._parts.facts(finished.job) | {"duration_ms": round((finished.ran_for or 0.0) * 1000, 3)}
        match finished.outcome:
            case Succeeded():
                emit(events.JOB_PROCESSED, **facts)
            case Retried(failure) | Buried(failure, ran=True):
                emit(events.JOB_ERRORED, **facts, error=failure.error)
