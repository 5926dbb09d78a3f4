"""A real supervisor: it starts, replaces, restarts, pauses and stops real worker processes."""

import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from snapapp import postgres
from snapapp.jobs.fleet import commands, overview
from snapapp.jobs.os.processes import children
from snapapp.jobs.rows.database import connect
from snapapp.postgres.migrate import migrate
from tests import ROOT
from tests.factory import Db, enqueue, row, scalar, statuses
from tests.jobs.fleet.standing import master, stand
from tests.jobs.fleet.supervised import QUICK, Start, Supervisor, plan, supervising, tell, until_workers, workers
from tests.jobs.working import until

ONE: dict[str, Any] = {"queues": ["default"], "max_processes": 1}
TWO: dict[str, Any] = {"queues": ["default"], "max_processes": 2}


def exits(db: Db) -> list[str]:
    return [reason for (reason,) in db.execute("SELECT reason FROM job_worker_exit ORDER BY id").fetchall()]


def hold(db: Db, folder: Path) -> tuple[int, Path]:
    """A job that runs until the file is there."""
    file = folder / "go"
    job = enqueue(db, "fleet.hold", {"file": str(file)})
    assert job
    return job, file


def until_running(db: Db, job: int) -> Any:
    until(lambda: scalar(db, "SELECT started_at IS NOT NULL FROM snap_processing_job WHERE id = %s", job))
    return row(db, job)


# --- starting ---------------------------------------------------------------------------------------------------


def test_without_a_plan_one_pool_works_all_queues(start: Start, db: Db) -> None:
    """The first word of whoever needs more than one process."""
    jobs = [enqueue(db, "fleet.nothing", queue=queue) for queue in ("one", "two")]
    start()
    until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=40)
    [pool] = overview.fleet(db)
    assert (pool.pool, pool.queues, pool.balance, pool.max_processes) == (
        "default-supervisor",
        [],
        "auto",
        os.cpu_count(),
    )
    assert len(jobs) == 2


@pytest.mark.at_length  # postgres/test_server shares it in every run
def test_the_embedded_server_is_shared_as_by_any_command(tmp_path: Path) -> None:
    """Its own children end while it starts, which must not look like a signal."""
    home = tmp_path / "data"
    with postgres.start(home, create=True) as server:
        migrate(server.url)
    with supervising(tmp_path, "") as start:
        it = start(plan(mail=ONE), SNAPAPP_DATA_DIR=str(home))
        it.hear("worker.started")
        with postgres.start(home, create=False) as server, connect(server.url, name="test") as db:
            until_workers(db, 1)
        it.signal(signal.SIGTERM)
        assert it.end() == 0, it.said()
    assert not (home / "postgres" / "postmaster.pid").exists()


@pytest.mark.at_length  # docs/test_documents starts a second one in every run
def test_a_second_supervisor_of_a_host_is_refused_and_told_who_holds_it(start: Start, db: Db) -> None:
    """M1."""
    first = start(plan(mail=ONE))
    until_workers(db, 1)
    second = start(plan(mail=ONE))
    assert second.end() == 1
    assert f"has a supervisor for this database: pid {first.process.pid}, since" in second.said()
    assert len(workers(db)) == 1


# --- replacing --------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_is_replaced_and_its_jobs_run_again(start: Start, db: Db, tmp_path: Path) -> None:
    """M8, M11, M14, D2, promise 4: not after its lease, at once; the attempt stays charged."""
    start(plan(mail=ONE), SNAPAPP_JOB_LOCK_TTL_MS="600000")
    [worker] = until_workers(db, 1)
    job, file = hold(db, tmp_path)
    assert until_running(db, job).claimed_by == worker.id
    os.kill(worker.pid, signal.SIGKILL)
    [other] = until_workers(db, 1, besides=[worker])
    until(lambda: row(db, job).claimed_by == other.id)
    assert (row(db, job).attempt_count, exits(db)) == (2, ["killed by SIGKILL"])
    file.touch()
    until(lambda: row(db, job).status == "COMPLETED")
    assert scalar(db, "SELECT count(*) FROM effect") == 1


@pytest.mark.at_length  # worker/test_exactly_once has such a job in every run
def test_a_job_that_ends_its_worker_costs_no_other_job_anything(start: Start, db: Db) -> None:
    """FD3."""
    start(plan(mail=TWO))
    until_workers(db, 2)
    bad = enqueue(db, "fleet.leave", max_attempts=2)
    good = [enqueue(db, "fleet.nothing") for _ in range(20)]
    until(lambda: not {"PENDING", "RUNNING", "RETRY_WAIT"} & set(statuses(db).values()), within=60)
    assert [status for job, status in statuses(db).items() if job != bad] == ["COMPLETED"] * len(good)
    assert "exited with code 3" in exits(db)
    until_workers(db, 2)


@pytest.mark.at_length  # one that cannot start is tried again in every run
def test_workers_that_never_come_to_work_are_tried_again_ever_more_slowly(start: Start, db: Db) -> None:
    """FD9: and the pool says what is wrong."""
    start(plan(mail=ONE), SNAPAPP_PROCESSORS="tests.jobs.fleet.crashing")
    until(lambda: len(exits(db)) >= 3, within=60)
    until(lambda: any("in a row did not come to work" in (pool.note or "") for pool in overview.fleet(db)))
    assert set(exits(db)) == {"exited with code 1 before it stood on the roster"}
    ended = db.execute("SELECT exited_at FROM job_worker_exit ORDER BY id").fetchall()
    pauses = [(later - sooner).total_seconds() for (sooner,), (later,) in pairwise(ended[1:])]
    assert pauses, "the first second try is at once; from then on it waits"
    assert pauses[0] >= 0.9


def test_a_supervisor_that_cannot_start_workers_says_why_and_goes_on(start: Start, db: Db, tmp_path: Path) -> None:
    """M5: what fails is reported, and tried again."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    it = start(plan(mail=TWO), TMPDIR=str(folder))
    seen = until_workers(db, 2)
    shutil.rmtree(folder)
    os.kill(seen[0].pid, signal.SIGKILL)
    until(lambda: "No such file or directory" in (overview.fleet(db)[0].note or ""))
    assert [each.id for each in workers(db)] == [seen[1].id]
    folder.mkdir()
    until_workers(db, 2)
    assert it.process.poll() is None


@pytest.mark.at_length  # a supervisor that is killed is replaced in every run
def test_a_fork_server_that_is_killed_is_replaced_and_its_workers_stay(start: Start, db: Db) -> None:
    it = start(plan(mail=ONE))
    [worker] = until_workers(db, 1)
    [fork_server] = [pid for pid in children(it.process.pid) if pid != worker.pid]
    os.kill(fork_server, signal.SIGKILL)
    os.kill(worker.pid, signal.SIGKILL)
    until_workers(db, 1, besides=[worker])


# --- limits -----------------------------------------------------------------------------------------------------


def test_a_worker_is_replaced_after_its_jobs_and_none_of_them_is_cut_off(start: Start, db: Db) -> None:
    """M16-M19, M21, M22: limits are looked at between jobs, and the history has the reason."""
    start(plan(mail={**ONE, "max_jobs": 10, "batch_size": 5}))
    for _ in range(40):
        enqueue(db, "fleet.count", {"seconds": 0.01})
    until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=60)
    until(lambda: any(reason.startswith("max_jobs reached: 1") for reason in exits(db)))
    assert scalar(db, "SELECT max(attempt_count) FROM snap_processing_job") == 1
    assert scalar(db, "SELECT count(*) FROM effect") == 40


def test_a_limit_of_time_waits_for_the_job_that_runs(start: Start, db: Db, tmp_path: Path) -> None:
    """M16, M17, D17: contradiction settled, recycling never kills."""
    start(plan(mail={**ONE, "max_time_s": 1}), SNAPAPP_SHUTDOWN_GRACE_MS="100")
    [worker] = until_workers(db, 1)
    job, file = hold(db, tmp_path)
    until_running(db, job)
    until(lambda: scalar(db, "SELECT status FROM job_worker WHERE id = %s", worker.id) == "DRAINING")
    until(lambda: len({each.id for each in workers(db)} - {worker.id}) >= 1)  # its place is not empty meanwhile
    until(lambda: len(exits(db)) >= 2)  # two of those in its place have reached theirs: it had time to be cut off
    assert row(db, job).claimed_by == worker.id
    file.touch()
    until(lambda: row(db, job).status == "COMPLETED")
    assert row(db, job).attempt_count == 1
    until(lambda: "max_time reached: " in " ".join(exits(db)))
    until(lambda: not worker.lives)


@pytest.mark.at_length  # a worker is replaced after its jobs in every run
def test_no_restart_scale_down_drain_or_recycling_cuts_off_a_job_within_its_own_time(start: Start, db: Db) -> None:
    """Promise 3: neither the pool's nor the global time limit is that of a job that has its own."""
    quick = {"max_processes": 1, "min_processes": 0, "timeout_s": 0.5, "concurrency": 1}
    pools = {"restarted": quick, "scaled": quick, "drained": {**quick, "timeout_s": 900}, "seized": quick}
    pools |= {"recycled": {**quick, "max_jobs": 1, "concurrency": 2}}
    limits = {"SNAPAPP_JOB_TIMEOUT_MS": "500", "SNAPAPP_SHUTDOWN_GRACE_MS": "100", "SNAPAPP_JOB_LOCK_TTL_MS": "60000"}
    start(plan(**pools), **limits, SNAPAPP_JOB_CONNECTIONS="0")
    until_workers(db, 5)
    for queue in pools:
        kind = "fleet.seize" if queue == "seized" else "fleet.count"
        enqueue(db, kind, {"seconds": 8}, queue=queue, max_attempts=1, timeout_ms=60_000)
    until(lambda: [*statuses(db).values()] == ["RUNNING"] * len(pools))
    tell(db, "restart", "restarted-supervisor")
    tell(db, "scale", "scaled-supervisor", amount=0)
    tell(db, "drain", "drained-supervisor")
    tell(db, "scale", "seized-supervisor", amount=0)
    enqueue(db, "fleet.count", queue="recycled")  # the one after which its worker is to be replaced
    until(lambda: len(exits(db)) == len(pools), within=60)
    assert not [reason for reason in exits(db) if "killed" in reason]
    assert set(statuses(db).values()) == {"COMPLETED"}
    assert scalar(db, "SELECT count(*) FROM effect") == len(pools) + 1


def test_a_worker_that_is_to_go_and_does_not_move_is_killed(start: Start, db: Db) -> None:
    """M10, M14."""
    start(plan(mail={**ONE, "min_processes": 0}), SNAPAPP_SHUTDOWN_GRACE_MS="100")
    [worker] = until_workers(db, 1)
    os.kill(worker.pid, signal.SIGSTOP)
    tell(db, "scale", "mail-supervisor", amount=0)
    until(lambda: not worker.lives)
    until(lambda: exits(db) == ["killed by SIGKILL"])


def test_a_worker_that_goes_does_not_wait_for_a_thread_that_a_job_has_left_hanging(start: Start, db: Db) -> None:
    start(plan(mail={**ONE, "max_jobs": 1}))
    [worker] = until_workers(db, 1)
    job = enqueue(db, "fleet.beside", max_attempts=1)
    assert job
    until(lambda: row(db, job).status == "FAILED")
    until(lambda: not worker.lives)
    assert "max_jobs reached: 1" in exits(db)[0]


@pytest.mark.at_length  # cli/processes/test_worker is told later, in every run
def test_a_worker_that_is_told_to_go_as_soon_as_it_is_born_goes_in_order(
    start: Start, db: Db, everything: bool
) -> None:
    """FD8: by default, the signal would just end it."""
    start(plan(mail={"queues": ["default"], "max_processes": 4, "balance": "simple"}))
    until_workers(db, 1)
    for size in (4, 1) * (3 if everything else 1):
        tell(db, "scale", "mail-supervisor", amount=size)
        tell(db, "pause" if size == 4 else "resume", "mail-supervisor")
    until(lambda: (overview.fleet(db)[0].present, overview.fleet(db)[0].leaving) == (1, 0), within=40)
    assert {*exits(db)} == {"scaled down"}


def test_a_worker_that_is_too_big_is_replaced(start: Start, db: Db) -> None:
    """M16, FD16."""
    start(plan(mail={**ONE, "memory_mb": 16}))
    until(lambda: any(reason.startswith("memory limit reached: ") for reason in exits(db)), within=40)


# --- signals ----------------------------------------------------------------------------------------------------


def test_sigterm_lets_running_jobs_finish_and_leaves_nothing_behind(start: Start, db: Db, tmp_path: Path) -> None:
    """M4, M10, M35, M36, M41, D17, FD6."""
    it = start(plan(mail=TWO), SNAPAPP_SHUTDOWN_GRACE_MS="30000")
    until_workers(db, 2)
    job, file = hold(db, tmp_path)
    until_running(db, job)
    it.signal(signal.SIGTERM)
    until(lambda: scalar(db, "SELECT status FROM job_master") == "STOPPING")
    until(lambda: len(workers(db)) == 1)
    file.touch()
    assert it.end() == 0, it.said()
    assert (row(db, job).status, row(db, job).attempt_count, exits(db)) == ("COMPLETED", 1, ["SIGTERM", "SIGTERM"])
    assert it.family() == []
    assert "worker.stopping" in it.said()
    assert scalar(db, "SELECT count(*) FROM job_worker") + scalar(db, "SELECT count(*) FROM job_master") == 0


@pytest.mark.at_length  # cli/processes/test_worker and process/test_shutdown have it in every run
def test_a_job_that_outlasts_the_grace_goes_back_with_its_attempt(start: Start, db: Db, tmp_path: Path) -> None:
    """M10, D17: a deploy counts no failures."""
    it = start(plan(mail=ONE), SNAPAPP_SHUTDOWN_GRACE_MS="800")
    until_workers(db, 1)
    job, _ = hold(db, tmp_path)
    until_running(db, job)
    it.signal(signal.SIGINT)
    assert it.end() == 0
    assert (row(db, job).status, row(db, job).attempt_count, row(db, job).interruptions) == ("PENDING", 0, 1)
    assert it.family() == []


def test_sigusr2_replaces_every_worker_without_a_gap(start: Start, db: Db) -> None:
    """M37: there is never one worker fewer than before."""
    it = start(plan(mail=TWO, reports=ONE))
    before = until_workers(db, 3)
    fewest = [3]
    it.signal(signal.SIGUSR2)

    def all_are_new() -> bool:
        now = workers(db)
        fewest.append(sum(each.status == "ACTIVE" for each in now))
        return len(now) == 3 and not {each.id for each in now} & {each.id for each in before}

    until(all_are_new, within=60)
    assert min(fewest) == 3
    assert exits(db) == ["restarted"] * 3


@pytest.mark.at_length  # every worker is replaced in every run, above
def test_sigusr2_brings_the_code_that_the_link_leads_to_by_then(url: str, db: Db, tmp_path: Path) -> None:
    """M37: a deploy changes the link `current` and reloads the supervisor."""
    current = tmp_path / "current"
    for number in ("1", "2"):
        folder = tmp_path / f"release{number}"
        folder.mkdir()
        (folder / ".venv").symlink_to(Path(sys.prefix))
        (folder / "snapapp").symlink_to(ROOT / "snapapp")
        (folder / "release.py").write_text(RELEASE.format(number=number))
    current.symlink_to(tmp_path / "release1")
    environment = os.environ | QUICK | {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_PROCESSORS": "release"}
    argv = [str(current / ".venv/bin/snapapp"), "supervisor"]
    with subprocess.Popen(argv, cwd=current, env=environment, start_new_session=True) as process:
        try:
            assert result_of(db, enqueue(db, "release.say")) == 1
            before = until_workers(db, 1)
            (tmp_path / "next").symlink_to(tmp_path / "release2")
            (tmp_path / "next").rename(current)
            process.send_signal(signal.SIGUSR2)
            until_workers(db, 1, besides=before)
            until(lambda: len(workers(db)) == 1)
            assert result_of(db, enqueue(db, "release.say")) == 2
        finally:
            process.terminate()


RELEASE = """
from snapapp.jobs import processor

@processor("release.say")
def say(job):
    return {number}
"""


def result_of(db: Db, job: int | None) -> Any:
    assert job
    until(lambda: row(db, job).status == "COMPLETED", within=40)
    return row(db, job).result


def test_sigusr1_pauses_all_pools_and_sigcont_resumes_them(start: Start, db: Db) -> None:
    """M38, M39."""
    it = start(plan(mail=TWO))
    seen = until_workers(db, 2)
    it.signal(signal.SIGUSR1)
    until(lambda: [each.note for each in workers(db)] == ["paused by its supervisor"] * 2)
    job = enqueue(db, "fleet.nothing")
    assert job
    os.kill(seen[0].pid, signal.SIGKILL)
    until_workers(db, 1, besides=seen)  # the new one is paused as well
    until(lambda: all("paused by its supervisor" in (each.note or "") for each in workers(db)))
    assert row(db, job).status == "PENDING"
    it.signal(signal.SIGCONT)
    until(lambda: row(db, job).status == "COMPLETED")
    assert overview.fleet(db)[0].state == "ACTIVE"


def test_sigcont_keeps_what_a_person_has_commanded(start: Start, db: Db) -> None:
    """It also comes when somebody ends a SIGSTOP: then every paused or drained pool was at work again."""
    it = start(plan(mail=ONE, reports=ONE | {"queues": ["reports"]}))
    until_workers(db, 2)
    tell(db, "pause", "reports-supervisor", reason="the disk moves")
    it.signal(signal.SIGUSR1)
    until(lambda: states(db) == {"mail": ("PAUSED", "SIGUSR1"), "reports": ("PAUSED", "the disk moves")})
    it.signal(signal.SIGSTOP)
    it.signal(signal.SIGCONT)
    until(lambda: states(db)["mail"] == ("ACTIVE", None))
    assert states(db)["reports"] == ("PAUSED", "the disk moves")


def states(db: Db) -> dict[str, Any]:
    pools = db.execute("SELECT split_part(name, '-', 1), state, state_reason FROM job_pool")
    return {name: (state, why) for name, state, why in pools}


# --- the end of a supervisor ------------------------------------------------------------------------------------


@pytest.mark.at_length  # the exit code of such workers is seen below in every run
def test_workers_notice_the_death_of_their_supervisor_and_leave(start: Start, db: Db) -> None:
    """M9, D19, FD2: with exit code 13, which nobody is left to see; the history says it."""
    it = start(plan(mail=TWO))
    until_workers(db, 2)
    os.kill(it.process.pid, signal.SIGKILL)
    until(lambda: it.family() == [])
    assert exits(db) == ["its supervisor died"] * 2
    assert it.said().count("supervisor.parent.died") == 2


class Adopted(Supervisor):
    module = ("tests.jobs.fleet.adopter",)


def test_the_exit_code_of_a_worker_without_a_supervisor_is_13(url: str, db: Db, tmp_path: Path) -> None:
    """M9: seen by somebody who adopts whatever a dead supervisor leaves behind."""
    adopter = Adopted(tmp_path, url, plan(mail={**TWO, "children": 0, "commands": 0}))
    try:
        until_workers(db, 2)
        os.kill(scalar(db, "SELECT pid FROM job_master"), signal.SIGKILL)
        assert adopter.end() == 0
    finally:
        adopter.kill_all()
    killed = "[-9, -9"  # the supervisor, and its fork server
    assert adopter.said().endswith(f"{killed}, 13, 13]\n"), "the workers leave"


@pytest.mark.at_length  # the next one ends even an orphan that hangs, below, in every run
def test_a_new_supervisor_takes_a_dead_ones_place_at_once(start: Start, db: Db) -> None:
    """M1, M57, D19: whoever is dead holds nothing."""
    first = start(plan(mail=TWO))
    old = until_workers(db, 2)
    os.kill(first.process.pid, signal.SIGKILL)
    start(plan(mail=TWO))
    until_workers(db, 2, besides=old)
    until(lambda: first.family() == [])


def test_an_orphan_that_does_not_leave_is_ended_by_the_next_supervisor(start: Start, db: Db) -> None:
    """M57, D19: not only its row."""
    first = start(plan(mail=ONE))
    [orphan] = until_workers(db, 1)
    os.kill(orphan.pid, signal.SIGSTOP)
    os.kill(first.process.pid, signal.SIGKILL)
    start(plan(mail=ONE), SNAPAPP_SHUTDOWN_GRACE_MS="0")
    until(lambda: not orphan.lives, within=60)
    until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE id = %s", orphan.id) == 0)
    assert first.family() == []


# --- commands ---------------------------------------------------------------------------------------------------


def test_pools_are_scaled_paused_drained_and_stopped_by_command(start: Start, db: Db) -> None:
    """M13, M26-M34, M62."""
    it = start(plan(mail={"queues": ["default"], "min_processes": 1, "max_processes": 3, "balance": "simple"}))
    [oldest] = until_workers(db, 1)
    assert tell(db, "scale", "mail-supervisor", amount=3).startswith("mail-supervisor: 1 -> 3")
    until_workers(db, 3)
    assert tell(db, "pause", "mail-supervisor", reason="lunch").startswith("paused mail-supervisor")
    until(lambda: overview.fleet(db)[0].state_reason == "lunch")
    tell(db, "resume", "mail-supervisor")
    tell(db, "scale", "mail-supervisor", amount=1)
    [youngest] = until_workers(db, 1)
    assert youngest.id != oldest.id
    assert exits(db) == ["scaled down"] * 2
    tell(db, "drain", "mail-supervisor")
    until_workers(db, 0)
    tell(db, "resume")
    before = until_workers(db, 1)
    assert tell(db, "restart") == "restarting mail-supervisor, one worker after the other"
    until_workers(db, 1, besides=before)
    assert tell(db, "stop") == "stopping, within 3 s"
    assert it.end() == 0


@pytest.mark.at_length  # test_commands has what is kept in every run
def test_what_a_person_made_of_a_pool_outlives_the_supervisor(start: Start, db: Db) -> None:
    first = start(plan(mail=TWO, reports=ONE))
    until_workers(db, 3)
    tell(db, "pause", "mail-supervisor", reason="the server moves")
    tell(db, "scale", "mail-supervisor", amount=1)
    tell(db, "drain", "reports-supervisor")
    until_workers(db, 1)
    until(lambda: [each.fixed_at for each in overview.fleet(db)] == [1, None])
    first.kill_all()
    start(plan(mail=TWO, reports=ONE))
    [worker] = until_workers(db, 1)
    until(lambda: [each.state for each in overview.fleet(db)] == ["PAUSED", "DRAINED"])
    assert (worker.pool, overview.fleet(db)[0].state_reason) == ("mail-supervisor", "the server moves")


@pytest.mark.at_length  # it starts a supervisor
def test_a_size_that_a_person_fixed_is_no_more_than_the_plan_allows_by_now(start: Start, db: Db) -> None:
    """Somebody has lowered the plan since, because the host has too little memory."""
    stand(db, master(db, host=os.uname().nodename), fixed_at=4, wanted=4, present=4)
    db.execute("DELETE FROM job_master")
    start(plan(mail={"max_processes": 1, "balance": "off"}))
    until(lambda: [each.max_processes for each in overview.fleet(db)] == [1])
    assert [(each.fixed_at, each.wanted) for each in overview.fleet(db)] == [(1, 1)]


# --- balance ----------------------------------------------------------------------------------------------------


@pytest.mark.at_length  # test_scaling decides so, and an empty pool grows and shrinks, in every run
def test_a_pool_grows_with_what_waits_and_shrinks_when_it_is_calm(start: Start, db: Db) -> None:
    """M32, M51-M55: every change is a decision with its inputs, and a command by the autoscaler."""
    balanced = {"queues": ["default"], "min_processes": 1, "max_processes": 3, "balance": "auto", "cooldown_s": 0.5}
    start(plan(mail={**balanced, "clear_within_s": 1, "concurrency": 1}))
    until_workers(db, 1)
    for _ in range(120):
        enqueue(db, "fleet.count", {"seconds": 0.2})
    until_workers(db, 3, within=60)
    db.execute("DELETE FROM snap_processing_job WHERE status = 'PENDING'")  # it has seen enough of them
    until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=90)
    until_workers(db, 1, within=60)
    decided = overview.decisions(db)
    assert [(each.present, each.wanted) for each in reversed(decided)][:2] == [(1, 2), (2, 3)]
    assert decided[-1].inputs["load"]["due"] > 3
    assert decided[-1].inputs["box"]["free_mb"] > 0
    scaled = {("autoscaler", "scale", "EXECUTED")}
    until(lambda: {(each.source, each.action, each.status) for each in commands.sent(db)} == scaled)


@pytest.mark.at_length  # test_scaling has a pool's first process in every run
def test_a_pool_without_processes_gets_one_when_a_job_comes(start: Start, db: Db) -> None:
    start(plan(mail={"queues": ["default"], "min_processes": 0, "balance": "auto", "cooldown_s": 0.2}))
    until(lambda: overview.fleet(db) and overview.fleet(db)[0].wanted == 0, within=40)
    assert workers(db) == []
    job = enqueue(db, "fleet.nothing")
    assert job
    until(lambda: row(db, job).status == "COMPLETED", within=40)
    until_workers(db, 0, within=40)


# --- what must not be -------------------------------------------------------------------------------------------


@pytest.mark.at_length  # executors/test_children kills a worker in every run
def test_children_of_a_killed_workers_jobs_are_not_left(start: Start, db: Db) -> None:
    """FD2."""
    it: Supervisor = start(plan(mail=ONE))
    [worker] = until_workers(db, 1)
    job = enqueue(db, "fleet.child")
    assert job
    until_running(db, job)
    below = set(it.family()) - {it.process.pid, worker.pid}
    os.kill(worker.pid, signal.SIGKILL)
    until_workers(db, 1, besides=[worker])
    fork_server = set(children(it.process.pid))
    until(lambda: not (below - fork_server) & set(it.family()))
