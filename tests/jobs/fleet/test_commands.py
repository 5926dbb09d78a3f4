"""Commands: who may be told what, that each is taken once, and what is said when nobody answers."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg import sql

from snapapp.jobs.events import Events
from snapapp.jobs.fleet import commands, database_thread, overview, store
from snapapp.jobs.fleet.commands import CommandStatus, Source
from snapapp.jobs.fleet.database_thread import DatabaseThread
from snapapp.jobs.fleet.errors import InvalidCommand, UnknownPool
from snapapp.jobs.fleet.plan import Plan, Pool
from snapapp.jobs.fleet.pool import State
from snapapp.jobs.fleet.store import EndedWorker, Master
from snapapp.jobs.os import processes
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import retention, roster
from snapapp.jobs.rows.database import connect
from snapapp.jobs.rows.roster import Member, Report
from snapapp.jobs.settings import Membership
from tests.factory import Db, at_once, claim, enqueue, make_job, row, scalar
from tests.jobs.fleet.standing import POOL, master, stand
from tests.jobs.working import until, working

# --- sent -------------------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_a_command_waits_in_its_row_and_is_announced_to_its_host(db: Db, url: str) -> None:
    """M28: what a list and a channel were."""
    master(db)
    with connect(url, name="listener") as listening:
        listening.execute("LISTEN snapapp_fleet")
        command = commands.send(db, "scale", pool=POOL, amount=3, reason="a spike", source=Source.API)
        assert [notice.payload for notice in listening.notifies(timeout=5, stop_after=1)] == ["box"]
    sent = commands.one(db, command)
    assert (sent.host, sent.action, sent.pool, sent.amount, sent.reason) == ("box", "scale", POOL, 3, "a spike")
    assert (sent.source, sent.status, sent.output) == ("api", CommandStatus.PENDING, None)
    assert sent.expires_at - sent.created_at >= timedelta(seconds=59)


@pytest.mark.parametrize(
    ("told", "error", "said"),
    [
        ({"action": "dance"}, InvalidCommand, "not to dance"),
        ({"action": None}, InvalidCommand, "not to null"),
        ({"action": "scale"}, InvalidCommand, "say which pool"),
        ({"action": "scale", "pool": POOL, "amount": -1}, InvalidCommand, "cannot be -1 processes"),
        ({"action": "scale", "pool": POOL, "amount": 2**40}, InvalidCommand, "integer out of range"),
        ({"action": "pause", "amount": 3}, InvalidCommand, "only scale takes a number"),
        ({"action": "stop", "pool": POOL}, InvalidCommand, "stop ends the whole supervisor"),
        ({"action": "pause", "pool": "nobody's"}, UnknownPool, "no pool nobody's on the host box; there are mail-sup"),
        ({"action": "pause", "host": "elsewhere"}, UnknownPool, "no supervisor has been seen on the host elsewhere"),
        ({"action": "pause", "reason": "x" * 501}, InvalidCommand, "job_command_reason_check"),
    ],
)
def test_what_nobody_can_do_is_refused_when_it_is_said(db: Db, told: dict[str, Any], error: Any, said: str) -> None:
    """M29, D19: an order for nobody must not pile up."""
    master(db)
    with pytest.raises(error, match=said):
        commands.send(db, **told)
    assert scalar(db, "SELECT count(*) FROM job_command") == 0


def test_the_host_may_be_left_out_only_where_there_is_one(db: Db) -> None:
    with pytest.raises(UnknownPool, match="no supervisor has been seen on any host"):
        commands.send(db, "pause")
    master(db, "one", "m1")
    assert commands.one(db, commands.send(db, "pause")).host == "one"
    master(db, "two", "m2")
    with pytest.raises(InvalidCommand, match="say which host: there are one, two"):
        commands.send(db, "pause")


def test_an_error_is_the_same_through_sqlalchemy(db: Db, engine: sqlalchemy.Engine) -> None:
    master(db)
    with engine.connect() as connection, pytest.raises(InvalidCommand, match="say which pool"):
        commands.send(connection, "scale")


# --- taken ------------------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_a_command_is_taken_once_whoever_asks(db: Db, url: str) -> None:
    """M29: executed once."""
    its = master(db)
    sent = [commands.send(db, "pause") for _ in range(20)]

    def take() -> list[int]:
        with connect(url, name="taker") as connection:
            return [order.id for _ in range(5) for order in commands.take(connection, "box", its.id)]

    assert sorted(order for orders in at_once(*[take] * 4) for order in orders) == sent


def test_a_host_takes_only_what_it_was_told(db: Db) -> None:
    """M27, M34."""
    one, two = master(db, "one", "m1"), master(db, "two", "m2")
    command = commands.send(db, "pause", host="one")
    assert commands.take(db, "two", two.id) == []
    assert [order.id for order in commands.take(db, "one", one.id)] == [command]


def test_what_came_of_it_stands_in_its_row(db: Db) -> None:
    its = master(db)
    good, bad = commands.send(db, "pause"), commands.send(db, "resume")
    commands.take(db, "box", its.id)
    assert commands.answer(db, good, its.id, "paused")
    assert commands.answer(db, bad, its.id, "x" * 10_000, failed=True)
    assert (commands.one(db, good).status, commands.one(db, good).output) == (CommandStatus.EXECUTED, "paused")
    assert (commands.one(db, bad).status, len(commands.one(db, bad).output or "")) == (CommandStatus.FAILED, 4000)
    assert not commands.answer(db, good, its.id, "again"), "it has been answered"
    assert not commands.answer(db, commands.send(db, "pause"), its.id, "never taken")


def test_a_command_that_nobody_takes_expires_and_says_so(db: Db) -> None:
    """M33, D19."""
    its = master(db)
    command = commands.send(db, "pause", expires_in=timedelta(0))
    sent = commands.one(db, command)
    assert (sent.status, sent.output) == (CommandStatus.EXPIRED, "nobody took it in time")
    assert commands.take(db, "box", its.id) == []
    assert scalar(db, "SELECT status FROM job_command") == "EXPIRED"


def test_a_host_that_does_not_answer_shows_as_such(db: Db) -> None:
    """M33, D19."""
    master(db)
    command = commands.send(db, "pause")
    db.execute("UPDATE job_master SET beat_at = now() - interval '5 min', expires_at = now() - interval '4 min'")
    sent = commands.one(db, command)
    assert (sent.status, sent.output) == (
        CommandStatus.PENDING,
        "the host box does not answer: last heard of 5 min ago",
    )
    assert [each.master for each in overview.fleet(db)] == ["LOST"]


def test_what_a_master_took_with_it_is_closed_by_the_next_one(db: Db) -> None:
    """Nobody knows how far it came: it is not done again."""
    old = master(db)
    command = commands.send(db, "restart")
    commands.take(db, "box", old.id)
    new = Master("m2", "box", old.machine, old.pid, old.pid_started)
    assert store.hold(db, new, instead="m1")
    assert commands.take(db, "box", new.id) == []
    sent = commands.one(db, command)
    assert (sent.status, sent.output) == (
        CommandStatus.FAILED,
        "the supervisor that took it ended before it could say what came of it",
    )
    assert not commands.answer(db, command, old.id, "done after all")


def test_what_is_over_is_forgotten_with_the_retention_also_where_no_supervisor_runs(db: Db, url: str) -> None:
    its = master(db)
    kept, old, untaken = (commands.send(db, "pause") for _ in range(3))
    commands.take(db, "box", its.id)
    for command in (kept, old):
        commands.answer(db, command, its.id, "paused")
    for worker in ("w1", "w2"):
        roster.beat(
            db, Member(worker, worker, "box", "here", 7, 99, [], [], 2), Report(), lives_for=timedelta(seconds=9)
        )
        roster.leave(db, worker, "done")
        store.record_decision(db, "box", POOL, "auto", 1, 2, f"because of {worker}", {"due": 3})
    past = "now() - interval '8 days'"
    db.execute(f"UPDATE job_command SET finished_at = {past} WHERE id = %s", [old])
    db.execute(f"UPDATE job_command SET status = 'PENDING', expires_at = {past} WHERE id = %s", [untaken])
    db.execute(f"UPDATE job_scaling SET at = {past} WHERE reason = 'because of w1'")
    db.execute(f"UPDATE job_worker_exit SET exited_at = {past} WHERE worker_id = 'w1'")
    with working(url, Registry(), keep_finished=timedelta(days=7)) as (keeper, _):
        keeper.prune()
    assert [each.id for each in commands.sent(db)] == [kept]
    assert [each.reason for each in overview.decisions(db)] == ["because of w2"]
    assert [each for (each,) in db.execute("SELECT worker_id FROM job_worker_exit").fetchall()] == ["w2", keeper.id]


def test_a_host_that_has_been_lost_for_long_is_forgotten_and_commands_need_no_host_again(db: Db) -> None:
    """A container that was killed: its successor has another name, and nobody comes back to take the old one."""
    for host, lost_for in (("old", "8 days"), ("away", "6 days"), ("box", "0 s")):
        master(db, host, f"of {host}")
        db.execute("UPDATE job_master SET expires_at = now() - %s::interval WHERE host = %s", [lost_for, host])
    retention.prune_fleet(db, keep=timedelta(days=7))
    assert {each.host for each in overview.fleet(db)} == {"away", "box"}
    assert {each.name for each in store.saved_pools(db, "old")} == {POOL}, "what a person made of it stays"
    retention.prune_fleet(db, keep=timedelta(days=5))
    assert commands.one(db, commands.send(db, "pause")).host == "box"


# --- who holds a host -------------------------------------------------------------------------------------------


def test_of_two_masters_that_start_at_once_one_gets_the_host(db: Db, url: str) -> None:
    """M1."""

    def hold(name: str) -> bool:
        with connect(url, name=name) as connection:
            return store.hold(connection, Master(name, "box", "here", 1, 1))

    assert sorted(at_once(*[partial(hold, f"m{count}") for count in range(6)])) == [False] * 5 + [True]


def test_a_host_is_taken_over_when_its_holder_has_been_silent_for_long(db: Db) -> None:
    old = master(db)
    new = Master("m2", "box", "another machine", 1, 1)
    assert not store.hold(db, new)
    db.execute("UPDATE job_master SET expires_at = now()")
    assert store.hold(db, new)
    assert store.beat(db, old) is None, "the old one learns of it with its next beat"
    assert store.beat(db, new) is False
    holder = store.holder(db, "box")
    assert holder
    assert "pid 1 of another machine of that name" in holder.in_words("box")


def test_a_beat_says_whether_somebody_wants_something(db: Db) -> None:
    its = master(db)
    commands.send(db, "pause")
    assert store.beat(db, its) is True


def test_pools_that_are_no_longer_planned_are_forgotten(db: Db) -> None:
    its = master(db)
    stand(db, its, state=State.PAUSED, state_reason="lunch", fixed_at=2)
    assert store.saved_pools(db, "box") == [(POOL, State.PAUSED, "lunch", 2)]
    store.forget_pools(db, "box", ["another"])
    assert store.saved_pools(db, "box") == []


# --- workers ----------------------------------------------------------------------------------------------------


def test_the_claims_of_a_fallen_worker_are_free_at_once_and_the_attempts_stay_charged(db: Db) -> None:
    """M45, M57, D2."""
    its = master(db)
    member = Member("w" * 32, "mail-7", "box", its.machine, 7, 99, ["mail"], ["test"], 2)
    roster.beat(db, member, Report(), lives_for=timedelta(minutes=1))
    job = make_job(db, "RUNNING", claimed_by=member.id)
    ended = EndedWorker(7, 99, POOL, ("mail",), timedelta(seconds=3), "killed by SIGKILL", never_ready=True)
    assert store.record_end(db, its, EndedWorker(7, 98, POOL, (), timedelta(0), "?", never_ready=False)) == [], (
        "a reused pid"
    )
    assert store.record_end(db, its, ended) == [job]
    assert (row(db, job).status, row(db, job).attempt_count, row(db, job).losses) == ("RETRY_WAIT", 1, 1)
    assert store.record_end(db, its, ended) == [], "the second time there is nothing left to do, and nothing to write"
    exits = db.execute("SELECT name, reason FROM job_worker_exit").fetchall()
    assert exits == [("mail-7", "killed by SIGKILL")]


def test_a_supervisor_says_how_a_worker_ended_that_another_one_found_gone(db: Db) -> None:
    """Of several that are killed at once, one that is left sweeps before the supervisor has recorded them all."""
    its = master(db)
    for worker in ("w1", "w2"):  # of one pid, one after the other
        member = Member(worker, "mail-7", "box", its.machine, 7, 99, ["mail"], ["test"], 2)
        roster.beat(db, member, Report(), lives_for=timedelta(minutes=1))
        roster.leave(db, worker, roster.LOST)
        if worker == "w1":
            db.execute("UPDATE job_worker_exit SET exited_at = now() - interval '1 hour'")
    killed = EndedWorker(7, 99, POOL, ("mail",), timedelta(minutes=3), "killed by SIGKILL", never_ready=False)
    assert store.record_end(db, its, killed) == []
    ends = db.execute("SELECT worker_id, reason FROM job_worker_exit ORDER BY id").fetchall()
    assert ends == [("w1", roster.LOST), ("w2", "killed by SIGKILL")]


@contextmanager
def database_thread_of(its: Master, url: str, *, patience: float = 10.0) -> Iterator[DatabaseThread]:
    thread = DatabaseThread(
        its,
        Plan(pools=(Pool(name=POOL, queues=("mail",), max_processes=4),)),
        connect=lambda purpose: connect(url, name=purpose),
        events=Events(),
        patience=patience,
        on_order=lambda order: None,
        on_host_lost=lambda: None,
    )
    try:
        yield thread
    finally:
        thread._write_end.close()
        thread._read_end.close()


def test_a_job_that_nobody_can_free_keeps_no_end_of_another_worker_from_being_recorded(url: str, db: Db) -> None:
    """Ends are recorded one by one, each until it succeeds."""
    its = master(db)
    jobs = []
    for pid in (7, 8):
        member = Member(f"w{pid}", f"mail-{pid}", "box", its.machine, pid, 99, ["mail"], ["test"], 2)
        roster.beat(db, member, Report(), lives_for=timedelta(minutes=1))
        jobs.append(make_job(db, "RUNNING", claimed_by=member.id))
    db.execute(f"ALTER TABLE snap_processing_job ADD CHECK (id <> {jobs[0]}) NOT VALID")
    with database_thread_of(its, url) as thread:
        for pid in (7, 8):
            thread.record_end(EndedWorker(pid, 99, POOL, ("mail",), timedelta(seconds=3), "killed", never_ready=False))
        thread.start()
        try:
            until(lambda: row(db, jobs[1]).status == "RETRY_WAIT")
            until(lambda: db.execute("SELECT FROM job_worker").fetchall() == [])
            assert row(db, jobs[0]).status == "RUNNING"
        finally:
            thread.stop(within=10)


SENT_AWAY = """
import os, signal
def note(number, frame): os.write(1, f"{signal.Signals(number).name}\\n".encode())  # print would fail within print
signal.signal(signal.SIGUSR2, note); signal.signal(signal.SIGTERM, note)
print("listens", flush=True)
while True: signal.pause()
"""


def test_a_worker_of_a_supervisor_that_was_replaced_is_asked_to_leave_before_it_is_killed(
    url: str, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one may have been frozen, or cut off from the database: its workers do not notice it."""
    monkeypatch.setattr(database_thread, "_FOLLOW_ORPHANS_EVERY", 0.0)
    monkeypatch.setattr(database_thread, "_KILL_LATE", float("inf"))
    with (
        database_thread_of(master(db), url, patience=0.0) as thread,
        subprocess.Popen([sys.executable, "-c", SENT_AWAY], stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stdout
            assert process.stdout.readline() == "listens\n"
            ours = Membership(pool=POOL, master="another")
            started = processes.started(process.pid) or 0
            member = Member("w", "mail", "box", processes.machine(), process.pid, started, [], [], 1, membership=ours)
            roster.beat(db, member, Report(), lives_for=timedelta(minutes=1))
            for name in ("SIGUSR2", "SIGTERM"):
                thread.work(db)
                assert process.stdout.readline() == f"{name}\n"
            monkeypatch.setattr(database_thread, "_KILL_LATE", 0.0)
            while process.poll() is None:
                thread.work(db)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


def test_a_supervisor_that_was_replaced_leaves_the_host_to_the_other(url: str, db: Db) -> None:
    """Between its look at the host and its own end it would take the commands of the other, and send its workers
    away."""
    woken = master(db)
    orders = [commands.send(db, "restart", host="box")]
    with database_thread_of(woken, url) as thread:
        thread.work(db)
        assert store.hold(db, replace(woken, id="another"), instead=woken.id)
        orders.append(commands.send(db, "restart", host="box"))
        thread._has_heard, thread._beat_at = True, 0.0
        thread.work(db)
    took = db.execute("SELECT id, master FROM job_command ORDER BY id").fetchall()
    assert took == [(orders[0], woken.id), (orders[1], None)]


def test_a_worker_that_never_stood_on_the_roster_has_its_place_in_the_history(db: Db) -> None:
    """M45, FD9."""
    its = master(db)
    store.record_end(db, its, EndedWorker(7, 99, POOL, (), timedelta(0), "exited with code 1", never_ready=True))
    exits = db.execute("SELECT name, pool, reason FROM job_worker_exit").fetchall()
    assert exits == [(f"{POOL}-7", POOL, "exited with code 1 before it stood on the roster")]


def test_the_roster_has_the_fields_of_the_registry(db: Db) -> None:
    """M42: with the pool and the limits."""
    limits = Membership(pool=POOL, master="m1", max_jobs=9, max_time=timedelta(minutes=5), max_memory_mb=512)
    member = Member("w", "mail-7", "box", "here", 7, 99, ["mail"], ["test"], 2, membership=limits)
    roster.beat(db, member, Report(memory_mb=12, current_jobs=[5]), lives_for=timedelta(seconds=90))
    names = (
        "pid, host, name, pool, master, queues, memory_mb, max_memory_mb, max_seconds, max_jobs, current_jobs, status"
    )
    assert db.execute(f"SELECT {names} FROM job_worker").fetchall() == [
        (7, "box", "mail-7", POOL, "m1", ["mail"], 12, 512, 300, 9, [5], "ACTIVE")
    ]
    roster.leave(db, "w", "max_jobs reached: 9 of 9")
    exits = db.execute("SELECT pool, reason, exited_at >= started_at FROM job_worker_exit").fetchall()
    assert exits == [(POOL, "max_jobs reached: 9 of 9", True)]


# --- what waits -------------------------------------------------------------------------------------------------


@pytest.mark.both_servers_at_length
def test_only_what_could_be_claimed_now_counts(db: Db) -> None:
    """FD10: not what is later, paused, elsewhere, unknown or forbidden."""
    for columns in (
        {},
        {"priority": 5},
        {"lane": "x", "concurrency_key": "x"},
        {"next_retry_at": scalar(db, "SELECT now() + interval '1 h'")},
        {"queue": "other"},
        {"queue": "paused"},
        {"queue": "shut"},
        {"kind": "unknown"},
        {"status": "COMPLETED"},
    ):
        make_job(db, **{"queue": "mail", **columns})
    db.execute("SELECT pause_queue('paused')")
    db.execute("INSERT INTO job_limit VALUES ('queue:shut', 0)")
    db.execute("SELECT job_relabel()")
    with db.transaction():
        assert store.load(db, ["mail"], ["test"]).due == 3
        assert store.load(db, ["mail"], None).due == 4
        assert store.load(db, [], ["test"]).due == 4
        assert store.load(db, ["paused", "shut"], None).due == 0


@pytest.mark.both_servers_at_length
def test_of_what_limits_hold_only_what_they_have_room_for_counts(db: Db) -> None:
    """A process more would find no more of it. What a fair queue holds for its turn may all begin."""
    db.execute("INSERT INTO job_limit VALUES ('key:camera:*', 2, NULL), ('kind:slow', 5, NULL), ('key:calls', NULL, 3)")
    db.execute("INSERT INTO job_queue (name, fair) VALUES ('fair', true)")

    def due(queue: str, kind: str = "test", **more: Any) -> int:
        for _ in range(20):
            enqueue(db, kind, queue=queue, **more)
        with db.transaction():
            return store.load(db, [queue], None).due

    assert due("one", concurrency_key="camera:1") == 2
    assert due("one", concurrency_key="camera:2") == 4
    assert claim(db, 3, kinds=["test"])
    with db.transaction():
        load = store.load(db, ["one"], None)
    assert (load.due, load.running) == (1, 3)
    assert due("calls", concurrency_key="calls") == 3
    assert due("slow", "slow") == 5
    assert due("slow", "slow", concurrency_key="camera:3") == 5
    assert due("fair", tenant="ana") == 20
    assert due("fair", tenant="bo") == 40
    assert due("free") == 20
    with db.transaction():
        assert store.load(db, ["one"], None).arrivals == pytest.approx(0.3), "what is held has not come yet"


def test_how_fast_jobs_come_and_go_is_measured(db: Db) -> None:
    """M53."""
    now = "SELECT now() - %s * interval '1 s'"
    with db.transaction():  # in which now() stands still
        for age in (1, 2, 60):
            moments = {"started_at": scalar(db, now, age + 0.5), "finished_at": scalar(db, now, age)}
            make_job(db, "COMPLETED", queue="mail", created_at=scalar(db, now, age + 1), **moments)
        make_job(db, "RUNNING", queue="mail")
        make_job(db, queue="mail", next_retry_at=scalar(db, now, 30))
        load = store.load(db, ["mail"], ["test"])
    assert (load.due, load.running) == (1, 1)
    assert load.oldest_due == pytest.approx(30)
    assert load.arrivals == pytest.approx(0.4)
    assert load.finished == pytest.approx(2 / 3)
    assert load.runtime == pytest.approx(0.5)


@pytest.mark.both_servers
def test_a_job_that_has_always_been_due_can_be_measured(db: Db) -> None:
    """People write -infinity into a run_at, and no server before version 17 can subtract it."""
    make_job(db, queue="mail", next_retry_at="-infinity")
    with db.transaction():
        load = store.load(db, ["mail"], None)
    assert (load.due, load.oldest_due > 86_400) == (1, True)


@pytest.mark.at_length  # only what could be claimed now counts, in every run
def test_a_million_jobs_for_later_cost_the_measurement_nothing(db: Db) -> None:
    """Promise 8, on a scale that a test can afford: what is walked is lanes, not rows."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, queue, next_retry_at)"
        " SELECT 'test', 'mail', now() + interval '1 day' FROM generate_series(1, 50000)"
    )
    with db.transaction():
        assert store.load(db, ["mail"], ["test"]).due == 0
        query = sql.SQL("EXPLAIN (ANALYZE, BUFFERS, FORMAT TEXT) ") + sql.SQL(store._LOAD)
        given = {"queues": ["mail"], "kinds": ["test"], "heads": 1000, "cap": 10_000, "sample": 5_000}
        spans = {"comes": timedelta(seconds=10), "goes": timedelta(seconds=3), "memory": timedelta(minutes=5)}
        plan = "\n".join(line for (line,) in db.execute(query, given | spans).fetchall())
    assert "Seq Scan on snap_processing_job" not in plan


def test_a_row_that_no_check_allows_cannot_be_written(db: Db) -> None:
    insert = "INSERT INTO job_command (host, action, status, finished_at) VALUES ('box', 'pause', %s, %s)"
    for status, finished in (("TAKEN", None), ("EXECUTED", None), ("PENDING", "now"), ("GONE", None)):
        with pytest.raises(psycopg.errors.CheckViolation):
            db.execute(insert, [status, finished])
