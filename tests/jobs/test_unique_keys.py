"""Unique keys: who holds one, for how long, and what becomes of those who come second."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from snapapp.jobs.adding import OnConflict, done_before
from snapapp.jobs.adding import enqueue_many as enqueue_many_plainly
from snapapp.jobs.errors import DuplicateKey, InvalidJob
from snapapp.jobs.model import Status
from snapapp.jobs.rows import leases, lifecycle
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.people import lists, views
from tests.factory import (
    MINUTE,
    OOPS,
    SECOND,
    Db,
    ago,
    at_once,
    claim,
    claimed,
    complete,
    enqueue,
    enqueue_many,
    hand_back,
    hence,
    make_job,
    retry,
    row,
    running_job,
    scalar,
    snooze,
    statuses,
    until_blocking,
)

pytestmark = pytest.mark.both_servers_at_length

# Who holds a key: a job of this scope in this state.
HOLDERS = {
    "waiting": ["PENDING"],
    "live": ["PENDING", "RUNNING", "RETRY_WAIT"],
    "ever": ["PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED", "FAILED", "CANCELLED"],
}


@pytest.mark.parametrize("scope", HOLDERS)
@pytest.mark.parametrize("status", list(Status))
def test_a_key_is_held_as_long_as_its_scope_says(db: Db, scope: str, status: str) -> None:
    """R11, R33, FE9."""
    seq = 0 if status == "PENDING" else 1
    first = make_job(db, status, unique_key="k", unique_scope=scope, lease_seq=seq)
    one = enqueue(db, unique_key="k", unique_scope=scope)
    assert (one == first) == (status in HOLDERS[scope])
    assert enqueue_many(db, {"unique_key": "k", "unique_scope": scope}) == [one]


WORK: dict[str, Any] = {"kind": "report", "payload": {"b": [1, 2], "a": "ação"}, "unique_by": "spec"}


def test_the_same_work_is_one_job_while_it_is_live(db: Db) -> None:
    """R11, R32, R33: in whatever order the payload was written, and however it is to run."""
    first = enqueue(db, **WORK)
    assert enqueue(db, **WORK | {"payload": {"a": "ação", "b": [1, 2]}, "queue": "other", "priority": 9}) == first
    in_sql = """SELECT enqueue_job('report', '{"a": "ação", "b": [1, 2]}', unique_by => 'spec')"""
    assert scalar(db, in_sql) == first
    others = [
        enqueue(db, **WORK | {"payload": {"a": "ação", "b": [2, 1]}}),
        enqueue(db, **WORK | {"kind": "other"}),
        enqueue(db, **WORK | {"tenant": "ana"}),
        enqueue(db, **WORK | {"snap_id": uuid4()}),
        enqueue(db, "report", WORK["payload"]),
    ]
    assert len({first, *others}) == 6
    db.execute("UPDATE snap_processing_job SET status = 'COMPLETED', finished_at = now() WHERE id = %s", [first])
    assert enqueue(db, **WORK) not in (first, *others)


def test_work_that_was_done_before_is_found_with_its_result(db: Db) -> None:
    """R32, Q30: "same work, done before: its result"."""
    [(key,)] = db.execute("SELECT job_spec_key('report', '', %s, NULL)", [json.dumps(WORK["payload"])]).fetchall()
    assert done_before(db, "report", WORK["payload"]) is None
    older, done = (
        make_job(db, "COMPLETED", kind="report", unique_key=key, unique_scope="live", result={"n": n}) for n in (1, 2)
    )
    make_job(db, "FAILED", kind="report", unique_key=key, unique_scope="live")
    found = done_before(db, "report", {"a": "ação", "b": [1, 2]})
    assert found is not None
    assert (found.id, found.result, found.finished_at) == (done, {"n": 2}, row(db, done).finished_at)
    assert done_before(db, "report", WORK["payload"], tenant="ana") is None
    assert [job.id for job in lists.jobs(db, lists.Filter(hash=key[5:21])).jobs] == [done + 1, done, older]
    assert views.job(db, done).spec_hash == key[5:]


def test_the_runs_of_a_work_are_found_by_their_index(db: Db) -> None:
    """R10."""
    key = "spec:" + 64 * "a"
    make_job(db, unique_key=key, unique_scope="live")
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'other' FROM generate_series(1, 3000)")
    db.execute("ANALYZE snap_processing_job")
    with db.transaction():
        db.execute("SET LOCAL plan_cache_mode = force_generic_plan")
        assert len(lists.jobs(db, lists.Filter(hash=key[5:])).jobs) == 1
        done_before(db, "other")
        read = "SELECT pg_stat_get_xact_numscans('snap_processing_job_spec'::regclass)"
        scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'"
        assert (scalar(db, read), scalar(db, scans)) == (2, 0)


@pytest.mark.parametrize(
    "wrong",
    [{"unique_by": "payload"}, {"unique_by": "spec", "unique_key": "k"}, {"unique_by": ["spec"]}],
)
def test_what_a_job_is_unique_by_is_said_in_one_way(db: Db, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match="unique_by"):
        enqueue_many_plainly(db, [{"kind": "test"} | wrong])
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="unique_by"):
        db.execute("SELECT enqueue_jobs(%s)", [json.dumps([{"kind": "test"} | wrong])])


def test_the_usual_scope_is_live(db: Db) -> None:
    assert row(db, enqueue(db, unique_key="k") or 0).unique_scope == "live"


def test_a_key_belongs_to_one_kind_and_one_tenant_and_one_scope(db: Db) -> None:
    made = [
        enqueue(db, unique_key="k"),
        enqueue(db, "other", unique_key="k"),
        enqueue(db, unique_key="k", tenant="farm"),
        enqueue(db, unique_key="k", unique_scope="waiting"),
        enqueue(db, unique_key="K"),
    ]
    assert len(set(made)) == 5


@pytest.mark.parametrize("end", ["retry", "snooze", "hand_back", "recover", "release"])
def test_a_job_comes_back_although_another_took_its_key_meanwhile(db: Db, end: str) -> None:
    """Scope waiting: the key is free as soon as its job was claimed, and nothing may get stuck on that."""
    held = running_job(db, unique_key="k", unique_scope="waiting", lock_expires_at=ago(seconds=1))
    second = enqueue(db, unique_key="k", unique_scope="waiting")
    ends: dict[str, Callable[[], object]] = {
        "retry": lambda: retry(db, held, OOPS, SECOND, 0.1),
        "snooze": lambda: snooze(db, held, SECOND),
        "hand_back": lambda: hand_back(db, held),
        "recover": lambda: leases.recover(db),
        "release": lambda: leases.release(db, "worker", [held.id]),
    }
    ends[end]()
    assert row(db, held.id).status in ("PENDING", "RETRY_WAIT")
    assert enqueue(db, unique_key="k", unique_scope="waiting") == second


def test_on_conflict_ignore_gives_nothing(db: Db) -> None:
    first = enqueue(db, unique_key="k", on_conflict="ignore")
    assert enqueue(db, unique_key="k", on_conflict="ignore") is None
    none, _, same = enqueue_many(db, {"unique_key": "k", "on_conflict": "ignore"}, {}, {"unique_key": "k"})
    assert (none, same) == (None, first)


def test_on_conflict_replace_makes_the_waiting_job_the_new_one(db: Db) -> None:
    first = enqueue(db, payload={"n": 1}, unique_key="k")
    second = enqueue(
        db, payload={"n": 2}, unique_key="k", on_conflict="replace", queue="media", priority=9, delay=MINUTE
    )
    now = row(db, first or 0)
    assert second == first
    assert (now.payload, now.queue, now.priority) == ({"n": 2}, "media", 9)
    assert now.next_retry_at > hence(seconds=50)


def test_a_replaced_job_has_all_its_attempts_before_it(db: Db) -> None:
    """Else what replaces a failing job could be buried without having run once."""
    tired = make_job(db, "RETRY_WAIT", unique_key="k", unique_scope="live", attempt_count=2, interruptions=3)
    enqueue(db, unique_key="k", on_conflict="replace", max_attempts=1)
    assert (row(db, tired).attempt_count, row(db, tired).interruptions) == (0, 0)
    assert not claimed(db, 1).jobs[0].exhausted


def test_of_a_replaced_job_nothing_of_the_old_one_is_told(db: Db) -> None:
    tired = running_job(db, unique_key="k", unique_scope="live")
    retry(db, tired, OOPS, SECOND, 0.1)
    queue_says = "SELECT explain_job(%s)"
    assert "failed" in scalar(db, queue_says, tired.id)
    enqueue(db, unique_key="k", on_conflict="replace")
    assert "failed" not in scalar(db, queue_says, tired.id)
    now = row(db, tired.id)
    assert (now.last_error, now.progress, now.started_at) == (None, None, None)
    assert len(now.errors) == 1, "the history stays"


def test_a_running_job_is_not_replaced(db: Db) -> None:
    make_job(db, "RUNNING", unique_key="k", unique_scope="live")
    with pytest.raises(DuplicateKey, match="job 1 holds the unique key k and is RUNNING"):
        enqueue(db, unique_key="k", on_conflict="replace")


def test_racing_for_one_key_makes_one_job(db: Db, url: str) -> None:
    """FE3."""

    def enqueue_one() -> int | None:
        with connect(url, name="racer") as connection:
            return enqueue(connection, unique_key="k")

    assert set(at_once(*[enqueue_one] * 8)) == {*statuses(db)}
    assert len(statuses(db)) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_a_racer_waits_until_the_holder_is_certain(db: Db, other: Db, commit: bool) -> None:
    with ThreadPoolExecutor(1) as thread:
        with db.transaction(force_rollback=not commit):
            first = enqueue(db, unique_key="k")
            racer = thread.submit(enqueue, other, unique_key="k")
            until_blocking(db)
        second = racer.result(timeout=10)
    assert statuses(db) == {second: "PENDING"}
    assert (first == second) == commit


@pytest.mark.parametrize("on_conflict", ["existing", "ignore"])
def test_who_finds_a_key_held_by_a_running_job_does_not_hold_up_its_end(
    db: Db, other: Db, on_conflict: OnConflict
) -> None:
    """Nor any other of the worker's results, which are settled with it."""
    holder = running_job(db, unique_key="k", unique_scope="live")
    with other.transaction():
        enqueue(other, unique_key="k", on_conflict=on_conflict)
        db.execute("SET lock_timeout = '1s'")
        assert complete(db, holder) == {holder.id}
    assert row(db, holder.id).status == "COMPLETED"


@pytest.mark.parametrize("on_conflict", ["existing", "ignore"])
def test_a_waiting_job_that_was_found_does_not_begin_before_its_finder_has_committed(
    db: Db, other: Db, on_conflict: OnConflict
) -> None:
    """Or it would not see what the finder has written, and nobody would run again."""
    holder = enqueue(db, unique_key="k")
    with other.transaction():
        enqueue(other, unique_key="k", on_conflict=on_conflict)
        assert enqueue(db, unique_key="k") == holder, "many may find it at a time"
        assert claim(db) == []
    assert claim(db) == [holder]


def test_a_job_that_begins_while_its_finder_waits_is_no_holder_of_a_waiting_key(db: Db, other: Db) -> None:
    first = enqueue(db, unique_key="k", unique_scope="waiting")
    with ThreadPoolExecutor(1) as thread:
        with db.transaction():
            assert claim(db) == [first]
            finder = thread.submit(enqueue, other, unique_key="k", unique_scope="waiting")
            until_blocking(db)
        second = finder.result(timeout=10)
    assert statuses(db) == {first: "RUNNING", second: "PENDING"}


def test_callers_that_find_their_keys_held_never_wait_for_each_other(db: Db, other: Db) -> None:
    for key in ("a", "b"):
        enqueue(db, unique_key=key)
    with db.transaction(), other.transaction():
        for connection, keys in ((db, "ab"), (other, "ba")):
            connection.execute("SET LOCAL lock_timeout = '1s'")
            assert None not in [enqueue(connection, unique_key=key) for key in keys]


def test_a_bulk_call_of_many_statements_takes_its_keys_in_one_order(db: Db) -> None:
    """FC5: 2,500 jobs are three statements, and the last must not want what comes before the first."""
    specs = [{"kind": "test", "unique_key": f"{n:04}", "tenant": "b"} for n in range(2499, 0, -1)]
    specs.insert(700, {"kind": "test"})
    specs.insert(1400, {"kind": "test", "unique_key": "9999", "tenant": "a"})
    ids = enqueue_many_plainly(db, specs)
    assert len(set(ids)) == 2501
    of = {
        job_id: (tenant, key)
        for job_id, tenant, key in db.execute("SELECT id, tenant, unique_key FROM snap_processing_job")
    }
    assert [of[job_id or 0] for job_id in ids] == [(spec.get("tenant", ""), spec.get("unique_key")) for spec in specs]
    assert [of[job_id] for job_id in sorted(of)] == [("", None), *sorted(found for found in of.values() if found[1])]


def test_a_missing_tenant_is_the_empty_one_in_the_order_of_the_keys(db: Db) -> None:
    enqueue_many(db, {"unique_key": "b", "tenant": ""}, {"unique_key": "a"}, {"unique_key": "B", "tenant": ""})
    made = db.execute("SELECT unique_key FROM snap_processing_job ORDER BY id").fetchall()
    assert [key for (key,) in made] == ["B", "a", "b"]


@pytest.mark.at_length  # a bulk call takes its keys in one order, above, in every run
@pytest.mark.parametrize("in_a_statement", [1000, 10])
def test_bulk_calls_with_the_same_keys_in_any_order_never_wait_in_a_circle(
    db: Db, url: str, in_a_statement: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FC5."""
    monkeypatch.setattr(import_module("snapapp.jobs.adding"), "_BULK", in_a_statement)
    specs: list[dict[str, Any]] = [{"unique_key": f"{n:02}"} for n in range(40)]
    specs += [{"payload": {"n": n}, "unique_by": "spec"} for n in range(120)]

    def enqueue_all(specs: list[dict[str, Any]]) -> list[int | None]:
        with connect(url, name="racer") as connection:
            return enqueue_many_plainly(connection, [{"kind": "test"} | spec for spec in specs])

    for _ in range(5):
        there, back = at_once(lambda: enqueue_all(specs), lambda: enqueue_all(specs[::-1]))
        assert there == back[::-1]
        assert len(statuses(db)) == 160
        db.execute("DELETE FROM snap_processing_job")


def test_a_retry_names_the_job_that_holds_the_key(db: Db) -> None:
    over, holder = (make_job(db, status, unique_key="k", unique_scope="live") for status in ("FAILED", "RUNNING"))
    with pytest.raises(DuplicateKey, match=f"job {over} cannot be retried: job {holder} holds its unique key k"):
        lifecycle.retry_by_person(db, over)
    assert row(db, over).status == "FAILED"
