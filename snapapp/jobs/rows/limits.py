"""Limits and fair queues, as far as the workers look after them. The claim itself asks `job_let_in`."""

from dataclasses import dataclass

from snapapp.jobs.rows.database import Db, run


def relabel(db: Db) -> bool:
    """After the rules have changed: looks through a page of jobs, and says whether there are more."""
    return bool(run(db, "SELECT job_relabel()", {})[0][0])


def forget(db: Db) -> None:
    """A bucket that is full needs no row."""
    run(db, "DELETE FROM job_limit_key WHERE full_at < now() - interval '1 hour' RETURNING key", {})


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit and what runs under it: jobs, in how many keys, and how many of those are full."""

    key_pattern: str
    max_running: int | None
    rate: float | None
    burst: int | None
    keys_running: int
    running: int
    keys_full: int


_LIST = """
SELECT key_pattern, max_running, rate, burst, keys_running, running, keys_full FROM limit_overview ORDER BY key_pattern
"""


def limits(db: Db) -> list[Limit]:
    return [Limit(*row) for row in run(db, _LIST, {})]
