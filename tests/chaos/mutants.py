"""Broken versions of the queue that the lab must catch: each changes statement text, in a worker process only.

A test that has never failed proves little: these show that the checker bites.
"""

from snapapp.jobs import queue

_FENCES = {
    "_COMPLETE": (" AND job.lease_seq = done.lease_seq", " AND job.status = 'RUNNING'"),
    "_RETRY": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_BURY": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_SNOOZE": (" AND lease_seq = %(lease_seq)s", " AND status = 'RUNNING'"),
    "_BEAT": (" AND job.lease_seq = held.lease_seq", " AND job.status = 'RUNNING'"),
}
_CLAIMS = ("_CLAIM", "_CLAIM_ON", "_CLAIM_SUSPECT")

# name -> (statement, what it says, what it says instead)
MUTANTS: dict[str, list[tuple[str, str, str]]] = {
    # Whoever knows the id may settle and beat.
    "no-fence": [(name, fence, "") for name, (fence, _) in _FENCES.items()],
    # The same as long as somebody, anybody, runs it: attempt 1 finishes attempt 2.
    "status-only-fence": [(name, fence, status) for name, (fence, status) in _FENCES.items()],
    # A run that does not live to report its failure is never counted.
    "attempt-at-failure": [
        *((name, "attempt_count = attempt_count + 1", "attempt_count = attempt_count") for name in _CLAIMS),
        ("_RETRY", "next_retry_at =", "attempt_count = attempt_count + 1, next_retry_at ="),
    ],
    # The cap is what makes a worker bury a job instead of running it: `attempt > max_attempts` in what the claim
    # returns. Here the claim never says more than the cap, so an exhausted job is claimed and run for ever.
    "claim-without-cap": [
        (name, "snap_id, attempt_count, max_attempts", "snap_id, least(attempt_count, max_attempts), max_attempts")
        for name in _CLAIMS
    ],
}


def plant(mutant: str | None) -> None:
    if mutant is None:
        return
    for statement, says, instead in MUTANTS[mutant]:
        text: str = getattr(queue, statement)
        if says not in text:
            raise ValueError(f"{mutant}: {statement} does not say {says!r} any more")
        setattr(queue, statement, text.replace(says, instead))
