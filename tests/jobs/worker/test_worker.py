"""A worker as its users meet it: it runs what is due, once, says what became of it, and stops when it is told."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp.jobs import Job, Permanent, Snooze, enqueue, enqueue_many, events
from snapapp.jobs.events import Events
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.roster import BeatAnswer
from snapapp.jobs.worker.claiming.next_claim import NextClaim
from snapapp.jobs.worker.wakeup import Listener
from snapapp.jobs.worker.worker import Worker
from tests.factory import Db, hence, make_job, row
from tests.jobs.working import Gate, quick_settings, until, until_status, working


def test_a_job_that_is_enqueued_runs_and_keeps_its_result(url: str, db: Db, registry: Registry) -> None:
    """W1, W4, W5, S4: the processor gets the whole job; what it returns is on the row."""

    @registry.processor("greet")
    def greet(job: Job) -> dict[str, Any]:
        return {"said": f"hello {job.payload['name']}", "attempt": job.attempt}

    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "greet", {"name": "Ana"}, request_id="r-1")
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert done.result == {"said": "hello Ana", "attempt": 1}
    assert (done.attempt_count, done.claimed_by, done.locked_at) == (1, None, None)
    assert done.created_at <= done.started_at <= done.finished_at
    assert worker.counts.completed == 1


@pytest.mark.direct
def test_a_notify_wakes_the_worker_long_before_its_poll(url: str, db: Db, registry: Registry) -> None:
    """M20: promise 6, waking is fast; an idle worker does not sleep through what comes."""
    registry.processor("quick")(lambda job: None)
    with working(url, registry, poll_delay=timedelta(hours=1)) as (_, heard):
        heard.wait_for(events.WORKER_STARTED)
        until(
            lambda: db.execute(
                "SELECT FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' OR application_name = 'snapapp listen'"
            ).fetchall()
        )
        first = enqueue(db, "quick")
        assert first
        until_status(db, first, "COMPLETED")
        second = enqueue(db, "quick")
        assert second
        until_status(db, second, "COMPLETED", within=5)


@pytest.mark.direct
def test_a_worker_whose_first_beat_came_before_it_listened_knows_at_once_that_it_does(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each beat has a ping, and so has the subscription."""
    subscribe = Listener._subscribe

    def late(self: Listener, connection: psycopg.Connection[Any]) -> None:
        until(lambda: db.execute("SELECT FROM job_worker").fetchall())
        subscribe(self, connection)

    monkeypatch.setattr(Listener, "_subscribe", late)
    with working(url, registry, beat_every=timedelta(minutes=2), lease_for=timedelta(minutes=9)) as (worker, _):
        until(lambda: worker.vitals().listens)


@pytest.mark.direct
def test_the_poll_finds_what_no_notify_announced(url: str, db: Db, registry: Registry) -> None:
    """W3, W13, R12, R13, S3: Promise 6: waking is never needed."""
    registry.processor("quiet")(lambda job: None)
    with working(url, registry) as (worker, _):
        until(lambda: worker.vitals().listens and worker.counts.claims)  # what it looks at first is over
        db.execute("SET session_replication_role = replica")  # no trigger, so no NOTIFY
        for _ in range(4):  # an end may wake the worker, but not before there is one
            job_id = make_job(db, kind="quiet")
            until_status(db, job_id, "COMPLETED", within=10)


@pytest.mark.direct
@pytest.mark.parametrize(("poll_delay", "rests"), [(timedelta(milliseconds=100), False), (None, True)])
def test_only_an_interval_that_nobody_has_set_is_stretched_while_listen_lives(
    url: str, registry: Registry, monkeypatch: pytest.MonkeyPatch, poll_delay: timedelta | None, *, rests: bool
) -> None:
    """Promise 13: the interval of the claim is the one that people set."""
    ticks: list[float | None] = []
    with working(url, registry, poll_delay=poll_delay) as (worker, _):
        tick = worker.tick
        monkeypatch.setattr(worker, "tick", lambda: ticks.append(tick()))
        until(lambda: worker.vitals().listens and len(ticks) >= 2)

        def claims_each_time() -> bool:
            before = len(ticks)
            for _ in range(20):
                worker.claim()
            return len(ticks) >= before + 20

        until(lambda: claims_each_time() is not rests)
        assert claims_each_time() is not rests


def beside(monkeypatch: pytest.MonkeyPatch, ours: Callable[[], object], theirs: Callable[[], None]) -> None:
    """Does `ours`, and another thread `theirs` in the middle of it."""
    thread = threading.Thread(target=theirs)

    def now() -> float:
        if threading.current_thread() is not thread and not thread.ident:
            thread.start()
            thread.join(0.5)  # it may have to wait for us
        return monotonic()

    with monkeypatch.context() as patched:
        patched.setattr("snapapp.jobs.worker.claiming.next_claim.monotonic", now)
        ours()
    thread.join()


@pytest.fixture
def resting(url: str, registry: Registry) -> Iterator[Worker]:
    """A worker that has just claimed, and need not claim again before something happens: LISTEN works."""
    registry.processor("test")(lambda job: None)
    with closing(Runtime(quick_settings(url, poll_delay=None), registry=registry, events=Events())) as runtime:
        worker = runtime.worker()
        worker._is_on_the_roster, worker._listener._heard_at = True, monotonic() + 60
        worker.tick()
        yield worker
        for part in (worker._claimer, worker._heartbeat):
            part.close()


def test_a_wake_is_kept_while_another_thread_plans_a_claim(
    db: Db, resting: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a NOTIFY and a job that is due again in ten minutes: the worker rested for five seconds."""
    its = make_job(db)
    beside(monkeypatch, lambda: resting._claim_in(600), lambda: resting.wake(queue="default"))
    resting.claim()
    assert row(db, its).status == "RUNNING"


def test_of_two_threads_that_plan_a_claim_the_earlier_plan_holds(
    db: Db, resting: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = make_job(db)
    beside(monkeypatch, lambda: resting._claim_in(600), lambda: resting._claim_in(0))
    resting.claim()
    assert row(db, its).status == "RUNNING"


def test_a_limit_that_is_set_while_a_beat_is_on_its_way_back_is_known(
    db: Db, resting: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beat's older answer held that there was none, so that jobs it holds back waited for the next beat."""
    beat = resting._heartbeat.beat

    def answer_late() -> BeatAnswer:
        answer = beat()
        resting._on_notify("")
        return answer

    monkeypatch.setattr(resting._heartbeat, "beat", answer_late)
    resting.beat()
    assert resting._claimer.has_rules


def test_a_queue_whose_news_come_while_a_claim_begins_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name got lost, or was added to names that the claim went through: RuntimeError."""
    its = NextClaim()
    its.begin()
    its.wake("early")
    seen: set[str] = set()
    beside(monkeypatch, lambda: seen.update(its.begin()), lambda: its.wake("late"))
    assert seen == {"early"}
    assert its.due_in < 0
    assert set(its.begin()) == {"late"}


def test_a_delayed_job_runs_when_it_is_due_without_another_wake(url: str, db: Db, registry: Registry) -> None:
    registry.processor("later")(lambda job: None)
    with working(
        url, registry, poll_delay=timedelta(hours=1), beat_every=timedelta(seconds=1), lease_for=timedelta(seconds=9)
    ):
        job_id = enqueue(db, "later", delay=timedelta(milliseconds=400))
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    late = done.started_at - done.next_retry_at
    assert timedelta(0) <= late < timedelta(milliseconds=900)


@pytest.mark.direct
def test_a_job_that_is_run_now_wakes_a_worker_that_waits_for_its_time(url: str, db: Db, registry: Registry) -> None:
    registry.processor("later")(lambda job: None)
    delayed = make_job(db, kind="later", next_retry_at=hence(hours=1), lease_seq=2)
    with working(url, registry, poll_delay=timedelta(hours=1)) as (worker, _):

        def is_idle() -> bool:
            claims = worker.counts.claims
            threading.Event().wait(0.5)
            return worker.vitals().listens and claims == worker.counts.claims > 0

        until(is_idle)  # the next claim is an hour away
        lifecycle.run_now(db, delayed)
        done = until_status(db, delayed, "COMPLETED", within=10)
    assert (done.attempt_count, done.lease_seq > 3) == (1, True)


def test_a_failing_job_comes_again_after_its_delay_and_ends_in_the_dead_letters(
    url: str, db: Db, registry: Registry
) -> None:
    """W6, Q24, Q28, Q29, Q46, R27, R28, S6, D3, D4, D8, D13, M24: attempts count at the claim, backoff is applied."""

    @registry.processor("broken")
    def broken(job: Job) -> None:
        raise ValueError(f"attempt {job.attempt}")

    with working(url, registry) as (worker, heard):
        job_id = enqueue(db, "broken", max_attempts=3)
        assert job_id
        dead = until_status(db, job_id, "FAILED")
        heard.wait_for(events.JOB_FAILED)
    assert dead.attempt_count == 3
    assert dead.last_error == "ValueError: attempt 3"
    assert [entry["attempt"] for entry in dead.errors] == [1, 2, 3]
    assert "raise ValueError" in dead.errors[0]["trace"]
    assert (worker.counts.retried, worker.counts.failed) == (2, 1)


def test_permanent_errors_are_not_tried_again(url: str, db: Db, registry: Registry) -> None:
    """S16, W51."""

    @registry.processor("hopeless")
    def hopeless(job: Job) -> None:
        raise Permanent("no video stream")

    with working(url, registry):
        job_id = enqueue(db, "hopeless")
        assert job_id
        dead = until_status(db, job_id, "FAILED")
    assert (dead.attempt_count, dead.last_error) == (1, "Permanent: no video stream")


def test_a_snooze_gives_the_attempt_back(url: str, db: Db, registry: Registry) -> None:
    """W53."""
    calls: list[int] = []

    @registry.processor("sleepy")
    def sleepy(job: Job) -> None:
        calls.append(job.attempt)
        if len(calls) < 3:
            raise Snooze(timedelta(seconds=1))

    with working(url, registry):
        job_id = enqueue(db, "sleepy", max_attempts=1)
        assert job_id
        done = until_status(db, job_id, "COMPLETED")
    assert calls == [1, 1, 1]
    assert done.attempt_count == 1


@pytest.mark.parametrize("delay", [timedelta(0), timedelta(milliseconds=1), timedelta(days=-1)])
def test_a_snooze_lasts_a_second_at_least(url: str, db: Db, registry: Registry, delay: timedelta) -> None:
    """It uses up no attempt: nothing else would end such a loop."""
    calls: list[float] = []

    @registry.processor("restless")
    def restless(job: Job) -> None:
        calls.append(monotonic())
        if len(calls) < 2:
            raise Snooze(delay)

    with working(url, registry):
        job_id = enqueue(db, "restless")
        assert job_id
        until_status(db, job_id, "COMPLETED")
    assert calls[1] - calls[0] >= 1


@pytest.mark.parametrize("bad", [object(), {"a": float("nan")}, "\0", "\ud800", {"x": "y" * 1_100_000}])
def test_a_result_that_is_not_json_fails_the_job_with_a_reason(
    url: str, db: Db, registry: Registry, bad: object
) -> None:
    """Promise 9."""
    registry.processor("odd")(lambda job: bad)
    registry.processor("fine")(lambda job: None)
    with working(url, registry):
        odd, fine = enqueue(db, "odd"), enqueue(db, "fine")
        assert odd
        assert fine
        dead = until_status(db, odd, "FAILED")
        until_status(db, fine, "COMPLETED")
    assert dead.last_error.startswith("InvalidJob: the result ")


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


@pytest.mark.parametrize(
    "error",
    [Hostile(), ValueError("x" * 50_000_000), ValueError("nul \0 and \ud800"), SystemExit(3), KeyboardInterrupt()],
    ids=["str raises", "50 MB", "unstorable", "SystemExit", "KeyboardInterrupt"],
)
def test_a_hostile_exception_fails_its_job_and_nothing_else(
    url: str, db: Db, registry: Registry, error: BaseException
) -> None:
    """Promise 9, FD12, FD13, FC21."""

    @registry.processor("hostile")
    def hostile(job: Job) -> None:
        raise error

    registry.processor("fine")(lambda job: None)
    with working(url, registry):
        bad = enqueue(db, "hostile", max_attempts=1)
        assert bad
        dead = until_status(db, bad, "FAILED")
        fine = enqueue(db, "fine")
        assert fine
        until_status(db, fine, "COMPLETED")
    assert type(error).__name__ in dead.last_error
    assert len(dead.last_error) <= 4000


def test_kinds_that_this_worker_does_not_know_stay_pending(url: str, db: Db, registry: Registry) -> None:
    """FD11: a rolling deploy must not fail them."""
    registry.processor("known")(lambda job: None)
    with working(url, registry):
        unknown, known = enqueue(db, "from.the.future", priority=9), enqueue(db, "known")
        assert unknown
        assert known
        until_status(db, known, "COMPLETED")
    assert (row(db, unknown).status, row(db, unknown).attempt_count) == ("PENDING", 0)


def test_progress_and_log_lines_are_on_the_row_while_the_job_runs(url: str, db: Db, registry: Registry) -> None:
    """S8, W16, W17, W19, W21."""
    gate = Gate()

    @registry.processor("chatty")
    def chatty(job: Job) -> None:
        job.update_progress(40, "frames")
        job.log("12 frames at 5 fps")
        gate(job)
        job.update_progress({"step": "clip"})
        job.log("done", level="WARNING")

    with working(url, registry):
        job_id = enqueue(db, "chatty")
        assert job_id
        gate.wait_until_entered()
        until(lambda: row(db, job_id).progress == {"percent": 40, "note": "frames"})
        until(lambda: db.execute("SELECT FROM job_log WHERE job_id = %s", [job_id]).fetchall())
        gate.open.set()
        until_status(db, job_id, "COMPLETED")
    assert row(db, job_id).progress == {"step": "clip"}  # a note may come a moment after the settle
    lines = db.execute("SELECT attempt, level, message FROM job_log WHERE job_id = %s ORDER BY id", [job_id]).fetchall()
    assert lines == [(1, "INFO", "12 frames at 5 fps"), (1, "WARNING", "done")]


def test_a_flood_of_log_lines_is_cut_with_a_word(url: str, db: Db, registry: Registry) -> None:
    @registry.processor("flood")
    def flood(job: Job) -> None:
        for number in range(5000):
            job.log(f"line {number}")

    with working(url, registry):
        job_id = enqueue(db, "flood")
        assert job_id
        until_status(db, job_id, "COMPLETED")
    [(lines, last)] = db.execute(
        "SELECT count(*), (array_agg(message ORDER BY id DESC))[1] FROM job_log WHERE job_id = %s", [job_id]
    ).fetchall()
    assert lines == 1000
    assert "dropped" in last


@pytest.mark.direct
def test_cancelling_a_running_job_reaches_it_at_once(url: str, db: Db, registry: Registry) -> None:
    """R37 without its wait: a NOTIFY carries the wish, not the next beat."""
    entered = threading.Event()

    @registry.processor("patient")
    def patient(job: Job) -> None:
        entered.set()
        for _ in range(2000):
            job.raise_if_cancelled()
            threading.Event().wait(0.01)

    with working(url, registry, beat_every=timedelta(seconds=10), lease_for=timedelta(seconds=60)) as (_, heard):
        job_id = enqueue(db, "patient")
        assert job_id
        assert entered.wait(20)
        assert lifecycle.cancel(db, job_id) == "RUNNING"
        stopped = until_status(db, job_id, "CANCELLED", within=5)
        told = heard.wait_for(events.JOB_CANCELLED)
    assert stopped.last_error == f"JobCancelled: job {job_id} was cancelled by a person"
    assert told.facts["error"] == stopped.last_error


def test_a_completion_that_arrives_before_the_cancel_wins(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()
    registry.processor("deaf")(gate)
    with working(url, registry):
        job_id = enqueue(db, "deaf")
        assert job_id
        gate.wait_until_entered()
        lifecycle.cancel(db, job_id)
        gate.open.set()
        assert until_status(db, job_id, "COMPLETED", "CANCELLED").status == "COMPLETED"


def test_a_job_that_ignores_its_cancel_and_fails_is_cancelled(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()

    @registry.processor("stubborn")
    def stubborn(job: Job) -> None:
        gate(job)
        raise ValueError("it does not even look")

    with working(url, registry) as (_, heard):
        job_id = enqueue(db, "stubborn")
        assert job_id
        gate.wait_until_entered()
        lifecycle.cancel(db, job_id)
        gate.open.set()
        until_status(db, job_id, "CANCELLED")
        heard.wait_for(events.JOB_CANCELLED)


def test_a_stop_lets_running_jobs_end_and_hands_waiting_ones_back(url: str, db: Db, registry: Registry) -> None:
    """W40, R30, W38, W39, W41, D17, D18, FA6: nobody is charged for a deploy, or told to end within its grace."""
    gate = Gate()

    @registry.processor("slow")
    def slow(job: Job) -> None:
        gate(job)
        job.raise_if_cancelled()

    with working(url, registry, concurrency=2) as (worker, _):
        ids = [job_id for job_id in enqueue_many(db, [{"kind": "slow"}] * 2) if job_id]
        gate.wait_until_entered(2)
        waiting = enqueue(db, "slow")
        assert waiting
        stopper = threading.Thread(target=worker.stop, args=[timedelta(seconds=20)])
        stopper.start()
        until(lambda: db.execute("SELECT FROM job_worker WHERE status = 'DRAINING'").fetchall())
        gate.open.set()
        stopper.join(20)
        assert not stopper.is_alive()
    assert [row(db, job_id).status for job_id in ids] == ["COMPLETED", "COMPLETED"]
    assert (row(db, waiting).status, row(db, waiting).attempt_count) == ("PENDING", 0)
    assert db.execute("SELECT reason, jobs_completed FROM job_worker_exit").fetchall() == [("stopped", 2)]
    assert db.execute("SELECT count(*) FROM job_worker").fetchall() == [(0,)]


def test_jobs_that_outlast_the_grace_go_back_with_their_attempt(url: str, db: Db, registry: Registry) -> None:
    gate = Gate()
    registry.processor("endless")(gate)
    with working(url, registry) as (worker, _):
        job_id = enqueue(db, "endless")
        assert job_id
        gate.wait_until_entered()
        worker.stop(grace=timedelta(milliseconds=200))
        back = row(db, job_id)
        gate.open.set()
    assert (back.status, back.attempt_count, back.interruptions) == ("PENDING", 0, 1)


def test_a_job_that_has_ended_when_its_worker_stops_ends_once(url: str, db: Db, registry: Registry) -> None:
    """While a person's transaction locked its row, it was handed back as well: it ran again, or counted as lost."""
    gate = Gate()
    registry.processor("done")(gate)
    with working(url, registry) as (worker, heard), psycopg.connect(url) as person:
        job_id = enqueue(db, "done")
        assert job_id
        gate.wait_until_entered()
        person.execute("SELECT FROM snap_processing_job FOR UPDATE")
        gate.open.set()
        until(lambda: worker._settler._locked)
        stopper = threading.Thread(target=worker.stop, args=(timedelta(milliseconds=200),))
        stopper.start()
        until(worker._settler._stopping.is_set)
        person.rollback()
        stopper.join(20)
        ends = [event.name for event in heard.all(events.JOB_COMPLETED) + heard.all(events.JOB_LOST)]
    assert row(db, job_id).status == "COMPLETED"
    assert (ends, worker.counts.completed) == ([events.JOB_COMPLETED], 1)


def test_a_job_that_stops_its_own_worker_is_told_at_once_and_the_worker_goes_on(
    url: str, db: Db, registry: Registry
) -> None:
    """It waited for itself, then failed to join its own thread: half of the worker was left."""
    workers: list[Worker] = []

    @registry.processor("in.thread")
    def in_thread(_job: Job) -> None:
        workers[0].stop()

    @registry.processor("on.loop")
    async def on_loop(_job: Job) -> None:
        workers[0].stop()

    @registry.processor("claims.no.more")
    def claims_no_more(_job: Job) -> None:
        workers[0].stop_claiming()

    with working(url, registry) as (worker, _):
        workers.append(worker)
        for kind in ("in.thread", "on.loop"):
            said = until_status(db, make_job(db, kind=kind, max_attempts=1), "FAILED").last_error
            assert said.startswith(f"CannotStop: a job cannot stop worker {worker.id}")
        until_status(db, make_job(db, kind="claims.no.more"), "COMPLETED")


@pytest.mark.parametrize("part", ["_executors", "_settler", "_listener", "_duties"])
def test_a_signal_that_stops_a_worker_while_it_starts_leaves_nothing_of_it(
    url: str, db: Db, registry: Registry, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Its handler runs within `start`, which went on after it, and left a scheduler that ran duties for ever."""
    registry.processor("any")(lambda job: None)
    heard: list[str] = []
    its_events = Events()
    its_events.on(None, lambda event: heard.append(event.name))
    with closing(Runtime(quick_settings(url), registry=registry, events=its_events)) as runtime:
        worker = runtime.worker()
        started = getattr(worker, part)
        start = started.start

        def after_a_signal() -> None:
            worker.stop()
            start()

        monkeypatch.setattr(started, "start", after_a_signal)
        worker.start()
        assert heard[-1] == events.WORKER_CLOSED
        assert not worker._duties.is_running
        assert not worker._settler._thread.is_alive()


def test_stopping_twice_or_before_the_start_is_fine(url: str, registry: Registry) -> None:
    """W8, W41: and so is starting twice."""
    registry.processor("any")(lambda job: None)
    runtime = Runtime(quick_settings(url), registry=registry)
    worker = runtime.worker()
    worker.stop()
    worker.start()
    worker.start()
    worker.stop()
    worker.stop()
    runtime.close()


def test_a_job_with_a_single_attempt_never_waits_in_memory(url: str, db: Db, registry: Registry) -> None:
    """Promise 3: what waits in a worker that dies has not run, but with one attempt it would never run again."""
    gate = Gate()

    @registry.processor("quick")
    def quick(job: Job) -> None:
        if job.payload.get("hang"):
            gate(job)

    with working(url, registry, concurrency=2) as (worker, _):
        enqueue_many(db, [{"kind": "quick"}] * 2000)
        until(lambda: worker.counts.completed >= 2000)
        hanging = {"kind": "quick", "payload": {"hang": True}, "priority": 9}
        enqueue_many(db, [hanging] * 2 + [{"kind": "quick", "max_attempts": 1}] * 40 + [{"kind": "quick"}] * 40)
        gate.wait_until_entered(2)
        waiting = "SELECT max_attempts FROM snap_processing_job WHERE status = 'RUNNING' AND priority = 0"
        beside = db.execute(waiting).fetchall()
        assert beside, "nothing waits: this proves nothing"
        assert all(max_attempts > 1 for (max_attempts,) in beside)
        gate.open.set()
        until(lambda: worker.counts.completed == 2082)


def test_a_large_payload_reaches_the_processor_whole(url: str, db: Db, registry: Registry) -> None:
    sizes: list[int] = []
    registry.processor("big")(lambda job: sizes.append(len(job.payload["text"])))
    with working(url, registry):
        text = "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=900_000))  # it must not compress away
        job_id = enqueue(db, "big", {"text": text})
        assert job_id
        until_status(db, job_id, "COMPLETED")
    assert sizes == [900_000]


@pytest.mark.direct
def test_a_worker_survives_a_database_without_a_free_connection(url: str, db: Db, registry: Registry) -> None:
    """Full connection pool: it complains, waits, and works when there is room."""
    registry.processor("any")(lambda job: None)
    name = db.execute("SELECT current_database()").fetchall()[0][0]
    job_id = enqueue(db, "any")
    assert job_id
    db.execute("CREATE ROLE crowded LOGIN CONNECTION LIMIT 0")
    db.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO crowded")
    try:
        crowded = sqlalchemy.make_url(url).set(username="crowded").render_as_string(hide_password=False)
        with working(crowded, registry) as (_, heard):
            assert "too many connections" in heard.wait_for(events.WORKER_ERROR).facts["error"]
            db.execute("ALTER ROLE crowded CONNECTION LIMIT 20")
            until_status(db, job_id, "COMPLETED")
    finally:
        db.execute("DROP OWNED BY crowded")
        db.execute("DROP ROLE crowded")
    assert name


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize("run_at", ["9000-01-01Z", "infinity", "-infinity"])
def test_a_job_beyond_the_calendar_stops_no_worker(url: str, db: Db, registry: Registry, run_at: str) -> None:
    """No thread can wait for 7,000 years, and `infinity` is at no distance from now."""
    registry.processor("work")(lambda job: None)
    db.execute("SELECT enqueue_job('work', queue => 'later', run_at => %s)", [run_at])
    if run_at == "-infinity":
        db.execute("SELECT pause_queue('later')")
    with working(url, registry) as (worker, heard):
        for expected in (1, 2, 3):
            assert enqueue(db, "work")
            heard.wait_for("job.completed", times=expected)
            worker.beat()


def test_the_roster_counts_the_slots_that_can_run_something(url: str, db: Db) -> None:
    """Else two running jobs of a worker without coroutines are 2 of 106."""
    registry = Registry()
    registry.processor("quick")(lambda job: None)
    with working(url, registry, concurrency=3):
        until(lambda: db.execute("SELECT slots FROM job_worker").fetchall() == [(3,)])
