"""`snapapp check-deploy`: this code against what waits in the database, before a deploy."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs import Job, doctor
from snapapp.jobs.doctor import Deploy
from snapapp.jobs.registry import Registry
from tests.commands import NOWHERE, Call
from tests.factory import Db, ago, hence, make_job

NEXT_RELEASE = """
from datetime import timedelta
from snapapp.jobs import processor, scheduled

@processor("mail.send")
def send(job): ...

@scheduled(cron="0 4 * * *", name="nightly")
def nightly(job): ...
"""


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Code that is about to be deployed, in the folder where people type the command."""
    (tmp_path / "next_release.py").write_text(NEXT_RELEASE)


@pytest.fixture
def known() -> Registry:
    registry = Registry()

    @registry.processor("mail.send")
    def send(job: Job) -> None: ...

    return registry


@pytest.fixture
def deploy(url: str, known: Registry) -> Callable[[], Deploy]:
    def compare() -> Deploy:
        with doctor.consulting(url) as db:
            return doctor.compare(db, known)

    return compare


@pytest.mark.parametrize("status", ["PENDING", "RETRY_WAIT", "RUNNING"])
def test_a_job_whose_kind_this_code_does_not_know_is_lost(db: Db, deploy: Callable[[], Deploy], status: str) -> None:
    """R41: nobody would run it; one that runs may come back."""
    make_job(db, status, kind="mail.send")
    assert deploy().is_safe
    make_job(db, status, kind="old.kind")
    its = deploy()
    assert ([each.kind for each in its.lost], its.is_safe) == (["old.kind"], False)


def test_every_job_that_has_not_ended_counts_whatever_its_lane_and_time(db: Db, deploy: Callable[[], Deploy]) -> None:
    make_job(db, kind="old.kind", queue="a", gate="held", lane="tenant")
    make_job(db, kind="old.kind", queue="b", next_retry_at=hence(days=30))
    make_job(db, kind="old.kind", losses=2, gate="alone", next_retry_at=ago(days=1))
    make_job(db, "RUNNING", kind="old.kind")
    [lost] = deploy().lost
    assert (lost.waiting, lost.running) == (3, 1)


def test_a_job_that_waits_for_others_or_behind_thousands_counts(db: Db, deploy: Callable[[], Deploy]) -> None:
    db.execute("SELECT enqueue_job('old.child', after => ARRAY[enqueue_job('mail.send')])")
    db.execute(
        "INSERT INTO snap_processing_job (kind, gate, next_retry_at)"
        " SELECT 'mail.send', 'later', now() + interval '1 day' FROM generate_series(1, 1001)"
    )
    make_job(db, kind="old.kind", gate="later", next_retry_at=hence(days=30))
    assert [(each.kind, each.waiting) for each in deploy().lost] == [("old.child", 1), ("old.kind", 1)]


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "CANCELLED"])
def test_a_job_that_is_over_needs_no_processor(db: Db, deploy: Callable[[], Deploy], status: str) -> None:
    make_job(db, status, kind="old.kind")
    assert deploy().is_safe


def test_the_counting_ends_where_the_number_does_not_matter_any_more(db: Db, deploy: Callable[[], Deploy]) -> None:
    db.execute("INSERT INTO snap_processing_job (kind) SELECT 'old.kind' FROM generate_series(1, 1500)")
    assert deploy().lost[0].waiting == 1001


@pytest.mark.both_servers_at_length
@pytest.mark.parametrize("limited", [False, True])
def test_payloads_are_counted_by_their_version(db: Db, deploy: Callable[[], Deploy], limited: bool) -> None:
    if limited:
        db.execute("INSERT INTO job_limit VALUES ('queue:*', 1)")
    payloads: list[Any] = [{"v": 1}, {"v": 1}, {"v": "2"}, {"version": 3, "v": 1}, {}, [1], {"v": {"deep": 1}}]
    for payload in payloads:
        make_job(db, kind="mail.send", payload=payload)
    make_job(db, kind="plain", payload={"to": "ana"})
    versions = {each.kind: dict(each.versions) for each in deploy().kinds}
    assert versions == {"mail.send": {"1": 2, "2": 1, "3": 1, "": 3}, "plain": {}}


def declare(db: Db, name: str, spec: str) -> None:
    db.execute("INSERT INTO job_schedule (name, spec) VALUES (%s, %s)", [name, spec])


def test_schedules_that_vanish_are_lost_and_changed_ones_are_told(
    db: Db, known: Registry, deploy: Callable[[], Deploy]
) -> None:
    @known.scheduled(name="hourly", every=timedelta(hours=1))
    def hourly(job: Job) -> None: ...

    @known.scheduled(name="brand.new", cron="0 3 * * *")
    def brand_new(job: Job) -> None: ...

    declare(db, "hourly", "0 * * * *")
    assert deploy().is_safe
    declare(db, "nightly", "0 3 * * *")
    its = deploy()
    assert (its.vanished, its.changed, its.new, its.is_safe) == (["nightly"], ["hourly"], ["brand.new"], False)


# --- as people type it ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("release")
def test_code_that_knows_everything_exits_with_0(call: Call, db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "next_release")
    make_job(db, kind="mail.send", payload={"v": 2})
    declare(db, "nightly", "0 4 * * *")
    answer = call("check-deploy")
    assert (answer.code, answer.err) == (0, "")
    assert "ok    mail.send: 1 waiting, 0 running; payload versions 2: 1\n" in answer.out
    assert answer.out.endswith("This code knows everything that waits.\n")


def test_code_that_lacks_a_processor_exits_with_1_and_names_it(call: Call, db: Db) -> None:
    make_job(db, kind="gone.kind")
    declare(db, "gone.schedule", "0 4 * * *")
    answer = call("check-deploy")
    assert (answer.code, answer.err) == (1, "")
    assert "LOST  gone.kind: 1 waiting, 0 running, and this code has no processor for it\n" in answer.out
    assert "LOST  schedule gone.schedule: " in answer.out


def test_a_program_reads_the_same(call: Call, db: Db) -> None:
    make_job(db, kind="gone.kind", payload={"version": 7})
    make_job(db, kind="demo.hello")
    answer = call("check-deploy", "--json")
    said = json.loads(answer.out)
    assert (answer.code, answer.err, said["safe"]) == (1, "", False)
    assert said["kinds"] == [
        {"kind": "demo.hello", "waiting": 1, "running": 0, "known": True, "versions": {}},
        {"kind": "gone.kind", "waiting": 1, "running": 0, "known": False, "versions": {"7": 1}},
    ]
    assert said["schedules"]["vanished"] == []


def test_who_cannot_look_exits_with_2(bare_call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", NOWHERE)
    answer = bare_call("check-deploy")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("snapapp: The database cannot be reached: ")
    monkeypatch.setenv("SNAPAPP_PROCESSORS", "no.such.module")
    assert "cannot be imported" in bare_call("check-deploy").err
