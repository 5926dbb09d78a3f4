"""Chains and batches with a worker, in each executor, and what `job.parents` tells."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from snapapp.jobs import Job, batch, chain, registry
from snapapp.jobs import enqueue as public
from snapapp.jobs import workflows as workflows_of_jobs
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.registry import Registry
from snapapp.jobs.testing import run_due
from tests import ROOT
from tests.factory import Db, enqueue, row, statuses
from tests.jobs.working import until_status, working
from tests.labs import workflows


def add(job: Job) -> int:
    return int(job.payload.get("n", 0)) + int(sum(parent.result for parent in job.parents))


async def add_async(job: Job) -> int:
    return add(job)


def known() -> Registry:
    registry = Registry()
    registry.processor("add")(add)
    registry.processor("add.async")(add_async)
    registry.processor("add.process", executor="process")(add)
    return registry


def test_chains_and_batches_run_in_order_with_the_results_of_their_parents(url: str, db: Db) -> None:
    """R43, W52: on a thread, on the loop and in a child process."""
    with working(url, known()) as (_, heard):
        first, second, third = chain(db, spec("add", 1), spec("add.async", 10), spec("add.process", 100))
        made = batch(db, [spec("add", n) for n in range(5)], then=spec("add.process") | {"after": [third]})
        assert until_status(db, made.then, "COMPLETED", "FAILED").result == 111 + 10
        assert [row(db, one).result for one in (first, second, third)] == [1, 11, 111]
        assert heard.all("worker.error") == []


def spec(kind: str, n: int = 0, **given: Any) -> dict[str, Any]:
    return {"kind": kind, "payload": {"n": n}, **given}


def test_the_documents_example_runs(tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    [module] = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/workflows.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "pages_of_the_document.py").write_text(module)
    example = runpy.run_path(str(tmp_path / "pages_of_the_document.py"))
    try:
        with engine.begin() as connection:
            last = example["add"](connection)
            assert sorted(set(run_due(connection))) == ["page.fetch: COMPLETED", "page.sum: COMPLETED"]
        assert row(db, last).result == 6
        assert db.execute("SELECT DISTINCT state FROM workflow_overview").fetchall() == [("SUCCESSFUL",)]
    finally:
        for kind in ("page.fetch", "page.sum"):
            del registry.default._processors[kind]


def test_a_chain_is_added_whole_or_not_at_all(db: Db) -> None:
    enqueue(db, "add", unique_key="k")
    for wrong in (spec("add", priority=5000), spec("add", unique_key="k", on_conflict="ignore")):
        with pytest.raises(InvalidJob):
            chain(db, spec("add"), wrong)
        with pytest.raises(InvalidJob):
            batch(db, [spec("add")], then=wrong)
    assert len(statuses(db)) == 1


@pytest.mark.parametrize("wrong", [[0], [-1], ["1"], [True], "1", 1, [2**63]])
def test_parents_that_are_no_ids_are_refused(db: Db, wrong: Any) -> None:
    with pytest.raises(InvalidJob, match="after must be a list"):
        public(db, "add", after=wrong)


def test_more_parents_than_a_job_may_have_are_refused_with_both_numbers(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows_of_jobs, "MOST_PARENTS", 3)
    four: list[dict[str, Any]] = [{"kind": "add"}] * 4
    with pytest.raises(InvalidJob, match="a batch may have 3 jobs at most, not 4"):
        batch(db, four, then={"kind": "add"})
    with pytest.raises(InvalidJob, match="after may have 10,000 ids of jobs at most, not 10,001"):
        public(db, "add", after=range(1, 10_002))
    assert statuses(db) == {}
    assert len(batch(db, four[:3], then={"kind": "add"}).jobs) == 3


def test_a_workflow_runs_inside_a_tests_own_transaction(engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        chain(connection, spec("add", 1), spec("add", 2))
        assert run_due(connection, known()) == ["add: COMPLETED", "add: COMPLETED"]
        results = connection.exec_driver_sql("SELECT result FROM snap_processing_job ORDER BY id").scalars().all()
        assert results == [1, 3]
        connection.rollback()


@pytest.mark.at_length  # rows/test_parents has every step, and labs/chaos kills workers, in every run
def test_workers_that_are_killed_let_no_child_in_too_early_twice_or_never(url: str) -> None:
    """R43, D16: the lab, in small; python -m tests.labs workflows says how to run it in full."""
    report = workflows.run(url, scale=0.01, kill_every=0.5)
    assert report.problems == []
    assert report.kills >= 2, "nobody was killed: this proves nothing"
    assert sum(report.ends.values()) == 410
