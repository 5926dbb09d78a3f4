"""What the worker of this process did since its start, as named numbers and as Prometheus's metric families."""

from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from snapapp.jobs import events
from snapapp.jobs.events import Event, Events
from snapapp.jobs.metrics.exposition import counter, gauge, histogram, summary
from snapapp.jobs.rows.costs import BOUNDS, Spent
from snapapp.jobs.rows.roster import Counts

PREFIX = "snap.jobs."


class Pruned:
    """Counts the finished jobs that were deleted for their age. The thread of the prune duty writes the count."""

    def __init__(self, emitter: Events) -> None:
        self.jobs = 0
        emitter.on(events.JOBS_PRUNED, self)

    def __call__(self, event: Event) -> None:
        self.jobs += event.facts["deleted"]


def numbers(counts: Counts, pruned: int) -> dict[str, float]:
    """The numbers by their public names. A duration is that of the attempt that ended its job; jobs that never began
    have none."""
    ended = list(counts.by_kind.values())
    ran = sum(one.ran for one in ended)
    named = {
        "claimed": counts.claimed,
        "retry.scheduled": counts.retried,
        "stale.recovered": counts.recovered,
        "cleanup.deleted": pruned,
        "processed": counts.completed + counts.failed + counts.cancelled,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "snoozed": counts.snoozed,
        "interrupted": counts.interrupted,
        "leases.lost": counts.lost,
        "terminal.avg.duration.ms": round(sum(one.ran_ms for one in ended) / ran, 3) if ran else 0.0,
        "terminal.max.duration.ms": round(max((one.longest_ms for one in ended), default=0.0), 3),
    }
    return {PREFIX + name: value for name, value in named.items()}


def families(counts: Counts, pruned: int, spent: Mapping[str, Spent]) -> Iterator[Metric]:
    for name, text, value in [
        ("claimed", "Jobs that this worker took from the queue.", counts.claimed),
        ("snoozed", "Attempts that asked to be run later.", counts.snoozed),
        ("interrupted", "Running jobs handed back because this worker stopped.", counts.interrupted),
        ("lease_lost", "Results that were not written, because the lease was lost.", counts.lost),
        ("recovered", "Jobs that this worker took back from dead workers.", counts.recovered),
        ("pruned", "Finished jobs that were deleted for their age.", pruned),
    ]:
        yield counter(f"snapapp_jobs_{name}_total", text, (value, {}))
    kinds = sorted(counts.by_kind.items())
    for name, text in [
        ("completed", "Jobs that succeeded."),
        ("failed", "Jobs that went to the dead letters."),
        ("cancelled", "Jobs that were cancelled while this worker had them."),
        ("retried", "Attempts that failed and will be retried."),
    ]:
        yield counter(
            f"snapapp_jobs_{name}_total", text, *((getattr(one, name), {"kind": kind}) for kind, one in kinds)
        )
    yield summary(
        "snapapp_job_duration_seconds",
        "How long the attempts ran that ended their jobs.",
        *((one.ran, one.ran_ms / 1000, {"kind": kind}) for kind, one in kinds),
    )
    yield gauge(
        "snapapp_job_duration_seconds_max",
        "The longest attempt that ended its job, since the start of this process.",
        *((one.longest_ms / 1000, {"kind": kind}) for kind, one in kinds),
    )
    attempts = [(its, {"kind": kind}) for kind, its in sorted(spent.items())]
    yield histogram(
        "snapapp_job_wait_seconds",
        "Seconds from when an attempt was due to when it began. Of many quick attempts an even sample stands for all.",
        BOUNDS,
        *((its.waited.counts, its.waited.seconds, of) for its, of in attempts),
    )
    yield histogram(
        "snapapp_job_run_seconds",
        "How long the attempts ran, however they ended; sampled like the waits.",
        BOUNDS,
        *((its.ran.counts, its.ran.seconds, of) for its, of in attempts),
    )
    yield summary(
        "snapapp_claim_duration_seconds",
        "How long the claims of this worker took, including those that found nothing.",
        (counts.claims, counts.claim_seconds, {}),
    )
