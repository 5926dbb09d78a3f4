"""A slot whose jobs run in a child process on a node of the cluster. The slot watches the lease, the deadline and
cancellations from here."""

from dataclasses import replace
from time import monotonic
from typing import Any

from tenacity.wait import wait_base, wait_fixed

from snapapp.jobs.compute.cluster import Cluster, Place, Size
from snapapp.jobs.context import Within
from snapapp.jobs.errors import ChildDied, JobTimeout, NoPlace
from snapapp.jobs.executors import attempt
from snapapp.jobs.executors.children import Order, hear, outcome_of
from snapapp.jobs.executors.messages import fields
from snapapp.jobs.executors.runners import Runner
from snapapp.jobs.model import Failure, Interrupted, Job, Outcome, Retried
from snapapp.jobs.registry import Processor
from snapapp.jobs.settings import JobsSettings

_LARGER_IN = wait_fixed(300)  # seconds until a job too large for all nodes tries again: a larger node may come
_PLACE_IN = 30.0  # seconds that a job waits for a node; then the slot takes another job
_SAYS_IN = 10.0  # seconds after the job's deadline that a node may take to report its end
_STOPS_IN = 5.0  # seconds that a node may take to report that it killed the child


class Remote(Runner):
    """Only its slot's thread uses it; any thread may call `interrupt` and `shut`."""

    def __init__(self, cluster: Cluster, modules: tuple[str, ...], settings: JobsSettings, within: Within) -> None:
        super().__init__(settings)
        self._cluster = cluster
        self._modules = modules
        self._within = within
        self._place: Place | None = None

    def reserve(self, job: Job, processor: Processor) -> None:
        size = Size(self._memory_limit(job, processor), processor.cores)
        if self._exceeds_all(size):
            return  # `_attempt` fails it with the reason
        place = self._cluster.place(self._modules, *size)
        with self._lock:
            self._place = place
        with self._holding(job):
            message = {"stop": True} if job.stop else place.next(_PLACE_IN)
        if message is None:
            raise NoPlace(f"no node has taken {job.kind} job {job.id} within {_PLACE_IN:g} s")
        if "here" not in message and "stop" not in message:
            raise NoPlace(f"{job.kind} job {job.id} has no place: {message.get('refused') or message.get('lost')}")

    def _attempt(self, job: Job, processor: Processor, wait: wait_base, limit_mb: int) -> Outcome:
        if job.stop:
            raise job.stop
        size = Size(limit_mb, processor.cores)
        if self._exceeds_all(size):
            return self._too_large(job, size)
        place = self._place
        if place is None:  # `reserve` was skipped for a doubtful lease, or the first nodes came after it
            return Interrupted()
        order = Order(processor.path, self._within.path, limit_mb)
        seconds_left = (job.deadline or monotonic()) - monotonic()
        place.say({"job": fields(job), "order": order._asdict(), "within": seconds_left})
        end = self._end_of(job, place)
        job.cpu, job.peak = _number(end.get("cpu")), int(_number(end.get("peak")) or 0) or None
        if job.stop:
            raise job.stop
        if "leaving" in end:
            return Interrupted()
        if "failure" in end:
            report = end["failure"]
            failure = Failure.from_text(report["error"], report["trace"], lacked_memory=bool(report["lacked_memory"]))
            return attempt.failed(job, failure, wait)
        return outcome_of(job, end["answer"], wait, limit_mb)

    def _too_large(self, job: Job, size: Size) -> Outcome:
        """The outcome of a job that is too large for all nodes: it waits for a larger one while it has attempts."""
        sizes = " or ".join(f"{memory} MB and cores: {cores}" for memory, cores in sorted(self._cluster.sizes))
        error = NoPlace(
            f"{job.kind} job {job.id} wants {size.memory_mb} MB and cores: {size.cores}, and no node of the cluster "
            f"has been as large yet; they have {sizes}"
        )
        outcome = attempt.failed(job, Failure.of(error), _LARGER_IN)
        return replace(outcome, ran=False) if isinstance(outcome, Retried) else outcome

    def _exceeds_all(self, size: Size) -> bool:
        """Does the job need more than every node seen so far? Unknown, and so False, before the first node."""
        sizes = self._cluster.sizes
        return bool(sizes) and not any(each.holds(size) for each in sizes)

    @property
    def most_mb(self) -> int | None:
        return max((each.memory_mb for each in self._cluster.sizes), default=None)

    def _end_of(self, job: Job, place: Place) -> dict[str, Any]:
        until = (job.deadline or monotonic()) + _SAYS_IN
        while (message := place.next(until - monotonic())) is not None:
            if "lost" in message:
                raise ChildDied(f"the node {place.node} was lost, and with it the child process: {message['lost']}")
            if "stop" in message:
                place.say({"stop": True})
                until = min(until, monotonic() + _STOPS_IN)
            elif message.keys() & {"answer", "failure", "leaving"}:
                return message
            else:
                hear(message, job, self._within.tell)
        raise JobTimeout(f"{job.kind} job {job.id} was given up: its node {place.node} has not said how it ended")

    def prepare(self) -> None:
        """Lets go of the last job's place: each job gets its own."""
        self.close()

    def close(self) -> None:
        with self._lock:
            place, self._place = self._place, None
        if place:
            self._cluster.let_go(place)

    def interrupt(self, job: Job) -> None:
        with self._lock:
            if self._job is job and self._place:
                self._place.hear({"stop": True})

    def shut(self) -> None:
        with self._lock:
            if self._place:
                self._place.hear({"lost": "the worker is stopping"})


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
