"""/internal/box and /internal/costs: the machine, the server, and what kinds cost."""

import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest
from starlette.testclient import TestClient

from snapapp.api.internal import machine
from snapapp.jobs.rows.database import connect
from tests.api.conftest import away, served
from tests.databases import Postgres
from tests.factory import Db, make_job
from tests.jobs.working import until


def test_the_machine_is_told_without_a_question_to_the_database(client: TestClient) -> None:
    its = client.get("/internal/box").json()
    assert its["host"] == os.uname().nodename
    assert 0 < its["memory"]["freeMb"] <= its["memory"]["totalMb"]
    assert its["disks"][0]["what"] == "files"
    assert 0 < its["disks"][0]["freeMb"] <= its["disks"][0]["totalMb"]
    own = its["processes"][0]
    assert (own["pid"], own["isChild"]) == (os.getpid(), False)
    assert own["memoryMb"] > 10


def test_a_disk_that_hangs_is_told_as_one_and_stops_nobody(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    is_back, usage = threading.Event(), shutil.disk_usage

    def hangs(there: Path) -> Any:
        is_back.wait()
        return usage(there)

    monkeypatch.setattr(shutil, "disk_usage", hangs)
    try:
        with ThreadPoolExecutor(4) as visitors:
            asked = [visitors.submit(client.get, "/internal/box") for _ in range(4)]
            assert client.get("/actuator/liveness").status_code == 200
            assert not any(its.done() for its in asked)  # the loop has answered somebody else meanwhile
            told = [its.result().json() for its in asked]
        waiting = [thread for thread in threading.enumerate() if thread.name.startswith("disk of ")]
    finally:
        is_back.set()
    assert {disk["freeMb"] for its in told for disk in its["disks"]} == {None}
    assert {disk["what"] for disk in told[0]["disks"]} == {"files", "data", "scratch"}
    assert len(waiting) == len({thread.name for thread in waiting}) <= 3
    until(lambda: client.get("/internal/box").json()["disks"][0]["freeMb"])


def test_a_folder_whose_disk_cannot_be_told_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> NoReturn:
        raise ValueError("a size that is none")

    monkeypatch.setattr(shutil, "disk_usage", refuse)
    asked = machine._ask(tmp_path)
    assert isinstance(asked.exception(timeout=10), ValueError)


def test_the_machine_is_told_while_the_database_is_away(server: Postgres, url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client, away(server, url):
        until(lambda: client.get("/internal/box/server").status_code == 503)
        assert client.get("/internal/box").json()["host"] == os.uname().nodename


def test_the_server_says_how_large_it_is_and_what_waits_to_be_swept(client: TestClient, db: Db) -> None:
    for _ in range(3):
        make_job(db)
    db.execute("UPDATE snap_processing_job SET priority = 1")
    its = client.get("/internal/box/server").json()
    assert its["databaseBytes"] > 1_000_000
    assert 0 < its["connections"] <= its["maxConnections"]
    jobs = its["tables"][0]
    assert jobs["name"] == "snap_processing_job"
    assert jobs["bytes"] > 0
    assert sum(one["sessions"] for one in its["sessions"]) == its["connections"]


def test_who_holds_back_vacuum_is_named(client: TestClient, db: Db, url: str) -> None:
    with connect(url, name="a forgotten console") as other:
        other.execute("BEGIN")
        other.execute("SELECT pg_current_xact_id()")
        make_job(db)
        pid = other.info.backend_pid
        [held] = [one for one in client.get("/internal/box/server").json()["horizon"] if "forgotten" in one["who"]]
    assert held["who"] == f"pid {pid} (a forgotten console)"
    assert held["transactions"] >= 1
    assert held["doing"].startswith("idle in transaction: SELECT pg_current_xact_id()")


def cost(db: Db, kind: str, **values: Any) -> None:
    columns = {"job_id": make_job(db, "COMPLETED", kind=kind), "lease_seq": 1, "attempt": 1, "outcome": "COMPLETED"}
    columns |= {"kind": kind} | values
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    db.execute(f"INSERT INTO job_cost ({names}, started_at) VALUES ({marks}, now())".encode(), [*columns.values()])


def test_each_kind_has_its_costs(client: TestClient, db: Db) -> None:
    cost(db, "film", wait_ms=5, wall_ms=1500, cpu_ms=900, peak_mb=128, stands_for=1)
    cost(db, "mail", wait_ms=None, wall_ms=3, stands_for=40)
    film, mail = client.get("/internal/costs").json()["items"]
    assert (film["kind"], film["attempts"], film["wallP50Ms"], film["cpuP99Ms"], film["peakP50Mb"]) == (
        "film",
        1,
        1500,
        900,
        128,
    )
    assert (mail["attempts"], mail["measured"], mail["waitP50Ms"], mail["peakP50Mb"]) == (40, 1, None, None)
