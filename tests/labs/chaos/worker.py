"""A worker process of the lab: the product's worker as it is, with everything that it does written down."""

import functools
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from snapapp.jobs import events
from snapapp.jobs.events import Event
from snapapp.jobs.executors.children import Child
from snapapp.jobs.model import Finished, Interrupted, Job, Lease, Status, Succeeded
from snapapp.jobs.os import processes
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.process import runtime as runtimes
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import claim, settle
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker import hooks
from tests.labs.chaos import kinds, mutants
from tests.labs.chaos.cuts import Scissors
from tests.labs.chaos.recorder import Recorder
from tests.labs.chaos.statements import home


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How the workers of a lab behave: as in production, ten times faster."""

    lease_for: timedelta = timedelta(seconds=3)
    beat_every: timedelta = timedelta(seconds=0.5)
    recover_every: timedelta = timedelta(seconds=1)
    concurrency: int = 4
    async_concurrency: int = 8
    children: int = 1
    batch_size: int = 20
    hook_deadline: timedelta = timedelta(seconds=1.5)  # half of a lease, as there: a frozen hook keeps its row locked

    def settings(self, url: str) -> JobsSettings:
        return JobsSettings(
            database_url=url,
            lease_for=self.lease_for,
            beat_every=self.beat_every,
            recover_every=self.recover_every,
            concurrency=self.concurrency,
            async_concurrency=self.async_concurrency,
            children=self.children,
            batch_size=self.batch_size,
            poll_delay=timedelta(seconds=0.2),
            shutdown_grace=timedelta(seconds=5),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What one worker process is told."""

    url: str
    folder: Path
    profile: Profile = field(default_factory=Profile)
    kinds: tuple[str, ...] = ()  # empty: all of them
    elsewhere: bool = False  # as if on a machine of its own: nobody sees its end, its leases must run out
    mutant: str | None = None
    cuts: float = 0.0  # the share of calls after which the connection breaks
    seed: int = 0


def run(spec: Spec) -> None:
    """Until SIGTERM, or until the lab itself is gone."""
    with Signals() as signals:
        _work(spec, signals)


def _work(spec: Spec, signals: Signals) -> None:
    _end_with_the_lab()
    tempfile.tempdir = str(spec.folder)  # what a kill leaves behind goes with the folder
    if spec.elsewhere:
        processes.machine = lambda: f"lab-{os.getpid()}"
    mutants.plant(spec.mutant)
    runtimes._HOOK_DEADLINE = spec.profile.hook_deadline
    runtime = runtimes.Runtime(spec.profile.settings(spec.url), registry=_registry(spec.kinds))
    recorder = Recorder(spec.folder, "worker")
    scissors = Scissors(spec.cuts, f"{spec.seed} {os.getpid()}", recorder.write)
    scissors.hold_to_the_queue()
    runtime.transaction = scissors.around(runtime.transaction)  # type: ignore[method-assign, assignment]
    worker = runtime.worker()
    recorder.worker = worker.id
    os.environ["PGOPTIONS"] = f"-c chaos.worker={worker.id}"  # every connection from now on says whose it is
    kinds.record_to(recorder)
    _overhear(recorder)
    runtime.events.on(None, functools.partial(_record_event, recorder))
    worker.start()
    recorder.write("worker", elsewhere=spec.elsewhere)
    while signal.SIGTERM not in signals.take():  # Ctrl-C is for the lab, which then ends its workers
        signals.wait()
    worker.stop()
    runtime.close()
    recorder.write("worker stopped")


def _registry(names: tuple[str, ...]) -> Registry:
    chosen = Registry()
    for processor in kinds.registry:
        if not names or processor.kind in names:
            chosen.add(processor)
    return chosen


def _end_with_the_lab() -> None:
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent:
            parent.join()
            os._exit(9)

    threading.Thread(target=watch, name="lab", daemon=True).start()


def ignore(*_: Any) -> None:
    """Nothing is to be told."""


# --- what is overheard --------------------------------------------------------------------------------------------


def _overhear(recorder: Recorder) -> None:
    """Wraps the statements where the worker looks them up, so that its log has the lease of every try."""
    _wrap(claim, "claim", lambda claimed, *_: _claimed(recorder, claimed.jobs))
    _wrap(home("recover"), "recover", lambda ids, *_: recorder.write("recovered", jobs=ids) if ids else None)
    _wrap(home("release"), "release", lambda ids, _db, worker, *_: recorder.write("released", jobs=ids, of=worker))
    _wrap(Child, "run", before=lambda _child, job, *_: None if job.exhausted else kinds.note_start(job))
    complete, settle_batch, settle_with_hook = settle.complete, settle.settle_batch, hooks.settle_with_hook

    def recorded_complete(
        db: Any, finished: Iterable[tuple[Lease, str | None, float]], *, patience: str | None = None
    ) -> set[int]:
        done = list(finished)
        if not isinstance(db, psycopg.Connection):  # in a hook's transaction, which is told below
            return complete(db, done, patience=patience)
        tries = [[lease.id, lease.lease_seq] for lease, _, _ in done]
        recorder.write("complete try", leases=tries)
        with _telling_unknown(recorder, "complete", leases=tries):
            landed = complete(db, done, patience=patience)
        refused = [one for one in tries if one[0] not in landed]
        recorder.write("complete", ok=[one for one in tries if one[0] in landed], refused=refused)
        return landed

    def recorded_batch(db: Any, batch: Sequence[Finished], **options: Any) -> settle.Settled:
        if type(batch[0].outcome) is Succeeded:  # told above
            return settle_batch(db, batch, **options)
        with _telling_unknown(recorder, "settle", leases=[[*one.job.lease] for one in batch]):
            settled = settle_batch(db, batch, **options)
        _handed_back(recorder, settled, batch)
        return settled

    def recorded_settle(finished: Finished, *others: Any, **options: Any) -> Status | None:
        lease = list(finished.job.lease)
        recorder.write("settle try", lease=lease, outcome=type(finished.outcome).__name__)
        with _telling_unknown(recorder, "settle", leases=[lease]):
            status = settle_with_hook(finished, *others, **options)
        recorder.write("settle", lease=lease, status=status)
        return status

    settle.complete = recorded_complete
    settle.settle_batch = recorded_batch
    hooks.settle_with_hook = recorded_settle


class _telling_unknown:  # noqa: N801 - reads as a statement
    """A call that raises after its statement was sent: whether it landed is not known."""

    def __init__(self, recorder: Recorder, what: str, **facts: Any) -> None:
        self._tell = functools.partial(recorder.write, f"{what} info", **facts)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error:
            self._tell(error=f"{type(error).__name__}: {error}")


def _wrap(owner: Any, name: str, after: Callable[..., None] = ignore, *, before: Callable[..., None] = ignore) -> None:
    """`before` hears the arguments, `after` the answer and the arguments."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        before(*arguments)
        answer = function(*arguments, **options)
        after(answer, *arguments)
        return answer

    setattr(owner, name, wrapped)


def _handed_back(recorder: Recorder, settled: settle.Settled, batch: Sequence[Finished]) -> None:
    ids = [one.job.id for one in batch if isinstance(one.outcome, Interrupted) and one.job.id in settled.landed]
    if ids:
        recorder.write("handed back", jobs=ids)


def _claimed(recorder: Recorder, jobs: list[Job]) -> None:
    if jobs:
        recorder.write("claim", jobs=[[job.id, job.lease_seq, job.attempt] for job in jobs])


_TOLD = {
    events.JOB_COMPLETED: "completed",
    events.JOB_RETRIED: "retry",
    events.JOB_FAILED: "dead",
    events.JOB_INTERRUPTED: "hand-back",
    events.JOB_CANCELLED: "cancelled",
    events.JOB_LOST: "lease lost",
    events.WORKER_RECOVERED: "takes over",
    events.WORKER_ERROR: "error",
    events.HOOK_DROPPED: "hook dropped",
}


def _record_event(recorder: Recorder, event: Event) -> None:
    told = _TOLD.get(event.name)
    if told:
        facts = {name: value for name, value in event.facts.items() if name in _FACTS}
        recorder.write(told, **facts)


_FACTS = frozenset({"job_id", "attempt", "status", "kind", "error", "doing", "why", "recovered", "job_ids"})
