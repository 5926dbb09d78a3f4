"""Broken versions of the queue that the lab must catch: each changes statement text, in a worker process only.

A test that has never failed proves little: these show that the checker bites.
"""

from dataclasses import dataclass

from snapapp.jobs import queue
from tests.chaos.checker import OVER_THE_CAP, RAN_EXHAUSTED, STALE

_FENCES = {
    "_COMPLETE": (" AND job.lease_seq = done.lease_seq", " AND job.status = 'RUNNING'"),
    "_RETRY": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_BURY": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_SNOOZE": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_BEAT": (" AND job.lease_seq = held.lease_seq", " AND job.status = 'RUNNING'"),
}
_TOLD = "snap_id, attempt_count, max_attempts"
_CAPPED = "snap_id, least(attempt_count, max_attempts), max_attempts"
_CLAIMS = ("_CLAIM", "_CLAIM_ON", "_CLAIM_SUSPECT")


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
            *(
                (name, "attempt_count = attempt_count + 1", "attempt_count = greatest(attempt_count, 1)")
                for name in _CLAIMS
            ),
            ("_RETRY", "next_retry_at =", "attempt_count = attempt_count + 1, next_retry_at ="),
        ),
    ),
    # The cap is what makes a worker bury a job instead of running it: `attempt > max_attempts` in what the claim
    # returns. Here the claim never says more than the cap, so an exhausted job is claimed and run for ever.
    "claim-without-cap": Mutant(RAN_EXHAUSTED, tuple((name, _TOLD, _CAPPED) for name in _CLAIMS)),
}


def plant(mutant: str | None) -> None:
    """Called by a worker process before it starts."""
    if mutant is None:
        return
    for statement, says, instead in MUTANTS[mutant].edits:
        text: str = getattr(queue, statement)
        if says not in text:
            raise ValueError(f"{mutant}: {statement} does not say {says!r} any more")
        setattr(queue, statement, text.replace(says, instead))
