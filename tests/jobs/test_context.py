"""The application's context: each job sees its own tenant, everywhere, and what goes wrong stays with that job."""

import itertools
import sys
from collections import Counter
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection

from snapapp.jobs import Job
from snapapp.jobs.context import Within
from snapapp.jobs.errors import ContextFailed
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from tests.factory import Db, row, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import tenancy
from tests.jobs.kinds.tenancy import context, registry
from tests.jobs.test_model import make
from tests.jobs.working import quick_settings, until, until_status, working

ONE_SLOT: dict[str, Any] = {"concurrency": 1, "commands": 1, "command_allow": (sys.executable,), "job_connections": 1}
EXECUTORS = ["who.thread", "who.async", "who.process", "who.command"]


def seen(result: Any) -> set[str]:
    return set(result) if isinstance(result, list) else {result}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_each_job_runs_in_the_context_of_its_tenant(url: str, db: Db, kind: str) -> None:
    """M21, M47, M49."""
    with working(url, registry, context=context, **ONE_SLOT):
        jobs = {tenant: put(db, kind, tenant=tenant) for tenant in ("ana", "bob", "ana's neighbour", "")}
        for tenant, job_id in jobs.items():
            assert seen(until_status(db, job_id, "COMPLETED").result) == {tenant}


def test_coroutines_side_by_side_keep_their_own(url: str, db: Db) -> None:
    with working(url, registry, context=context) as (worker, _):
        jobs = {put(db, "who.async", tenant=f"tenant {number}"): f"tenant {number}" for number in range(30)}
        until(lambda: worker.counts.completed == 30)
    assert {job_id: seen(row(db, job_id).result) for job_id in jobs} == {
        job_id: {tenant} for job_id, tenant in jobs.items()
    }


def test_hooks_and_borrowed_connections_are_in_it_too(url: str, db: Db) -> None:
    """The engine's own statements are not: a role of the tenant need not be allowed to touch the queue."""
    db.execute("CREATE TABLE noted (job bigint, tenant text)")
    with working(url, registry, context=context):
        done = until_status(db, put(db, "hooked", tenant="ana"), "COMPLETED")
        dead = until_status(db, put(db, "hooked", payload={"raises": True}, tenant="bob"), "FAILED")
        borrowed = until_status(db, put(db, "who.sql", tenant="eva"), "COMPLETED")
    assert db.execute("SELECT * FROM noted ORDER BY job").fetchall() == [(done.id, "ana"), (dead.id, "bob")]
    assert borrowed.result == ["eva", "pg_monitor", "eva"]


BROKEN = {
    "enter": "cannot enter the context of 'ana': ValueError: no such tenant",
    "lie": "is for 'ana', and its context says 'another'",
    "leave": "cannot leave the context of 'ana': ValueError: cannot leave",
}
IN_EVERY_RUN = {("who.thread", breaks) for breaks in BROKEN} | {(kind, "lie") for kind in EXECUTORS}


@pytest.mark.parametrize(
    ("kind", "breaks"),
    [
        pytest.param(*one, marks=[] if one in IN_EVERY_RUN else pytest.mark.at_length)
        for one in itertools.product(EXECUTORS, BROKEN)
    ],
)
def test_a_switch_that_fails_fails_the_attempt_and_the_next_job_does_not_notice(
    url: str, db: Db, kind: str, breaks: str
) -> None:
    """M49."""
    with working(url, registry, context=context, **ONE_SLOT) as (worker, _):
        dead = until_status(db, put(db, kind, payload={"breaks": breaks}, tenant="ana", max_attempts=2), "FAILED")
        assert dead.last_error == f"ContextFailed: job {dead.id} {BROKEN[breaks]}"
        assert len(dead.errors) == 2  # an ordinary failure: it is tried again
        assert seen(until_status(db, put(db, kind, tenant="bob"), "COMPLETED").result) == {"bob"}
        assert worker.counts.context_failures == 2


@pytest.mark.parametrize("kind", ["who.thread", "who.async", "who.process"])
def test_what_a_hook_forgets_to_reset_does_not_meet_the_next_job(url: str, db: Db, kind: str) -> None:
    with working(url, registry, context=context, **ONE_SLOT):
        assert seen(until_status(db, put(db, kind, payload={"breaks": "leak"}, tenant="ana"), "COMPLETED").result) == {
            "ana"
        }
        calm = put(db, kind, payload={"breaks": "swallow"}, tenant="bob")  # which sets nothing
        assert seen(until_status(db, calm, "COMPLETED").result) == {"nobody"}


def test_a_hook_cannot_swallow_the_failure_of_a_job(url: str, db: Db) -> None:
    with working(url, registry, context=context):
        dead = until_status(db, put(db, "who.thread", payload={"breaks": "swallow", "raises": True}), "FAILED")
    assert dead.last_error == "Permanent: as it was told"


@pytest.mark.parametrize("breaks", ["enter", "lie", "leave"])
def test_a_switch_that_fails_around_a_hook_leaves_nothing_of_it(url: str, db: Db, breaks: str) -> None:
    db.execute("CREATE TABLE noted (job bigint, tenant text)")
    with working(url, registry, context=context) as (_, heard):
        broken = {"breaks": breaks, "in": "sql"}
        dead = until_status(db, put(db, "hooked", payload=broken, tenant="ana", max_attempts=1), "FAILED")
        heard.wait_for("job.hook.dropped")  # the failed hook meets the same
        done = until_status(db, put(db, "hooked", tenant="bob"), "COMPLETED")
    assert dead.last_error.startswith(f"ContextFailed: job {dead.id}")
    assert db.execute("SELECT * FROM noted").fetchall() == [(done.id, "bob")]


@pytest.mark.parametrize("breaks", ["enter", "lie", "leave"])
def test_a_switch_that_fails_around_a_borrowed_connection_fails_the_attempt(url: str, db: Db, breaks: str) -> None:
    with working(url, registry, context=context, **ONE_SLOT):
        broken = put(db, "who.sql", payload={"breaks": breaks, "in": "sql"}, tenant="ana", max_attempts=1)
        assert until_status(db, broken, "FAILED").last_error.startswith(f"ContextFailed: job {broken}")
        assert until_status(db, put(db, "who.sql", tenant="bob"), "COMPLETED").result[0] == "bob"


def test_switches_are_told_as_events_and_counted_with_the_beat(url: str, db: Db) -> None:
    """M46, M58."""
    with working(url, registry, context=context, **ONE_SLOT) as (worker, heard):
        jobs = [put(db, kind, tenant="ana") for kind in EXECUTORS]
        for job_id in jobs:
            until_status(db, job_id, "COMPLETED")
        failing = put(db, "who.thread", payload={"breaks": "lie"}, tenant="bob", max_attempts=1)
        until_status(db, failing, "FAILED")
        entered = Counter(event.facts["job_id"] for event in heard.all("tenant.context"))
        validated = Counter(event.facts["job_id"] for event in heard.all("tenant.context.validated"))
        assert entered == Counter([*jobs, failing])
        assert validated == Counter(jobs)
        facts = heard.all("tenant.context")[0].facts
        assert (facts["tenant"], facts["worker_id"]) == ("ana", worker.id)
        until(lambda: scalar(db, "SELECT context_failures FROM job_worker") == 1)
        assert scalar(db, "SELECT context_switches FROM job_worker") == len(jobs)


def test_an_exhausted_job_is_buried_without_it(url: str, db: Db) -> None:
    with working(url, registry, context=context) as (worker, _):
        job_id = put(db, "who.thread", payload={"breaks": "enter"}, max_attempts=1)
        until_status(db, job_id, "FAILED")
        failures = worker.counts.context_failures
        db.execute(
            "UPDATE snap_processing_job SET status = 'RETRY_WAIT', finished_at = NULL, attempt_count = 1 WHERE id = %s",
            [job_id],
        )
        db.execute("NOTIFY snapapp_job, 'default'")
        assert until_status(db, job_id, "FAILED").last_error == "worker lost"
        assert worker.counts.context_failures == failures


def test_without_a_hook_nothing_is_entered(url: str, db: Db) -> None:
    with working(url, registry) as (worker, heard):
        assert until_status(db, put(db, "who.thread", tenant="ana"), "COMPLETED").result == "nobody"
        assert (worker.counts.context_switches, heard.all("tenant.context")) == (0, [])


def test_a_hook_that_children_cannot_import_is_refused_at_the_start(url: str) -> None:
    @contextmanager
    def local(job: Job, db: Connection | None) -> Any:
        yield job.tenant

    with pytest.raises(
        ValueError, match=r"a child process cannot import the context tests\.jobs\.test_context:test_a_hook"
    ):
        Runtime(quick_settings(url), registry=registry, context=local)
    threads_only = Registry()
    threads_only.processor("who.thread")(tenancy.in_a_thread)
    Runtime(quick_settings(url), registry=threads_only, context=local).close()


def test_an_error_of_the_job_is_not_hidden_by_one_of_leaving() -> None:
    @contextmanager
    def fragile(job: Job, db: Connection | None) -> Any:
        try:
            yield job.tenant
        finally:
            raise ValueError("cannot leave either")

    job = make(tenant="ana")
    with pytest.raises(KeyError, match="mine"), Within(fragile)(job):
        raise KeyError("mine")
    with pytest.raises(ContextFailed, match="cannot leave either"), Within(fragile)(job):
        pass


def test_a_cancel_inside_the_context_is_a_cancel(url: str, db: Db) -> None:
    its = Registry()

    @its.processor("sleep")
    def sleep(job: Job) -> None:
        with job.connection() as connection:
            connection.exec_driver_sql("SELECT pg_sleep(3600)")

    with working(url, its, context=context):
        job_id = put(db, "sleep", tenant="ana")
        until(lambda: db.execute("SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep'").fetchall())
        lifecycle.cancel(db, job_id)
        until_status(db, job_id, "CANCELLED", within=5)
