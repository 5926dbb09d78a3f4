"""The queue's statements, one fact at a time, on both servers. Reads in the order of queue.py: the life of a job."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import partial
from itertools import chain
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors as pg
from psycopg.rows import namedtuple_row
from sqlalchemy.orm import Session

from snapapp.jobs import queue
from snapapp.jobs.database import connect
from snapapp.jobs.errors import InvalidJob
from snapapp.jobs.model import (
    JSON_CAP,
    PROGRESS_CAP,
    Buried,
    Failure,
    Finished,
    Interrupted,
    Job,
    Lease,
    Outcome,
    Retried,
    Snoozed,
    Status,
    Stopped,
    Succeeded,
    to_json,
)
from tests.factory import (
    Db,
    ago,
    at_once,
    hence,
    job,
    make_job,
    make_jobs,
    move,
    row,
    running_job,
    statuses,
    until_blocking,
)

pytestmark = pytest.mark.both_servers

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
BY = queue.Claimant("worker", MINUTE)
OTHER = queue.Claimant("other", MINUTE)
OOPS = Failure("ValueError: oops", "in line 1")


def enqueue(db: queue.Db, kind: str = "test", payload: object = None, **given: Any) -> int | None:
    return queue.enqueue(db, spec(kind=kind, payload=to_json({} if payload is None else payload), **given))


def spec(**given: Any) -> dict[str, Any]:
    nothing = (
        "run_at",
        "delay",
        "unique_key",
        "unique_scope",
        "concurrency_key",
        "timeout_ms",
        "snap_id",
        "request_id",
    )
    defaults = {"queue": "default", "priority": 0, "max_attempts": 3, "on_conflict": "existing", "tenant": ""}
    return dict.fromkeys(nothing) | defaults | given


def enqueue_many(db: queue.Db, *specs: dict[str, Any]) -> list[int | None]:
    return queue.enqueue_many(db, json.dumps([{"kind": "test"} | one for one in specs]))


def claim(db: Db, limit: int = 100, *, kinds: Sequence[str] = ("test",), by: queue.Claimant = BY) -> list[int]:
    return sorted(job.id for job in queue.claim(db, by, kinds, limit)[0])


def claim_in_order(db: Db, *, kinds: Sequence[str] = ("test",)) -> list[int]:
    """One at a time, because a batch comes in no order."""
    order: list[int] = []
    while ids := claim(db, 1, kinds=kinds):
        order += ids
    return order


def beat(db: Db, *leases: Lease, ran_for: float | None = None) -> queue.Beat:
    return queue.beat(db, leases, [ran_for] * len(leases), MINUTE)


def complete(db: Db, *jobs: Job) -> set[int]:
    return queue.complete(db, [(one.lease, None, 0.1) for one in jobs])


def scalar(db: Db, statement: str, *parameters: object) -> Any:
    found = db.execute(statement, parameters).fetchone()
    assert found
    return found[0]


@pytest.fixture
def other(url: str) -> Iterator[Db]:
    """A second connection."""
    with connect(url, name="other") as connection:
        yield connection


# --- enqueued ---------------------------------------------------------------------------------------------------


def test_a_new_job_waits_with_what_it_was_given(db: Db) -> None:
    """W42, R7."""
    snap = "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"
    given = {"queue": "media", "priority": 5, "max_attempts": 7, "tenant": "farm", "timeout_ms": 900, "request_id": "r"}
    made = row(db, enqueue(db, "snap.process", {"n": 1}, concurrency_key="key", snap_id=snap, **given) or 0)
    assert {name: getattr(made, name) for name in given} == given
    assert (made.kind, made.payload, str(made.snap_id)) == ("snap.process", {"n": 1}, snap)
    assert (made.lane, made.concurrency_key) == ("key", "key")
    assert (made.status, made.attempt_count, made.lease_seq, made.errors) == ("PENDING", 0, 0, [])
    assert made.created_at == made.next_retry_at


@pytest.mark.parametrize("carrier", ["psycopg", "connection", "session"])
def test_a_job_whose_transaction_rolls_back_never_was(db: Db, engine: sqlalchemy.Engine, carrier: str) -> None:
    """S5, promise 1."""
    if carrier == "psycopg":
        with db.transaction(force_rollback=True):
            enqueue(db)
    else:
        with engine.connect() as connection, connection.begin() as transaction:
            enqueue(connection if carrier == "connection" else Session(connection))
            transaction.rollback()
    assert statuses(db) == {}


def test_a_job_is_in_the_transaction_of_its_caller(db: Db, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        with Session(connection) as session:
            made = [enqueue(connection), enqueue(session)]
        assert claim(db) == []
    assert claim(db) == made


def test_run_at_and_delay_add_up_by_the_clock_of_the_database(db: Db) -> None:
    at = hence(hours=1)
    late = row(db, enqueue(db, run_at=at, delay=MINUTE) or 0)
    soon = row(db, enqueue(db, delay=MINUTE) or 0)
    assert late.next_retry_at == at + MINUTE
    assert soon.next_retry_at == soon.created_at + MINUTE


def test_equal_specs_have_equal_hashes_and_others_not(db: Db) -> None:
    """R10, R32."""
    hashes = [
        row(db, enqueue(db, payload=payload, tenant=tenant) or 0).spec_hash
        for payload, tenant in [({"a": 1, "b": 2}, ""), ({"b": 2, "a": 1}, ""), ({"a": 1}, ""), ({"a": 1}, "farm")]
    ]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert hashes[2] == hashlib.sha256(b'test\ndefault\n\n{"a": 1}').digest()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=10,
)


def test_whatever_passes_as_json_is_kept_by_postgresql(db: Db) -> None:
    """Promise 9. To the digit: jsonb writes 1e308 out, which Python then reads as an integer."""
    as_decimals: dict[str, Any] = {"parse_float": Decimal, "parse_int": Decimal}

    @settings(max_examples=200)
    @given(JSON | st.sampled_from(["\\u0000", "\\\\u0000", "\\\0", "\0", "a\\\\\0", "\ud800", 1e308, 10**4000]))
    def keeps(value: object) -> None:
        try:
            text = to_json(value)
        except InvalidJob:
            return
        kept = scalar(db, "SELECT %s::jsonb::text", text)
        assert json.loads(kept, **as_decimals) == json.loads(text, **as_decimals)

    keeps()


WIDE = [0] * (JSON_CAP // 2 - 1)  # the largest that a value can become: two bytes of text, twelve of jsonb each


def test_a_payload_of_a_mebibyte_is_kept_whatever_is_in_it(db: Db) -> None:
    made = enqueue(db, payload=WIDE), queue.enqueue_many(db, f'[{{"kind":"test","payload":{to_json(WIDE)}}}]')[0]
    assert claim(db) == [*made]


def test_a_result_and_a_progress_as_large_as_allowed_are_kept(db: Db) -> None:
    held = running_job(db)
    queue.progress(db, {held.lease: to_json(WIDE[: PROGRESS_CAP // 2 - 1], cap=PROGRESS_CAP)})
    assert queue.complete(db, [(held.lease, to_json(WIDE), 0.1)]) == {held.id}


@pytest.mark.parametrize("way", ["one", "many", "insert"])
def test_a_payload_that_is_too_large_is_refused_with_its_size(db: Db, way: str) -> None:
    """R21, FE7. These short numbers have 131,072 digits each, and a claim would have to carry them all."""
    payload = '{"n": [' + ",".join(["1e131071"] * 20) + "]}"
    ways: dict[str, Callable[[], Any]] = {
        "one": lambda: queue.enqueue(db, spec(kind="test", payload=payload)),
        "many": lambda: queue.enqueue_many(db, f'[{{"kind": "test", "payload": {payload}}}]'),
        "insert": lambda: db.execute("INSERT INTO snap_processing_job (kind, payload) VALUES ('test', %s)", [payload]),
    }
    with pytest.raises(pg.InvalidParameterValue, match="the payload has 2621487 bytes as text"):
        ways[way]()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"unique_scope": "live"}, "unique_scope live needs a unique_key"),
        ({"unique_key": "k", "on_conflict": "explode"}, "on_conflict must be existing, ignore or replace, not explode"),
        ({"unique_key": "k", "on_conflict": None}, "on_conflict must be existing, ignore or replace, not <NULL>"),
    ],
)
def test_options_that_contradict_each_other_are_refused(db: Db, given: dict[str, Any], said: str) -> None:
    with pytest.raises(pg.InvalidParameterValue, match=said):
        enqueue(db, **given)


def test_a_scope_without_a_key_is_refused_in_bulk_too(db: Db) -> None:
    with pytest.raises(pg.InvalidParameterValue, match="unique_scope live needs a unique_key"):
        enqueue_many(db, {"unique_scope": "live"})


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
        "retry": lambda: queue.retry(db, held, OOPS, SECOND, 0.1),
        "snooze": lambda: queue.snooze(db, held, SECOND),
        "hand_back": lambda: queue.hand_back(db, [(held.lease, True)], interruptions_allowed=9),
        "recover": lambda: queue.recover(db),
        "release": lambda: queue.release(db, "worker", [held.id]),
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
    fresh = enqueue(db, payload={"n": 2}, unique_key="other", queue="media")
    now = row(db, first or 0)
    assert second == first
    assert (now.payload, now.queue, now.priority) == ({"n": 2}, "media", 9)
    assert now.next_retry_at > hence(seconds=50)
    assert now.spec_hash == row(db, fresh or 0).spec_hash


def test_a_replaced_job_has_all_its_attempts_before_it(db: Db) -> None:
    """Else what replaces a failing job could be buried without having run once."""
    tired = make_job(db, "RETRY_WAIT", unique_key="k", unique_scope="live", attempt_count=2, interruptions=3)
    enqueue(db, unique_key="k", on_conflict="replace", max_attempts=1)
    assert (row(db, tired).attempt_count, row(db, tired).interruptions) == (0, 0)
    assert not queue.claim(db, BY, ["test"], 1)[0][0].exhausted


def test_a_running_job_is_not_replaced(db: Db) -> None:
    make_job(db, "RUNNING", unique_key="k", unique_scope="live")
    with pytest.raises(pg.UniqueViolation, match="job 1 holds the unique key k and is RUNNING"):
        enqueue(db, unique_key="k", on_conflict="replace")


def test_jobs_of_a_fair_queue_go_into_the_lane_of_their_tenant(db: Db) -> None:
    db.execute("INSERT INTO job_queue (name, fair) VALUES ('default', true)")
    one = enqueue(db, tenant="farm", unique_key="k")
    two = enqueue(db, tenant="farm", concurrency_key="key")
    enqueue(db, tenant="farm", unique_key="k", on_conflict="replace")
    assert [row(db, made or 0).lane for made in (one, two)] == ["farm", "key"]


def test_ids_come_in_the_order_of_the_array(db: Db) -> None:
    """R46."""
    plain = enqueue_many(db, *({"payload": {"n": n}} for n in range(50)))
    keyed = enqueue_many(db, *({"payload": {"n": n}, "unique_key": str(n)} for n in reversed(range(50))))
    assert [row(db, made or 0).payload["n"] for made in plain] == [*range(50)]
    assert [row(db, made or 0).payload["n"] for made in keyed] == [*reversed(range(50))]


def test_bulk_takes_every_option_that_a_single_one_takes(db: Db) -> None:
    given = {"queue": "media", "priority": 3, "max_attempts": 2, "tenant": "farm", "timeout_ms": 10, "request_id": "r"}
    given |= {
        "concurrency_key": "key",
        "snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11",
        "run_at": "2020-02-02T02:02Z",
    }
    plain, keyed = (row(db, enqueue_many(db, given | more)[0] or 0) for more in ({}, {"unique_key": "k"}))
    differ = ("id", "created_at", "unique_key", "unique_scope")
    assert {k: v for k, v in plain._asdict().items() if k not in differ} == {
        k: v for k, v in keyed._asdict().items() if k not in differ
    }
    assert (plain.queue, plain.priority, plain.lane, plain.next_retry_at.year) == ("media", 3, "key", 2020)


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


def test_bulk_calls_with_the_same_keys_in_any_order_never_wait_in_a_circle(db: Db, url: str) -> None:
    """FC5."""
    specs = [{"unique_key": f"{n:02}"} for n in range(40)]

    def enqueue_all(specs: list[dict[str, Any]]) -> list[int | None]:
        with connect(url, name="racer") as connection:
            return enqueue_many(connection, *specs)

    for _ in range(5):
        there, back = at_once(lambda: enqueue_all(specs), lambda: enqueue_all(specs[::-1]))
        assert there == back[::-1]
        assert len(statuses(db)) == 40
        db.execute("DELETE FROM snap_processing_job")


# --- announced --------------------------------------------------------------------------------------------------


@pytest.fixture
def listener(other: Db) -> Db:
    other.execute("LISTEN snapapp_job")
    other.execute("LISTEN snapapp_cancel")
    return other


def heard(listener: Db, db: Db) -> list[str]:
    """Everything announced so far."""
    db.execute("NOTIFY snapapp_job, 'that is all'")
    words = []
    for notify in listener.notifies(timeout=10):
        words.append(notify.payload)
        if notify.payload == "that is all":
            break
    return words[:-1]


def test_a_commit_announces_each_queue_once(db: Db, listener: Db) -> None:
    """Promise 6, FC6."""
    with db.transaction():
        enqueue_many(db, {}, {}, {"queue": "media"})
        enqueue(db, queue="media")
        enqueue(db, unique_key="k")
        enqueue(db, unique_key="k")
    assert sorted(heard(listener, db)) == ["default", "media"]


def test_a_rollback_announces_nothing(db: Db, listener: Db) -> None:
    with db.transaction(force_rollback=True):
        enqueue(db)
    assert heard(listener, db) == []


def test_plain_sql_announces_too(db: Db, listener: Db) -> None:
    db.execute("INSERT INTO snap_processing_job (kind, queue) VALUES ('test', 'media'), ('test', 'media')")
    assert heard(listener, db) == ["media"]


def test_meeting_a_holder_announces_nothing_but_a_replacement(db: Db, listener: Db) -> None:
    make_job(db, unique_key="k", unique_scope="live")
    heard(listener, db)
    enqueue(db, unique_key="k")
    enqueue(db, unique_key="k", on_conflict="ignore")
    assert heard(listener, db) == []
    enqueue(db, unique_key="k", on_conflict="replace", queue="media")
    assert heard(listener, db) == ["media"]


def test_retry_resume_and_a_wish_to_cancel_are_announced(db: Db, listener: Db) -> None:
    failed = make_job(db, "FAILED", queue="media")
    held = make_job(db, "RUNNING", claimed_by="worker 7")
    heard(listener, db)
    queue.retry_by_person(db, failed)
    db.execute("SELECT resume_queue('slow')")
    queue.cancel(db, held)
    assert heard(listener, db) == ["media", "slow", "worker 7"]


# --- claimed ----------------------------------------------------------------------------------------------------


def test_a_claim_leases_the_job_and_counts_the_attempt(db: Db) -> None:
    """W2, Q15, Q41, R14, S5, promise 3."""
    waiting = make_job(db, "RETRY_WAIT", payload={"n": 1}, attempt_count=1, lease_seq=2, started_at=ago(hours=1))
    (taken,), bookmark = queue.claim(db, BY, ["test"], 10)
    now = row(db, waiting)
    assert (now.status, now.claimed_by, now.attempt_count, now.lease_seq) == ("RUNNING", "worker", 2, 3)
    assert now.lock_expires_at - now.locked_at == MINUTE
    assert now.started_at is None
    assert (taken.id, taken.attempt, taken.lease, taken.payload) == (waiting, 2, Lease(waiting, 3), {"n": 1})
    assert bookmark == ("default", "test", 0, "", now.next_retry_at, waiting)


def test_a_job_reads_its_row_as_it_is(db: Db) -> None:
    columns: dict[str, Any] = {"queue": "media", "tenant": "farm", "priority": 4, "max_attempts": 9, "timeout_ms": 5}
    columns |= {"request_id": "r"}
    columns |= {"snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"}
    made = make_job(db, **columns)
    (taken,), _ = queue.claim(db, BY, ["test"], 1)
    seen = replace(taken, payload_json=b"{}")
    assert repr(seen) == repr(job(db, made))


@pytest.mark.parametrize("limit", [1, 7, 100])
def test_a_claim_takes_at_most_its_limit(db: Db, limit: int) -> None:
    """Q16, Q19, Q43, FC4: over many heads and lanes, where a careless plan applies the limit to each."""
    for priority in range(3):
        for lane in ("", "a", "b"):
            make_jobs(db, 4, priority=priority, lane=lane)
    assert len(claim(db, limit)) == min(limit, 36)
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'") == min(limit, 36)


def test_a_claim_of_nothing_is_nothing(db: Db) -> None:
    make_job(db)
    assert queue.claim(db, BY, ["test"], 0) == ([], None)
    assert queue.claim(db, BY, [], 10) == ([], None)


def test_within_a_lane_the_earliest_due_is_first_and_then_the_oldest(db: Db) -> None:
    """W50, R12, S4."""
    at = ago(seconds=5)
    second, third = make_jobs(db, 2, next_retry_at=at)
    first = make_job(db, next_retry_at=at - SECOND)
    assert claim_in_order(db) == [first, second, third]


def test_a_higher_priority_is_first_in_every_queue_and_kind(db: Db) -> None:
    low, high, middle = (
        make_job(db, priority=-5),
        make_job(db, kind="b", priority=9),
        make_job(db, queue="c", priority=1),
    )
    assert claim_in_order(db, kinds=["test", "b"]) == [high, middle, low]


def test_order_holds_within_a_lane_not_across_lanes(db: Db) -> None:
    old = make_job(db, lane="b", next_retry_at=ago(hours=1))
    young = make_job(db, lane="a")
    assert {*claim(db)} == {old, young}


def test_kinds_of_one_priority_take_turns(db: Db) -> None:
    for kind in ("a", "b"):
        make_jobs(db, 30, kind=kind)
    firsts = {queue.claim(db, BY, ["a", "b"], 1)[0][0].kind for _ in range(30)}
    assert firsts == {"a", "b"}  # the same one 30 times in a row: once in 500 million runs


def test_a_job_is_not_claimed_before_it_is_due(db: Db) -> None:
    """I8, D3."""
    later = make_job(db, "RETRY_WAIT", next_retry_at=hence(seconds=5), attempt_count=1)
    assert claim(db) == []
    move(db, later, next_retry_at=ago())
    assert claim(db) == [later]


def test_jobs_that_are_not_due_block_nobody(db: Db) -> None:
    """Promise 8."""
    make_jobs(db, 5, priority=100, next_retry_at=hence(hours=1))
    make_jobs(db, 5, lane="a", next_retry_at=hence(hours=1))
    due = make_job(db, lane="b")
    assert claim(db, 1) == [due]


def test_kinds_that_nobody_here_knows_block_nobody_and_stay(db: Db) -> None:
    """Promise 9, FD11."""
    make_jobs(db, 5, kind="unknown", priority=100)
    known = make_job(db)
    assert claim(db) == [known]
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'") == 5


def test_a_worker_claims_from_its_queues_only(db: Db) -> None:
    """R19."""
    media, _, slow = (make_job(db, queue=name) for name in ("media", "other", "slow"))
    assert claim(db, by=replace(BY, queues=("media", "slow"))) == [media, slow]


@pytest.mark.parametrize("how", ["claim", "claim_on", "claim_suspect"])
def test_a_paused_queue_is_left_alone_until_it_is_resumed(db: Db, how: str) -> None:
    """R45."""
    make_job(db, suspect=how == "claim_suspect")
    start = queue.Bookmark("default", "test", 0, "", ago(hours=1), 0)
    ways: dict[str, Callable[[], object]] = {
        "claim": lambda: claim(db),
        "claim_on": lambda: queue.claim_on(db, BY, start, 10)[0],
        "claim_suspect": lambda: queue.claim_suspect(db, BY, ["test"]),
    }
    db.execute("SELECT pause_queue('default', 'the disk is full')")
    assert not ways[how]()
    db.execute("SELECT resume_queue('default')")
    assert ways[how]()


def test_pausing_twice_keeps_the_first_hour_and_the_last_reason(db: Db) -> None:
    db.execute("INSERT INTO job_queue VALUES ('default', true, now() - interval '1 hour', 'first')")
    db.execute("SELECT pause_queue('default', 'second')")
    paused = db.execute("SELECT fair, paused_at < now() - interval '1 minute', paused_reason FROM job_queue").fetchone()
    assert paused == (True, True, "second")


@pytest.mark.parametrize("status", ["RUNNING", "COMPLETED", "FAILED", "CANCELLED"])
def test_only_waiting_jobs_are_claimed(db: Db, status: str) -> None:
    """Q17. A job whose lease has ended is recovered first, and claimed then."""
    make_job(db, status, **({"lock_expires_at": ago(hours=1)} if status == "RUNNING" else {}))
    assert claim(db) == []


def test_two_workers_at_once_never_get_the_same_job(db: Db, other: Db) -> None:
    """Q18, Q42."""
    for _ in range(5):
        made = make_jobs(db, 40)
        mine, theirs = at_once(lambda: claim(db, 20), lambda: claim(other, 20, by=OTHER))
        assert (len(mine), len(theirs)) == (20, 20)
        assert sorted(mine + theirs) == made


def test_a_hundred_jobs_and_three_workers_make_a_hundred_completions(db: Db, url: str) -> None:
    """Q47."""
    made = make_jobs(db, 100)

    def work() -> list[int]:
        done: list[int] = []
        with connect(url, name="worker") as mine:
            while jobs := queue.claim(mine, BY, ["test"], 7)[0]:
                done += complete(mine, *jobs)
        return done

    done = at_once(work, work, work)
    assert sorted(chain(*done)) == made
    assert {*statuses(db).values()} == {"COMPLETED"}
    assert db.execute("SELECT DISTINCT attempt_count, lease_seq FROM snap_processing_job").fetchall() == [(1, 2)]


def test_a_claim_skips_what_another_one_is_taking(db: Db, other: Db) -> None:
    first, second = make_jobs(db, 2)
    with other.transaction(force_rollback=True):
        assert claim(other, 1, by=OTHER) == [first]
        assert claim(db) == [second]
    assert claim(db) == [first]  # the other one was rolled back, and its attempt with it
    assert row(db, first).attempt_count == 1


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
@pytest.mark.parametrize("suspect", [False, True])
def test_no_job_is_both_unclaimable_and_unfinished(db: Db, status: str, suspect: bool) -> None:
    """D4: its attempts are used up, nobody settled it, so the next claim finds it and is told."""
    tired = make_job(db, status, attempt_count=3, max_attempts=3, suspect=suspect)
    taken = queue.claim_suspect(db, BY, ["test"]) if suspect else queue.claim(db, BY, ["test"], 1)[0][0]
    assert taken
    assert (taken.id, taken.exhausted) == (tired, True)


def test_a_suspect_is_claimed_alone_and_only_where_one_asks_for_it(db: Db) -> None:
    """Promise 3."""
    first, second = make_jobs(db, 2, suspect=True)
    assert claim(db) == []
    one, two = queue.claim_suspect(db, BY, ["test"]), queue.claim_suspect(db, OTHER, ["test"])
    assert [one and one.id, two and two.id] == [first, second]
    assert one
    assert (one.suspect, one.attempt, one.lease_seq) == (True, 1, 1)


def test_a_suspect_of_another_kind_or_queue_or_hour_is_left(db: Db) -> None:
    make_job(db, suspect=True, kind="unknown")
    make_job(db, suspect=True, queue="media")
    make_job(db, suspect=True, next_retry_at=hence(minutes=1))
    assert queue.claim_suspect(db, replace(BY, queues=("default",)), ["test"]) is None
    mine = make_job(db, suspect=True)
    taken = queue.claim_suspect(db, replace(BY, queues=("default",)), ["test"])
    assert taken
    assert taken.id == mine


def test_two_workers_never_get_the_same_suspect(db: Db, other: Db) -> None:
    first, second = make_jobs(db, 2, suspect=True)
    with other.transaction():
        theirs = queue.claim_suspect(other, OTHER, ["test"])
        mine = queue.claim_suspect(db, BY, ["test"])
    assert (theirs and theirs.id, mine and mine.id) == (first, second)


def test_a_bookmark_goes_on_where_the_batch_ended(db: Db) -> None:
    at = ago(seconds=1)
    made = [make_job(db, lane=lane, next_retry_at=at) for lane in ("a", "a", "a", "b", "ä", "c", "c")]
    order = [made[n] for n in (0, 1, 2, 3, 5, 6, 4)]  # in bytes, ä comes last
    jobs, bookmark = queue.claim(db, BY, ["test"], 2)
    taken = [{one.id for one in jobs}]
    while bookmark and len(taken) < 9:
        jobs, bookmark = queue.claim_on(db, BY, bookmark, 2)
        taken.append({one.id for one in jobs})
    assert taken == [{*order[:2]}, {*order[2:4]}, {*order[4:6]}, {*order[6:]}, set()]


def test_a_bookmark_looks_at_one_head_forward_and_what_is_due(db: Db) -> None:
    at = ago(seconds=10)
    _, bookmark = queue.claim(db, BY, ["test"], 1) if make_job(db, next_retry_at=at) else ([], None)
    make_job(db, next_retry_at=at - SECOND)  # behind
    make_job(db, priority=5)  # another head
    make_job(db, kind="other")
    make_job(db, next_retry_at=hence(minutes=1))
    make_job(db, suspect=True)
    ahead = make_job(db, next_retry_at=at + SECOND)
    assert bookmark
    assert [one.id for one in queue.claim_on(db, BY, bookmark, 10)[0]] == [ahead]


def test_a_batch_from_several_heads_has_no_bookmark(db: Db) -> None:
    make_job(db)
    make_job(db, priority=5)
    assert queue.claim(db, BY, ["test"], 10)[1] is None


def test_a_large_payload_is_fetched_under_the_lease(db: Db) -> None:
    large = {"text": "".join(hashlib.sha256(bytes([n % 251, n // 251])).hexdigest() for n in range(3000))}
    small, big = make_job(db, payload={"n": 1}), make_job(db, payload=large)
    taken = {one.id: one for one in queue.claim(db, BY, ["test"], 2)[0]}
    assert taken[small].payload_json is not None
    assert taken[big].payload_json is None
    fetched = queue.payload(db, taken[big].lease)
    assert fetched
    assert json.loads(fetched) == large
    assert queue.payload(db, Lease(big, 99)) is None


def test_next_due_is_the_first_moment_at_which_a_claim_finds_something(db: Db) -> None:
    make_job(db, kind="unknown")
    make_job(db, queue="paused")
    make_job(db, "COMPLETED")
    make_job(db, "RUNNING")
    db.execute("SELECT pause_queue('paused')")
    assert queue.next_due(db, ["test"], []) is None
    for lane, minutes in (("a", 3), ("b", 2), ("c", 4)):
        make_job(db, lane=lane, next_retry_at=hence(minutes=minutes))
    make_job(db, queue="media", next_retry_at=hence(minutes=1))
    assert queue.next_due(db, ["test"], []) == pytest.approx(60, abs=20)
    assert queue.next_due(db, ["test"], ["default"]) == pytest.approx(120, abs=20)
    make_job(db, next_retry_at=ago(minutes=1))
    assert queue.next_due(db, ["test"], []) == pytest.approx(-60, abs=20)


# --- beaten -----------------------------------------------------------------------------------------------------


def test_a_beat_extends_the_lease(db: Db) -> None:
    """W27, Q21, Q44, R16, S11."""
    held = running_job(db, locked_at=ago(seconds=50), lock_expires_at=hence(seconds=10))
    assert beat(db, held.lease) == (set(), set())
    now = row(db, held.id)
    assert now.locked_at > ago(seconds=5)
    assert now.lock_expires_at - now.locked_at >= MINUTE
    assert (now.status, now.lease_seq, now.started_at) == ("RUNNING", 1, None)


def test_a_beat_saves_a_lease_that_ended_but_was_not_recovered(db: Db) -> None:
    """Promise 7: the lease is compared, not the clock."""
    held = running_job(db, lock_expires_at=ago(minutes=5))
    assert beat(db, held.lease).lost == set()
    assert queue.recover(db) == []


def test_the_first_beat_of_a_running_job_writes_its_start(db: Db) -> None:
    """Q5, M25."""
    held = running_job(db)
    beat(db, held.lease, ran_for=20.0)
    started = row(db, held.id).started_at
    assert ago(seconds=25) < started < ago(seconds=19)
    beat(db, held.lease, ran_for=1.0)
    assert row(db, held.id).started_at == started


def test_a_beat_tells_what_was_lost(db: Db) -> None:
    mine, recovered, gone = (running_job(db, lock_expires_at=ago(seconds=1)) for _ in range(3))
    beat(db, mine.lease)
    assert {*queue.recover(db)} == {recovered.id, gone.id}
    assert claim(db, by=OTHER) == []  # suspects
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [gone.id])
    assert beat(db, mine.lease, recovered.lease, gone.lease).lost == {recovered.id, gone.id}


def test_a_row_that_is_being_settled_is_neither_beaten_nor_lost(db: Db, other: Db) -> None:
    """One slow hook must not let fifty leases end."""
    settling, mine = (running_job(db, lock_expires_at=ago(seconds=1)) for _ in range(2))
    with other.transaction(force_rollback=True):
        complete(other, settling)
        assert beat(db, settling.lease, mine.lease) == (set(), set())
    assert row(db, mine.id).lock_expires_at > ago()
    assert row(db, settling.id).lock_expires_at < ago()


def test_a_beat_brings_the_wish_to_cancel(db: Db) -> None:
    """R37."""
    wished, other = running_job(db), running_job(db)
    assert queue.cancel(db, wished.id) == "RUNNING"
    assert beat(db, wished.lease, other.lease) == ({wished.id}, set())


def test_a_beat_of_nothing_is_nothing(db: Db) -> None:
    assert beat(db) == (set(), set())


def test_a_suspect_marks_its_start_at_once(db: Db) -> None:
    held = running_job(db, suspect=True)
    assert queue.start(db, held.lease)
    assert row(db, held.id).started_at > ago(seconds=5)


def test_progress_and_lines_are_kept_in_order_and_with_their_attempt(db: Db) -> None:
    """W16, W17, W21."""
    first, second = running_job(db, attempt_count=2), running_job(db)
    queue.progress(db, {first.lease: '{"percent":40}', second.lease: '"half"'})
    said = [(first, "one", 60.0), (second, "two", 30.0), (first, "three", 0.0)]
    queue.log(db, [queue.LogLine(held.lease, "INFO", message, age) for held, message, age in said])
    assert [row(db, held.id).progress for held in (first, second)] == [{"percent": 40}, "half"]
    lines = db.execute("SELECT job_id, attempt, level, message FROM job_log ORDER BY id").fetchall()
    assert lines == [(first.id, 2, "INFO", "one"), (second.id, 1, "INFO", "two"), (first.id, 2, "INFO", "three")]
    ages = db.execute("SELECT extract(epoch FROM now() - at)::float8 FROM job_log ORDER BY id").fetchall()
    assert [age for (age,) in ages] == pytest.approx([60, 30, 0], abs=5)


def test_the_beats_of_a_long_job_are_hot(db: Db) -> None:
    """FC2: an update that touches no index is cheap. After a dense claim the first ones find their pages full, then
    all are HOT; with locked_at in one index none would be."""
    enqueue_many(db, *[{}] * 400)
    held = [one.lease for one in queue.claim(db, BY, ["test"], 400)[0]]
    updated = hot = 0
    for _ in range(20):
        with db.transaction():
            before = counted(db)
            assert beat(db, *held, ran_for=1.0).lost == set()
            after = counted(db)
        updated, hot = updated + after.n_tup_upd - before.n_tup_upd, hot + after.n_tup_hot_upd - before.n_tup_hot_upd
    assert updated == 20 * 400
    assert hot / updated >= 0.95


def counted(db: Db) -> Any:
    """What this session did to the table so far; only the difference within one transaction means something."""
    with db.cursor(row_factory=namedtuple_row) as cursor:
        cursor.execute("SELECT * FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'")
        return cursor.fetchone()


# --- settled ----------------------------------------------------------------------------------------------------


def test_a_completion_keeps_the_result_and_frees_the_lease(db: Db) -> None:
    """W5, Q27, R26."""
    held = running_job(db)
    assert queue.complete(db, [(held.lease, '{"frames":12}', 2.5)]) == {held.id}
    now = row(db, held.id)
    assert (now.status, now.result, now.lease_seq, now.attempt_count) == ("COMPLETED", {"frames": 12}, 2, 1)
    assert (now.claimed_by, now.locked_at, now.lock_expires_at) == (None, None, None)
    assert now.finished_at - now.started_at == pytest.approx(timedelta(seconds=2.5), abs=timedelta(milliseconds=1))


def test_a_batch_completes_what_is_still_ours(db: Db) -> None:
    held = [running_job(db) for _ in range(5)]
    move(db, held[2].id, lease_seq=7)
    assert complete(db, *reversed(held)) == {one.id for one in held} - {held[2].id}
    assert row(db, held[2].id).status == "RUNNING"


def test_a_failed_attempt_comes_back_after_its_delay(db: Db) -> None:
    """W6, Q28, Q29, R27, S6, D3."""
    held = running_job(db)
    assert queue.retry(db, held, OOPS, MINUTE, 0.5) == "RETRY_WAIT"
    now = row(db, held.id)
    assert hence(seconds=50) < now.next_retry_at < hence(seconds=61)
    assert (now.attempt_count, now.lease_seq, now.claimed_by, now.finished_at) == (1, 2, None, None)
    assert now.last_error == OOPS.error
    assert now.errors == [{"attempt": 1, "error": OOPS.error, "trace": OOPS.trace, "ran_ms": 500.0}]
    assert claim(db) == []


def test_a_buried_job_is_a_dead_letter(db: Db) -> None:
    """R28, Q26."""
    held = running_job(db, attempt_count=3)
    assert queue.bury(db, held, Buried(OOPS), 0.5) == "FAILED"
    now = row(db, held.id)
    assert now.finished_at > ago(seconds=5)
    assert (now.attempt_count, now.last_error, len(now.errors)) == (3, OOPS.error, 1)
    assert scalar(db, "SELECT id FROM queue_dead_letters") == held.id


def test_burying_an_exhausted_job_counts_no_attempt_that_never_ran(db: Db) -> None:
    held = running_job(db, attempt_count=4, max_attempts=3, errors=[{"error": "worker lost"}] * 3)
    queue.bury(db, held, Buried(Failure("worker lost"), ran=False), None)
    now = row(db, held.id)
    assert (now.status, now.attempt_count, now.started_at, len(now.errors)) == ("FAILED", 3, None, 3)


def test_a_snoozed_job_gets_its_attempt_back(db: Db) -> None:
    """W53."""
    held = running_job(db, attempt_count=2, suspect=True)
    assert queue.snooze(db, held, MINUTE) == "PENDING"
    now = row(db, held.id)
    assert (now.attempt_count, now.suspect, now.errors, now.started_at) == (1, False, [], None)
    assert now.next_retry_at > hence(seconds=50)


def test_the_last_twenty_errors_are_kept(db: Db) -> None:
    """FD13."""
    made = make_job(db, "RUNNING", max_attempts=100, errors=[{"attempt": n} for n in range(1, 20)])
    for attempt in (20, 21, 22):
        move(db, made, status="RUNNING", claimed_by="w", locked_at=ago(), lock_expires_at=hence(minutes=1))
        move(db, made, attempt_count=attempt)
        queue.retry(db, job(db, made), OOPS, SECOND, None)
    assert [error["attempt"] for error in row(db, made).errors] == [*range(3, 23)]


def test_the_longest_error_is_kept(db: Db) -> None:
    """S16."""
    held = running_job(db)
    queue.retry(db, held, Failure.of(ValueError("\0\ud800" * 10**6)), SECOND, 0.1)
    assert len(row(db, held.id).last_error) == 4000


ENDINGS: dict[str, Outcome] = {
    "retry": Retried(OOPS, SECOND),
    "bury": Buried(OOPS),
    "stop": Stopped(OOPS),
    "snooze": Snoozed(SECOND),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_wish_to_cancel_is_granted_at_every_end_but_a_completion(db: Db, ending: str) -> None:
    held = running_job(db, attempt_count=1)
    assert queue.cancel(db, held.id) == "RUNNING"
    assert queue.settle(db, Finished(held, ENDINGS[ending], 0.1)) == "CANCELLED"
    now = row(db, held.id)
    assert (now.status, now.suspect, now.finished_at is None) == ("CANCELLED", False, False)


@pytest.mark.parametrize("ending", ["hand_back", "recover", "release", "release unstarted"])
def test_a_wish_to_cancel_is_granted_where_no_attempt_ends(db: Db, ending: str) -> None:
    held = running_job(db, lock_expires_at=ago(seconds=1), suspect=True, attempt_count=3, interruptions=9)
    queue.cancel(db, held.id)
    ends: dict[str, Callable[[], object]] = {
        "hand_back": lambda: queue.hand_back(db, [(held.lease, True)], interruptions_allowed=9),
        "recover": lambda: queue.recover(db),
        "release": lambda: queue.release(db, "worker", [held.id]),
        "release unstarted": lambda: queue.release(db, "worker", []),
    }
    ends[ending]()
    now = row(db, held.id)
    assert (now.status, now.suspect, now.finished_at is None) == ("CANCELLED", False, False)


def test_a_completion_comes_before_a_wish_to_cancel(db: Db) -> None:
    held = running_job(db)
    queue.cancel(db, held.id)
    assert queue.settle(db, Finished(held, Succeeded(None), 0.1)) == "COMPLETED"


@pytest.mark.parametrize("ending", [Succeeded('{"n":1}'), *ENDINGS.values()], ids=lambda ending: type(ending).__name__)
def test_a_settle_is_the_same_on_both_carriers(db: Db, engine: sqlalchemy.Engine, ending: Any) -> None:
    one, two = running_job(db), running_job(db)
    with engine.begin() as connection:
        statuses = queue.settle(db, Finished(one, ending, 0.5)), queue.settle(connection, Finished(two, ending, 0.5))
    assert statuses[0] == statuses[1]
    columns = ("status", "result", "errors", "last_error", "attempt_count", "lease_seq", "claimed_by")
    assert [getattr(row(db, one.id), name) for name in columns] == [getattr(row(db, two.id), name) for name in columns]


def test_what_is_no_end_of_an_attempt_is_not_settled(db: Db) -> None:
    with pytest.raises(TypeError, match="Interrupted"):
        queue.settle(db, Finished(running_job(db), Interrupted(), 0.1))


@pytest.mark.parametrize("settle_in", ["commit", "rollback"])
def test_a_hook_and_its_settle_land_together_or_not_at_all(db: Db, engine: sqlalchemy.Engine, settle_in: str) -> None:
    held = running_job(db)
    with engine.connect() as connection, connection.begin() as transaction:
        queue.settle(connection, Finished(held, Succeeded(None), 0.1))
        enqueue(connection, "next")
        if settle_in == "rollback":
            transaction.rollback()
    assert [*statuses(db).values()] == (["RUNNING"] if settle_in == "rollback" else ["COMPLETED", "PENDING"])


Step = Callable[[Db, Job], object]


def in_turn(*steps: Step) -> Step:
    return lambda db, held: [step(db, held) for step in steps]


RECOVERED: Step = lambda db, held: queue.recover(db, spread=timedelta(0))  # noqa: E731
HANDED_BACK: Step = lambda db, held: queue.hand_back(db, [(held.lease, True)], interruptions_allowed=9)  # noqa: E731
BURIED: Step = lambda db, held: queue.bury(db, held, Buried(OOPS), 0.1)  # noqa: E731

# What may have happened to a job since a zombie last looked.
SINCE: dict[str, Step] = {
    "recovered": RECOVERED,
    "released": lambda db, held: queue.release(db, "worker", [held.id]),
    "released unstarted": lambda db, held: queue.release(db, "worker", []),
    "handed back": HANDED_BACK,
    "completed": complete,
    "retried": lambda db, held: queue.retry(db, held, OOPS, timedelta(0), 0.1),
    "buried": BURIED,
    "snoozed": lambda db, held: queue.snooze(db, held, timedelta(0)),
    "recovered and claimed": in_turn(RECOVERED, lambda db, held: take_suspect(db)),
    "handed back and claimed": in_turn(HANDED_BACK, lambda db, held: claim(db, by=OTHER)),
    "buried and retried by a person": in_turn(BURIED, lambda db, held: queue.retry_by_person(db, held.id)),
}

# What a zombie may try to write.
WRITES: dict[str, Step] = {
    "start": lambda db, held: queue.start(db, held.lease) or None,
    "progress": lambda db, held: queue.progress(db, {held.lease: '"mine"'}),
    "log": lambda db, held: queue.log(db, [queue.LogLine(held.lease, "INFO", "mine", 0.0)]),
    "complete": lambda db, held: queue.settle(db, Finished(held, Succeeded('"mine"'), 0.1)),
    "retry": lambda db, held: queue.settle(db, Finished(held, Retried(OOPS, SECOND), 0.1)),
    "bury": lambda db, held: queue.settle(db, Finished(held, Buried(OOPS), 0.1)),
    "stop": lambda db, held: queue.settle(db, Finished(held, Stopped(OOPS), 0.1)),
    "snooze": lambda db, held: queue.settle(db, Finished(held, Snoozed(SECOND), 0.1)),
    "hand back": lambda db, held: queue.hand_back(db, [(held.lease, False)], interruptions_allowed=9) or None,
    "payload": lambda db, held: queue.payload(db, held.lease),
}


def take_suspect(db: Db) -> Job:
    taken = queue.claim_suspect(db, BY, ["test"])
    assert taken
    return taken


@pytest.mark.parametrize("since", SINCE)
def test_a_worker_that_lost_its_lease_cannot_write(db: Db, since: str) -> None:
    """Promise 2, I4, R18, W27, FA1, FA3, D10, D11."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    SINCE[since](db, held)
    before = row(db, held.id)
    assert beat(db, held.lease).lost == {held.id}
    assert {name: WRITES[name](db, held) for name in WRITES} == dict.fromkeys(WRITES)
    assert row(db, held.id) == before
    assert scalar(db, "SELECT count(*) FROM job_log") == 0


@pytest.mark.parametrize("since", SINCE)
def test_lease_seq_only_rises(db: Db, since: str) -> None:
    """I3: every change of status raises it, so no lease ever comes again."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    SINCE[since](db, held)
    steps = 2 if " and " in since else 1
    assert row(db, held.id).lease_seq == held.lease_seq + steps


def test_after_an_uncertain_commit_the_row_says_whether_it_landed(db: Db) -> None:
    """FC13, FE10."""
    completed, retried, recovered, running = (running_job(db, lock_expires_at=hence(minutes=1)) for _ in range(4))
    complete(db, completed)
    queue.retry(db, retried, OOPS, SECOND, 0.1)
    move(db, recovered.id, lock_expires_at=ago(seconds=1))
    queue.recover(db)
    landed = [queue.landed_already(db, one.lease) for one in (completed, retried, recovered, running)]
    assert landed == ["COMPLETED", "RETRY_WAIT", None, None]


@pytest.mark.parametrize("started", [False, True])
def test_a_job_handed_back_gets_its_attempt_back(db: Db, started: bool) -> None:
    """Promise 3, FA6, D17: a deploy never fills the dead letters."""
    held = running_job(db, attempt_count=3, max_attempts=3, next_retry_at=ago(minutes=1))
    assert queue.hand_back(db, [(held.lease, started)], interruptions_allowed=20) == {held.id}
    now = row(db, held.id)
    assert (now.status, now.attempt_count, now.interruptions, now.suspect) == ("PENDING", 2, int(started), False)
    assert claim(db) == [held.id]


def test_interruptions_are_given_back_only_so_often(db: Db) -> None:
    made = make_job(db, max_attempts=2)
    counts = []
    for _ in range(5):
        taken = queue.claim(db, BY, ["test"], 1)[0] or [take_suspect(db)]
        queue.hand_back(db, [(taken[0].lease, True)], interruptions_allowed=3)
        counts.append((row(db, made).attempt_count, row(db, made).interruptions, row(db, made).suspect))
    assert counts == [(0, 1, False), (0, 2, False), (0, 3, False), (1, 4, False), (2, 5, True)]
    assert take_suspect(db).exhausted


def test_a_job_that_never_began_is_handed_back_for_ever(db: Db) -> None:
    held = running_job(db, interruptions=99)
    queue.hand_back(db, [(held.lease, False)], interruptions_allowed=3)
    assert (row(db, held.id).attempt_count, row(db, held.id).interruptions) == (0, 99)


# --- recovered and released -------------------------------------------------------------------------------------


def test_a_lease_that_ended_is_recovered(db: Db) -> None:
    """Q23, Q45, S14, D2: whoever held it; only the row is asked."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1), claimed_by="gone")
    make_job(db, "RUNNING")
    assert queue.recover(db, spread=timedelta(0)) == [ended]
    now = row(db, ended)
    assert (now.status, now.attempt_count, now.suspect, now.last_error) == ("RETRY_WAIT", 1, True, "worker lost")
    assert now.errors[0] | {"at": ""} == {"attempt": 1, "at": "", "error": "worker lost", "worker": "gone"}
    assert queue.recover(db) == []
    assert take_suspect(db).attempt == 2


def test_recovered_jobs_come_back_spread_out(db: Db) -> None:
    """FA19."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(50)]
    queue.recover(db, spread=timedelta(minutes=10))
    back = sorted(row(db, one).next_retry_at for one in made)
    assert back[-1] - back[0] > timedelta(minutes=5)
    assert back[-1] < hence(minutes=11)


def test_recovery_works_page_by_page(db: Db) -> None:
    """FA18, W49."""
    made = [make_job(db, "RUNNING", lock_expires_at=ago(seconds=1)) for _ in range(5)]
    assert [sorted(queue.recover(db, limit=2)) for _ in range(4)] == [made[:2], made[2:4], made[4:], []]


def test_recovery_waits_until_the_server_has_been_back_for_a_while(db: Db) -> None:
    """Promise 7."""
    ended = make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    assert queue.recover(db, settled_for=timedelta(days=365)) == []
    assert queue.recover(db) == [ended]


def test_recovery_skips_what_is_being_settled(db: Db, other: Db) -> None:
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        complete(other, held)
        assert queue.recover(db) == []
    assert row(db, held.id).status == "COMPLETED"


def test_recovery_skips_a_lease_that_is_being_renewed(db: Db, other: Db) -> None:
    """D7, FA4."""
    held = running_job(db, lock_expires_at=ago(seconds=1))
    with other.transaction():
        beat(other, held.lease)
        assert queue.recover(db) == []
    assert queue.recover(db) == []


def lost_to(db: Db, *leases: Lease) -> set[int]:
    return beat(db, *leases).lost


def test_a_lease_is_either_renewed_or_recovered_never_both(db: Db, other: Db) -> None:
    """D7, FA4: the predicate is tested again under the lock of the row."""
    for _ in range(10):
        leases = {(one := running_job(db, lock_expires_at=ago(seconds=1))).id: one.lease for _ in range(50)}
        lost, recovered = at_once(partial(lost_to, db, *leases.values()), lambda: {*queue.recover(other)})
        running = {one for one in leases if row(db, one).status == "RUNNING"}
        assert lost <= recovered
        assert running == leases.keys() - recovered
        assert all(row(db, one).lock_expires_at > ago() for one in running)


# attempts, suspect, started: what a loss makes of them when a job may run three times
LOSSES = {
    "the first of several": ((1, False, False), 1),
    "the last, not alone": ((3, False, True), 2),
    "the last, alone": ((3, True, True), 3),
    "alone but not begun": ((3, True, False), 2),
    "told that it is over, alone": ((4, True, False), 3),
}


@pytest.mark.parametrize("how", ["recover", "release"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_lost_attempt_counts_unless_another_may_have_killed_it(db: Db, loss: str, how: str) -> None:
    """Promise 3, Q24, Q46, FA5, I7."""
    (attempts, suspect, started), left = LOSSES[loss]
    began = ago(seconds=9) if started else None
    lost = make_job(
        db, "RUNNING", attempt_count=attempts, suspect=suspect, started_at=began, lock_expires_at=ago(seconds=1)
    )
    assert (queue.recover(db) if how == "recover" else queue.release(db, "worker", None)) == [lost]
    now = row(db, lost)
    assert (now.status, now.attempt_count, now.suspect) == ("RETRY_WAIT", left, True)


def test_the_only_attempt_is_never_given_back(db: Db) -> None:
    lost = make_job(db, "RUNNING", attempt_count=1, max_attempts=1, lock_expires_at=ago(seconds=1))
    queue.recover(db, spread=timedelta(0))
    assert row(db, lost).attempt_count == 1
    assert take_suspect(db).exhausted


@pytest.mark.parametrize("max_attempts", [1, 2, 3, 5])
def test_a_job_that_kills_its_worker_ends_after_its_attempts(db: Db, max_attempts: int) -> None:
    """FA5, I7, Q46: the last one is repeated once, alone, so that no neighbour is blamed for it."""
    poison = make_job(db, max_attempts=max_attempts)
    runs = 0
    while row(db, poison).status != "FAILED":
        taken = queue.claim(db, BY, ["test"], 1)[0] or [take_suspect(db)]
        if taken[0].exhausted:
            queue.bury(db, taken[0], Buried(Failure("worker lost"), ran=False), None)
        else:
            runs += 1
            queue.start(db, taken[0].lease)
            queue.release(db, "worker", [poison])
    now = row(db, poison)
    assert (runs, now.attempt_count, len(now.errors)) == (max_attempts, max_attempts, max_attempts)


def test_a_dead_worker_gives_back_what_it_had_not_begun(db: Db) -> None:
    """Promise 4, D5."""
    ran, waited = running_job(db), running_job(db, next_retry_at=ago(minutes=1))
    theirs = make_job(db, "RUNNING", claimed_by="other")
    assert {*queue.release(db, "worker", [ran.id, theirs])} == {ran.id, waited.id}
    facts = [(now.status, now.attempt_count, now.suspect) for now in (row(db, one.id) for one in (ran, waited))]
    assert facts == [("RETRY_WAIT", 1, True), ("PENDING", 0, False)]
    assert (row(db, waited.id).last_error, row(db, waited.id).errors) == (None, [])
    assert row(db, theirs).status == "RUNNING"
    assert claim(db) == [waited.id]


def test_what_was_claimed_unheard_is_given_back(db: Db) -> None:
    """The answer to a claim was lost with its connection; the worker lives and goes on with what it knows of."""
    heard, unheard, theirs = running_job(db), running_job(db), running_job(db, claimed_by="other")
    assert queue.release_unheard(db, "worker", [heard.id]) == [unheard.id]
    assert statuses(db) == {heard.id: "RUNNING", unheard.id: "PENDING", theirs.id: "RUNNING"}
    assert (row(db, unheard.id).attempt_count, row(db, unheard.id).errors) == (0, [])


# --- pruned -----------------------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def prune_all(db: Db) -> int:
    deleted, after = 0, 0
    while True:
        count, last = queue.prune(db, keep=DAY, after=after, limit=3)
        deleted += count
        if last is None:
            return deleted
        after = last


def test_old_ends_are_pruned_with_their_lines_and_nothing_else_is(db: Db) -> None:
    """S15, S16, Q51, R39."""
    old = {"created_at": ago(days=3)}
    pruned = [make_job(db, status, finished_at=ago(days=2), **old) for status in ("COMPLETED", "FAILED", "CANCELLED")]
    stays = [make_job(db, status, **old) for status in ("PENDING", "RUNNING", "RETRY_WAIT")]
    stays += [make_job(db, "COMPLETED", finished_at=ago(hours=2), **old), make_job(db)]
    for one in pruned + stays:
        db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'line')", [one])
    assert prune_all(db) == 3
    assert [*statuses(db)] == stays
    assert [one for (one,) in db.execute("SELECT job_id FROM job_log ORDER BY 1").fetchall()] == stays


def test_pruning_stops_where_the_jobs_are_too_young_to_have_ended_long_ago(db: Db) -> None:
    make_job(db, "COMPLETED", created_at=ago(days=3), finished_at=ago(days=2))
    make_jobs(db, 50)
    assert queue.prune(db, keep=DAY, limit=10) == (1, 1)
    assert queue.prune(db, keep=DAY, after=1, limit=10) == (0, None)
    assert queue.prune(db, keep=DAY, after=10**12) == (0, None)


# --- what people do ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED"])
def test_a_retry_by_a_person_starts_the_count_again_and_keeps_the_history(db: Db, status: str) -> None:
    """R38, R48, FA3."""
    wished = ago(hours=1)
    over = make_job(
        db, status, attempt_count=3, lease_seq=6, interruptions=2, errors=[{"error": "x"}], cancel_requested_at=wished
    )
    queue.retry_by_person(db, over)
    now = row(db, over)
    assert (now.status, now.attempt_count, now.interruptions, now.lease_seq) == ("PENDING", 0, 0, 7)
    assert (now.errors, now.cancel_requested_at, now.finished_at) == ([{"error": "x"}], None, None)
    assert claim(db) == [over]


def test_a_retry_names_the_job_that_holds_the_key(db: Db) -> None:
    over, holder = (make_job(db, status, unique_key="k", unique_scope="live") for status in ("FAILED", "RUNNING"))
    with pytest.raises(pg.UniqueViolation, match=f"job {over} cannot be retried: job {holder} holds its unique key k"):
        queue.retry_by_person(db, over)
    assert row(db, over).status == "FAILED"


def test_a_replay_is_a_copy_that_begins_anew(db: Db) -> None:
    """R36, R48, engine.md: no commit hook runs twice for one job."""
    given = {"queue": "media", "priority": 2, "max_attempts": 5, "tenant": "farm", "timeout_ms": 9, "request_id": "r"}
    given |= {"payload": {"n": 1}, "concurrency_key": "key", "snap_id": "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"}
    first = row(db, make_job(db, "COMPLETED", attempt_count=2, unique_key="k", unique_scope="ever", **given))
    copy = row(db, queue.replay(db, first.id))
    for name in (*given, "kind", "lane", "spec_hash"):
        assert getattr(copy, name) == getattr(first, name)
    assert (copy.status, copy.attempt_count, copy.replay_of, copy.unique_key) == ("PENDING", 0, first.id, None)


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT"])
def test_a_waiting_job_is_cancelled_at_once(db: Db, status: str) -> None:
    """R37, D17."""
    waiting = make_job(db, status, suspect=True)
    assert queue.cancel(db, waiting) == "CANCELLED"
    now = row(db, waiting)
    assert (now.status, now.suspect, now.lease_seq) == ("CANCELLED", False, 1)
    assert now.finished_at == pytest.approx(now.cancel_requested_at, abs=SECOND)


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_cancelling_what_is_over_changes_nothing(db: Db, status: str) -> None:
    over = make_job(db, status)
    before = row(db, over)
    assert queue.cancel(db, over) == status
    assert row(db, over) == before


def test_a_second_wish_keeps_the_hour_of_the_first(db: Db) -> None:
    held = running_job(db, cancel_requested_at=ago(minutes=1))
    queue.cancel(db, held.id)
    assert row(db, held.id).cancel_requested_at < ago(seconds=50)


@pytest.mark.parametrize("function", ["retry_job", "replay_job", "cancel_job"])
def test_an_unknown_id_is_named(db: Db, function: str) -> None:
    with pytest.raises(pg.NoDataFound, match="there is no job 404"):
        scalar(db, f"SELECT {function}(404)")


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED"])
def test_only_what_failed_or_was_cancelled_can_be_retried(db: Db, status: str) -> None:
    made = make_job(db, status)
    with pytest.raises(pg.ObjectNotInPrerequisiteState, match=f"job {made} is {status}: only a FAILED or CANCELLED"):
        queue.retry_by_person(db, made)


def test_only_a_waiting_job_can_be_made_due(db: Db) -> None:
    waits, held = make_job(db, "RETRY_WAIT", next_retry_at=hence(hours=1)), make_job(db, "RUNNING")
    assert [queue.make_due(db, one) for one in (waits, held, 404)] == [True, False, False]
    assert claim(db) == [waits]


def test_waiting_jobs_are_found_by_what_their_payload_holds(db: Db) -> None:
    wanted = make_job(db, payload={"to": "ana", "n": 1})
    for other in ({"payload": {"to": "bia"}}, {"kind": "other", "payload": {"to": "ana"}}):
        make_job(db, **other)
    make_job(db, "COMPLETED", payload={"to": "ana"})
    assert queue.waiting(db, "test", '{"to":"ana"}') == [(wanted,)]


def test_a_claim_after_a_failed_transaction_is_as_any_other(db: Db) -> None:
    waiting = make_job(db)
    with suppress(pg.DivisionByZero), db.transaction():
        claim(db)
        scalar(db, "SELECT 1 / 0")
    assert claim(db) == [waiting]
    assert row(db, waiting).lease_seq == 1


def test_people_see_the_queue_in_views(db: Db) -> None:
    """S8."""
    make_job(db, next_retry_at=ago(minutes=5))
    make_job(db, "RUNNING", lock_expires_at=ago(minutes=1))
    failed = make_job(db, "FAILED", started_at=ago(seconds=5))
    overview = db.execute("SELECT queue, pending, due, running, failed FROM queue_overview").fetchall()
    stuck = [why[:22] for (why,) in db.execute("SELECT why FROM queue_stuck ORDER BY id").fetchall()]
    assert overview == [("default", 1, 1, 1, 1)]
    assert stuck == ["no worker alive knows ", "its lease ended 00:01:"]
    assert db.execute("SELECT id FROM queue_dead_letters").fetchall() == [(failed,)]
    assert db.execute("SELECT failed FROM queue_throughput").fetchall() == [(1,)]
    assert db.execute("SELECT * FROM worker_overview").fetchall() == []


# --- deep -------------------------------------------------------------------------------------------------------


@pytest.fixture
def deep(db: Db) -> Db:
    """100,000 ready jobs and nobody who has counted them: the planner must do well without statistics."""
    db.execute("ALTER TABLE snap_processing_job SET (autovacuum_enabled = off)")
    db.execute(
        "INSERT INTO snap_processing_job (kind, unique_key, unique_scope)"
        " SELECT 'test', n::text, (ARRAY['waiting', 'live', 'ever'])[n % 3 + 1] FROM generate_series(1, 100000) AS n"
    )
    db.execute(
        "UPDATE snap_processing_job SET status = 'COMPLETED', created_at = '2020-02-02', finished_at = '2020-02-02'"
        " WHERE id <= 1000"
    )
    db.execute("INSERT INTO job_log (job_id, attempt, message) SELECT id, 1, 'line' FROM snap_processing_job")
    return db


def test_no_statement_reads_the_whole_table(deep: Db) -> None:
    """Promise 8, FC3: with generic plans and without ANALYZE."""
    held: list[Job] = []
    steps: dict[str, Callable[[], object]] = {
        "claim": lambda: held.extend(queue.claim(deep, BY, ["test"], 100)[0]),
        "claim_on": lambda: queue.claim_on(deep, BY, queue.Bookmark("default", "test", 0, "", ago(hours=1), 0), 100),
        "claim_suspect": lambda: queue.claim_suspect(deep, BY, ["test"]),
        "next_due": lambda: queue.next_due(deep, ["test"], []),
        "beat": lambda: beat(deep, *(one.lease for one in held), ran_for=1.0),
        "lost": lambda: queue.lost(deep, [one.lease for one in held]),
        "progress": lambda: queue.progress(deep, {one.lease: "1" for one in held}),
        "log": lambda: queue.log(deep, [queue.LogLine(one.lease, "INFO", "line", 0.0) for one in held]),
        "complete": lambda: complete(deep, *[held.pop() for _ in range(50)]),
        "retry": lambda: queue.retry(deep, held.pop(), OOPS, SECOND, 0.1),
        "bury": lambda: queue.bury(deep, held.pop(), Buried(OOPS), 0.1),
        "snooze": lambda: queue.snooze(deep, held.pop(), SECOND),
        "landed_already": lambda: queue.landed_already(deep, held[0].lease),
        "hand_back": lambda: queue.hand_back(deep, [(one.lease, True) for one in held], interruptions_allowed=9),
        "recover": lambda: queue.recover(deep),
        "release": lambda: queue.release(deep, "worker", [1, 2]),
        "prune": lambda: queue.prune(deep, keep=DAY),
        "waiting": lambda: enqueue(deep, unique_key="99999", unique_scope="waiting"),
        "live": lambda: enqueue(deep, unique_key="99997", unique_scope="live"),
        "ever": lambda: enqueue(deep, unique_key="99998", unique_scope="ever"),
    }
    read = {name: rows_read(deep, step) for name, step in steps.items()}
    assert {name: rows for name, rows in read.items() if rows > 4000} == {}
    assert len(held) == 47


def rows_read(db: Db, step: Callable[[], object]) -> int:
    """From both tables, by index or not."""
    with db.transaction():
        before = rows_read_so_far(db)
        step()
        return rows_read_so_far(db) - before


def rows_read_so_far(db: Db) -> int:
    return int(scalar(db, "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables"))
