"""Limits and fair queues, as far as the workers look after them. The claim itself asks `job_let_in`."""

from snapapp.jobs.rows.database import Db, run


def relabel(db: Db) -> bool:
    """After the rules have changed: looks through a page of jobs, and says whether there are more."""
    return bool(run(db, "SELECT job_relabel()", {})[0][0])


def forget(db: Db) -> None:
    """A bucket that is full needs no row."""
    run(db, "DELETE FROM job_limit_key WHERE full_at < now() - interval '1 hour' RETURNING key", {})
