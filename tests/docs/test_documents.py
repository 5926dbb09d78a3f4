"""Each of the five documents, tried as its author would: its examples, in its own words and order, against the real
thing. Where the document has another name for something than we do, a line says so."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from snapapp.jobs import Job, Worker, enqueue, enqueue_many
from snapapp.jobs.fleet import commands, overview
from snapapp.jobs.fleet.commands import Action
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import connect
from snapapp.jobs.settings import RetrySettings
from tests.api.conftest import served
from tests.commands import Call
from tests.factory import Db, row, scalar, statuses
from tests.jobs.fleet.supervised import plan, supervising, until_workers
from tests.jobs.working import Heard, until, until_status
from tests.running import Running


@pytest.fixture
def registry() -> Registry:
    return Registry()


# --- ADR 0008: the queue is a table, the worker a part of the API's process ------------------------------------------

SELECT_OF_ADR_0008 = """
SELECT id FROM snap_processing_job
WHERE status = 'PENDING'
ORDER BY created_at
LIMIT %s
FOR UPDATE SKIP LOCKED
"""


def test_adr_0008_a_table_is_the_queue_and_a_bean_of_the_api_polls_it(
    url: str, db: Db, engine: sqlalchemy.Engine, tmp_path: Path, run: Callable[..., Running]
) -> None:
    """S1, S2, S4, S5, S7-S9.

    Snapapp serve is the bean with its schedule; workerPollDelayMs is SNAPAPP_WORKER_POLL_DELAY_MS.
    """
    with engine.begin() as ours:
        ids = [enqueue(ours, "demo.hello", {"name": "Olho"}) for _ in range(4)]
        broken = enqueue(ours, "demo.fail", max_attempts=2)
        assert statuses(db) == {}, "the claim and the job are as atomic as their transaction"

    with (
        connect(url, name="other") as other,
        db.transaction(),
        other.transaction(),
    ):  # two instances, with the document's own statement
        first = db.execute(SELECT_OF_ADR_0008, [2]).fetchall()
        second = other.execute(SELECT_OF_ADR_0008, [10]).fetchall()
        assert [job for (job,) in first + second] == [*ids, broken]

    backoff = {"retry_base": timedelta(milliseconds=200), "retry_multiplier": 2.0}
    with served(url, tmp_path, worker_enabled=True, **backoff) as client:
        until(lambda: row(db, broken or 0).status == "FAILED" and set(statuses(db).values()) == {"COMPLETED", "FAILED"})
        assert client.get("/actuator/health").json()["status"] == "UP"
        # a broker only if polling shows: this is where it would
        until(lambda: 'snapapp_job_wait_seconds_count{kind="demo.hello"} 4.0' in client.get("/metrics").text)

    diagnosis = "SELECT status, attempt_count, next_retry_at > created_at, last_error, claimed_by, locked_at"
    [told] = db.execute(f"{diagnosis} FROM snap_processing_job WHERE id = %s", [broken]).fetchall()
    assert told[:3] == ("FAILED", 2, True)
    assert told[3:] == (row(db, broken or 0).errors[-1]["error"], None, None)

    standalone = run("worker", SNAPAPP_DATABASE_URL=url)  # the evolution: the same polling, a process of its own
    later = enqueue(db, "demo.hello", {"name": "Dono"})
    until_status(db, later or 0, "COMPLETED", within=40)
    standalone.signal(signal.SIGTERM)
    assert standalone.end() == 0


# --- ADR-022: new WorkerService(queue, processor, opts) ---------------------------------------------------------------


def test_adr_022_a_worker_service_takes_a_queue_a_processor_and_options(url: str, db: Db, registry: Registry) -> None:
    """W1, W3, W7, W10, W14, W16, W17, W23, W25, W28, W29, W32-W36, W38-W41.

    AbstractQueue is queues=, opts are concurrency=, lease_for= (lockDuration), beat_every= (instead of
    lockRenewTimeBuffer) and poll_delay= (pollingIntervalMs); run() and close() are start() and stop(); addLog is
    log.
    """
    go_on, side_by_side = threading.Event(), threading.Barrier(2, timeout=20)

    @registry.processor("report", queue="reports")
    def process(job: Job) -> dict[str, Any]:
        if job.payload.get("broken"):
            raise ValueError("no such report")
        if job.payload.get("paired"):
            side_by_side.wait()
        job.update_progress(50, "half")
        job.log("half of it is there")
        while job.payload.get("long") and not go_on.wait(0.02):
            job.raise_if_cancelled()
        return {"pages": 3}

    opts: dict[str, Any] = {
        "concurrency": 1,
        "lease_for": timedelta(seconds=1),
        "beat_every": timedelta(milliseconds=200),
        "poll_delay": timedelta(milliseconds=100),
        "retry": RetrySettings(base=timedelta(milliseconds=20), maximum=timedelta(milliseconds=50)),
        "children": 0,
    }
    worker = Worker(url, queues=("reports",), registry=registry, **opts)
    heard = Heard(worker.events)
    worker.stop()  # before the start it is nothing
    worker.start()
    elsewhere = enqueue(db, "report", queue="other")
    long = enqueue(db, "report", {"long": True}, queue="reports") or 0
    assert heard.wait_for("worker.job.active").facts["job_id"] == long
    until(lambda: row(db, long).progress == {"percent": 50, "note": "half"})
    until(lambda: db.execute("SELECT message FROM job_log WHERE job_id = %s", [long]).fetchall())
    claimed_until = row(db, long).lock_expires_at
    until(lambda: row(db, long).lock_expires_at > claimed_until + 2 * opts["lease_for"])  # longer than a lease
    waiting = enqueue(db, "report", queue="reports") or 0
    heard.wait_for("job.lock.extended", times=len(heard.all("job.lock.extended")) + 2)
    assert (row(db, waiting).started_at, worker.running) == (None, 1), "one at a time, with concurrency: 1"
    go_on.set()
    assert until_status(db, long, "COMPLETED").result == {"pages": 3}
    until_status(db, waiting, "COMPLETED")
    failed = enqueue(db, "report", {"broken": True}, queue="reports", max_attempts=2) or 0
    assert until_status(db, failed, "FAILED").last_error == "ValueError: no such report"
    heard.wait_for("worker.job.errored", times=2)
    heard.wait_for("worker.job.processed", times=2)
    assert heard.all("worker.error") == [], "an error of a processor is none of the worker's"

    with Worker(url, queues=("reports",), registry=registry, **opts):  # scale by another instance
        pair = enqueue_many(db, [{"kind": "report", "payload": {"paired": True}, "queue": "reports"}] * 2)
        assert {until_status(db, job or 0, "COMPLETED").attempt_count for job in pair} == {1}

    go_on.clear()
    cut_off = enqueue(db, "report", {"long": True}, queue="reports") or 0
    until(lambda: row(db, cut_off).started_at is not None)
    worker.stop(grace=timedelta(milliseconds=200))
    worker.stop()
    heard.wait_for("worker.job.interrupted")
    heard.wait_for("worker.closed")
    assert (row(db, cut_off).status, row(db, cut_off).attempt_count) == ("PENDING", 0)
    assert row(db, elsewhere or 0).status == "PENDING"


# --- Stage 4: N workers, no job twice ---------------------------------------------------------------------------------

UPDATE_OF_STAGE_4 = """
UPDATE snap_processing_job SET status = 'RUNNING', claimed_by = 'worker-1'
WHERE status = 'PENDING' AND (lock_expires_at IS NULL OR lock_expires_at < NOW())
ORDER BY created_at ASC
LIMIT 10
RETURNING *
"""


def test_stage_4_three_terminals_process_a_hundred_jobs_once_each(
    url: str, db: Db, run: Callable[..., Running], call: Call
) -> None:
    """W29, Q12, Q18, Q23, Q24, Q31-Q33, Q36, Q37, Q39, Q42, Q45-Q47, D1.

    Queue_jobs is snap_processing_job, processing RUNNING, lockedBy claimed_by, lastHeartbeatAt locked_at;
    WORKER_ID, JOB_LOCK_TTL_MS and JOB_HEARTBEAT_INTERVAL_MS begin with SNAPAPP_; getMetrics() is `snapapp workers
    list --json`.
    """
    with pytest.raises(psycopg.errors.SyntaxError, match="ORDER"):  # the document's own was never run
        db.execute(UPDATE_OF_STAGE_4)
    db.execute("CREATE TABLE effect (job_id bigint)")
    environment = {
        "SNAPAPP_DATABASE_URL": url,
        "SNAPAPP_JOB_LOCK_TTL_MS": "3000",
        "SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "300",
        "SNAPAPP_JOB_RECOVERY_INTERVAL_MS": "500",
        "SNAPAPP_PROCESSORS": "tests.jobs.fleet.kinds",
        "SNAPAPP_PRODUCT": "false",
        "SNAPAPP_WORKER_BATCH_SIZE": "10",
        "SNAPAPP_WORKER_CHILDREN": "1",
        "SNAPAPP_WORKER_COMMANDS": "1",
    }
    terminals = [run("worker", SNAPAPP_WORKER_ID=f"worker-{number}", **environment) for number in (1, 2, 3)]
    until(lambda: scalar(db, "SELECT count(*) FROM job_worker") == 3, within=60)
    enqueue_many(db, [{"kind": "fleet.count", "payload": {"seconds": 0.02}}] * 100)
    until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=60)
    completed = scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'COMPLETED'")
    assert (completed, scalar(db, "SELECT count(*) FROM effect")) == (100, 100)  # exactly 100, not 300

    def metrics() -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in call("workers", "list", "--json").json}

    until(lambda: sum(each["jobs_completed"] for each in metrics().values()) == 100)
    assert [*sorted(metrics())] == ["worker-1", "worker-2", "worker-3"]
    assert sum(each["jobs_claimed"] for each in metrics().values()) == 100
    assert all(each["mean_ms"] >= 20 for each in metrics().values() if each["jobs_completed"])

    hold = {"file": "/nonexistent/never"}
    stuck, last = (enqueue(db, "fleet.hold", hold, max_attempts=attempts) or 0 for attempts in (2, 1))
    until(lambda: row(db, stuck).started_at and row(db, last).started_at)
    dead = {row(db, job).claimed_by for job in (stuck, last)}
    names = db.execute("SELECT name FROM job_worker WHERE id = ANY (%s)", [[*dead]]).fetchall()
    victims = [terminals[int(name.removeprefix("worker-")) - 1].process for (name,) in names]
    for victim in victims:  # at once, or one would take over from the other
        os.killpg(victim.pid, signal.SIGKILL)
    for victim in victims:
        victim.wait()
    until(lambda: row(db, stuck).claimed_by not in {None, *dead} and row(db, last).status == "FAILED", within=40)
    assert (row(db, stuck).attempt_count, row(db, last).last_error) == (2, "worker lost")
    until(lambda: sum(each["jobs_recovered"] for each in metrics().values()) == 2)


# --- QueueMaster: master, pools, workers ------------------------------------------------------------------------------


@pytest.mark.at_length  # each of its rows has another test in every run: docs/requirements.md
def test_queuemaster_a_plan_is_provisioned_scaled_and_terminated_by_signals(url: str, db: Db, tmp_path: Path) -> None:
    """M1, M2, M7, M15, M28-M30, M35, M38, M39, M41, M42, M45, M50.

    The ProvisioningPlan is a file of TOML; QueueMasterCommand is `snapapp supervisor`, which is the command
    listener, too; the registry of Redis is job_worker, the shutdown history job_worker_exit.
    """
    db.execute("CREATE TABLE effect (job_id bigint)")
    pools = plan(
        default={"max_processes": 1, "max_time_s": 300, "memory_mb": 512},
        reports={"max_processes": 2, "min_processes": 1, "balance": "simple", "scale_up_threshold": 3.0},
    )
    with supervising(tmp_path, url) as start:
        master = start(pools, SNAPAPP_SHUTDOWN_GRACE_MS="30000")
        until_workers(db, 2)
        registered = "SELECT pid, host, name, pool, queues, max_seconds, max_memory_mb, status FROM job_worker"
        [first, *_] = db.execute(f"{registered} WHERE pool = 'default-supervisor' ORDER BY name").fetchall()
        assert (first[1], first[3:]) == (
            os.uname().nodename,
            ("default-supervisor", ["default"], 300, 512, "ACTIVE"),
        )
        assert start(pools).end() == 1, "there are never two masters"

        command = commands.send(db, Action.SCALE, pool="reports-supervisor", amount=2)
        until(lambda: commands.one(db, command).status == "EXECUTED")
        until_workers(db, 2, "reports-supervisor")
        until(lambda: [pool.present for pool in overview.fleet(db)] == [1, 2])

        master.signal(signal.SIGUSR1)
        until(lambda: {pool.state for pool in overview.fleet(db)} == {"PAUSED"})
        may_end = tmp_path / "may end"
        job = enqueue(db, "fleet.hold", {"file": str(may_end)}, queue="reports") or 0
        master.signal(signal.SIGCONT)
        until(lambda: row(db, job).status == "RUNNING", within=40)
        master.signal(signal.SIGTERM)
        until(lambda: scalar(db, "SELECT status FROM job_master") == "STOPPING")
        may_end.touch()
        assert master.end() == 0, master.said()
        assert row(db, job).status == "COMPLETED", "the current job ends first"
        assert master.family() == []
    history = db.execute("SELECT reason, jobs_completed, exited_at > started_at FROM job_worker_exit").fetchall()
    assert {reason for reason, _, _ in history} == {"SIGTERM"}
    assert (sum(done for _, done, _ in history), all(lived for _, _, lived in history)) == (1, True)


# --- Reproq: a worker that starts programs ----------------------------------------------------------------------------

POLL_OF_REPROQ = """
SELECT id FROM snap_processing_job
WHERE queue = %s
  AND status = 'PENDING'
  AND next_retry_at <= NOW()
ORDER BY priority DESC, created_at ASC
LIMIT 1
FOR UPDATE SKIP LOCKED
"""

TASK_EXECUTOR = """
import json, sys

task = json.load(sys.stdin)
print("took", task["payload"]["args"], file=sys.stderr)
if task["payload"]["args"] == ["broken"]:
    print(json.dumps({"ok": False, "error_class": "ValueError", "message": "no such thing", "traceback": "line 1"}))
else:
    print(json.dumps({"ok": True, "result": {"sum": sum(task["payload"]["args"])}}))
"""


def test_reproq_a_task_run_is_claimed_executed_by_a_program_and_completed(
    url: str, db: Db, registry: Registry, tmp_path: Path
) -> None:
    """R12, R20-R22, R26-R28, R32, R33.

    Task_runs is snap_processing_job; run_after and RETRYING are next_retry_at and RETRY_WAIT, SUCCESSFUL COMPLETED;
    the payload comes by stdin, `return` of the envelope is `result`; spec_hash is unique_by="spec".
    """
    package = tmp_path / "myproject"
    package.mkdir()
    (package / "task_executor.py").write_text(TASK_EXECUTOR)
    run = ("env", f"PYTHONPATH={tmp_path}", sys.executable, "-m", "myproject.task_executor")
    registry.processor("sum", executor="command", command=run, max_attempts=2)(lambda job: None)

    low, high = (enqueue(db, "sum", {"args": [1, 2]}, queue="default", priority=priority) for priority in (0, 5))
    later = enqueue(db, "sum", {"args": [1]}, priority=9, delay=timedelta(hours=1))
    with connect(url, name="another worker") as another, another.transaction(), db.transaction():
        polled = [each.execute(POLL_OF_REPROQ, ["default"]).fetchall() for each in (db, another)]
        assert polled == [[(high,)], [(low,)]]
    broken = enqueue(db, "sum", {"args": ["broken"]}, max_attempts=2) or 0
    same = [enqueue(db, "sum", payload, unique_by="spec") for payload in ({"args": [9], "k": 1}, {"k": 1, "args": [9]})]
    assert same[0] == same[1]

    quick = RetrySettings(base=timedelta(milliseconds=200), multiplier=2, jitter=0)
    worker = Worker(url, registry=registry, queues=("default",), concurrency=1, children=0, retry=quick)
    with worker:
        for job in (low, high):
            assert until_status(db, job or 0, "COMPLETED").result == {"sum": 3}
        dead = until_status(db, broken, "FAILED")
        assert until_status(db, same[0] or 0, "COMPLETED").result == {"sum": 9}
    assert (dead.attempt_count, dead.last_error) == (2, "ValueError: no such thing")
    assert [entry["attempt"] for entry in dead.errors] == [1, 2]
    assert dead.next_retry_at >= dead.created_at + quick.base, "backoff"
    assert (dead.finished_at is not None, dead.started_at < dead.finished_at) == (True, True)
    assert row(db, later or 0).status == "PENDING"
    assert db.execute("SELECT message FROM job_log WHERE job_id = %s", [low]).fetchall() == [("took [1, 2]",)]
