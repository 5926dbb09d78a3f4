"""`jobs discard`, `jobs prune` and `jobs reclaim`, as people type them."""

import shlex
import sys
from datetime import timedelta

import pytest

from tests.commands import Call, Terminal
from tests.factory import Db, ago, hence, make_job, row, statuses
from tests.jobs.doctor.examining import examine, the


def test_jobs_are_discarded_with_a_reason_and_each_refusal_says_why(
    call: Call,
    db: Db,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUDO_USER", "ana")
    failed, waiting = make_job(db, "FAILED", last_error="no", finished_at=ago(days=2)), make_job(db, "RETRY_WAIT")
    running, done = make_job(db, "RUNNING"), make_job(db, "COMPLETED")
    ended = row(db, failed).finished_at
    answer = call("jobs", "discard", failed, waiting, running, done, 4242, "--reason", "of no use")
    assert (answer.code, answer.out) == (1, f"Job {failed} is cancelled\nJob {waiting} is cancelled\n")
    assert answer.err == (
        f"job {running} is RUNNING: only a waiting or FAILED job can be discarded\n"
        f"job {done} is COMPLETED: only a waiting or FAILED job can be discarded\nthere is no job 4242\n"
    )
    assert statuses(db) == {failed: "CANCELLED", waiting: "CANCELLED", running: "RUNNING", done: "COMPLETED"}
    assert {row(db, job_id).last_error for job_id in (failed, waiting)} == {"discarded by ana: of no use"}
    assert row(db, failed).finished_at == ended
    assert call("jobs", "discard", running).code == 2


def test_what_is_over_is_deleted_by_age_status_and_kind_after_a_question(
    call: Call,
    db: Db,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = {"created_at": ago(days=40), "finished_at": ago(days=35)}
    failed, other, done = (
        make_job(db, status, kind=kind, **old)
        for status, kind in (("FAILED", "a"), ("FAILED", "b"), ("COMPLETED", "a"))
    )
    young = make_job(db, "FAILED", kind="a", created_at=ago(days=40), finished_at=ago(days=3))
    waiting = make_job(db, kind="a", created_at=ago(days=40))
    typed = ("jobs", "prune", "--older-than", "30d", "--status", "failed", "--kind", "a")

    refused = call(*typed)
    assert (refused.code, "this would delete 1 job for good: add --yes" in refused.err) == (2, True)
    monkeypatch.setattr(sys, "stdin", Terminal("no\n"))
    assert call(*typed).code == 1
    assert failed in statuses(db)

    assert call(*typed, "--yes") == (0, "1 job deleted.\n", "")
    assert set(statuses(db)) == {other, done, young, waiting}
    assert call(*typed) == (0, "No jobs deleted.\n", "")
    assert call("jobs", "prune", "--older-than", "30d", "--yes", "--json").json == {"deleted": 2}
    assert set(statuses(db)) == {young, waiting}


def test_a_key_for_ever_is_not_counted_and_not_deleted(call: Call, db: Db) -> None:
    old = {"created_at": ago(days=2), "finished_at": ago(days=2)}
    kept = make_job(db, "COMPLETED", unique_key="once", unique_scope="ever", **old)
    assert call("jobs", "prune", "--older-than", "1d").out == "No jobs deleted.\n"
    assert set(statuses(db)) == {kept}


@pytest.mark.parametrize("typed", ["", "--older-than 30", "--older-than 30d --status RUNNING"])
def test_what_to_delete_must_be_said(call: Call, typed: str) -> None:
    assert call("jobs", "prune", *typed.split()).code == 2


def test_jobs_whose_lease_ended_are_taken_back(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = make_job(db, "RUNNING", lock_expires_at=ago(minutes=1))
    held = make_job(db, "RUNNING", lock_expires_at=hence(minutes=1))
    monkeypatch.setattr("snapapp.jobs.cli.jobs.upkeep._SETTLED_FOR", timedelta(0))  # the tests' server has just begun
    assert call("jobs", "reclaim") == (0, "1 job reclaimed.\n", "")
    assert statuses(db) == {dead: "RETRY_WAIT", held: "RUNNING"}
    assert call("jobs", "reclaim", "--json").json == {"reclaimed": []}


def test_what_the_doctor_says_to_type_works_for_names_that_begin_like_options(url: str, call: Call, db: Db) -> None:
    db.execute("SELECT pause_queue('-rf', 'a dash')")
    make_job(db, "FAILED", kind="--failed")
    queue, dead = the(examine(url, "queues"), "QUEUE_PAUSED").paste, the(examine(url, "dead"), "DEAD_LETTERS").paste
    assert call(*shlex.split(queue or "")[1:]).out == "The queue -rf is open.\n"
    assert call(*shlex.split(dead or "")[1:], "--yes").out == "1 job retried.\n"
