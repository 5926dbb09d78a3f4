"""How an attempt ends on its slot: it is told, and goes to the settler, or to its hook."""

import logging
import threading
from time import monotonic

from tenacity.wait import wait_base

from snapapp.jobs import events
from snapapp.jobs.model import Buried, Dropped, Finished, Job, Outcome, Retried, Succeeded
from snapapp.jobs.registry import Processor
from snapapp.jobs.retry import pause_after
from snapapp.jobs.worker import finish
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.settler import Settler
from snapapp.jobs.worker.watchdog import Watchdog

_HOOK_TRIES = 3  # of a hook, or of a row, that fails each time


class Conclusion:
    def __init__(
        self, parts: WorkerParts, settler: Settler, watchdog: Watchdog, wait: wait_base, closed: threading.Event
    ) -> None:
        self._parts = parts
        self._settler = settler
        self._watchdog = watchdog
        self._wait = wait
        self._closed = closed

    def write(self, job: Job, processor: Processor, outcome: Outcome) -> None:
        finished = Finished(job, outcome, monotonic() - (job.started_at or 0.0))
        self._tell(finished)
        if (processor.commit or processor.failed) and finish.needs_a_hook(processor, outcome):
            self._settle_with_hook(finished, processor)
        else:
            self._settler.put(finished)

    def let_go(self, job: Job, error: BaseException) -> None:
        """Or the beat would keep its lease alive for ever."""
        self._parts.complain("work", error)
        self._settler.put(Finished(job, Dropped(), None))

    def _settle_with_hook(self, finished: Finished, processor: Processor) -> None:
        """On the job's own slot, so that a slow hook costs this slot only. Waits for a database that is away."""
        failures = hooks_failed = 0
        while not self._closed.is_set():
            try:
                with self._watchdog.expecting(finished.job, monotonic()):
                    settled, status = finish.settle_with_hook(
                        finished,
                        processor,
                        self._parts.transaction,
                        self._wait,
                        self._parts.within,
                        was_unsure=failures > 0,
                        hook_may_come_again=hooks_failed + 1 < _HOOK_TRIES,
                    )
                self._settler.settled_elsewhere(settled, status)
                return
            except finish.CommitFailed as refused:
                finished = refused.finished  # for good: if its `failed` hook has to be dropped, it is still no success
                hooks_failed = 0  # that one has its own tries
            except BaseException as error:  # noqa: BLE001 - the hook's edge; it may call sys.exit()
                failures += 1
                hooks_failed += isinstance(error, finish.HookFailed)
                self._parts.complain("settle with hook", error)
                if hooks_failed >= _HOOK_TRIES or (failures >= _HOOK_TRIES and not finish.queue_is_away(error)):
                    self._drop_hook(finished, error)
                    return
                self._closed.wait(pause_after(failures))

    def _drop_hook(self, finished: Finished, error: BaseException) -> None:
        """A `failed` hook that keeps raising is dropped: the job must reach the dead letters. A `commit` never is: it
        has come back as CommitFailed."""
        assert not isinstance(finished.outcome, Succeeded)
        job = finished.job
        why = f"{type(error).__name__}: {error}"
        self._parts.events.emit(
            events.HOOK_DROPPED, logging.ERROR, worker_id=self._parts.id, job_id=job.id, kind=job.kind, error=why
        )
        self._settler.put(finished)

    def _tell(self, finished: Finished) -> None:
        """How the processor ended; not what becomes of the job, which the settle tells."""
        hears, emit = self._parts.events.hears, self._parts.events.emit
        if not (hears(events.JOB_PROCESSED) or hears(events.JOB_ERRORED)):
            return
        facts = self._parts.facts(finished.job) | {"duration_ms": round((finished.ran_for or 0.0) * 1000, 3)}
        match finished.outcome:
            case Succeeded():
                emit(events.JOB_PROCESSED, **facts)
            case Retried(failure) | Buried(failure, ran=True):
                emit(events.JOB_ERRORED, **facts, error=failure.error)
