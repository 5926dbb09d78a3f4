"""How a job comes in: what enqueue_job and enqueue_jobs make of what they are given, on both servers."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg import errors as pg
from sqlalchemy.orm import Session

from snapapp.jobs.adding import enqueue as enqueue_plainly
from snapapp.jobs.adding import enqueue_many as enqueue_many_plainly
from snapapp.jobs.errors import DuplicateKey, InvalidJob
from snapapp.jobs.model import JSON_CAP, to_json
from snapapp.jobs.rows import lifecycle
from tests.factory import (
    BY_ITSELF,
    CARRIERS,
    MINUTE,
    Db,
    carried,
    claim,
    claimed,
    enqueue,
    enqueue_many,
    hence,
    make_job,
    move,
    row,
    scalar,
    statuses,
)

pytestmark = pytest.mark.both_servers_at_length


def test_a_new_job_waits_with_what_it_was_given(db: Db) -> None:
    """W42, R7."""
    snap = "7d1d9a6c-53a6-4b4e-9a51-8b9b6c2e7a11"
    given = {"queue": "media", "priority": 5, "max_attempts": 7, "tenant": "farm", "timeout_ms": 900, "request_id": "r"}
    made = row(db, enqueue(db, "snap.process", {"n": 1}, concurrency_key="key", snap_id=snap, **given) or 0)
    assert {name: getattr(made, name) for name in given} == given
    assert (made.kind, made.payload, str(made.snap_id)) == ("snap.process", {"n": 1}, snap)
    assert (made.gate, made.lane, made.concurrency_key) == ("open", "", "key")
    assert (made.status, made.attempt_count, made.lease_seq, made.errors) == ("PENDING", 0, 0, [])
    assert made.created_at == made.next_retry_at


@pytest.mark.parametrize("add", [enqueue, enqueue_plainly], ids=["by SQL", "by Python"])
@pytest.mark.parametrize("carrier", ["psycopg", "connection", "session"])
def test_a_job_whose_transaction_rolls_back_never_was(
    db: Db, engine: sqlalchemy.Engine, carrier: str, add: Callable[..., int | None]
) -> None:
    """S5, promise 1."""
    if carrier == "psycopg":
        with db.transaction(force_rollback=True):
            add(db, "test")
    else:
        with engine.connect() as connection, connection.begin() as transaction:
            add(connection if carrier == "connection" else Session(connection), "test")
            transaction.rollback()
    assert statuses(db) == {}


def test_a_job_is_in_the_transaction_of_its_caller(db: Db, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        with Session(connection) as session:
            made = [enqueue(connection), enqueue(session)]
        assert claim(db) == []
    assert claim(db) == made


@pytest.mark.parametrize("others", [{}, {"unique_key": "k"}], ids=["plain", "with a key"])
@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"prioritty": 5, "timeout": 3}, "unknown arguments: prioritty, timeout"),
        ({"kind": "k" * 201}, "kind may have 200 bytes at most, not 201"),
        ({"queue": "ã" * 101}, "queue may have 200 bytes at most, not 202"),
        ({"tenant": "t" * 201}, "tenant may have 200 bytes at most, not 201"),
        ({"request_id": "r" * 201}, "request_id may have 200 bytes at most, not 201"),
        ({"unique_key": "u" * 501}, "unique_key may have 500 bytes at most, not 501"),
        ({"concurrency_key": "c" * 501}, "concurrency_key may have 500 bytes at most, not 501"),
    ],
)
def test_sql_refuses_in_words_what_python_refuses(
    db: Db, wrong: dict[str, Any], why: str, others: dict[str, Any]
) -> None:
    jobs = [{"kind": "good"}, {"kind": "test"} | others | wrong]
    with pytest.raises(pg.InvalidParameterValue, match=why):
        db.execute("SELECT enqueue_jobs(%s)", [json.dumps(jobs)])
    assert statuses(db) == {}


def test_run_at_and_delay_add_up_by_the_clock_of_the_database(db: Db) -> None:
    at = hence(hours=1)
    late = row(db, enqueue(db, run_at=at, delay=MINUTE) or 0)
    soon = row(db, enqueue(db, delay=MINUTE) or 0)
    assert late.next_retry_at == at + MINUTE
    assert soon.next_retry_at == soon.created_at + MINUTE


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


@pytest.mark.at_length  # a large payload reaches its processor in worker/test_worker, in every run
def test_a_payload_of_a_mebibyte_is_kept_whatever_is_in_it(db: Db) -> None:
    made = enqueue(db, payload=WIDE), enqueue_many(db, {"payload": WIDE})[0]
    assert claim(db) == [*made]


@pytest.mark.parametrize("way", ["one", "many", "unique", "replacing", "insert", "by hand"])
@pytest.mark.parametrize(
    "numbers",
    [
        ["1e131071"] * 20,  # short, with 131,072 digits each, and a claim would have to carry them all
        ["1"] * (JSON_CAP // 2 + JSON_CAP // 4),
    ],
    ids=["short numbers", "many numbers"],
)
def test_a_payload_that_is_too_large_is_refused(db: Db, way: str, numbers: list[str]) -> None:
    """R21, FE7."""
    waiting = make_job(db, "RETRY_WAIT", unique_key="k", unique_scope="live", lease_seq=2, attempt_count=1)
    payload = '{"n": [' + ",".join(numbers) + "]}"
    keyed = '"unique_key": "k", "on_conflict": "replace"'
    ways: dict[str, Callable[[], Any]] = {
        "one": lambda: db.execute("SELECT enqueue_job('test', %s::jsonb)", [payload]),
        "many": lambda: lifecycle.enqueue(db, f'[{{"kind": "test", "payload": {payload}}}]'),
        "unique": lambda: lifecycle.enqueue(db, f'[{{"kind": "other", "payload": {payload}, {keyed}}}]'),
        "replacing": lambda: lifecycle.enqueue(db, f'[{{"kind": "test", "payload": {payload}, {keyed}}}]'),
        "insert": lambda: db.execute("INSERT INTO snap_processing_job (kind, payload) VALUES ('test', %s)", [payload]),
        "by hand": lambda: move(db, make_job(db), payload=payload),
    }
    with pytest.raises(pg.CheckViolation, match="payload_is_capped"):
        ways[way]()
    assert row(db, waiting).payload == {}


@pytest.mark.parametrize("way", ["enqueued", "copied", "short numbers"])
def test_a_claim_does_not_fetch_a_large_payload_however_small_it_is_on_disk(db: Db, way: str) -> None:
    """Compressed, a megabyte was 18 KB, and a claim of a hundred fetched 101 MiB. What is copied from a table that
    compresses stays so, and a number of ten bytes may have a hundred thousand digits."""
    large = to_json({"a": "b" * (JSON_CAP - 10)})
    ways: dict[str, Callable[[], Any]] = {
        "enqueued": lambda: enqueue_many(db, *[{"payload": json.loads(large)}] * 5),
        "copied": lambda: db.execute(
            "INSERT INTO snap_processing_job (kind, payload) SELECT 'test', payload FROM kept, generate_series(1, 5)"
        ),
        "short numbers": lambda: [db.execute("SELECT enqueue_job('test', '{\"n\": 1e100000}')") for _ in range(5)],
    }
    db.execute("CREATE TEMPORARY TABLE kept AS SELECT %s::jsonb AS payload", [large])
    ways[way]()
    assert [job.payload_json for job in claimed(db, 5).jobs] == [None] * 5


def test_an_enqueued_payloads_size_is_known_without_reading_it(db: Db) -> None:
    """Or a claim would decompress a hundred megabytes, only to leave them where they are."""
    made = enqueue(db, payload={"a": "b" * (JSON_CAP - 10)})
    assert scalar(db, "SELECT pg_column_size(payload) FROM snap_processing_job WHERE id = %s", made) > JSON_CAP - 20


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"unique_scope": "live"}, "unique_scope live needs a unique_key"),
        ({"unique_key": "k", "on_conflict": "explode"}, "on_conflict must be existing, ignore or replace, not explode"),
        ({"on_conflict": "explode"}, "on_conflict must be existing, ignore or replace, not explode"),
        ({"on_parent_failure": "explode"}, "on_parent_failure must be cancel or run, not explode"),
    ],
)
def test_options_that_contradict_each_other_are_refused(db: Db, given: dict[str, Any], said: str) -> None:
    with pytest.raises(pg.InvalidParameterValue, match=said):
        enqueue(db, **given)
    with pytest.raises(pg.InvalidParameterValue, match=said):
        enqueue_many(db, {}, given)


@pytest.mark.parametrize("value", [5, True, {}, ["existing"], ["explode"]])
def test_an_option_that_is_no_text_is_refused_also_where_it_decides_nothing(db: Db, value: object) -> None:
    for name in ("on_conflict", "on_parent_failure"):
        with pytest.raises(pg.InvalidParameterValue, match=f"{name} must be "):
            enqueue_many(db, {name: value})


def test_an_option_that_is_null_was_not_said(db: Db) -> None:
    assert enqueue(db, on_conflict=None, on_parent_failure=None)


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
    """W45."""
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
    assert (plain.queue, plain.priority, plain.concurrency_key, plain.next_retry_at.year) == ("media", 3, "key", 2020)


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("good", [3, 2500])
def test_many_are_all_added_or_none(db: Db, url: str, engine: sqlalchemy.Engine, carrier: str, good: int) -> None:
    """S5: also where the one that is refused comes pages after the first, and whatever the caller then does."""
    with carried(carrier, url, engine) as caller:
        with pytest.raises(InvalidJob):
            enqueue_many_plainly(caller, [{"kind": "test"}] * good + [{"kind": ""}])
        kept = enqueue_plainly(caller, "kept")
        caller.commit()
    assert statuses(db) == {kept: "PENDING"}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_what_the_database_refuses_among_many_is_no_end_of_the_transaction(
    db: Db, url: str, engine: sqlalchemy.Engine, carrier: str
) -> None:
    holder = make_job(db, "RUNNING", unique_key="k", unique_scope="live")
    refused = {"kind": "test", "unique_key": "k", "on_conflict": "replace"}
    with carried(carrier, url, engine) as caller:
        with pytest.raises(DuplicateKey):
            enqueue_many_plainly(caller, [{"kind": "test"}] * 2500 + [refused])
        kept = enqueue_plainly(caller, "kept")
        caller.commit()
    assert statuses(db) == {holder: "RUNNING", kept: "PENDING"}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_many_pages_stay_in_the_hands_of_the_caller(db: Db, url: str, engine: sqlalchemy.Engine, carrier: str) -> None:
    with carried(carrier, url, engine) as caller:
        ids = enqueue_many_plainly(caller, [{"kind": "test"}] * 2500)
        caller.rollback()
    assert len({*ids}) == 2500
    assert len(statuses(db)) == (2500 if carrier in BY_ITSELF else 0)
