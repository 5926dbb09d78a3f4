"""What people see of the queue, and that looking never reads the table as a whole."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from snapapp.jobs.errors import UnknownJob
from snapapp.jobs.model import Status
from snapapp.jobs.rows import database, roster
from snapapp.jobs.rows.people import failures, lists, overviews, relatives, views
from snapapp.jobs.rows.people.lists import Filter
from snapapp.jobs.rows.people.views import JobDetail
from snapapp.jobs.rows.roster import Counts, Report
from tests import commands
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.factory import Db, ago, hence, make_job, make_jobs, move, row

ALL = Filter()
STATUSES = list(Status)


def every_page(db: database.Db, which: Filter = ALL, limit: int = 3) -> list[int]:
    found: list[int] = []
    page = lists.jobs(db, which, limit=limit)
    while True:
        assert len(page.jobs) <= limit
        found += [job.id for job in page.jobs]
        if page.before is None:
            return found
        page = lists.jobs(db, which, before=page.before, limit=limit)


def newest_first(ids: list[int]) -> list[int]:
    return sorted(ids, reverse=True)


# --- lists ------------------------------------------------------------------------------------------------------


def test_an_empty_table_is_an_empty_page(db: Db) -> None:
    for status in (None, *STATUSES):
        page = lists.jobs(db, Filter(status=status))
        assert (page.jobs, page.before) == ([], None)


def test_jobs_come_newest_first_and_page_by_page(db: Db) -> None:
    ids = make_jobs(db, 10)
    page = lists.jobs(db, limit=4)
    assert [job.id for job in page.jobs] == newest_first(ids)[:4]
    assert page.before == ids[-4]
    assert every_page(db) == newest_first(ids)


def test_the_page_that_ends_exactly_with_the_last_job_leads_to_an_empty_one(db: Db) -> None:
    make_jobs(db, 3)
    page = lists.jobs(db, limit=3)
    rest = lists.jobs(db, before=page.before, limit=3)
    assert (rest.jobs, rest.before) == ([], None)


@pytest.fixture(scope="module")
def mixed(servers: Callable[[str], Postgres]) -> Iterator[Db]:
    """Looked at only, and therefore by all."""
    with servers(EMBEDDED).database("migrated") as url, database.connect(url, name="test") as db:
        for number in range(3):
            for status in STATUSES:
                kind, queue = f"kind-{number % 2}", f"queue-{number}"
                make_job(db, status, kind=kind, queue=queue, tenant="" if number else "olho")
                if status in (Status.PENDING, Status.RETRY_WAIT):
                    for gate in ("alone", "held", "later"):
                        make_job(db, status, kind=kind, queue=queue, gate=gate)
        yield db


@pytest.mark.parametrize("status", [None, *STATUSES])
@pytest.mark.parametrize("others", [{}, {"kind": "kind-0"}, {"queue": "queue-1"}, {"tenant": ""}, {"tenant": "olho"}])
@pytest.mark.parametrize(("windows", "few"), [([2, 3], 100), ([2, 3], 3), ([500], 100)])
def test_a_list_holds_all_that_match_and_nothing_else(
    mixed: Db,
    status: Status | None,
    others: dict[str, Any],
    windows: list[int],
    few: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R48."""
    monkeypatch.setattr(lists, "WINDOWS", windows)
    monkeypatch.setattr(lists, "SCATTERED", windows)
    monkeypatch.setattr(lists, "FEW", few)
    wanted = others | ({"status": status.value} if status else {})
    everything = mixed.execute("SELECT id FROM snap_processing_job").fetchall()
    matching = [
        job_id
        for (job_id,) in everything
        if all(getattr(row(mixed, job_id), name) == value for name, value in wanted.items())
    ]
    assert matching
    assert every_page(mixed, Filter(status=status, **others)) == newest_first(matching)


def test_a_call_looks_through_so_many_rows_and_says_where_it_stopped(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WINDOWS", [2, 4])
    needle = make_job(db, kind="needle")
    hay = make_jobs(db, 10)
    page = lists.jobs(db, Filter(kind="needle"), limit=2)
    assert (page.jobs, page.before) == ([], hay[4])
    assert every_page(db, Filter(kind="needle"), limit=2) == [needle]


def test_few_waiting_jobs_below_many_finished_ones_are_found_at_once(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "WINDOWS", [5])
    waiting = make_jobs(db, 2)
    make_jobs(db, 20, status="COMPLETED")
    page = lists.jobs(db, Filter(status=Status.PENDING))
    assert [job.id for job in page.jobs] == newest_first(waiting)
    assert page.before is None


@pytest.mark.parametrize("status", [None, *STATUSES])
@pytest.mark.parametrize("by", [{"error": "TIMED out"}, {"older_than": timedelta(days=2)}, {"hash": "9F86d0"}])
def test_jobs_are_found_by_error_age_and_work(db: Db, status: Status | None, by: dict[str, Any]) -> None:
    """R48: other runs of the same work."""
    told = {
        "last_error": "it timed out",
        "created_at": ago(days=3),
        "unique_key": "spec:9f86d081",
        "unique_scope": "ever",
    }
    others = {"last_error": "no", "created_at": ago(days=1), "unique_key": "spec:9f86d1", "unique_scope": "ever"}
    plain = {"kind": "plain", "unique_key": "9f86d081", "unique_scope": "ever"}
    wanted = [
        make_job(db, each, kind=f"{each} {gate}", gate=gate, **told) for each in STATUSES for gate in _gates(each)
    ]
    for each in STATUSES:
        make_job(db, each, kind=each, **others)
    make_job(db, **plain)
    fitting = [job_id for job_id in wanted if status is None or row(db, job_id).status == status]
    assert every_page(db, Filter(status=status, **by)) == newest_first(fitting)
    if status:
        assert sorted(lists.matching(db, Filter(status=status, **by), 100).ids) == fitting


@pytest.mark.parametrize("status", [None, Status.COMPLETED, Status.FAILED, Status.CANCELLED])
def test_jobs_are_found_by_when_they_ended(db: Db, status: Status | None) -> None:
    ended = [timedelta(hours=5), timedelta(hours=3), timedelta(hours=2), timedelta(minutes=30)]
    over = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
    jobs = [
        [make_job(db, each, created_at=ago(hours=6), finished_at=datetime.now(UTC) - past) for each in over]
        for past in ended
    ]
    late = make_job(db, status or Status.FAILED, created_at=ago(days=9), finished_at=ago(minutes=150))
    make_job(db)
    which = Filter(status, finished_from=ago(hours=4), finished_until=ago(hours=1))
    fitting = [job_id for job_id in [*jobs[1], *jobs[2], late] if status is None or row(db, job_id).status == status]
    assert every_page(db, which) == newest_first(fitting)
    if status:
        assert sorted(lists.matching(db, which, 100).ids) == sorted(fitting)


@pytest.mark.parametrize("status", [Status.COMPLETED, Status.FAILED])
def test_what_was_enqueued_later_is_not_looked_through(db: Db, monkeypatch: pytest.MonkeyPatch, status: Status) -> None:
    """With millions of younger jobs the page of an hour last week would be empty, and so would the next hundred."""
    monkeypatch.setattr(lists, "WINDOWS", [20])
    monkeypatch.setattr(lists, "SCATTERED", [20])
    jobs = make_jobs(db, 5, status, created_at=ago(days=7), finished_at=ago(days=7))
    db.execute("SELECT setval('snap_processing_job_id_seq', 100000)")
    make_jobs(db, 70, status)
    assert [job.id for job in lists.jobs(db, Filter(status, finished_until=ago(days=6))).jobs] == newest_first(jobs)


def test_a_job_from_a_moment_to_come_hides_none_that_has_ended(db: Db) -> None:
    make_jobs(db, 3, Status.COMPLETED, created_at=ago(days=8), finished_at=ago(days=8))
    make_jobs(db, 9, created_at=hence(days=3650))
    ended = make_jobs(db, 3, Status.COMPLETED, created_at=ago(days=7), finished_at=ago(days=7))
    make_jobs(db, 3, Status.COMPLETED)
    found = lists.jobs(db, Filter(finished_from=ago(days=7, hours=1), finished_until=ago(days=6)))
    assert [job.id for job in found.jobs] == newest_first(ended)


def test_a_long_transaction_hides_no_job_that_has_ended(db: Db) -> None:
    """What it enqueued has a later id and the time of its beginning."""
    make_jobs(db, 9, Status.COMPLETED, created_at=ago(hours=3), finished_at=ago(hours=3))
    late = make_jobs(db, 3, Status.COMPLETED, created_at=ago(hours=9), finished_at=ago(hours=2))
    make_jobs(db, 9, Status.COMPLETED, created_at=ago(minutes=5), finished_at=ago(minutes=5))
    found = lists.jobs(db, Filter(finished_from=ago(hours=2, minutes=30), finished_until=ago(hours=1)))
    assert [job.id for job in found.jobs] == newest_first(late)


def _gates(status: Status) -> list[str]:
    return ["open", "held"] if status in (Status.PENDING, Status.RETRY_WAIT) else ["open"]


def test_what_is_done_to_many_is_found_by_status(mixed: Db) -> None:
    everything = mixed.execute("SELECT id FROM snap_processing_job ORDER BY id").fetchall()
    for status in STATUSES:
        those = [job_id for (job_id,) in everything if row(mixed, job_id).status == status]
        assert sorted(lists.matching(mixed, Filter(status), 100).ids) == those
        assert not lists.matching(mixed, Filter(status), 100).more
        some = lists.matching(mixed, Filter(status), len(those) - 1)
        assert (len(some.ids), some.more) == (len(those) - 1, True)
    waiting = lists.matching(mixed, Filter(tenant="olho"), 100).ids
    assert {row(mixed, job_id).status for job_id in waiting} == {"PENDING", "RETRY_WAIT"}
    assert {row(mixed, job_id).tenant for job_id in waiting} == {"olho"}


def test_a_line_says_what_its_columns_say(db: Db) -> None:
    job_id = make_job(
        db,
        "RUNNING",
        kind="mail.send",
        queue="mail",
        tenant="olho",
        priority=7,
        progress={"percent": 4},
        started_at=ago(),
    )
    [line] = lists.jobs(db).jobs
    it = row(db, job_id)
    assert {field.name: getattr(line, field.name) for field in fields(line)} == {
        field.name: getattr(it, field.name) for field in fields(line) if field.name != "suspect"
    } | {"suspect": False}
    assert line.status is Status.RUNNING


@pytest.mark.parametrize(
    ("columns", "is_suspect"),
    [({"losses": 1}, False), ({"losses": 2, "gate": "alone"}, True), ({"memory_mb": 99, "gate": "alone"}, True)],
)
def test_a_suspect_is_who_lost_two_workers_or_ran_short_of_memory(
    db: Db, columns: dict[str, Any], is_suspect: bool
) -> None:
    job_id = make_job(db, "RETRY_WAIT", **columns)
    assert views.job(db, job_id).suspect is lists.jobs(db).jobs[0].suspect is is_suspect


def test_a_job_that_waits_for_ever_can_be_listed(db: Db) -> None:
    db.execute("SELECT enqueue_job('test', run_at => 'infinity'), enqueue_job('test', run_at => '-infinity')")
    assert [job.next_retry_at.year for job in lists.jobs(db).jobs] == [1900, 9999]
    assert db.execute("SELECT pending, due, oldest_due FROM queue_overview").fetchall() == [(2, 1, None)]


# --- the plans --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(servers: Callable[[str], Postgres]) -> Iterator[Db]:
    """As people connect, without the worker's settings; looked at only, and therefore by all."""
    with (
        servers(EMBEDDED).database("migrated") as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute(
            "INSERT INTO snap_processing_job (kind, status, finished_at)"
            " SELECT 'old', 'COMPLETED', now() FROM generate_series(1, 30000)"
        )
        connection.execute("INSERT INTO snap_processing_job (kind) SELECT 'new' FROM generate_series(1, 50)")
        connection.execute("VACUUM ANALYZE snap_processing_job")
        yield connection


LOOKS: dict[str, Callable[[Db], object]] = {
    **{f"list {status}": partial(lists.jobs, which=Filter(status=status)) for status in (None, *STATUSES)},
    "list waiting of a kind": lambda db: lists.jobs(db, Filter(status=Status.PENDING, kind="new")),
    "list a kind": lambda db: lists.jobs(db, Filter(kind="new")),
    **{
        f"list {status} of a tenant": partial(lists.jobs, which=Filter(status=status, tenant="olho"))
        for status in STATUSES
    },
    "dead letters": lists.dead_letters,
    **{f"matching {status}": partial(lists.matching, which=Filter(status), limit=10) for status in STATUSES},
    "ended within": lambda db: lists.jobs(db, Filter(finished_from=ago(hours=2), finished_until=ago(hours=1))),
    "explain": lambda db: views.explain(db, 30_050),
    "exits": overviews.exits,
    "waiting": lists.waiting,
    "queues": overviews.queues,
    "drained": lambda db: overviews.is_drained(db, "worker", ["new"], []),
    "job": lambda db: views.job(db, 1),
    "family": lambda db: relatives.family(db, 1),
    "graph": lambda db: relatives.graph(db, 1),
    "failures": failures.groups,
    "step": lambda db: failures.step(db, Filter(error_line="oops"), after=0, up_to=99_999, limit=10),
    "newest failure": failures.newest,
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("plans", ["auto", "force_generic_plan"])
def test_looking_never_reads_the_table_as_a_whole(plain: Db, look: Callable[[Db], object], plans: str) -> None:
    with plain.transaction(force_rollback=True):
        plain.execute("SELECT set_config('plan_cache_mode', %s, true)", [plans])
        look(plain)
        scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'snap_processing_job'"
        assert plain.execute(scans).fetchone() == (0,)


# --- one job ----------------------------------------------------------------------------------------------------


def full_job(db: Db) -> int:
    return make_job(
        db,
        "RUNNING",
        payload={"to": "ação", "n": [1.5, None]},
        result={"a": [1]},
        progress={"percent": 40, "note": "frames"},
        errors=[{"attempt": 1, "error": "ValueError: no"}],
        last_error="ValueError: no",
        snap_id=uuid4(),
        unique_key="a",
        unique_scope="live",
        concurrency_key="camera",
        timeout_ms=5000,
        interruptions=2,
        replay_of=7,
        request_id="req",
        cancel_requested_at=ago(seconds=1),
        started_at=ago(seconds=9),
    )


def test_a_job_is_shown_with_every_column(db: Db) -> None:
    job_id = full_job(db)
    shown, it = views.job(db, job_id), row(db, job_id)
    columns = it._asdict() | {"suspect": False}
    assert {field.name: getattr(shown, field.name) for field in fields(JobDetail)} == columns


def test_a_job_that_is_not_there_is_an_error_that_names_it(db: Db) -> None:
    with pytest.raises(UnknownJob, match="there is no job 42"):
        views.job(db, 42)


def test_every_carrier_shows_the_same(db: Db, url: str, engine: sqlalchemy.Engine) -> None:
    job_id = full_job(db)
    overviews.pause(db, "default", "lunch")
    roster.beat(db, MEMBER, Report(), lives_for=timedelta(minutes=1))
    expected = (views.job(db, job_id), lists.jobs(db).jobs, overviews.queues(db), lists.dead_letters(db))
    with psycopg.connect(url) as plain, engine.connect() as connection, Session(engine) as session:
        for carrier in (plain, connection, session):
            shown = (
                views.job(carrier, job_id),
                lists.jobs(carrier).jobs,
                overviews.queues(carrier),
                lists.dead_letters(carrier),
            )
            assert shown == expected
            assert [each.id for each in overviews.workers(carrier)] == [MEMBER.id]
            assert lists.jobs(carrier).now.tzinfo is not None


def test_the_last_log_lines_come_in_the_order_they_were_said(db: Db) -> None:
    job_id, other = make_jobs(db, 2)
    for number in range(5):
        for owner in (job_id, other):
            db.execute(
                "INSERT INTO job_log (job_id, attempt, level, message) VALUES (%s, 1, 'INFO', %s)", [owner, str(number)]
            )
    last = views.logs(db, job_id, limit=2)
    assert [entry.message for entry in last] == ["3", "4"]
    assert [entry.message for entry in views.logs(db, job_id, before=last[0].id)] == ["0", "1", "2"]
    assert views.logs(db, job_id, limit=0) == []


# --- all that match ---------------------------------------------------------------------------------------------


def test_dead_letters_and_waiting_jobs_are_picked_by_kind_queue_and_tenant(mixed: Db) -> None:
    for found, statuses in ((lists.dead_letters, {"FAILED"}), (lists.waiting, {"PENDING", "RETRY_WAIT"})):
        everything = found(mixed)
        assert everything == sorted(everything)
        assert {row(mixed, job_id).status for job_id in everything} == statuses
        for name, value in (("kind", "kind-1"), ("queue", "queue-2"), ("tenant", "olho"), ("tenant", "")):
            picked = found(mixed, Filter(**{name: value}))  # type: ignore[arg-type]
            assert picked == [job_id for job_id in everything if getattr(row(mixed, job_id), name) == value]
            assert picked


# --- queues, numbers, workers -----------------------------------------------------------------------------------

MEMBER = replace(commands.MEMBER, queues=["mail"], kinds=["mail.send"])


def test_queues_are_counted_and_paused_ones_are_shown_without_work(db: Db) -> None:
    make_job(db, queue="mail", next_retry_at=ago(minutes=3))
    make_job(db, queue="mail", next_retry_at=hence(hours=1))
    make_job(db, "RETRY_WAIT", queue="mail", losses=2, gate="alone")
    make_job(db, "RUNNING", queue="mail")
    make_job(db, "FAILED", queue="mail")
    make_job(db, "COMPLETED", queue="done")
    overviews.pause(db, "empty", "lunch")
    empty, mail = overviews.queues(db)
    assert (mail.pending, mail.retry_wait, mail.due, mail.running, mail.failed) == (2, 1, 2, 1, 1)
    assert mail.oldest_due is not None
    assert timedelta(minutes=3) <= mail.oldest_due < timedelta(minutes=4)
    assert (empty.queue, empty.pending, empty.oldest_due, empty.paused_reason) == ("empty", 0, None, "lunch")
    overviews.resume(db, "empty")
    assert [each.queue for each in overviews.queues(db)] == ["mail"]


@pytest.mark.both_servers_at_length
def test_one_limited_queue_does_not_hide_another(db: Db) -> None:
    """The rows that limits hold have indexes of their own, and there may be any number of them."""
    db.execute("INSERT INTO job_limit VALUES ('queue:*', 1)")
    fill = "INSERT INTO snap_processing_job (kind, queue) SELECT 'test', 'full' FROM generate_series(1, %s)"
    db.execute(fill, [overviews.CAP + 5])
    make_job(db, queue="small", next_retry_at=ago(minutes=3))
    make_job(db, queue="small", next_retry_at=hence(hours=1))
    full, small = overviews.queues(db)
    assert full.waiting == overviews.CAP + 1
    assert (small.waiting, small.due) == (2, 1)
    assert small.oldest_due is not None
    assert timedelta(minutes=3) <= small.oldest_due < timedelta(minutes=4)


@pytest.mark.both_servers_at_length
def test_queues_are_counted_no_further_than_the_cap(db: Db) -> None:
    for name, status in (("mail", "PENDING"), ("old", "FAILED")):
        db.execute(
            "INSERT INTO snap_processing_job (kind, queue, status, finished_at, last_error)"
            " SELECT 'test', %s, %s, CASE WHEN %s = 'FAILED' THEN now() END, '' FROM generate_series(1, %s)",
            [name, status, status, overviews.CAP + 5],
        )
    make_job(db, "RETRY_WAIT", queue="slow", next_retry_at=hence(hours=1))
    make_job(db, "FAILED", queue="slow")
    mail, old, slow = overviews.queues(db)
    assert (mail.waiting, mail.pending, mail.due) == (overviews.CAP + 1,) * 3
    assert (old.failed, slow.failed) == (overviews.CAP, 1), "the newest, of all queues"
    assert (slow.waiting, slow.due, slow.oldest_due) == (1, 0, None)


def test_a_job_that_was_due_for_ever_does_not_hide_how_long_the_others_wait(db: Db) -> None:
    make_job(db, next_retry_at=ago(minutes=3))
    db.execute("UPDATE snap_processing_job SET next_retry_at = '-infinity' WHERE id = %s", [make_job(db)])
    [shown] = overviews.queues(db)
    assert shown.due == 2
    assert shown.oldest_due is not None
    assert timedelta(minutes=3) <= shown.oldest_due < timedelta(minutes=4)


def test_jobs_that_never_began_do_not_make_the_others_quicker_or_slower(db: Db) -> None:
    """Each minute has a mean of those that began, and most of one minute's did not."""
    last, before = datetime.now(UTC) - timedelta(seconds=1), datetime.now(UTC) - timedelta(minutes=2)
    for milliseconds, ended in ((100, last), (300, before)):
        started = ended - timedelta(milliseconds=milliseconds)
        make_job(db, "COMPLETED", created_at=started, started_at=started, finished_at=ended)
    for _ in range(8):
        make_job(db, "CANCELLED", created_at=before, finished_at=before)
    [hour] = overviews.throughput(db)
    assert (hour.completed, hour.cancelled, hour.mean_ms, hour.mean_wait_ms) == (2, 8, 200.0, 0.0)


def test_the_last_hour_is_summed_up_by_kind(db: Db) -> None:
    ended = datetime.now(UTC)
    for milliseconds, status in ((100, "COMPLETED"), (300, "FAILED")):
        started = ended - timedelta(milliseconds=milliseconds)
        make_job(db, status, created_at=started, started_at=started, finished_at=ended)
    make_job(db, "COMPLETED", kind="old", created_at=ago(hours=3), started_at=ago(hours=2), finished_at=ago(hours=2))
    [hour] = overviews.throughput(db)
    assert (hour.kind, hour.completed, hour.failed, hour.cancelled, hour.mean_ms) == ("test", 1, 1, 0, 200.0)


def test_workers_are_shown_as_of_their_last_beat_and_a_silent_one_is_lost(db: Db) -> None:
    assert overviews.workers(db) == []
    counts = Counts(claimed=5, completed=3, failed=1, retried=1, busy_ms=80.0)
    roster.beat(db, MEMBER, Report(counts, current_jobs=[7], note="polling"), lives_for=timedelta(minutes=1))
    [shown] = overviews.workers(db)
    assert (shown.id, shown.status, shown.kinds, shown.queues) == (MEMBER.id, "ACTIVE", ["mail.send"], ["mail"])
    assert (shown.current_jobs, shown.slots, shown.jobs_completed, shown.mean_ms) == ([7], 4, 3, 20.0)
    assert overviews.is_known(db, "mail.send")
    assert not overviews.is_known(db, "mail.receive")
    db.execute("UPDATE job_worker SET expires_at = now() - interval '1 second'")
    assert [each.status for each in overviews.workers(db)] == ["LOST"]
    assert not overviews.is_known(db, "mail.send")


# --- drained ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "is_drained"),
    [
        ({}, False),
        ({"status": "RETRY_WAIT"}, False),
        ({"losses": 2, "gate": "alone"}, False),
        ({"status": "RUNNING", "claimed_by": "ours"}, False),
        ({"status": "RUNNING", "claimed_by": "theirs"}, True),
        ({"next_retry_at": hence(hours=1)}, True),
        ({"next_retry_at": hence(hours=1), "losses": 2, "gate": "alone"}, True),
        ({"kind": "unknown"}, True),
        ({"kind": "unknown", "losses": 2, "gate": "alone"}, True),
        ({"queue": "other"}, True),
        ({"queue": "other", "losses": 2, "gate": "alone"}, True),
        ({"queue": "paused"}, True),
        ({"queue": "paused", "losses": 2, "gate": "alone"}, True),
        ({"gate": "held"}, False),
        ({"gate": "later", "next_retry_at": hence(hours=1)}, True),
        ({"gate": "held", "queue": "paused"}, True),
        ({"status": "COMPLETED"}, True),
        ({"status": "FAILED"}, True),
    ],
)
def test_drained_means_nothing_due_here_and_nothing_of_ours_running(
    db: Db, job: dict[str, Any], is_drained: bool
) -> None:
    overviews.pause(db, "paused")
    make_job(db, **job)
    assert overviews.is_drained(db, "ours", ["test"], ["default", "paused"]) is is_drained


def test_without_queues_all_of_them_count(db: Db) -> None:
    job_id = make_job(db, queue="other")
    assert not overviews.is_drained(db, "ours", ["test"], [])
    move(db, job_id, next_retry_at=hence(hours=1))
    assert overviews.is_drained(db, "ours", ["test"], [])
