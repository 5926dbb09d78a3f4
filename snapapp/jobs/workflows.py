"""Chains and batches of jobs. Both are made of jobs that wait for other jobs (`after`). docs/workflows.md says what
happens when one of them fails, is cancelled, retried or replayed."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from snapapp.jobs.adding import MOST_PARENTS, enqueue_many
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.rows import database
from snapapp.jobs.rows.database import Db

Spec = Mapping[str, Any]  # enqueue's arguments: {"kind": …, "payload": …, …}


class Batch(NamedTuple):
    jobs: list[int]
    then: int


def chain(db: Db, *jobs: Spec) -> list[int]:
    """Adds jobs of which each waits for the one before it; returns their ids. If one is refused, none is added."""
    ids: list[int] = []
    with database.together(db):
        for spec in jobs:
            ids += _add_all(db, [_waiting_for(ids[-1:], spec)])
    return ids


def batch(db: Db, jobs: Iterable[Spec], *, then: Spec) -> Batch:
    """Adds `jobs`, and the job `then` that runs when all of them have completed; with on_parent_failure="run" in
    `then`, when all of them have ended. If one is refused, none is added. The id of `then` stands for the batch:
    `SELECT * FROM job_parent_counts(…)` counts its jobs by how they ended."""
    with database.together(db):
        ids = _add_all(db, jobs)
        if len(ids) > MOST_PARENTS:
            raise InvalidJob(f"a batch may have {MOST_PARENTS:,} jobs at most, not {len(ids):,}")
        [last] = _add_all(db, [_waiting_for(ids, then)])
    return Batch(ids, last)


def _waiting_for(parents: list[int], spec: Spec) -> Spec:
    return {**spec, "after": [*(spec.get("after") or ()), *parents]}


def _add_all(db: Db, specs: Iterable[Spec]) -> list[int]:
    ids = enqueue_many(db, specs)
    if None in ids:
        raise InvalidJob("on_conflict='ignore' leaves out a job that another one waits for")
    return cast(list[int], ids)
