"""Broken versions of the queue that the lab must catch: each changes statement text, in a worker process only.

A test that has never failed proves little: these show that the checker bites.
"""

from dataclasses import dataclass

from tests.labs.chaos.checker import OVER_THE_CAP, RAN_EXHAUSTED, STALE
from tests.labs.chaos.statements import home

_FENCES = {
    "_COMPLETE": (" AND job.lease_seq = done.lease_seq", " AND job.status = 'RUNNING'"),
    "_END": (" AND job.lease_seq = its.lease_seq", " AND job.status = 'RUNNING'"),
    "_BEAT": (" AND job.lease_seq = held.lease_seq", " AND job.status = 'RUNNING'"),
}
_TOLD = "snap_id, attempt_count, max_attempts"
_CAPPED = "snap_id, least(attempt_count, max_attempts), max_attempts"


@dataclass(frozen=True, slots=True)
class Mutant:
    breaks: str  # what the checker must say of it, anywhere in a violation; the rest are side effects
    edits: tuple[tuple[str, str, str], ...]  # (statement, what it says, what it says instead)


MUTANTS = {
    # Whoever knows the id may settle and beat.
    "no-fence": Mutant(STALE, tuple((name, fence, "") for name, (fence, _) in _FENCES.items())),
    # The same as long as somebody, anybody, runs it: attempt 1 finishes attempt 2.
    "status-only-fence": Mutant(STALE, tuple((name, fence, status) for name, (fence, status) in _FENCES.items())),
    # A run that does not live to report its failure is never counted (beyond the one that a CHECK insists on).
    "attempt-at-failure": Mutant(
        OVER_THE_CAP,
        (
            ("_CLAIMED", "attempt_count = attempt_count + 1", "attempt_count = greatest(attempt_count, 1)"),
            (
                "_END",
                "least(job.attempt_count, job.max_attempts)",
                "least(job.attempt_count + (its.status = 'RETRY_WAIT')::integer, job.max_attempts)",
            ),
        ),
    ),
    # The cap is what makes a worker bury a job instead of running it: `attempt > max_attempts` in what the claim
    # returns. Here the claim never says more than the cap, so an exhausted job is claimed and run for ever.
    "claim-without-cap": Mutant(RAN_EXHAUSTED, (("_CLAIMED", _TOLD, _CAPPED),)),
}


def plant(mutant: str | None) -> None:
    """Called by a worker process before it starts."""
    if mutant is None:
        return
    for statement, says, instead in MUTANTS[mutant].edits:
        text: str = getattr(home(statement), statement)
        if says not in text:
            raise ValueError(f"{mutant}: {statement} does not say {says!r} any more")
        setattr(home(statement), statement, text.replace(says, instead))
