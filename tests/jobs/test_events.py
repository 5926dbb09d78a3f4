"""What a worker tells: events by the seeds' names, log lines with the seeds' fields, numbers on the roster."""

import json
import logging
import re
import threading
from datetime import timedelta
from time import monotonic

import pytest

from snapapp.jobs import Job, Permanent, enqueue, enqueue_many, events
from snapapp.jobs.events import Event, Events
from snapapp.jobs.metrics.log_lines import JsonFormatter, LogLines
from snapapp.jobs.process.runtime import Runtime
from snapapp.jobs.registry import Registry
from tests import ROOT
from tests.docs import events_page
from tests.factory import Db, make_job
from tests.jobs.working import quick_settings, until, until_status, working


@pytest.fixture
def registry() -> Registry:
    registry = Registry()
    registry.processor("fine")(lambda job: None)

    @registry.processor("broken")
    def broken(job: Job) -> None:
        raise ValueError("no")

    @registry.processor("hopeless")
    def hopeless(job: Job) -> None:
        raise Permanent("never")

    return registry


def test_a_jobs_way_is_told_event_by_event(url: str, db: Db, registry: Registry) -> None:
    """W31-W35, W37, M58, R51: errors of jobs are not errors of the worker."""
    with working(url, registry) as (worker, heard):
        fine, broken = enqueue(db, "fine", request_id="r-7"), enqueue(db, "broken", max_attempts=2)
        assert fine
        assert broken
        until_status(db, fine, "COMPLETED")
        until_status(db, broken, "FAILED")
        heard.wait_for(events.JOB_FAILED)
        worker.stop()
    names = [event.name for name in ("worker.started", "worker.stopping", "worker.closed") for event in heard.all(name)]
    assert names == ["worker.started", "worker.stopping", "worker.closed"]
    assert len(heard.all("worker.job.active")) == 3
    assert [event.facts["job_id"] for event in heard.all("worker.job.processed")] == [fine]
    errored = [(event.facts["job_id"], event.facts["attempt"]) for event in heard.all("worker.job.errored")]
    assert errored == [(broken, 1), (broken, 2)]
    assert [event.facts["job_id"] for event in heard.all("job.completed")] == [fine]
    assert [event.facts["attempt"] for event in heard.all("job.retried")] == [1]
    assert heard.all("job.failed")[0].facts["error"] == "ValueError: no"
    assert heard.all("worker.error") == []
    assert heard.all("job.completed")[0].facts["request_id"] == "r-7"


def test_a_pause_a_beat_and_a_lost_worker_are_told(url: str, db: Db, registry: Registry) -> None:
    """W27, W37."""
    stuck = threading.Event()
    registry.processor("stuck")(lambda job: stuck.wait(20) and None)
    expired = {"claimed_by": "gone", "lock_expires_at": "2000-01-01"}
    with working(url, registry) as (_, heard):
        held = enqueue(db, "stuck")
        lost = make_job(db, "RUNNING", kind="fine", **expired)
        db.execute("SELECT pause_queue('mail')")
        assert heard.wait_for(events.QUEUE_PAUSED).facts["queue"] == "mail"
        db.execute("SELECT resume_queue('mail')")
        assert heard.wait_for(events.QUEUE_RESUMED).facts["queue"] == "mail"
        assert heard.wait_for(events.JOB_STALLED).facts["job_id"] == lost
        until(lambda: any(held in event.facts["job_ids"] for event in heard.all(events.LEASES_EXTENDED)))
        stuck.set()


def test_every_event_says_what_the_documentation_says() -> None:
    """M58: every name has its row, somebody emits it, and the page is as the table. That an emission says what its row
    promises, each worker of a test is asked at its end (`working`)."""
    code = "\n".join(path.read_text() for path in (ROOT / "snapapp").rglob("*.py") if path.name != "events.py")
    for constant, name in vars(events).items():
        if re.fullmatch("[A-Z][A-Z_]+", constant) and isinstance(name, str):
            assert name in events.ALL
            assert re.search(rf"\b{constant}\b", code) or constant == "WORKER_ERROR", f"nobody emits {name}"
    assert (ROOT / "docs/events.md").read_text() == events_page.page()


def test_every_log_line_about_a_job_carries_the_promised_fields(
    url: str, db: Db, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Q40, Q48, R3, R54: JSON, and no payload in it."""
    logger = logging.getLogger("test.lines")
    told = Events()
    LogLines(logger, verbose=True).subscribe(told)
    runtime = Runtime(quick_settings(url), registry=registry, events=told)
    worker = runtime.worker()
    with caplog.at_level(logging.INFO, "test.lines"):
        worker.start()
        job_id = enqueue(db, "hopeless", {"secret": "hunter2"}, request_id="r-8")
        assert job_id
        until_status(db, job_id, "FAILED")
        worker.stop(timedelta(seconds=1))
    runtime.close()
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records if record.name == "test.lines"]
    [failed] = [line for line in lines if line["message"] == "job.failed"]
    told_fields = {"workerId", "jobId", "jobType", "attempts", "status", "durationMs", "requestId"}
    assert all(told_fields <= line.keys() for line in lines)
    assert (failed["jobId"], failed["jobType"], failed["attempts"], failed["status"], failed["requestId"]) == (
        *(job_id, "hopeless", 1, "FAILED", "r-8"),
    )
    assert failed["workerId"] == worker.id
    assert "hunter2" not in json.dumps(lines)


def test_a_line_cannot_be_forged_by_what_is_in_it() -> None:
    record = logging.LogRecord("snapapp", logging.INFO, "", 0, 'said\n{"level": "ERROR"}', None, None)
    assert "\n" not in JsonFormatter().format(record)


def test_what_a_worker_did_is_counted_once_and_stands_on_the_roster(url: str, db: Db, registry: Registry) -> None:
    """Q32-Q37, Q39, S26, D6: per worker, from what happened, not from rows that are still locked."""
    with working(url, registry, lease_for=timedelta(seconds=5)) as (worker, _):
        until(lambda: db.execute("SELECT FROM job_worker").fetchall())
        make_job(db, "RUNNING", kind="fine", claimed_by="gone", lock_expires_at="2000-01-01")
        enqueue_many(db, [{"kind": "fine"}] * 20 + [{"kind": "broken", "max_attempts": 2}] * 3)
        until(lambda: worker.counts.completed == 21)
        until(lambda: worker.counts.failed == 3)
        expected = (27, 21, 3, 3, 1)
        numbers = "SELECT jobs_claimed, jobs_completed, jobs_failed, jobs_retried, jobs_recovered FROM worker_overview"
        until(lambda: db.execute(numbers).fetchall() == [expected])
        assert db.execute("SELECT mean_ms >= 0 FROM worker_overview").fetchall() == [(True,)]


def test_a_worker_is_somebody_new_at_every_start(url: str, registry: Registry) -> None:
    """W8, Q20, R15, S13, FA14: a name that survives a restart would keep the dead one's jobs alive."""
    runtime = Runtime(quick_settings(url, worker_name="the same"), registry=registry)
    first, second = runtime.worker().id, runtime.worker().id
    assert first != second
    assert len(first) == len(second) == 32
    runtime.close()


def test_stuck_jobs_are_seen_in_a_view(url: str, db: Db) -> None:
    """Q38, Q23."""
    late = make_job(db, "RUNNING", lock_expires_at="2000-01-01")
    unknown = make_job(db, kind="from.the.future", next_retry_at="2000-01-01")
    assert {row[0] for row in db.execute("SELECT id FROM queue_stuck")} == {late, unknown}


def test_a_listener_that_raises_hurts_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    told = Events()
    heard: list[str] = []

    def broken(event: Event) -> None:
        raise RuntimeError("the listener is broken")

    told.on(None, broken)
    told.on("job.completed", lambda event: heard.append(event.name))
    told.emit("job.completed")
    assert heard == ["job.completed"]
    assert "the listener is broken" in capsys.readouterr().err


def test_an_error_that_comes_again_and_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the database is away, each duty of a worker fails about once a second."""
    logger = logging.getLogger("test.lines")
    told = Events()
    LogLines(logger).subscribe(told)
    with caplog.at_level(logging.INFO, "test.lines"):
        for _ in range(10):
            for doing in ("beat", "claim"):
                told.complain("w", doing, OSError("away"))
        told.complain("w", "claim", OSError("another"))
        monkeypatch.setattr(events, "monotonic", lambda: monotonic() + 61)
        told.complain("w", "claim", OSError("away"))
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [(line["doing"], line["error"]) for line in lines] == [
        ("beat", "OSError: away"),
        ("claim", "OSError: away"),
        ("claim", "OSError: another"),
        ("claim", "OSError: away"),
    ]
