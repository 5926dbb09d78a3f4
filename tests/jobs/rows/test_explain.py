"""explain_job(id): each reason why a job is where it is, in words, and quick behind a million others."""

import re
import threading
from dataclasses import replace
from datetime import timedelta
from time import perf_counter
from typing import Any

import pytest
import sqlalchemy
from psycopg import sql

from snapapp.jobs.errors import UnknownJob
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle, roster
from snapapp.jobs.rows.database import sqlalchemy_url
from snapapp.jobs.rows.people import overviews, views
from snapapp.jobs.rows.roster import Report
from snapapp.jobs.testing import run_due
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from tests import commands
from tests.commands import Call
from tests.factory import Db, ago, hence, make_job, make_jobs, move, row
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import crashing
from tests.jobs.working import quick_settings, until, until_status, working

pytestmark = pytest.mark.both_servers_at_length

MEMBER = replace(commands.MEMBER, pid=7, queues=[], kinds=["test"])


def worker(
    db: Db, *, running: tuple[int, ...] = (), status: str = "ACTIVE", note: str | None = None, **who: Any
) -> None:
    report = Report(current_jobs=running, status=status, note=note)
    roster.beat(db, replace(MEMBER, **who), report, lives_for=timedelta(minutes=1))


def lose_every_worker(db: Db) -> None:
    db.execute("UPDATE job_worker SET expires_at = now() - interval '1 s', beat_at = now() - interval '5 minutes'")


def said(db: Db, job_id: int) -> list[str]:
    return views.explain(db, job_id).splitlines()


# --- waiting ----------------------------------------------------------------------------------------------------


def test_the_next_job_is_told_that_it_is_next(db: Db) -> None:
    worker(db)
    job_id = make_job(db, next_retry_at=ago(seconds=5.5))
    assert said(db, job_id) == [
        "It waits and has been due for 5 s.",
        "Workers that know its kind: 1, with 0 of their 4 slots for it busy.",
        "Nobody of its kind stands before it: it is next.",
    ]


def test_a_job_for_later_says_when(db: Db) -> None:
    worker(db)
    job_id = make_job(db, next_retry_at=hence(minutes=10, seconds=30))
    first, second, third = said(db, job_id)
    assert first.startswith("It waits and may run at 20")
    assert first.endswith(", in 10 min.")
    assert second == f"SELECT run_job_now({job_id}), or snapapp jobs now {job_id}, makes it due at once."
    assert third.startswith("Workers that know its kind")


def test_a_job_for_ever_later_says_so(db: Db) -> None:
    worker(db)
    assert said(db, make_job(db, next_retry_at="infinity"))[0] == "It waits and never becomes due."
    assert said(db, make_job(db, next_retry_at="-infinity"))[0] == "It waits and has always been due."


def test_a_failed_attempt_is_told_with_its_error(db: Db) -> None:
    worker(db)
    job_id = make_job(
        db,
        "RETRY_WAIT",
        attempt_count=1,
        last_error="ValueError: no\nand much more",
        next_retry_at=hence(seconds=30.5),
    )
    first, second, *_ = said(db, job_id)
    assert first == "Attempt 1 of 3 failed: ValueError: no"
    assert second.endswith(", in 30 s.")


def test_used_up_attempts_and_shutdowns_are_told(db: Db) -> None:
    worker(db)
    job_id = make_job(db, "RETRY_WAIT", attempt_count=3, interruptions=2, last_error="worker lost")
    assert said(db, job_id)[:3] == [
        "Attempt 3 of 3 failed: worker lost",
        "A shutdown handed it back while it ran, 2 times.",
        "Its attempts are used up: the next worker that knows its kind writes it down as FAILED, without running it.",
    ]


@pytest.mark.parametrize(("reason", "words"), [("lunch", "because: lunch"), (None, "without a reason")])
def test_a_paused_queue_is_told_with_its_reason_and_the_way_out(db: Db, reason: str | None, words: str) -> None:
    worker(db)
    job_id = make_job(db, queue="mail's")
    overviews.pause(db, "mail's", reason, by="ana")
    db.execute("UPDATE job_queue SET paused_at = now() - interval '3 minutes'")
    _, paused, workers = said(db, job_id)
    assert paused == f"Its queue mail's has been paused for 3 min by ana, {words}: resume_queue('mail''s') opens it."
    assert workers.startswith("Workers that know its kind")


def test_who_paused_a_queue_in_psql_is_told_by_role(db: Db) -> None:
    worker(db)
    job_id = make_job(db)
    db.execute("SELECT pause_queue('default', 'lunch')")
    assert " by postgres, because: lunch: resume_queue('default') opens it." in said(db, job_id)[1]
    assert db.execute("SELECT paused_by FROM queue_overview").fetchall() == [("postgres",)]
    db.execute("SELECT resume_queue('default')")
    assert db.execute("SELECT paused_by FROM job_queue").fetchall() == [(None,)]


def test_people_who_pause_on_the_command_line_are_named(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    worker(db)
    job_id = make_job(db)
    monkeypatch.setenv("SUDO_USER", "ana")
    assert call("queues", "pause", "default", "--reason", "lunch").code == 0
    assert " by ana, because: lunch" in said(db, job_id)[1]


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (
            {"max_running": 2},
            "The limit key:camera:* lets 2 of key:camera:7 run at once, and 2 run (job 2, job 3): it waits for one of "
            "them to end. snapapp limits set 'key:camera:*' --max-running N changes it.",
        ),
        ({"max_running": 0}, "The limit key:camera:* lets nothing of key:camera:7 run."),
        ({"rate": 0.5}, "The limit key:camera:* lets 0.5 of key:camera:7 start a second, after a burst of 1: "),
    ],
)
def test_a_limit_that_is_reached_is_told(db: Db, limit: dict[str, float], words: str) -> None:
    """R40."""
    worker(db)
    (name, most), *_ = limit.items()
    db.execute(
        sql.SQL("INSERT INTO job_limit (key_pattern, {}) VALUES ('key:camera:*', %s)").format(sql.Identifier(name)),
        [most],
    )
    db.execute("INSERT INTO job_limit_key VALUES ('key:camera:7', now() + interval '100 s')")
    keyed: dict[str, Any] = {"concurrency_key": "camera:7"}
    job_id = make_job(db, **keyed)
    if "max_running" in limit:
        for _ in range(2):
            make_job(db, "RUNNING", **keyed)
    assert said(db, job_id)[1].startswith(words)
    other = make_job(db, concurrency_key="other")
    assert not any("limit" in line for line in said(db, other))


def test_without_workers_the_last_one_is_named(db: Db) -> None:
    job_id = make_job(db)
    assert said(db, job_id)[1:] == ["No worker is alive.", "No worker has been seen yet."]
    worker(db)
    roster.leave(db, MEMBER.id, "the process is stopping")
    db.execute("UPDATE job_worker_exit SET exited_at = now() - interval '3 hours'")
    assert said(db, job_id)[1:] == [
        "No worker is alive.",
        "The last worker to leave was box-1, 3 h ago: the process is stopping.",
    ]
    worker(db, id="b" * 32, name="box-2")
    lose_every_worker(db)
    assert said(db, job_id)[1:] == ["No worker is alive.", "Last heard of one that knows it: box-2, 5 min ago."]


def test_a_kind_that_nobody_knows_is_told_with_those_that_are_known(db: Db) -> None:
    worker(db, kinds=["b", "a"])
    job_id = make_job(db)
    assert said(db, job_id)[1:] == [
        "No worker that is alive knows the kind test; they know: a, b.",
        "None that knows it has been seen yet.",
    ]


def test_a_queue_that_nobody_works_is_told(db: Db) -> None:
    worker(db, queues=["mail"])
    job_id = make_job(db)
    assert said(db, job_id)[1:] == ["The workers that know the kind test do not work the queue default, but: mail."]


def test_workers_that_are_stopping_take_nothing(db: Db) -> None:
    worker(db, status="DRAINING")
    assert said(db, make_job(db))[1:] == ["Every worker that knows the kind test is stopping."]


def test_busy_slots_are_told_and_what_a_worker_says(db: Db) -> None:
    worker(db, running=(1, 2, 3, 4), note="gives way to the web")
    assert said(db, make_job(db))[1:3] == [
        "All 4 slots of the workers that know its kind are busy.",
        "box-1 says: gives way to the web.",
    ]


@pytest.mark.parametrize(
    ("running", "words"),
    [
        ((), "a worker takes it as soon as it looks."),
        ((1,), "a worker takes it when its other jobs have ended, or when it has let them go first for a minute."),
    ],
)
def test_a_suspect_runs_alone(db: Db, running: tuple[int, ...], words: str) -> None:
    worker(db, running=running)
    job_id = make_job(db, "RETRY_WAIT", losses=2, gate="alone", attempt_count=1, last_error="worker lost")
    assert said(db, job_id)[2:] == [
        f"It ran when its worker died, 2 times in a row, so it runs next with nothing beside it: {words}",
    ]


def test_an_executor_that_is_full_is_told_though_others_of_the_worker_are_empty(db: Db) -> None:
    executors = {"thread": {"slots": 4, "kinds": ["quick"]}, "process": {"slots": 2, "kinds": ["big", "test"]}}
    worker(db, slots=6, kinds=["quick", "big", "test"], executors=executors)
    waiting, quick = make_job(db), make_job(db, kind="quick")
    make_job(db, "RUNNING", kind="big", claimed_by=MEMBER.id)
    assert said(db, waiting)[1] == "Workers that know its kind: 1, with 1 of their 2 slots for it busy."
    make_job(db, "RUNNING", claimed_by=MEMBER.id)
    make_job(db, "RUNNING", kind="quick", claimed_by="another")
    assert said(db, waiting)[1] == "All 2 slots of the workers that know its kind are busy."
    assert said(db, quick)[1] == "Workers that know its kind: 1, with 0 of their 4 slots for it busy."


def test_a_suspect_that_runs_shuts_the_door_on_nobody(db: Db) -> None:
    worker(db)
    waiting = make_job(db)
    make_job(db, "RUNNING", losses=2, gate="alone", claimed_by=MEMBER.id)
    assert said(db, waiting)[2] == "Nobody of its kind stands before it: it is next."


def test_a_job_that_needs_much_memory_runs_alone_also_in_a_child(db: Db) -> None:
    worker(db, kinds=["test", "big"], executors={"process": {"slots": 2, "kinds": ["test", "big"]}})
    job_id = make_job(db, "RETRY_WAIT", gate="alone", memory_mb=240, attempt_count=1, last_error="MemoryExceeded: much")
    assert said(db, job_id)[2:] == [
        "It ran short of memory, so it runs next with 240 MB and nothing beside it:"
        " a worker takes it as soon as it looks.",
    ]


# --- what real workers say --------------------------------------------------------------------------------------


def test_all_children_busy_is_told_of_a_real_worker(url: str, db: Db) -> None:
    with working(url, crashing.registry, children=1):
        running = put(db, "child.spin")
        until(lambda: row(db, running).status == "RUNNING")
        waiting = put(db, "child.echo")
        until(lambda: "All 1 slots of the workers that know its kind are busy." in said(db, waiting))
        lifecycle.cancel(db, running)
        until_status(db, waiting, "COMPLETED")


@pytest.mark.at_length  # a thread that hangs is told below, in every run
def test_threads_that_hang_are_told_of_a_real_worker(url: str, db: Db) -> None:
    registry, released = Registry(), threading.Event()
    registry.processor("hang", timeout=timedelta(milliseconds=50))(lambda job: released.wait(60))
    with working(url, registry, concurrency=1, max_stuck=1):
        try:
            hanging = [until_status(db, put(db, "hang", max_attempts=1), "FAILED").id for _ in range(2)]
            waiting = put(db, "hang")
            named = ", ".join(f"hang {job_id}" for job_id in hanging)
            told = f" threads that ignore their deadline: 2 ({named}); it wants a restart."
            until(lambda: any(line.endswith(told) for line in said(db, waiting)))
        finally:
            released.set()


def test_a_worker_that_the_web_holds_back_is_told(url: str, db: Db) -> None:
    registry, web_priority = Registry(), WebPriority(patience=0.01)
    registry.processor("quick")(lambda job: None)
    runtime = Runtime(
        quick_settings(url, beat_every=timedelta(milliseconds=50)), registry=registry, web_priority=web_priority
    )
    worker = runtime.worker()
    worker.start()
    waiting = make_job(db, kind="quick", next_retry_at=hence(hours=1))
    try:

        def a_request_comes_and_it_is_told() -> bool:
            web_priority.arrive()
            web_priority.give_way()
            web_priority.depart()
            return any("held back by the web: " in line for line in said(db, waiting))

        until(a_request_comes_and_it_is_told)
    finally:
        worker.stop(timedelta(seconds=1))
        runtime.close()


# --- its place --------------------------------------------------------------------------------------------------


def test_those_before_it_are_counted_by_what_puts_them_there(db: Db) -> None:
    worker(db)
    make_jobs(db, 2, next_retry_at=ago(minutes=1))
    make_jobs(db, 3, priority=5)
    make_job(db, priority=5, next_retry_at=hence(hours=1))
    make_jobs(db, 1, priority=-5)
    make_jobs(db, 1, kind="other")
    make_jobs(db, 1, queue="other")
    keyed = make_job(db, concurrency_key="b")
    make_jobs(db, 4, concurrency_key="a")
    plain = make_job(db)
    assert said(db, keyed)[2] == "5 of its kind stand before it: 2 older, 3 of a higher priority."
    assert said(db, plain)[2] == "10 of its kind stand before it: 7 older, 3 of a higher priority."


def test_those_before_it_that_a_limit_holds_are_counted_too(db: Db) -> None:
    worker(db)
    db.execute("INSERT INTO job_limit VALUES ('queue:default', 100)")
    make_jobs(db, 2, next_retry_at=ago(minutes=1))
    make_jobs(db, 3, priority=5, concurrency_key="a")
    make_job(db, priority=5, next_retry_at=hence(hours=1))
    make_jobs(db, 1, priority=-5)
    make_jobs(db, 1, kind="other")
    job_id = make_job(db, concurrency_key="b")
    assert said(db, job_id)[2] == "5 of its kind stand before it: 2 older, 3 of a higher priority."


def test_where_lanes_take_turns_its_turn_is_told(db: Db) -> None:
    """FE1: nobody waits for the whole of another's backlog."""
    worker(db)
    db.execute("INSERT INTO job_queue (name, fair) VALUES ('default', true)")
    for tenant, jobs in {"ana": 50, "bob": 3, "eva": 1}.items():
        make_jobs(db, jobs, tenant=tenant)
    make_job(db, tenant="late", next_retry_at=hence(hours=1))
    make_jobs(db, 2, tenant="bob", priority=5)
    make_jobs(db, 1, kind="other", tenant="kim")
    assert said(db, make_job(db, tenant="bob"))[2] == (
        "Lanes take turns: it is number 6 of its own (bob), beside 2 others with work."
    )
    assert said(db, make_job(db, tenant="zoe"))[2] == (
        "Lanes take turns: it is number 1 of its own (zoe), beside 3 others with work."
    )


def test_turns_are_told_truly(url: str, db: Db) -> None:
    """As many run before a job as was said, at most, whoever's turn is first."""
    registry, ran = Registry(), []
    registry.processor("test")(lambda job: ran.append(job.id))
    worker(db)
    db.execute("INSERT INTO job_queue (name, fair) VALUES ('default', true)")
    for tenant, jobs in {"ana": 20, "bob": 5, "eva": 2}.items():
        make_jobs(db, jobs, tenant=tenant)
    waiting = db.execute("SELECT id FROM snap_processing_job").fetchall()
    promised = {}
    for (job_id,) in waiting:
        found = re.search(r"it is number (\d+) of its own \(\w+\), beside (\d+) others", "".join(said(db, job_id)))
        assert found
        number, others = map(int, found.groups())
        promised[job_id] = (number - 1) * (others + 1) + others
    engine = sqlalchemy.create_engine(sqlalchemy_url(url))
    with engine.begin() as connection:
        run_due(connection, registry)
    engine.dispose()
    assert len(ran) == 27
    assert all(ran.index(job_id) <= most for job_id, most in promised.items())
    assert sum(most - ran.index(job_id) for job_id, most in promised.items()) <= 12 * len(ran)


def quickest(db: Db, job_id: int) -> tuple[list[str], float]:
    """What is said, and how long that takes at best: a neighbour's load is not ours."""
    took = []
    for _ in range(4):
        began = perf_counter()
        lines = said(db, job_id)
        took.append(perf_counter() - began)
    return lines, min(took)


@pytest.mark.at_length  # how it finds the turn of a lane is held in every run, above
def test_behind_thousands_of_lanes_it_is_quick(db: Db, everything: bool) -> None:
    worker(db)
    of_each = 20 if everything else 4
    db.execute("INSERT INTO job_queue (name, fair) VALUES ('default', true)")
    db.execute(
        "INSERT INTO snap_processing_job (kind, tenant, next_retry_at)"
        " SELECT 'test', 'tenant ' || its %% 3000, now() - interval '1 hour'"
        " FROM generate_series(1, 3000 * %s) AS its",
        [of_each],
    )
    job_id = make_job(db, tenant="tenant 7")
    lines, took = quickest(db, job_id)
    number = f"it is number {of_each + 1} of its own (tenant 7)"
    assert lines[2].startswith(f"Lanes take turns: {number}, beside at least 1000 others")
    assert took < 1


def test_when_its_turn_comes_follows_from_what_ended_lately(db: Db) -> None:
    worker(db)
    make_jobs(db, 6, status="COMPLETED", finished_at=ago(seconds=20))
    make_jobs(db, 2, status="COMPLETED", kind="other", finished_at=ago(seconds=20))
    make_jobs(db, 30, next_retry_at=ago(seconds=5))
    job_id = make_job(db)
    said_then = r"Its turn comes in about 1\d\d s, at 0.3 a second as in the last 10 minutes."
    assert re.fullmatch(said_then, said(db, job_id)[3])
    db.execute("UPDATE snap_processing_job SET finished_at = now() - interval '20 minutes' WHERE finished_at < now()")
    assert said(db, job_id)[3] == (
        "When its turn comes is unknown: hardly any of its kind ended in the last 10 minutes."
    )


def test_behind_hundreds_of_thousands_it_is_quick_and_counts_no_further_than_it_must(db: Db, everything: bool) -> None:
    """FC3: asked of the last one, on a table that nobody has analysed. In every run there are a tenth of them."""
    worker(db)
    many = 200_000 if everything else 20_000
    fill = (
        "INSERT INTO snap_processing_job (kind, status, finished_at, started_at, next_retry_at, priority)"
        " SELECT 'test', %s::text, CASE WHEN %s::text = 'COMPLETED' THEN now() - interval '10 s' END, now(),"
        " now() + %s::interval, %s FROM generate_series(1, %s)"
    )
    db.execute(fill, ["PENDING", "PENDING", "1 hour", 5, many])
    db.execute(fill, ["COMPLETED", "COMPLETED", "0", 0, 1000])
    db.execute(fill, ["PENDING", "PENDING", "-1 hour", 0, many])
    job_id = make_job(db)
    lines, took = quickest(db, job_id)
    assert lines[2] == ("More than 10000 of its kind stand before it: more than 10000 older, 0 of a higher priority.")
    assert lines[3].startswith("Its turn comes in more than ")
    assert took < 1, "it looks at some ten thousand rows, whatever there is"


# --- running ----------------------------------------------------------------------------------------------------


def test_a_running_job_says_where_and_how_long(db: Db) -> None:
    worker(db)
    job_id = make_job(db, "RUNNING", claimed_by=MEMBER.id, started_at=ago(seconds=12.5), locked_at=ago(seconds=3.5))
    first, second = said(db, job_id)
    assert first == "It runs, attempt 1 of 3, since 12 s, on worker box-1 (box, pid 7)."
    assert second.startswith("Last heartbeat 3 s ago; its lease ends in 5")


def test_a_job_that_is_only_claimed_says_so_and_a_stranger_is_named(db: Db) -> None:
    first, _ = said(db, make_job(db, "RUNNING"))
    assert first == (
        "It runs, attempt 1 of 3, claimed but not reported as begun yet, on worker worker, which is not on the roster."
    )


def test_a_lease_that_ended_waits_for_recovery(db: Db) -> None:
    job_id = make_job(db, "RUNNING", locked_at=ago(seconds=70.5), lock_expires_at=ago(seconds=10.5))
    lost = "Last heartbeat 70 s ago; its lease ended 10 s ago, so it waits to be recovered"
    assert said(db, job_id)[1] == f"{lost}; but no worker is alive to do so."
    worker(db)
    assert said(db, job_id)[1] == f"{lost}, which a worker does with its next sweep."


def test_a_wish_to_stop_and_a_suspect_are_told_while_it_runs(db: Db) -> None:
    job_id = make_job(db, "RUNNING", losses=2, gate="alone", cancel_requested_at=ago(seconds=2.5))
    assert said(db, job_id)[2:] == [
        "It ran when its worker died, 2 times in a row, so it began with nothing beside it.",
        "Somebody asked it to stop 2 s ago; a completion that arrives first wins.",
    ]


def test_a_thread_that_hangs_is_told_of_its_own_job_only(db: Db) -> None:
    hangs, other = make_job(db, "RUNNING", claimed_by=MEMBER.id), make_job(db, "RUNNING", claimed_by=MEMBER.id)
    worker(db, note=f"polling; threads that ignore their deadline: 1 (mail.send {hangs}); job {other} is large")
    hangs_says, other_says = said(db, hangs), said(db, other)
    assert hangs_says[2].startswith("Its thread ignores its deadline: the job, or its hook, waits for something")
    assert len(other_says) == 2


# --- over -------------------------------------------------------------------------------------------------------


def test_an_end_is_told_with_its_moment_and_the_way_back(db: Db) -> None:
    ended = {"attempt_count": 1, "started_at": ago(minutes=5, seconds=4.5), "finished_at": ago(minutes=5, seconds=1)}
    job_id = make_job(db, "COMPLETED", **ended)
    first, second = said(db, job_id)
    assert first.startswith("It is COMPLETED since 20")
    assert first.endswith(" (5 min ago), after 1 of 3 attempts.")
    assert second == "Its last attempt ran for 3 s."

    job_id = make_job(db, "FAILED", last_error="ValueError: no\nmore", **ended)
    assert said(db, job_id)[2:] == [
        "The last error: ValueError: no",
        f"SELECT retry_job({job_id}), or snapapp jobs retry {job_id}, runs it again, counting from zero.",
    ]

    job_id = make_job(db, "CANCELLED", cancel_requested_at=ago(minutes=6))
    assert said(db, job_id)[1] == "Somebody cancelled it 6 min ago."


def test_no_job_is_told_in_sql_and_an_error_elsewhere(db: Db) -> None:
    assert db.execute("SELECT explain_job(42)").fetchone() == ("There is no job 42.",)
    with pytest.raises(UnknownJob, match="there is no job 42"):
        views.explain(db, 42)


@pytest.mark.parametrize(
    ("span", "words"),
    [("0", "0 ms"), ("1.5 s", "1 s"), ("119 s", "119 s"), ("2 min", "2 min"), ("3 h", "3 h"), ("-50 h", "2 d")],
)
def test_durations_are_said_in_the_unit_that_a_person_would_choose(db: Db, span: str, words: str) -> None:
    assert db.execute("SELECT job_span(%s::interval)", [span]).fetchone() == (words,)


def test_people_ask_on_the_command_line(call: Call, db: Db) -> None:
    worker(db)
    job_id = make_job(db, next_retry_at="infinity")
    assert call("jobs", "explain", str(job_id)).out.splitlines()[0] == "It waits and never becomes due."
    assert call("jobs", "explain", str(job_id), "--json").json == {"id": job_id, "explain": views.explain(db, job_id)}
    assert views.explain(db, job_id) in call("jobs", "show", str(job_id)).out
    assert call("jobs", "show", str(job_id), "--json").json["explain"] == views.explain(db, job_id)
    nobody = call("jobs", "explain", "4711")
    assert (nobody.code, nobody.out) == (1, "")
    assert "there is no job 4711" in nobody.err


def test_a_moved_job_is_explained_anew(db: Db) -> None:
    worker(db)
    job_id = make_job(db)
    before = said(db, job_id)
    move(db, job_id, next_retry_at=hence(days=3))
    assert said(db, job_id) != before
