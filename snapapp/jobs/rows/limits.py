"""Limits and fair queues: what workers maintain, and the overview. The claim applies them by `job_let_in`."""

from dataclasses import dataclass

from snapapp.jobs.rows.database import Db, run


def relabel(db: Db) -> bool:
    """After the rules have changed: gives one page of waiting jobs their new labels. True: there are more pages."""
    return bool(run(db, "SELECT job_relabel()", {})[0][0])


def exist(db: Db) -> bool:
    """Is there a limit or a fair queue, or a job that is still labelled by an old one?"""
    return bool(run(db, "SELECT job_has_rules()", {})[0][0])


def forget(db: Db) -> None:
    """Deletes the token buckets that are full: a missing row means a full bucket."""
    run(db, "DELETE FROM job_limit_key WHERE full_at < now() - interval '1 hour' RETURNING key", {})


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, how many jobs run under it, on how many keys, and how many of these keys are full."""

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
