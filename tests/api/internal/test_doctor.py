"""/internal/doctor: the findings of `snapapp doctor`, over HTTP."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from starlette.testclient import TestClient

from snapapp.jobs.doctor import CHECKS
from tests.api.conftest import served
from tests.databases import Postgres
from tests.factory import Db, ago, at_once, make_job, row
from tests.jobs.working import until

DOCTOR = "/internal/doctor"


def test_every_check_is_told_in_order(client: TestClient) -> None:
    """Q49."""
    said = client.get(DOCTOR).json()
    of_product = ["backups", "decoders", "data_disk"]
    assert list(dict.fromkeys(finding["check"] for finding in said["findings"])) == [*CHECKS, *of_product]
    assert said["worst"] == "critical"  # the tests' server runs without fsync
    assert {*said["findings"][0]} == {"check", "id", "severity", "saw", "numbers", "why", "do", "paste", "canFix"}


def test_what_is_wrong_comes_with_numbers_and_what_to_do(client: TestClient, db: Db) -> None:
    """Q49, FC1."""
    make_job(db, "RUNNING", lock_expires_at=ago(minutes=3))
    with closing(psycopg.connect(db.info.dsn)) as idle:
        idle.execute("INSERT INTO job_queue (name) VALUES ('mail')")
        found = {finding["id"]: finding for finding in client.get(DOCTOR).json()["findings"]}
        assert found["XMIN_HELD"]["numbers"]["pid"] == idle.info.backend_pid
    stuck = found["QUEUE_STUCK_JOBS"]
    assert (stuck["severity"], stuck["numbers"]["jobs"], stuck["canFix"]) == ("warning", 1, True)
    assert stuck["paste"] == "SELECT * FROM queue_stuck;"


def test_what_is_safe_is_done_when_asked_and_stands_in_the_audit(client: TestClient, db: Db) -> None:
    job_id = make_job(db, "RUNNING", lock_expires_at=ago(minutes=3))
    db.execute("SELECT pause_queue('mail')")
    sent = {"check": "stuck", "id": "QUEUE_STUCK_JOBS"}

    def is_taken_back() -> bool:  # a server that has just started lets leases rest for a while
        [done] = client.post(f"{DOCTOR}/fix", json=sent, headers={"X-Operator": "ana"}).json()["items"]
        assert done["hasWorked"]
        return bool(row(db, job_id).status != "RUNNING")

    until(is_taken_back)
    now = client.get(DOCTOR, params={"anew": True}).json()
    assert {"QUEUE_STUCK_JOBS"}.isdisjoint(found["id"] for found in now["findings"])
    deed = client.get("/internal/audit").json()["items"][-1]
    assert (deed["who"], deed["action"], deed["subject"]) == ("ana", "doctor.fix", "finding QUEUE_STUCK_JOBS")
    unsafe = client.post(f"{DOCTOR}/fix", json={"check": "queues", "id": "QUEUE_PAUSED"}).json()
    assert unsafe == {"items": []}
    assert client.post(f"{DOCTOR}/fix", json={"check": "stuck"}).status_code == 400


def test_many_who_ask_at_once_cost_one_examination(client: TestClient) -> None:
    answers = at_once(*[lambda: client.get(DOCTOR).json()["generatedAt"]] * 5)
    assert len({*answers}) == 1


def test_it_is_behind_the_token(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, internal_token="secret") as client:
        assert client.get(DOCTOR).status_code == 401
        assert client.get(DOCTOR, headers={"X-Internal-Token": "secret"}).status_code == 200


@pytest.fixture
def leaving_url(server: Postgres) -> Iterator[str]:
    """A database that a test may take away."""
    with server.database("migrated") as url:
        yield url


def test_a_database_that_is_away_is_503(leaving_url: str, server: Postgres, tmp_path: Path) -> None:
    with served(leaving_url, tmp_path, worker_enabled=False) as client, admin(server) as postgres:
        name = psycopg.conninfo.conninfo_to_dict(leaving_url)["dbname"]
        postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        answer = client.get(DOCTOR)
        postgres.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def admin(server: Postgres) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(server.url_of("postgres"), autocommit=True)
