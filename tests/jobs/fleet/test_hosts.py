"""Two supervisors on two hosts and one database over TCP: told apart, cut off, and back by themselves."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapapp.jobs.fleet import commands, overview
from tests.factory import Db, enqueue, row, scalar, statuses
from tests.jobs.fleet.hosts import Host, two_hosts
from tests.jobs.fleet.supervised import Supervisor, plan, until_workers, workers
from tests.jobs.working import until

POOL = "mail-supervisor"
PLAN = plan(mail={"queues": ["default"], "max_processes": 2, "children": 0, "commands": 0})


@pytest.fixture
def here() -> Iterator[tuple[Path, Db, list[Host], list[Supervisor]]]:
    with two_hosts() as (folder, db, hosts):
        db.execute("CREATE TABLE effect (job_id bigint)")
        supervisors = [host.supervise(folder, PLAN) for host in hosts]
        try:
            yield folder, db, hosts, supervisors
        finally:
            for each in supervisors:
                each.kill_all()


def on(db: Db, host: Host) -> list[str]:
    """The ids of its workers."""
    return [each for (each,) in db.execute("SELECT id FROM job_worker WHERE host = %s", [host.name]).fetchall()]


def tell(db: Db, host: Host, action: str, amount: int | None = None) -> str:
    command = commands.send(db, action, host=host.name, pool=POOL, amount=amount)
    until(lambda: commands.one(db, command).status.is_final)
    return commands.one(db, command).output or ""


@pytest.mark.at_length  # test_commands addresses hosts, and test_supervisor obeys, in every run
@pytest.mark.timeout(300)
def test_commands_reach_their_host_and_one_that_is_cut_off_loses_nothing(
    here: tuple[Path, Db, list[Host], list[Supervisor]],
) -> None:
    """M26-M34, M57, promises 2, 4 and 7."""
    folder, db, (one, two), supervisors = here
    until_workers(db, 4, within=60)
    assert {each.host for each in overview.fleet(db)} == {"box-1", "box-2"}

    # each is told apart
    tell(db, one, "pause")
    until(lambda: [each.note for each in workers(db) if each.note] == ["paused by its supervisor"] * 2)
    assert {each.id for each in workers(db) if each.note} == set(on(db, one))
    assert tell(db, two, "scale", amount=1).startswith(f"{POOL}: 2 -> 1")
    until_workers(db, 3)
    assert len(on(db, one)) == 2
    tell(db, two, "pause")
    tell(db, one, "resume")

    # the link of box-1 is cut while it runs jobs: they move to box-2
    file = folder / "go"
    held = [enqueue(db, "fleet.hold", {"file": str(file)}) or 0 for _ in range(3)]
    until(lambda: scalar(db, "SELECT count(*) FROM snap_processing_job WHERE started_at IS NOT NULL") == len(held))
    assert {row(db, job).claimed_by for job in held} <= set(on(db, one))
    one.cut()
    tell(db, two, "resume")
    tell(db, two, "scale", amount=2)
    until(lambda: any(row(db, job).claimed_by in on(db, two) for job in held), within=40)
    until(lambda: {each.host: each.master for each in overview.fleet(db)}["box-1"] == "LOST", within=40)
    silent = commands.send(db, "pause", host="box-1")
    assert (commands.one(db, silent).output or "").startswith("the host box-1 does not answer")

    # both of them finish the same jobs, and each lands once
    file.touch()
    until(lambda: set(statuses(db).values()) == {"COMPLETED"}, within=60)
    one.mend()
    until(lambda: {each.master for each in overview.fleet(db)} == {"ACTIVE"}, within=60)
    db.execute("UPDATE job_command SET status = 'EXPIRED', finished_at = now() WHERE status = 'PENDING'")
    until(lambda: len(on(db, one)) == 2, within=60)
    assert (scalar(db, "SELECT count(*) FROM effect"), scalar(db, "SELECT count(DISTINCT job_id) FROM effect")) == (
        3,
        3,
    )

    assert scalar(db, "SELECT max(attempt_count) FROM snap_processing_job") == 2, "nothing moved: this proves nothing"

    # and box-1 is back by itself
    tell(db, one, "resume")
    tell(db, two, "drain")
    job = enqueue(db, "fleet.count")
    assert job
    until(lambda: row(db, job).status == "COMPLETED", within=40)
    for each in supervisors:
        each.signal(signal.SIGTERM)
    assert [each.end() for each in supervisors] == [0, 0]
