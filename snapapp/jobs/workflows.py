"""Jobs that follow each other, and jobs that belong together: both are rows that wait for other rows (`after`), and
nothing else. docs/workflows.md has what a failure, a cancel, a retry and a replay mean."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from snapapp.jobs.enqueue import enqueue_many
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.rows import database
from snapapp.jobs.rows.database import Db

Spec = Mapping[str, Any]  # enqueue's arguments: {"kind": …, "payload": …, …}


class Batch(NamedTuple):
    jobs: list[int]
    then: int


def chain(db: Db, *jobs: Spec) -> list[int]:
    """Adds jobs of which each waits for the one before it; returns their ids. All or none."""
    ids: list[int] = []
    with database.together(db):
        for spec in jobs:
            ids += _added(db, [_waiting_for(ids[-1:], spec)])
    return ids


def batch(db: Db, jobs: Iterable[Spec], *, then: Spec) -> Batch:
    """Adds jobs and the one that follows when all of them have completed, or, with on_parent_failure="run", ended. All
    or none. How far it is: `SELECT * FROM job_parent_counts(…)` with the id of `then`, which is the batch's own."""
    with database.together(db):
        ids = _added(db, jobs)
        [last] = _added(db, [_waiting_for(ids, then)])
    return Batch(ids, last)


def _waiting_for(parents: list[int], spec: Spec) -> Spec:
    return {**spec, "after": [*(spec.get("after") or ()), *parents]}


def _added(db: Db, specs: Iterable[Spec]) -> list[int]:
    ids = enqueue_many(db, specs)
    if None in ids:
        raise InvalidJob("on_conflict='ignore' leaves out a job that another one waits for")
    return cast(list[int], ids)
