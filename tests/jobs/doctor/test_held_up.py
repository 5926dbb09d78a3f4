"""What does not get on: a limit too low, a slot that hangs, a job that kills its workers, attempts that fail."""

import threading
from datetime import timedelta

import pytest

from snapapp.jobs.doctor import Severity
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import Db as AnyDb
from snapapp.jobs.rows.roster import Report
from snapapp.jobs.worker import watchdog
from tests.factory import Db, ago, enqueue, make_job, make_jobs
from tests.jobs.doctor.examining import enlist, examine, ids, member, the, until_found
from tests.jobs.working import until, working


def test_a_limit_that_is_too_low_is_named_with_what_it_holds_back(url: str, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('kind:film', 1)")
    runs = make_job(db, "RUNNING", kind="film", gate="held")
    held = {"kind": "film"}
    oldest = make_job(db, next_retry_at=ago(minutes=2), **held)
    make_job(db, next_retry_at=ago(seconds=90), **held)
    found = the(examine(url, "limits"), "LIMIT_FULL")
    assert found.severity is Severity.NOTICE
    assert found.saw.startswith(f"The limit kind:film lets 1 of kind:film run at once, and 1 run (job {runs}): ")
    assert "snapapp limits set 'kind:film' --max-running N" in found.saw
    assert f"job {oldest} (film), has been due for 2 min." in found.saw
    assert "snapapp limits set" in found.do
    db.execute("UPDATE snap_processing_job SET next_retry_at = now() - interval '6 min' WHERE id = %s", [oldest])
    assert the(examine(url, "limits"), "LIMIT_FULL").severity is Severity.WARNING
    db.execute("SELECT pause_queue('default', 'lunch')")  # then that is why
    assert ids(examine(url, "limits")) == ["LIMITS"]
    db.execute("SELECT resume_queue('default')")
    db.execute("UPDATE job_limit SET max_running = 2")
    assert ids(examine(url, "limits")) == ["LIMITS"]


def test_a_limit_that_lets_nothing_run_is_a_warning_at_once(url: str, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('key:camera', 0)")
    make_job(db, concurrency_key="camera", next_retry_at=ago(seconds=70))
    found = the(examine(url, "limits"), "LIMIT_FULL")
    assert (found.severity, found.numbers["isShut"]) == (Severity.WARNING, True)
    assert "lets nothing of key:camera run" in found.saw


@pytest.mark.both_servers
def test_a_job_that_a_limit_holds_back_may_always_have_been_due(url: str, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('kind:film', 0)")
    make_job(db, kind="film", next_retry_at="-infinity")
    assert the(examine(url, "limits"), "LIMIT_FULL").numbers["dueSeconds"] > 86_400


def test_many_lanes_under_one_limit_are_one_finding_and_hide_no_other_limit(url: str, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('key:camera*', 0), ('kind:film', 0)")
    for number in range(30):
        make_job(db, concurrency_key=f"camera-{number}", next_retry_at=ago(minutes=9 + number))
    make_job(db, kind="film", next_retry_at=ago(minutes=2))
    cameras, film = examine(url, "limits")
    assert (cameras.numbers["limit"], cameras.numbers["lanes"]) == ("key:camera*", 30)
    assert "lets nothing of key:camera-29 run. The oldest that it holds back" in cameras.saw
    assert (film.numbers["limit"], film.numbers["lanes"]) == ("kind:film", 1)


def test_a_hook_that_hangs_is_told_until_it_returns(url: str, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the worker's note, because nothing in the rows says what its thread does."""
    monkeypatch.setattr(watchdog, "_PATIENCE_WITH_SLOTS", 0.2)
    registry, let_go = Registry(), threading.Event()

    def commit(_db: AnyDb, _job: Job, _result: object) -> None:
        let_go.wait(60)

    @registry.processor("mail", timeout=timedelta(milliseconds=200), commit=commit)
    def send(job: Job) -> None: ...

    try:
        with working(url, registry):
            job_id = enqueue(db, "mail")
            found = until_found(url, "slots", "SLOT_HANGS")
            let_go.set()
            until(lambda: ids(examine(url, "slots")) == ["SLOTS"])
    finally:
        let_go.set()
    assert found.severity is Severity.WARNING
    assert f"(mail {job_id})" in found.saw
    assert "time limit" in found.do


def test_a_note_of_a_dead_worker_is_no_news(url: str, db: Db) -> None:
    note = "threads that ignore their deadline: 1 (mail 7)"
    roster.beat(db, member(), Report(note=note, current_jobs=[7]), lives_for=timedelta(hours=1))
    assert the(examine(url, "slots"), "SLOT_HANGS").paste == "snapapp jobs show 7"
    db.execute("UPDATE job_worker SET expires_at = now()")
    assert ids(examine(url, "slots")) == ["SLOTS"]


def test_a_kind_that_kills_its_workers_is_named(url: str, db: Db) -> None:
    enlist(db)
    assert ids(examine(url, "suspects")) == ["NO_SUSPECTS"]
    first = make_job(db, "RETRY_WAIT", kind="poison", gate="alone", losses=2)
    make_job(db, "RUNNING", kind="poison", losses=2)
    make_job(db, kind="fat", gate="alone", memory_mb=4000)
    poison, fat = examine(url, "suspects")
    assert (poison.id, poison.severity) == ("SUSPECTS", Severity.WARNING)
    assert poison.saw.startswith(f"Jobs of the kind poison lost their worker up to 2 times: 2, such as job {first}.")
    assert "more memory" not in poison.do
    assert "Jobs of the kind fat ran short of memory: 1" in fat.saw
    assert "more memory" in fat.do


def test_a_receiver_that_is_down_is_told_before_anything_is_given_up(url: str, db: Db) -> None:
    make_jobs(db, 4, "RETRY_WAIT", kind="webhook", last_error="SourceUnavailable: the receiver answered 503\nTrace")
    make_job(db, "RETRY_WAIT", kind="mail", last_error="once")
    counts = "INSERT INTO job_history VALUES (date_trunc('minute', now()) - %s, 1, %s, %s, 0, 0, %s, '{}', '{}')"
    db.execute(counts, [timedelta(minutes=1), "webhook", 1, 4])
    db.execute(counts, [timedelta(minutes=1), "mail", 500, 30])  # most of them are delivered
    db.execute(counts, [timedelta(minutes=40), "old", 0, 30])  # it is over
    db.execute(counts, [timedelta(minutes=1), "", 501, 64])  # all together
    [found] = examine(url, "repeated")
    assert (found.id, found.severity) == ("MOSTLY_REPEATED", Severity.WARNING)
    assert found.saw == (
        "Attempts of the kind webhook fail: 4 within 15 min are repeated, 1 completed; mostly: "
        "SourceUnavailable: the receiver answered 503"
    )
    assert "Is that up" in found.do
    assert found.do.endswith("those that wait run by themselves; retry those that have become dead letters.")
    assert found.paste == "snapapp jobs list --status RETRY_WAIT --kind=webhook"
    db.execute("DELETE FROM job_history WHERE kind = 'webhook'")
    assert ids(examine(url, "repeated")) == ["REPEATED"]


def test_what_a_kind_fails_with_is_told_when_none_of_its_jobs_waits_any_more(url: str, db: Db) -> None:
    counts = "INSERT INTO job_history VALUES (date_trunc('minute', now()), 1, 'webhook', 0, 2, 0, 4, '{}', '{}')"
    db.execute(counts)
    [found] = examine(url, "repeated")
    assert found.saw == "Attempts of the kind webhook fail: 4 within 15 min are repeated, 0 completed"
    make_jobs(db, 2, "FAILED", kind="webhook", last_error="SourceUnavailable: the receiver answered 503\nTrace")
    [found] = examine(url, "repeated")
    assert found.saw.endswith("0 completed; mostly: SourceUnavailable: the receiver answered 503")
    assert (found.paste, found.numbers["waiting"]) == ("snapapp jobs list --status FAILED --kind=webhook", 0)
