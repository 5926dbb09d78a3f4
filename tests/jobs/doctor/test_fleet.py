"""What the doctor and the metrics say of supervisors and their pools."""

from typing import Any

import pytest

from snapapp.jobs import doctor
from snapapp.jobs.doctor import Facts, Finding, Severity
from snapapp.jobs.fleet import commands, store
from snapapp.jobs.fleet.pool import State
from snapapp.jobs.fleet.store import Master
from snapapp.jobs.metrics import depth as depths
from snapapp.jobs.metrics.exposition import render
from tests.exposition import parse
from tests.factory import Db
from tests.jobs.fleet.standing import POOL, master, stand
from tests.jobs.working import quick_settings


@pytest.fixture
def its(db: Db) -> Master:
    """A supervisor whose pool has the two processes it wants."""
    return master(db, wanted=2, present=2)


def fall_silent(db: Db) -> None:
    db.execute(
        "UPDATE job_master SET beat_at = now() - interval '3 minutes', expires_at = now() - interval '2 minutes'"
    )


def examined(url: str) -> dict[str, Finding]:
    facts = Facts(jobs=quick_settings(url), connections=10, disk_free_min_mb=0, schema={})
    return {finding.id: finding for finding in doctor.examine(url, facts, only=["fleet"])}


# --- the doctor -------------------------------------------------------------------------------------------------


def test_without_a_supervisor_there_is_nothing_to_say(url: str, db: Db) -> None:
    found = examined(url)
    assert found.keys() == {"FLEET"}
    assert found["FLEET"].severity is Severity.OK


@pytest.mark.usefixtures("its")
def test_a_fleet_that_is_well_is_counted(url: str) -> None:
    found = examined(url)
    assert found.keys() == {"FLEET"}
    assert found["FLEET"].numbers == {"supervisors": 1, "pools": 1, "wanted": 2, "present": 2}


def test_a_supervisor_that_fell_silent_is_a_warning(url: str, db: Db, its: Master) -> None:
    stand(db, its, present=0, note="12 workers in a row did not come to work")
    fall_silent(db)
    found = examined(url)
    assert found["SUPERVISOR_LOST"].severity is Severity.WARNING
    assert "was last heard of 3 min ago; it had 1 pool." in found["SUPERVISOR_LOST"].saw
    assert "POOL_SHORT" not in found, "what it said of its pools is old"


@pytest.mark.parametrize(("present", "severity"), [(1, Severity.WARNING), (0, Severity.CRITICAL)])
def test_workers_that_do_not_come_to_work_are_told_with_the_reason(
    url: str, db: Db, its: Master, present: int, severity: Severity
) -> None:
    stand(db, its, wanted=2, present=present, note="3 workers in a row did not come to work, exit code 1")
    found = examined(url)["POOL_SHORT"]
    assert found.severity is severity
    assert f"has {present} of 2 worker processes: 3 workers in a row did not come to work, exit code 1" in found.saw


def test_a_pool_that_is_only_just_growing_is_well(url: str, db: Db, its: Master) -> None:
    stand(db, its, wanted=4, present=2)
    assert examined(url).keys() == {"FLEET"}


@pytest.mark.parametrize("state", [State.PAUSED, State.DRAINED])
def test_a_pool_that_a_person_stopped_is_told_with_the_reason(url: str, db: Db, its: Master, state: State) -> None:
    stand(db, its, state=state, state_reason="the mail server is away")
    found = examined(url)["POOL_HELD"]
    assert found.severity is Severity.NOTICE
    assert f"is {state.lower()} (the mail server is away)." in found.saw
    assert found.paste == f"snapapp fleet resume --host=box {POOL}"


@pytest.mark.usefixtures("its")
def test_a_command_that_nobody_took_is_told(url: str, db: Db) -> None:
    """M33, D19: whoever sent it may have closed the terminal."""
    number = commands.send(db, "scale", pool=POOL, amount=3)
    assert "COMMAND_UNTAKEN" not in examined(url)
    db.execute(
        "UPDATE job_command SET created_at = now() - interval '5 minutes', expires_at = now() - interval '4 min'"
    )
    found = examined(url)["COMMAND_UNTAKEN"]
    assert f"The command {number}, scale for the pool {POOL} on box, was sent 5 min ago by sql" in found.saw
    assert found.severity is Severity.NOTICE


# --- the metrics ------------------------------------------------------------------------------------------------


def scraped(db: Db) -> Any:
    with db.transaction():
        return parse(render(depths.families(depths.depth(db))))


def test_pools_are_measured(db: Db, its: Master) -> None:
    stand(db, its, wanted=3, present=1, state=State.PAUSED)
    found = scraped(db)
    labels = {"host": "box", "pool": POOL}
    assert found.value("snapapp_supervisor_up", host="box") == 1
    assert found.value("snapapp_pool_wanted_processes", **labels) == 3
    assert found.value("snapapp_pool_processes", **labels) == 1
    assert found.value("snapapp_pool_held", **labels) == 1
    fall_silent(db)
    assert scraped(db).value("snapapp_supervisor_up", host="box") == 0
    store.leave(db, its)
    assert not {name for name in scraped(db).names() if name.startswith(("snapapp_supervisor", "snapapp_pool"))}


def test_a_host_without_pools_is_measured_too(db: Db, its: Master) -> None:
    store.forget_pools(db, its.host, [])
    found = scraped(db)
    assert found.value("snapapp_supervisor_up", host="box") == 1
    assert "snapapp_pool_processes" not in found.names()
