"""A supervisor at rest: what it starts, says and refuses. In a file of its own, at whose end it ends."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snapapp.jobs.fleet import commands
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.factory import Db, scalar
from tests.jobs.fleet.supervised import Supervisor, plan, supervising, tell, until_workers, workers
from tests.jobs.working import until
from tests.labs.fleet.measure import pss

Standing = tuple[Supervisor, Db]


@pytest.fixture(scope="module")
def standing(servers: Callable[[str], Postgres], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    """A supervisor of three workers, for tests that disturb nothing, and a connection to its database."""
    small = {"children": 0, "commands": 0}
    mail = {"max_processes": 2, "max_jobs": 500, "max_time_s": 900, "memory_mb": 300, "nice": 3} | small
    reports = {"max_processes": 1} | small
    server, folder = servers(EMBEDDED), tmp_path_factory.mktemp("standing")
    with server.database("migrated") as url, server.connection(url) as db, supervising(folder, url) as start:
        yield start(plan(mail=mail, reports=reports), SNAPAPP_LOG_LEVEL="DEBUG"), db


def test_the_pools_of_the_plan_come_to_work_and_stand_on_the_roster(standing: Standing) -> None:
    """M2, M6, M7, M12, M15, M42, M50."""
    _, db = standing
    seen = until_workers(db, 3)
    assert sorted(each.pool for each in seen) == ["mail-supervisor", "mail-supervisor", "reports-supervisor"]
    member = (
        "SELECT DISTINCT host, queues, max_jobs, max_seconds, max_memory_mb, slots > 0, 'fleet.count' = ANY (kinds)"
    )
    [mail] = db.execute(f"{member} FROM job_worker WHERE pool = 'mail-supervisor'").fetchall()
    assert mail == (os.uname().nodename, ["mail"], 500, 900, 300, True, True)
    niceness = {each.pool: os.getpriority(os.PRIO_PROCESS, each.pid) for each in seen}
    assert niceness["mail-supervisor"] == niceness["reports-supervisor"] + 3
    for each in seen:
        assert os.getpgid(each.pid) == each.pid, "each worker has a process group of its own"
        assert Path(f"/proc/{each.pid}/comm").read_text().strip() == each.pool[:15]


def test_a_worker_more_costs_little(standing: Standing) -> None:
    """M59: memory that is its own, and a row of the roster."""
    _, db = standing
    seen = until_workers(db, 3)
    until(lambda: all(pss(each.pid) for each in seen))
    assert sum(pss(each.pid) for each in seen) / 3 < 45
    until(lambda: scalar(db, "SELECT min(memory_mb) FROM job_worker") > 0)
    assert scalar(db, "SELECT max(pg_column_size(job_worker)) FROM job_worker") < 1024


def test_every_look_is_an_event_for_whoever_listens(standing: Standing) -> None:
    """M3, M8, M58: with the seed's names; DEBUG listens."""
    it, _ = standing
    it.hear("master.supervisor.looped")
    it.hear('supervisor.looped pool="mail-supervisor"')
    it.hear("worker.started")


def test_a_command_that_cannot_be_done_fails_with_the_reason(standing: Standing) -> None:
    """M29, M31: also one that somebody wrote into the table by hand."""
    _, db = standing
    until_workers(db, 3)
    assert "may have 0 to 2 processes, not 900" in tell(db, "scale", "mail-supervisor", amount=900)
    host = os.uname().nodename
    insert = "INSERT INTO job_command (host, action, pool) VALUES (%s, %s, %s) RETURNING id"
    dance, pause = scalar(db, insert, host, "dance", None), scalar(db, insert, host, "pause", "nobody's")
    for command, said in ((dance, "no action 'dance'"), (pause, "no pool nobody's here")):
        until(lambda command=command: commands.one(db, command).status.is_final)  # type: ignore[misc]
        sent = commands.one(db, command)
        assert (sent.status, said in (sent.output or "")) == ("FAILED", True), sent
    assert len(workers(db)) == 3
