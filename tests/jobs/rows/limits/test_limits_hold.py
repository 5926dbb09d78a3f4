"""Limits and fair turns under everything at once: random rules, people, workers that are killed."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import errors as pg

from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import limits as limits_rows
from snapapp.jobs.rows.people import views
from tests.factory import Db, complete, job, make_job, row, scalar, statuses
from tests.jobs.rows.limits.limiting import both_servers, keyed, limit, take, turn
from tests.jobs.working import until, working
from tests.labs import limits


def now_running(db: Db) -> int:
    return int(scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'"))


LIMITS = st.dictionaries(
    st.sampled_from(["queue:q", "queue:r", "kind:x", "key:a", "key:*"]), st.integers(0, 4), min_size=1
)

JOBS = st.lists(
    st.tuples(st.sampled_from("qr"), st.sampled_from("xy"), st.integers(0, 2), st.sampled_from([None, "a", "b"])),
    max_size=14,
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limits=LIMITS, jobs=JOBS, at_once=st.integers(1, 9))
def test_claims_keep_to_every_limit_and_leave_nothing_that_fits(
    db: Db, limits: dict[str, int], jobs: list[tuple[str, str, int, str | None]], at_once: int
) -> None:
    db.execute("DELETE FROM snap_processing_job")
    db.execute("DELETE FROM job_limit")
    for pattern, most in limits.items():
        limit(db, pattern, most)
    for queue, kind, priority, key in jobs:
        make_job(db, kind=kind, queue=queue, priority=priority, concurrency_key=key)
    left = dict[str, int]()
    running, waiting = list[Any](), list[Any]()
    while turn(db, at_once, kinds="xy").jobs:
        pass
    for job_id, status in statuses(db).items():
        (running if status == "RUNNING" else waiting).append(row(db, job_id))
    for each in running + waiting:
        for key in keys_of(each):
            rule = db.execute("SELECT max_running FROM job_limit_of(%s)", [key]).fetchone()
            left.setdefault(key, rule[0] if rule else 99)
    for each in running:
        for key in keys_of(each):
            left[key] -= 1
    assert min(left.values(), default=0) >= 0
    assert all(0 in [left[key] for key in keys_of(each)] for each in waiting)


def keys_of(its: Any) -> list[str]:
    return [f"queue:{its.queue}", f"kind:{its.kind}", *([f"key:{its.concurrency_key}"] if its.concurrency_key else [])]


# --- what people may say ----------------------------------------------------------------------------------------


@pytest.mark.leaves_nothing
@both_servers
@pytest.mark.parametrize(
    "values",
    [
        ("camera", 1, None, None),
        ("tenant:a", 1, None, None),
        ("key:", 1, None, None),
        ("key:a", None, None, None),
        ("key:a", -1, None, None),
        ("key:a", None, 0.0, None),
        ("key:a", None, float("nan"), None),
        ("key:a", None, float("inf"), None),
        ("key:a", None, 1e-15, None),
        ("key:a", None, 1e-320, None),
        ("key:a", None, 1e-6, 100_000),
        ("key:a", 1, None, 5),
        ("key:a", None, 1.0, 0),
        ("key:" + "a" * 600, 1, None, None),
    ],
)
def test_a_limit_that_means_nothing_is_refused(db: Db, values: tuple[object, ...]) -> None:
    with pytest.raises(pg.CheckViolation):
        db.execute("INSERT INTO job_limit VALUES (%s, %s, %s, %s)", values)


@both_servers
def test_keys_that_are_not_used_are_forgotten(db: Db) -> None:
    db.execute("INSERT INTO job_limit_key VALUES ('key:old', now() - interval '2 hours'), ('key:slow', now())")
    limits_rows.forget(db)
    assert db.execute("SELECT key FROM job_limit_key").fetchall() == [("key:slow",)]


@both_servers
def test_the_overview_counts_what_runs_under_each_limit(db: Db) -> None:
    limit(db, "key:camera:*", 2)
    limit(db, "queue:default", 9)
    keyed(db, 2, "camera:1", status="RUNNING")
    keyed(db, 1, "camera:2", status="RUNNING")
    make_job(db, "RUNNING")
    seen = db.execute("SELECT key_pattern, keys_running, running, keys_full FROM limit_overview").fetchall()
    assert seen == [("key:camera:*", 2, 3, 1), ("queue:default", 1, 4, 0)]


@both_servers
def test_a_job_that_a_limit_holds_back_says_which(db: Db) -> None:
    limit(db, "key:camera:*", 2)
    limit(db, "queue:media", rate=0.01, burst=2)
    keyed(db, 2, "camera:7", queue="media")
    held, *_ = keyed(db, 1, "camera:7", queue="media")
    take(db)
    lines = views.explain(db, held).splitlines()
    by_rate = "The limit queue:media lets 0.01 of queue:media start a second, after a burst of 2"
    by_place = (
        "The limit key:camera:* lets 2 of key:camera:7 run at once, and 2 run (job 1, job 2): it waits for one of them "
        "to end. snapapp limits set 'key:camera:*' --max-running N changes it."
    )
    assert [line for line in lines if line.startswith("The limit")] == [
        f"{by_rate}: the next one may start in 99 s.",
        by_place,
    ]
    limit(db, "queue:media", 0)
    assert "The limit queue:media lets nothing of queue:media run." in views.explain(db, held)
    db.execute("DELETE FROM job_limit")
    scalar(db, "SELECT job_relabel()")
    assert "limit" not in views.explain(db, held)


# --- the worker -------------------------------------------------------------------------------------------------


def let_one_end(db: Db, gate: threading.Semaphore) -> None:
    ended = list(statuses(db).values()).count("COMPLETED")
    gate.release()
    until(lambda: list(statuses(db).values()).count("COMPLETED") > ended)


@pytest.mark.direct
def test_a_worker_obeys_a_limit_as_soon_as_it_is_there_and_forgets_it_when_it_is_gone(url: str, db: Db) -> None:
    """R40: with a backlog, and without waiting for a poll."""
    registry, gate = Registry(), threading.Semaphore(0)
    registry.processor("held")(lambda job: gate.acquire(timeout=20))
    made = keyed(db, 30, kind="held")
    with working(url, registry, concurrency=4, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: worker.vitals().listens)
        until(lambda: now_running(db) >= 4)
        limit(db, "key:k", 2)
        still_open = "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING' AND gate = 'open'"
        until(lambda: scalar(db, still_open) == 0)
        while now_running(db) > 2:  # claimed before the limit was there
            let_one_end(db, gate)
        for _ in range(4):
            let_one_end(db, gate)
            assert now_running(db) <= 2
        until(lambda: now_running(db) == 2)
        limit(db, "key:k", 3)
        until(lambda: now_running(db) == 3)
        db.execute("DELETE FROM job_limit")
        until(lambda: now_running(db) >= 4)
        gate.release(40)
        until(lambda: {row(db, job_id).status for job_id in made} == {"COMPLETED"})


@pytest.mark.direct
def test_a_place_that_another_worker_freed_is_soon_taken(url: str, db: Db) -> None:
    limit(db, "key:k", 1)
    [theirs] = keyed(db, 1, kind="quick", status="RUNNING")
    [mine] = keyed(db, 1, kind="quick")
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry, poll_delay=timedelta(hours=1)) as (worker, _):
        until(lambda: worker.vitals().listens)
        assert row(db, mine).status == "PENDING"
        complete(db, job(db, theirs))
        until(lambda: row(db, mine).status == "COMPLETED")


@pytest.mark.at_length  # labs/chaos counts what runs beneath a limit in every run
def test_workers_that_are_killed_neither_break_the_limit_nor_lose_places(url: str) -> None:
    """W31, D14: the lab, in small; python -m tests.labs limits says how to run it in full."""
    report = limits.run(url, seconds=6, kill_every=1.2)
    assert report.problems == []
    assert report.kills >= 2
    assert report.samples > 200
    assert report.most_running == report.most_at_once == limits.LIMIT
