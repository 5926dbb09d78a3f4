"""Memory admission: what does not fit waits, what fits comes in, one may always run, and everybody is told why."""

import json
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from snapapp.jobs.model import Job
from snapapp.jobs.os import memory
from snapapp.jobs.rows.people import views
from snapapp.jobs.worker.capacity.admission import Admission, judge
from snapapp.jobs.worker.leases.held import HeldJobs
from tests.factory import Db, make_jobs, row, running_job, scalar
from tests.jobs.executors.test_executors import put
from tests.jobs.kinds import spending
from tests.jobs.rows.test_explain import said, worker
from tests.jobs.working import until, until_status, working

MB = 1024 * 1024
HIGH = "sys__fs__cgroup__app__memory_dot_high"
PROC = "MemTotal: 24000000 kB\nMemAvailable: 1048576 kB\n"  # 1,024 MB


# --- what is decided --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "promised", "held", "is_empty", "at_most"),
    [
        (1000, 0, (), False, 2),  # of 400 MB each
        (1000, 300, (), False, 1),
        (1000, 601, (), False, 0),
        (399, 0, (), False, 0),
        (400, 0, (), False, 1),
        (400, 0, ("cut",), False, 0),  # it was held back: only with a fifth more
        (480, 0, ("cut",), False, 1),
        (10, 0, ("cut",), True, 1),  # one may always run
        (-500, 0, (), True, 1),
        (-500, 0, (), False, 0),
    ],
)
def test_as_many_come_in_as_fit(free: int, promised: int, held: tuple[str, ...], is_empty: bool, at_most: int) -> None:
    verdict = judge({"cut": 400}, free, promised, held, is_empty=is_empty)["cut"]
    assert verdict.at_most == at_most


def test_the_reason_names_the_need_and_what_is_free() -> None:
    verdict = judge({"cut": 400}, 500, 300, (), is_empty=False)["cut"]
    assert verdict.why == (
        "95 of 100 attempts stay within 400 MB, 500 MB are free, of which running jobs may take 300 MB"
    )


class Box:
    """A machine with as much memory as is said, and an admission that looks at it."""

    def __init__(self, free: int | None, **needs: float) -> None:
        self.free = free
        self.held_jobs = HeldJobs(timedelta(minutes=1), timedelta(seconds=1))
        self.admission = Admission(["cut", "scan"], self.held_jobs, free_mb=lambda: self.free)
        self.admission.learn(needs)

    def look(self) -> None:
        self.admission._seen = (float("-inf"), None)
        self.admission.look()

    def claim(self, job: Job) -> Job:
        self.held_jobs.add([job], 0.0)
        self.admission.took([job])
        return job


def test_what_was_claimed_counts_before_it_has_taken_anything(db: Db) -> None:
    box = Box(1000, cut=600)
    box.look()
    assert box.admission.let_in(["cut", "mail"]) == ["cut", "mail"]
    job = box.claim(running_job(db, kind="cut"))
    assert box.admission.let_in(["cut", "mail"]) == ["mail"]
    job.peak, box.free = 600 * MB, 1300  # now it has taken what it needs
    box.look()
    assert box.admission.let_in(["cut"]) == ["cut"]


def test_who_ran_short_of_memory_may_take_twice_its_limit(db: Db) -> None:
    box = Box(1000, cut=600)
    box.claim(running_job(db, kind="scan", memory_mb=500))  # a kind of which nothing was learned
    assert box.admission.let_in(["cut"]) == []


def test_a_kind_that_was_held_back_comes_in_again(db: Db) -> None:
    box = Box(100, cut=600)
    job = box.claim(running_job(db, kind="cut"))
    box.look()
    assert list(box.admission.held) == ["cut"]
    box.held_jobs.remove(job)
    box.look()
    assert box.admission.held == {}


def test_memory_decides_how_many_of_a_kind_are_claimed_at_once() -> None:
    box = Box(1000, cut=600, scan=100)
    box.look()
    assert box.admission.at_most("cut", 5) == 1
    assert box.admission.at_most("scan", 5) == 5
    assert box.admission.at_most("mail", 100) == 100


def test_where_nobody_can_tell_what_is_free_everything_comes_in(db: Db) -> None:
    box = Box(None, cut=600)
    box.claim(running_job(db, kind="cut"))
    box.look()
    assert box.admission.let_in(["cut"]) == ["cut"]
    assert box.admission.free_mb() is None


def test_a_kind_that_is_no_longer_known_to_need_much_comes_in(db: Db) -> None:
    box = Box(100, cut=600)
    box.claim(running_job(db, kind="cut"))
    assert box.admission.held
    box.admission.learn({})
    box.look()
    assert box.admission.held == {}


def test_a_need_of_nothing_divides_nothing() -> None:
    box = Box(100, cut=0.0)
    box.look()
    assert box.admission.at_most("cut", 5) == 5


# --- what is free -----------------------------------------------------------------------------------------------


def machine(root: Path, **files: str) -> Path:
    """The files of a kernel: double underscores are slashes."""
    for name, text in {"proc__meminfo": PROC, **files}.items():
        file = root / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def group(path: str, limit: object, used: object, spare: int = 0) -> dict[str, str]:
    stat = f"anon 1\ninactive_file {spare}\n"
    names = {"memory_dot_max": f"{limit}\n", "memory_dot_current": f"{used}\n", "memory_dot_stat": stat}
    return {f"sys__fs__cgroup{path}__{name}": text for name, text in names.items()}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 1024),
        ({"proc__self__cgroup": "0::/app\n"}, 1024),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", "max", 5)}, 1024),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 512 * MB, 500 * MB)}, 12),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 512 * MB, 500 * MB, spare=100 * MB)}, 112),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 512 * MB, 600 * MB)}, 0),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 512 * MB, 112 * MB), HIGH: f"{256 * MB}\n"}, 144),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 512 * MB, 112 * MB), HIGH: "max\n"}, 400),
        ({"proc__self__cgroup": "0::/app/web\n", **group("__app", 512 * MB, 112 * MB)}, 400),
        ({"proc__self__cgroup": "0::/not/seen/here\n", **group("", 512 * MB, 12 * MB)}, 500),
        ({"proc__self__cgroup": "0::/app\n", **group("__app", 2**40, 0)}, 1024),
        ({"proc__self__cgroup": "0::/../..\n", **group("", 512 * MB, 12 * MB)}, 500),
        (
            {
                "proc__self__cgroup": "5:cpu:/\n4:memory:/app\n",
                "sys__fs__cgroup__memory__app__memory_dot_limit_in_bytes": f"{512 * MB}\n",
                "sys__fs__cgroup__memory__app__memory_dot_usage_in_bytes": f"{12 * MB}\n",
                "sys__fs__cgroup__memory__memory_dot_limit_in_bytes": f"{2**63 - 4096}\n",
                "sys__fs__cgroup__memory__memory_dot_usage_in_bytes": "5\n",
            },
            500,
        ),
    ],
)
def test_the_tightest_of_the_machine_and_its_groups_counts(tmp_path: Path, files: dict[str, str], free: int) -> None:
    assert memory.free_mb(machine(tmp_path, **files)) == free


def test_where_there_is_no_kernel_to_ask_nobody_knows(tmp_path: Path) -> None:
    assert memory.free_mb(tmp_path) is None


def test_this_machine_answers() -> None:
    free = memory.free_mb()
    assert free is not None
    assert free > 0


# --- a worker ---------------------------------------------------------------------------------------------------


def learned(db: Db, kind: str, need_mb: float) -> None:
    """As if attempts had been seen to need so much."""
    db.execute(
        "INSERT INTO job_cost (job_id, lease_seq, attempt, kind, outcome, started_at, wall_ms, peak_mb)"
        " SELECT n, 1, 1, %s, 'COMPLETED', now(), 1, %s FROM generate_series(1000001, 1000020) AS n",
        [kind, need_mb],
    )


def held(db: Db) -> dict[str, str]:
    """What the roster says is held back."""
    found = db.execute("SELECT held_kinds::text FROM job_worker").fetchall()
    return json.loads(found[0][0]) if found else {}


def running(db: Db, kind: str) -> int:
    return int(scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING' AND kind = %s", kind))


def test_jobs_that_do_not_fit_run_one_after_the_other_and_the_roster_says_why(url: str, db: Db) -> None:
    """Sidekiq was asked for it, and has it not."""
    learned(db, "spend.child", 10_000_000)
    made = [put(db, "spend.child", payload={"rest": 0.5}) for _ in range(4)]
    seen: set[int] = set()
    with working(url, spending.registry, children=3):
        until(lambda: "spend.child" in held(db))
        holding = next(job_id for job_id in made if row(db, job_id).status == "PENDING")
        explained = views.explain(db, holding)
        free, note = db.execute("SELECT free_mb, note FROM job_worker").fetchall()[0]

        def are_done() -> bool:
            seen.add(running(db, "spend.child"))
            return {row(db, job_id).status for job_id in made} == {"COMPLETED"}

        until(are_done)
    assert seen <= {0, 1}
    assert free > 0
    assert "memory is short, held back: spend.child" in note
    assert "95 of 100 attempts stay within 10000000 MB" in explained
    assert "it is next" not in explained


def test_kinds_that_fit_and_other_executors_are_not_kept_waiting(url: str, db: Db) -> None:
    learned(db, "spend.child", 10_000_000)
    with working(url, spending.registry, children=2, commands=1):
        long, waiting = (put(db, "spend.child", payload={"rest": 60}) for _ in range(2))
        until_status(db, long, "RUNNING")
        for kind in ("spend.brief", "spend.brief"):
            until_status(db, put(db, kind), "COMPLETED")
        assert row(db, waiting).status == "PENDING"


def test_a_second_job_comes_in_where_both_fit(url: str, db: Db) -> None:
    learned(db, "spend.child", 10)
    with working(url, spending.registry, children=2):
        for _ in range(2):
            put(db, "spend.child", payload={"rest": 60})
        until(lambda: running(db, "spend.child") == 2)


@pytest.mark.at_length  # what was claimed counts before it has taken anything, above, in every run
def test_a_second_job_waits_while_the_first_may_still_take_what_is_free(url: str, db: Db) -> None:
    learned(db, "spend.child", 0.6 * (memory.free_mb() or 0))
    with working(url, spending.registry, children=2):
        first, second = (put(db, "spend.child", payload={"rest": rest}) for rest in (1, 0))
        until(lambda: "of which running jobs may take" in held(db).get("spend.child", ""))
        assert {row(db, first).status, row(db, second).status} == {"RUNNING", "PENDING"}
        until_status(db, first, "COMPLETED")
        until_status(db, second, "COMPLETED")


@pytest.mark.at_length  # a kind that was held back comes in again, above, in every run
def test_a_kind_comes_in_again_when_less_is_needed(url: str, db: Db) -> None:
    learned(db, "spend.child", 10_000_000)
    with working(url, spending.registry, children=3):
        until_status(db, put(db, "spend.child", payload={"rest": 60}), "RUNNING")
        waiting = put(db, "spend.child", payload={"rest": 60})
        until(lambda: "spend.child" in held(db))
        db.execute("DELETE FROM job_cost")
        until_status(db, put(db, "spend.brief"), "COMPLETED")  # something to learn from
        until_status(db, put(db, "spend.command", payload={"mb": 200, "rest": 0.3}), "COMPLETED")
        until_status(db, waiting, "RUNNING")
        until(lambda: held(db) == {})


@pytest.mark.at_length  # as many come in as fit, above, in every run
def test_a_reserve_as_large_as_the_machine_lets_one_in_at_a_time(url: str, db: Db) -> None:
    learned(db, "spend.child", 50)
    made = [put(db, "spend.child", payload={"rest": 0.2}) for _ in range(3)]
    with working(url, spending.registry, children=3, memory_free_min_mb=1_000_000):
        until(lambda: db.execute("SELECT FROM job_worker WHERE free_mb < 0").fetchall())
        for job_id in made:
            until_status(db, job_id, "COMPLETED")
    starts = [row(db, job_id) for job_id in made]
    in_order = sorted(starts, key=lambda it: it.started_at)
    assert all(one.finished_at <= other.started_at for one, other in pairwise(in_order))


def test_what_a_worker_measured_itself_is_what_it_goes_by(url: str, db: Db) -> None:
    with working(url, spending.registry, children=2) as (worker, _):
        until_status(db, put(db, "spend.child", payload={"mb": 100}), "COMPLETED")
        until(lambda: worker._admission._needs.get("spend.child", 0) > 100)
    with working(url, spending.registry, children=2) as (successor, _):
        until(lambda: successor._admission._needs.get("spend.child", 0) > 100)


# --- explained --------------------------------------------------------------------------------------------------


def hold_back(db: Db, **why: str) -> None:
    db.execute("UPDATE job_worker SET held_kinds = %s::jsonb", [json.dumps(why)])


def test_a_job_whose_kind_every_worker_holds_back_is_told_why_and_not_that_it_is_next(db: Db) -> None:
    worker(db)
    hold_back(db, test="it needs much")
    [job_id] = make_jobs(db, 1)
    lines = said(db, job_id)
    assert lines[1].startswith("Worker box-1 holds its kind back, as of ")
    assert lines[1].endswith(" ago: it needs much.")
    assert "Nobody of its kind stands before it: it is next." not in lines


def test_a_job_that_another_worker_lets_in_is_still_next(db: Db) -> None:
    worker(db)
    hold_back(db, test="it needs much")
    worker(db, id="b" * 32, name="box-2")
    [job_id] = make_jobs(db, 1)
    assert "Worker box-1 holds its kind back" in said(db, job_id)[1]
    assert said(db, job_id)[-1] == "Nobody of its kind stands before it: it is next."


@pytest.mark.parametrize("who", [{"status": "DRAINING"}, {"queues": ["mail"]}, {"kinds": ["odd"]}])
def test_what_a_worker_holds_back_that_would_not_take_it_anyway_is_not_told(db: Db, who: dict[str, Any]) -> None:
    worker(db, **who)
    hold_back(db, test="it needs much")
    [job_id] = make_jobs(db, 1)
    assert not any("holds its kind back" in line for line in said(db, job_id))
