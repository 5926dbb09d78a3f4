"""What comes: every mistake of a described load at once, and the rows of a real queue as they were."""

from datetime import timedelta
from statistics import fmean, median

import pytest

from snapapp.jobs.simulation.load import InvalidLoad, Load, Work, described_load, recorded_load
from tests.factory import Db, enqueue

STREAM = """
hours = 2
[jobs.mail]
per_hour = 3000
run_s = 0.5
run_p99_s = 4.0
queue = "mail"
priority = 3
key = "acme"
cpu = 0.25
[jobs.report]
every_s = 3600
at_once = 5
run_s = 7
[limits]
"kind:report" = 2
"""


def test_a_described_load_comes_as_described() -> None:
    load = described_load(STREAM)
    mails = [work for work in load.works if work.kind == "mail"]
    assert (load.lasts, load.limits) == (7200, {"kind:report": 2})
    assert len(mails) == pytest.approx(6000, rel=0.05)
    assert {(work.queue, work.priority, work.key, work.cpu) for work in mails} == {("mail", 3, "acme", 0.25)}
    runs = sorted(work.runs for work in mails)
    assert median(runs) == pytest.approx(0.5, rel=0.1)
    assert runs[int(0.99 * len(runs))] == pytest.approx(4.0, rel=0.25)
    reports = [(work.at, work.runs) for work in load.works if work.kind == "report"]
    assert reports == [(0.0, 7.0)] * 5 + [(3600.0, 7.0)] * 5
    assert [work.at for work in load.works] == sorted(work.at for work in load.works)


def test_chance_is_the_same_for_the_same_seed() -> None:
    assert described_load(STREAM, 5) == described_load(STREAM, 5)
    assert described_load(STREAM, 5) != described_load(STREAM, 6)


def test_a_load_grows_and_keeps_its_hours() -> None:
    load = described_load(STREAM)
    assert load.grown(1, 1) is load
    half, triple = load.grown(0.5, 1), load.grown(3, 1)
    assert len(half.works) == pytest.approx(len(load.works) / 2, rel=0.1)
    assert len(triple.works) == 3 * len(load.works)
    assert fmean(work.at for work in triple.works) == pytest.approx(fmean(work.at for work in load.works), rel=0.02)
    assert set(half.works) < set(load.works)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", '[jobs."KIND"] is missing'),
        ("jobs = 3", '[jobs."KIND"] is missing'),
        ("[jobs]\nmail = 3", '[jobs."KIND"] is missing'),
        ("[jobs.mail", "cannot be read"),
        ("hours = 0\n[jobs.a]\nper_hour = 1\nrun_s = 1", "hours is not a number from 0.001 to 8784"),
        ("hour = 1\n[jobs.a]\nper_hour = 1\nrun_s = 1", "hour is not known; did you mean hours?"),
        ("[jobs.a]\nper_hour = 1", "a: run_s is missing"),
        ("[jobs.a]\nrun_s = 1", "a: say either per_hour, or every_s"),
        ("[jobs.a]\nper_hour = 1\nevery_s = 1\nrun_s = 1", "a: say either per_hour, or every_s"),
        ("[jobs.a]\nper_hour = 1\nat_once = 2\nrun_s = 1", "a: say either per_hour, or every_s"),
        ("[jobs.a]\nper_hour = nan\nrun_s = 1", "a: per_hour = nan is not a number from 0 to"),
        ("[jobs.a]\nper_hour = true\nrun_s = 1", "a: per_hour = True is not a number"),
        ('[jobs.a]\nper_hour = 1\nrun_s = "2"', "a: run_s = '2' is not a number"),
        ("[jobs.a]\nper_hour = 1\nrun_s = 1\npriority = 1.5", "a: priority = 1.5 is not a whole number from -1,000"),
        ("[jobs.a]\nper_hour = 1\nrun_s = 1\nprioritie = 1", "a: prioritie is not known; did you mean priority?"),
        ("[jobs.a]\nper_hour = 1\nrun_s = 1\n[limits]\nreport = 1", "'report' is no pattern of a limit"),
        ('[jobs.a]\nper_hour = 1\nrun_s = 1\n[limits]\n"kind:a" = -1', "[limits] has a whole number"),
        ("[jobs.a]\nper_hour = 1e9\nrun_s = 1", "1,000,000,000 jobs are too many"),
        ("[jobs.a]\nevery_s = 0.001\nat_once = 1000\nrun_s = 1", "3,600,000,000 jobs are too many"),
        ("[jobs.a]\nper_hour = 0\nrun_s = 1", "nothing comes in that time"),
    ],
)
def test_what_is_no_load_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(InvalidLoad) as refused:
        described_load(text)
    assert says in str(refused.value)


def test_every_mistake_is_told_at_once() -> None:
    with pytest.raises(InvalidLoad) as refused:
        described_load("hours = -1\n[jobs.a]\nrun_s = -1\n[jobs.b]\nper_hour = 1\nqueue = 7")
    assert str(refused.value).count(";") == 4


def ended(
    db: Db, kind: str, *, due: float, waits: float, runs: float, status: str = "COMPLETED", **more: object
) -> int:
    job_id = enqueue(db, kind, **more)
    assert job_id
    db.execute(
        """
        UPDATE snap_processing_job
           SET status = %(status)s, attempt_count = 1, next_retry_at = its.due,
               started_at = its.due + %(waits)s * interval '1 s',
               finished_at = its.due + (%(waits)s + %(runs)s) * interval '1 s'
          FROM (SELECT date_trunc('minute', now()) - interval '1 h' + %(due)s * interval '1 s' AS due) AS its
         WHERE id = %(id)s
        """,
        {"status": status, "due": due, "waits": waits, "runs": runs, "id": job_id},
    )
    return job_id


def test_the_rows_are_the_record(db: Db) -> None:
    ended(db, "mail", due=10, waits=1, runs=4, queue="mail", priority=2, concurrency_key="acme")
    slow = ended(db, "report", due=0, waits=0.5, runs=20, status="FAILED")
    ended(db, "never", due=5, waits=1, runs=1, status="CANCELLED")
    enqueue(db, "waits")
    db.execute(
        "INSERT INTO job_cost (job_id, lease_seq, attempt, kind, outcome, started_at, wall_ms, cpu_ms)"
        " VALUES (%s, 1, 1, 'report', 'FAILED', now(), 20000, 15000)",
        (slow,),
    )
    db.execute(
        "INSERT INTO job_limit (key_pattern, max_running, rate) VALUES ('kind:report', 2, NULL), ('kind:x', NULL, 1)"
    )
    load = recorded_load(db, timedelta(days=1))
    assert [(work.kind, round(work.at, 3), round(work.runs, 3), work.cpu) for work in load.works] == [
        ("report", 0, 20, 0.75),
        ("mail", 10, 4, 0),
    ]
    assert load.works[1] == Work(load.works[1].at, load.works[1].runs, "mail", "mail", 2, "acme")
    assert [round(one, 3) for one in load.waited] == [0.5, 1]
    assert load.limits == {"kind:report": 2}


def test_without_rows_there_is_nothing_to_simulate(db: Db) -> None:
    ended(db, "mail", due=10, waits=1, runs=4)
    with pytest.raises(InvalidLoad, match="no job that is still kept has finished"):
        recorded_load(db, timedelta(minutes=1))


def test_a_limit_that_is_typed_comes_on_top() -> None:
    load = Load(works=[], lasts=1, limits={"kind:a": 1, "kind:b": 1})
    assert load.limited({"kind:b": 5, "key:*": 2}).limits == {"kind:a": 1, "kind:b": 5, "key:*": 2}
