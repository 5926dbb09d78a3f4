"""What `enqueue` refuses, before the database could: an error there would end the caller's transaction."""

import asyncio
import json
import math
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from types import MappingProxyType
from typing import Any

import psycopg
import pytest
import sqlalchemy
from hypothesis import given
from hypothesis import strategies as st
from psycopg.rows import dict_row, scalar_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from snapapp.jobs import chain, done_before, enqueue, enqueue_async, enqueue_many, registry
from snapapp.jobs.adding import Defaults
from snapapp.jobs.errors import DuplicateKey, InvalidJob
from snapapp.jobs.model import JSON_CAP, Job
from snapapp.jobs.registry import Processor
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.database import connect, sqlalchemy_url
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.factory import Db, ago, hence, make_job, move, row, statuses

MIB = 1024 * 1024


class Nowhere(tzinfo):
    """A zone that does not know its offset: the datetime is naive after all."""

    def utcoffset(self, moment: datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, moment: datetime | None) -> str:
        return "nowhere"


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def endless() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["itself"] = value
    return value


BAD: dict[str, dict[str, Any]] = {
    "no kind": {"kind": ""},
    "kind None": {"kind": None},
    "kind a number": {"kind": 7},
    "kind a list": {"kind": ["mail.send"]},
    "kind with NUL": {"kind": "mail\0send"},
    "kind a surrogate": {"kind": "mail\ud800"},
    "kind too long": {"kind": "k" * 201},
    "kind too many bytes": {"kind": "ã" * 101},
    "payload a list": {"payload": [1]},
    "payload a text": {"payload": "{}"},
    "payload a number": {"payload": 1},
    "payload NaN": {"payload": {"a": math.nan}},
    "payload infinite": {"payload": {"a": [math.inf]}},
    "payload key NaN": {"payload": {math.nan: 1}},
    "payload key a tuple": {"payload": {(1, 2): 1}},
    "payload with NUL": {"payload": {"a": "b\0c"}},
    "payload key with NUL": {"payload": {"\0": 1}},
    "payload NUL after a backslash": {"payload": {"a": "\\\0"}},
    "payload a surrogate": {"payload": {"a": "\udfff"}},
    "payload key a surrogate": {"payload": {"\ud83d": 1}},
    "payload bytes": {"payload": {"a": b"b"}},
    "payload a date": {"payload": {"a": datetime.now(UTC)}},
    "payload a set": {"payload": {"a": {1}}},
    "payload an object": {"payload": {"a": object()}},
    "payload too deep": {"payload": nested(100_000)},
    "payload endless": {"payload": endless()},
    "payload too large": {"payload": {"a": "b" * MIB}},
    "payload too many bytes": {"payload": {"a": "ã" * (MIB // 2)}},
    "payload a number too long": {"payload": {"a": 10**5000}},
    "payload numbers too long written out": {"payload": {"a": [1e308] * 6000}},
    "payload small numbers too long written out": {"payload": {"a": [5e-324] * 6000}},
    "queue empty": {"queue": ""},
    "queue a number": {"queue": 1},
    "queue with NUL": {"queue": "a\0"},
    "queue too long": {"queue": "q" * 201},
    "priority too high": {"priority": 1001},
    "priority too low": {"priority": -1001},
    "priority huge": {"priority": 10**30},
    "priority True": {"priority": True},
    "priority a fraction": {"priority": 1.0},
    "priority a text": {"priority": "1"},
    "priority None": {"priority": None},
    "run_at naive": {"run_at": datetime(2030, 1, 1)},  # noqa: DTZ001 - that is the point
    "run_at without offset": {"run_at": datetime(2030, 1, 1, tzinfo=Nowhere())},
    "run_at a text": {"run_at": "2030-01-01T00:00:00Z"},
    "run_at a number": {"run_at": 1_900_000_000},
    "run_at too late": {"run_at": datetime.max.replace(tzinfo=UTC)},
    "run_at too late elsewhere": {"run_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))},
    "run_at too early": {"run_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=12)))},
    "delay negative": {"delay": timedelta(microseconds=-1)},
    "delay too long": {"delay": timedelta(days=3651)},
    "delay endless": {"delay": timedelta.max},
    "delay a number": {"delay": 10},
    "unique_key a number": {"unique_key": 1},
    "unique_key with NUL": {"unique_key": "\0"},
    "unique_key too long": {"unique_key": "k" * 501},
    "unique_key too many bytes": {"unique_key": "漢" * 200},
    "unique_scope unknown": {"unique_key": "a", "unique_scope": "always"},
    "unique_scope a list": {"unique_key": "a", "unique_scope": ["live"]},
    "unique_scope without a key": {"unique_scope": "live"},
    "on_conflict unknown": {"unique_key": "a", "on_conflict": "explode"},
    "on_conflict None": {"on_conflict": None},
    "concurrency_key a number": {"concurrency_key": 1},
    "concurrency_key too long": {"concurrency_key": "k" * 501},
    "max_attempts none": {"max_attempts": 0},
    "max_attempts negative": {"max_attempts": -1},
    "max_attempts too many": {"max_attempts": 1001},
    "max_attempts True": {"max_attempts": True},
    "max_attempts a text": {"max_attempts": "3"},
    "timeout none": {"timeout": timedelta(0)},
    "timeout too short": {"timeout": timedelta(microseconds=999)},
    "timeout too long": {"timeout": timedelta(days=25)},  # of milliseconds in an integer there are fewer
    "timeout a number": {"timeout": 60},
    "tenant None": {"tenant": None},
    "tenant a number": {"tenant": 1},
    "tenant with NUL": {"tenant": "\0"},
    "tenant too long": {"tenant": "t" * 201},
    "snap_id no UUID": {"snap_id": "snap-1"},
    "snap_id a number": {"snap_id": 1},
    "snap_id bytes": {"snap_id": uuid.uuid4().bytes},
    "request_id a number": {"request_id": 1},
    "request_id a surrogate": {"request_id": "\udc80"},
    "request_id too long": {"request_id": "r" * 201},
}


@pytest.fixture(scope="module")
def lasting_db(servers: Callable[[str], Postgres]) -> Iterator[Db]:
    with servers(EMBEDDED).database("migrated") as url, connect(url, name="test") as connection:
        yield connection


@pytest.fixture
def transaction(lasting_db: Db) -> Iterator[Db]:
    with lasting_db.transaction(force_rollback=True):
        yield lasting_db


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_bad_input_is_refused_and_the_transaction_goes_on(transaction: Db, bad: dict[str, Any]) -> None:
    db, job = transaction, {"kind": "test"} | bad
    with pytest.raises(InvalidJob) as refusal:
        enqueue(db, **job)
    assert len(str(refusal.value)) < 5000
    with pytest.raises(InvalidJob):
        enqueue_many(db, [{"kind": "good"}, job])
    assert [row(db, job_id).kind for job_id in statuses(db)] == []
    assert enqueue(db, "test") is not None


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({"payload": {}}, "a job needs a kind"),
        ({"kind": "test", "payloads": {}, "when": 1}, "unknown arguments: payloads, when"),
        ({"kind": "test", "db": None}, "unknown arguments: db"),
        ({"kind": "test", 7: 1}, "unknown arguments: 7"),
        ("test", "each job must be a mapping of enqueue's arguments, not 'test'"),
        (None, "each job must be a mapping of enqueue's arguments, not None"),
    ],
)
def test_a_job_of_many_with_the_wrong_arguments_is_refused(transaction: Db, job: Any, why: str) -> None:
    with pytest.raises(InvalidJob, match=why):
        enqueue_many(transaction, [job])
    assert enqueue(transaction, "test") is not None


def test_an_unknown_argument_of_one_is_refused(db: Db) -> None:
    with pytest.raises(InvalidJob, match="unknown arguments: payloads"):
        enqueue(db, "test", payloads={})  # type: ignore[call-arg]


def test_the_message_names_the_argument_and_its_value(db: Db) -> None:
    with pytest.raises(InvalidJob, match=r"priority must be a whole number from -1000 to 1000, not 'high'"):
        enqueue(db, "test", priority="high")  # type: ignore[arg-type]


# --- what is accepted -------------------------------------------------------------------------------------------

SNAP = uuid.UUID("7b2c9187-7b93-4f44-8842-cfdaa8da8085")
FULL: dict[str, Any] = {
    "kind": "mail.send",
    "payload": {"to": "ação@example.org", "n": 1.5, "null": None, "deep": [{"a": True}]},
    "queue": "media",
    "priority": -1000,
    "run_at": datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=timezone(timedelta(hours=-3))),
    "delay": timedelta(seconds=90, microseconds=1),
    "unique_key": "ana's",
    "unique_scope": "ever",
    "concurrency_key": "camera 7",
    "max_attempts": 1000,
    "timeout": timedelta(days=7),
    "tenant": "olho",
    "snap_id": SNAP,
    "request_id": "req-1",
}


def assert_full(db: Db, job_id: int | None) -> None:
    assert job_id is not None
    it = row(db, job_id)
    assert it.status == "PENDING"
    assert (it.kind, it.queue, it.priority, it.tenant) == ("mail.send", "media", -1000, "olho")
    assert it.payload == FULL["payload"]
    assert it.next_retry_at == FULL["run_at"] + FULL["delay"]
    assert (it.unique_key, it.unique_scope) == ("ana's", "ever")
    assert (it.concurrency_key, it.lane, it.gate) == ("camera 7", "", "open")
    assert (it.max_attempts, it.timeout_ms) == (1000, 7 * 86_400_000)
    assert (it.snap_id, it.request_id) == (SNAP, "req-1")
    assert (it.attempt_count, it.lease_seq, it.claimed_by, it.started_at) == (0, 0, None, None)


def test_every_argument_lands_in_its_column(db: Db) -> None:
    assert_full(db, enqueue(db, **FULL))


def test_every_argument_lands_in_its_column_in_bulk(db: Db) -> None:
    plain = {name: value for name, value in FULL.items() if not name.startswith("unique")}
    [keyed] = enqueue_many(db, [FULL])
    assert_full(db, keyed)
    [keyless] = enqueue_many(db, [plain])
    assert keyless is not None
    ours, theirs = row(db, keyless)._asdict(), row(db, keyed or 0)._asdict()
    differing = {name for name in ours if ours[name] != theirs[name]}
    assert differing <= {"id", "created_at", "unique_key", "unique_scope"}


def test_the_least_that_can_be_said_is_a_kind(db: Db) -> None:
    one = enqueue(db, "test")
    [many] = enqueue_many(db, [{"kind": "test"}])
    for job_id in (one, many):
        assert job_id is not None
        it = row(db, job_id)
        assert (it.queue, it.priority, it.payload, it.tenant) == ("default", 0, {}, "")
        assert (it.max_attempts, it.timeout_ms, it.unique_key, it.snap_id, it.lane) == (3, None, None, None, "")
        assert it.next_retry_at == it.created_at


def test_the_kinds_declaration_fills_in_what_is_not_said(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    def send(job: Job) -> None: ...

    declared = Processor("mail.send", send, queue="mail", max_attempts=7)
    monkeypatch.setitem(registry.default._processors, "mail.send", declared)
    for job_id in (enqueue(db, "mail.send"), *enqueue_many(db, [{"kind": "mail.send"}])):
        assert job_id is not None
        assert (row(db, job_id).queue, row(db, job_id).max_attempts) == ("mail", 7)
    said = enqueue(db, "mail.send", queue="other", max_attempts=2)
    assert said is not None
    assert (row(db, said).queue, row(db, said).max_attempts) == ("other", 2)


def test_the_runtimes_default_of_attempts_is_used(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Defaults, "max_attempts", 9)
    job_id = enqueue(db, "test")
    assert job_id is not None
    assert row(db, job_id).max_attempts == 9


def as_floats(payload: Mapping[Any, Any]) -> Any:
    """jsonb knows one kind of number, so 1e30 comes back as the integer that it stands for."""
    return json.loads(json.dumps(dict(payload)), parse_int=float)


@pytest.mark.parametrize(
    "payload",
    [
        MappingProxyType({"a": 1}),
        {"text that looks like the escape of NUL": "\\u0000"},
        {"a": "b" * (MIB - 10)},
        {"a": [1] * (MIB // 2 - 10)},  # jsonb's text is half as long again, for its blanks
        {"a": [1e308] * 3000},
        {"a": 10**4000},
        {"😀": "\u2028\x01\x7f"},
        {1: "one", None: 0, False: 1.5},
        nested(500),
    ],
    ids=["a mapping", "escape", "largest", "most blanks", "long numbers", "long integer", "odd", "odd keys", "deep"],
)
def test_what_is_just_allowed_is_kept_as_it_is(db: Db, payload: Mapping[Any, Any]) -> None:
    for job_id in (enqueue(db, "test", payload), *enqueue_many(db, [{"kind": "test", "payload": payload}])):
        assert job_id is not None
        assert as_floats(row(db, job_id).payload) == as_floats(payload)


@pytest.mark.parametrize("snap_id", [SNAP, str(SNAP), SNAP.hex, SNAP.urn, f"{{{SNAP}}}"])
def test_every_spelling_of_a_uuid_is_one(db: Db, snap_id: Any) -> None:
    for job_id in (enqueue(db, "test", snap_id=snap_id), *enqueue_many(db, [{"kind": "test", "snap_id": snap_id}])):
        assert job_id is not None
        assert row(db, job_id).snap_id == SNAP


@pytest.mark.parametrize("offset", [timedelta(hours=14), timedelta(seconds=1), timedelta(hours=-5, microseconds=1)])
def test_a_moment_is_the_same_from_every_zone(db: Db, offset: timedelta) -> None:
    moment = datetime(2030, 1, 1, tzinfo=timezone(offset))
    for job_id in (enqueue(db, "test", run_at=moment), *enqueue_many(db, [{"kind": "test", "run_at": moment}])):
        assert job_id is not None
        assert row(db, job_id).next_retry_at == moment


def test_names_of_the_greatest_length_fit_into_every_index(db: Db) -> None:
    """Of random characters, which no index can compress."""
    kind, queue, tenant = (uuid.uuid4().hex * 7 for _ in range(3))
    key = "".join(chr(0x4E00 + (number * 7919) % 20_000) for number in range(166))
    full: dict[str, Any] = {"kind": kind[:200], "queue": queue[:200], "tenant": tenant[:200]}
    full |= {"unique_key": key, "concurrency_key": key}
    assert None not in [enqueue(db, **full), *enqueue_many(db, [full])]


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
            max_leaves=20,
        ),
        max_size=5,
    )
)
def test_any_payload_is_kept_or_refused(db: Db, payload: dict[str, Any]) -> None:
    with db.transaction(force_rollback=True):
        try:
            ids = [enqueue(db, "test", payload), *enqueue_many(db, [{"kind": "test", "payload": payload}])]
        except InvalidJob:
            ids = []
        for job_id in ids:
            assert job_id is not None
            assert as_floats(row(db, job_id).payload) == as_floats(payload)
        assert enqueue(db, "test") is not None


# --- unique keys ------------------------------------------------------------------------------------------------


def test_a_held_key_returns_its_holder(db: Db) -> None:
    first = enqueue(db, "test", unique_key="a")
    assert enqueue(db, "test", {"other": 1}, unique_key="a") == first
    assert enqueue(db, "test", unique_key="a", on_conflict="ignore") is None
    assert enqueue(db, "test", unique_key="a", tenant="another") not in (first, None)
    assert enqueue(db, "another", unique_key="a") not in (first, None)


def test_a_waiting_holder_is_replaced(db: Db) -> None:
    first = enqueue(db, "test", {"n": 1}, unique_key="a", run_at=hence(hours=1))
    assert enqueue(db, "test", {"n": 2}, unique_key="a", on_conflict="replace") == first
    assert first is not None
    assert row(db, first).payload == {"n": 2}


def test_ids_of_many_come_in_their_order(db: Db) -> None:
    jobs = [{"kind": "test", "unique_key": key, "on_conflict": "ignore"} for key in "cabcb"]
    ids = enqueue_many(db, jobs)
    assert [row(db, job_id).unique_key for job_id in ids[:3] if job_id] == ["c", "a", "b"]
    assert ids[3:] == [None, None]


# --- carriers and bulk ------------------------------------------------------------------------------------------


def test_it_rides_in_a_sqlalchemy_connection(db: Db, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        with pytest.raises(InvalidJob):
            enqueue(connection, "test", {"a": "\0"})
        job_id = enqueue(connection, **FULL)
        [other] = enqueue_many(connection, [{"kind": "test", "payload": {"%": "100 %s %(a)s"}}])
        assert statuses(db) == {}
    assert_full(db, job_id)
    assert other is not None
    assert row(db, other).payload == {"%": "100 %s %(a)s"}


def test_it_rides_in_a_session(db: Db, engine: sqlalchemy.Engine) -> None:
    with Session(engine) as session, session.begin():
        with pytest.raises(InvalidJob):
            enqueue_many(session, [{"kind": "test", "priority": True}])
        job_id = enqueue(session, **FULL)
        many = enqueue_many(session, [{"kind": "test"}] * 3)
    assert_full(db, job_id)
    assert len({*many, job_id}) == 4


OWN_WAYS: list[dict[str, Any]] = [
    {"row_factory": dict_row},
    {"row_factory": scalar_row},
    {"cursor_factory": psycopg.ClientCursor},
    {"cursor_factory": psycopg.RawCursor},
]


@pytest.mark.parametrize("ways", OWN_WAYS, ids=["dicts", "scalars", "client cursors", "raw cursors"])
def test_it_rides_on_a_connection_whatever_rows_and_cursors_its_owner_likes(
    db: Db, url: str, ways: dict[str, Any]
) -> None:
    with psycopg.connect(url, **ways) as caller:
        one = enqueue(caller, "test", {"n": 1}, unique_by="spec")
        assert (
            enqueue_many(caller, [{"kind": "test", "payload": {"n": n}, "unique_by": "spec"} for n in (2, 1)])[1] == one
        )
        first, second = chain(caller, {"kind": "test"}, {"kind": "test"})
        assert done_before(caller, "test", {"n": 1}) is None
    assert len(statuses(db)) == 4
    assert first < second


def test_asyncio_rides_on_a_connection_that_returns_dicts(db: Db, url: str) -> None:
    async def ride() -> int | None:
        async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as caller:
            return await enqueue_async(caller, "test")

    added = asyncio.run(ride())
    assert statuses(db) == {added: "PENDING"}


@asynccontextmanager
async def carried_async(carrier: str, url: str) -> AsyncIterator[Any]:
    """In a transaction that is rolled back at the end, unless it was committed."""
    if carrier == "psycopg":
        async with await psycopg.AsyncConnection.connect(url) as connection:
            yield connection
            await connection.rollback()
        return
    engine = create_async_engine(sqlalchemy_url(url))
    async with AsyncSession(engine) if carrier == "session" else engine.connect() as alchemy:
        yield alchemy
    await engine.dispose()


@pytest.mark.parametrize("carrier", ["psycopg", "connection", "session"])
def test_it_rides_in_asyncio(db: Db, url: str, carrier: str) -> None:
    async def ride() -> int | None:
        async with carried_async(carrier, url) as caller:
            with pytest.raises(InvalidJob):
                await enqueue_async(caller, "test", {"a": "\0"})
            job_id = await enqueue_async(caller, **FULL)
            assert (
                await enqueue_async(caller, "mail.send", unique_key="ana's", unique_scope="ever", tenant="olho")
                == job_id
            )
            assert statuses(db) == {}
            await caller.commit()
            await enqueue_async(caller, "rolled.back")
        return job_id

    assert_full(db, asyncio.run(ride()))
    assert len(statuses(db)) == 1


@pytest.mark.parametrize("carrier", ["psycopg", "connection", "session"])
def test_a_refusal_is_the_same_in_asyncio(db: Db, url: str, carrier: str) -> None:
    make_job(db, "RUNNING", unique_key="k", unique_scope="live")

    async def ride() -> None:
        async with carried_async(carrier, url) as caller:
            with pytest.raises(DuplicateKey, match="job 1 holds the unique key k and is RUNNING"):
                await enqueue_async(caller, "test", unique_key="k", on_conflict="replace")

    asyncio.run(ride())


@pytest.mark.parametrize("in_bulk", [False, True])
def test_rolled_back_means_it_never_was(db: Db, engine: sqlalchemy.Engine, in_bulk: bool) -> None:
    with engine.connect() as connection:
        enqueue_many(connection, [{"kind": "test"}]) if in_bulk else enqueue(connection, "test")
        connection.rollback()
    assert statuses(db) == {}


def test_many_come_from_any_iterable_and_none_is_fine(db: Db) -> None:
    ids = enqueue_many(db, ({"kind": "test", "payload": {"n": number}} for number in range(2500)))
    assert ids == sorted(ids, key=lambda job_id: job_id or 0)
    assert db.execute("SELECT count(DISTINCT payload->>'n') FROM snap_processing_job").fetchone() == (2500,)
    assert enqueue_many(db, []) == []


@pytest.mark.at_length  # many pages stay in one transaction in test_enqueue, in every run
def test_many_large_ones_are_sent_in_pages_that_postgresql_takes(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jsonb array holds 256 MB; a page of a thousand of the largest payloads would have 1 GB."""
    sent: list[int] = []
    send = lifecycle.enqueue

    def counted(db: Db, jobs: str) -> list[int | None]:
        sent.append(len(jobs))
        return send(db, jobs)

    monkeypatch.setattr(lifecycle, "enqueue", counted)
    large = {"kind": "test", "payload": {"a": "b" * (JSON_CAP - 10)}}
    assert len(set(enqueue_many(db, [large] * 20))) == 20
    assert len(sent) == 3
    assert max(sent) < 9 * MIB


def test_a_bad_one_among_many_leaves_the_transaction_usable(db: Db) -> None:
    kept = make_job(db)
    move(db, kept, created_at=ago(days=1))
    with db.transaction():
        with pytest.raises(InvalidJob):
            enqueue_many(db, [{"kind": "test"}] * 10 + [{"kind": "test", "payload": {"a": math.nan}}])
        added = enqueue(db, "test")
    assert set(statuses(db)) == {kept, added}


@pytest.mark.parametrize("garbage", ["x" * 10_240, f"00-{'A' * 32}-{'b' * 16}-01", "", "-" * 55])
def test_a_traceparent_that_is_none_costs_no_job(db: Db, garbage: str) -> None:
    given = json.dumps([{"kind": "mail.send", "traceparent": garbage}])
    one = db.execute("SELECT enqueue_job('mail.send', traceparent => %s)", [garbage]).fetchone()
    many = db.execute("SELECT enqueue_jobs(%s::jsonb)", [given]).fetchone()
    assert one
    assert many
    assert [row(db, job_id).traceparent for job_id in (*one, *many)] == [None, None]


@pytest.mark.parametrize("opens", [sqlalchemy.Engine.connect, Session])
@pytest.mark.parametrize("jobs", [1, 1001])
def test_another_driver_is_refused_in_words_and_the_transaction_goes_on(
    opens: Callable[[sqlalchemy.Engine], Any], jobs: int
) -> None:
    """asyncpg, too, knows other placeholders: PostgreSQL said that there is a syntax error at or near "%"."""
    with opens(sqlalchemy.create_engine("sqlite://")) as db:
        with pytest.raises(TypeError, match=r"psycopg \(postgresql\+psycopg://\), not pysqlite"):
            enqueue_many(db, [{"kind": "plain"}] * jobs)
        assert db.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
