"""/actuator/metrics, /metrics and /internal/observability: numbers that somebody can rely on."""

from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from starlette.testclient import TestClient

from snapapp.jobs.metrics.depth import CachedAnswer
from tests.api.conftest import away, served
from tests.databases import Postgres
from tests.docs.monitoring_page import families
from tests.exposition import Exposition, parse
from tests.factory import Db, ago, make_job, make_jobs
from tests.jobs.working import until

SNAP_JOBS = [
    *("claimed", "retry.scheduled", "stale.recovered", "cleanup.deleted", "processed", "completed", "failed"),
    *("terminal.avg.duration.ms", "terminal.max.duration.ms"),
]


def scraped(client: TestClient) -> Exposition:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(answer.text)


def value(client: TestClient, name: str) -> float:
    return float(client.get(f"/actuator/metrics/{name}").json()["measurements"][0]["value"])


# --- /actuator/metrics ------------------------------------------------------------------------------------------


def test_the_names_that_clients_know_are_there_and_each_has_a_value(client: TestClient) -> None:
    """S26."""
    names = client.get("/actuator/metrics").json()["names"]
    assert names == sorted(names)
    assert {f"snap.jobs.{name}" for name in SNAP_JOBS} <= set(names)
    assert "http.server.requests" in names
    for name in names:
        answer = client.get(f"/actuator/metrics/{name}").json()
        assert answer.keys() == {"name", "description", "baseUnit", "measurements", "availableTags"}
        assert (answer["baseUnit"] == "milliseconds", answer["availableTags"]) == (name.endswith(".ms"), [])
        assert answer["description"]
        assert answer["name"] == name
        [measurement] = answer["measurements"]
        assert measurement.keys() == {"statistic", "value"}
        assert measurement["statistic"] == "VALUE"
        assert measurement["value"] >= 0
        assert measurement["value"] == round(measurement["value"]) or not name.endswith(".ms")


def test_a_name_that_nobody_knows_is_404_in_our_shape(client: TestClient) -> None:
    answer = client.get("/actuator/metrics/snap.jobs.dreamt")
    assert answer.status_code == 404
    assert answer.json()["message"] == "Metric not found: snap.jobs.dreamt"
    assert answer.json().keys() == {"timestamp", "status", "error", "message", "details"}


def test_what_the_embedded_worker_did_is_counted(working_client: TestClient, db: Db) -> None:
    """Q32-Q35, Q37, S26: claimed, completed, failed, processed and their durations."""
    make_jobs(db, 3, kind="demo.hello", payload={"name": "Ana"})
    make_job(db, kind="demo.fail", max_attempts=1, priority=5)
    until(lambda: value(working_client, "snap.jobs.processed") == 4)
    known = {name: value(working_client, f"snap.jobs.{name}") for name in SNAP_JOBS}
    assert (known["claimed"], known["completed"], known["failed"], known["retry.scheduled"]) == (4, 3, 1, 0)
    assert 0 <= known["terminal.avg.duration.ms"] <= known["terminal.max.duration.ms"]
    told = working_client.get("/internal/observability/snap-job-metrics").json()
    assert told.pop("generatedAt")
    assert told == {
        "claimedCount": 4,
        "retryScheduledCount": 0,
        "staleRecoveredCount": 0,
        "cleanupDeletedCount": 0,
        "completedCount": 3,
        "failedCount": 1,
        "avgTerminalDurationMs": round(known["terminal.avg.duration.ms"]),
        "maxTerminalDurationMs": round(known["terminal.max.duration.ms"]),
        "terminalByStatus": {"COMPLETED": 3, "FAILED": 1, "CANCELLED": 0},
    }
    found = scraped(working_client)
    assert found.value("snapapp_jobs_completed_total", kind="demo.hello") == 3
    assert found.value("snapapp_jobs_failed_total", kind="demo.fail") == 1
    assert found.value("snapapp_worker_up") == 1


def test_what_jobs_waited_and_how_long_claims_take_is_told(working_client: TestClient, db: Db) -> None:
    """R52, S9, ADR 0008: whether looking for work is too slow can be seen."""
    make_jobs(db, 3, kind="demo.hello", payload={"name": "Ana"}, next_retry_at=ago(minutes=2))
    counted = ("snapapp_job_wait_seconds_count", frozenset({("kind", "demo.hello")}))
    until(lambda: scraped(working_client).samples.get(counted) == 3)
    found = scraped(working_client)
    assert found.value("snapapp_job_wait_seconds_bucket", kind="demo.hello", le="60") == 0
    assert found.value("snapapp_job_wait_seconds_bucket", kind="demo.hello", le="3600") == 3
    assert found.value("snapapp_job_run_seconds_count", kind="demo.hello") == 3
    assert found.value("snapapp_claim_duration_seconds_count") >= 1
    assert found.value("snapapp_claim_duration_seconds_sum") > 0


# --- /metrics ---------------------------------------------------------------------------------------------------


def test_prometheus_can_read_it(client: TestClient, db: Db) -> None:
    make_jobs(db, 3, queue="mail", next_retry_at=ago(minutes=1))
    for path in ("/actuator/metrics", "/actuator/metrics/nothing", "/nowhere"):
        client.get(path)
    found = scraped(client)
    assert {name for name in found.types if name.startswith("snapapp_")} <= families().keys()
    assert found.value("snapapp_database_up") == 1
    assert found.value("snapapp_queue_waiting_jobs", queue="mail") == 3
    assert found.value("snapapp_queue_oldest_due_seconds", queue="mail") >= 60
    assert found.value("snapapp_workers") == 0
    count = "snapapp_http_request_duration_seconds_count"
    assert found.types["snapapp_http_request_duration_seconds"] == "histogram"
    assert found.value(count, method="GET", route="/actuator/metrics/{name}", status="4xx") == 1
    assert found.value(count, method="GET", route="(no route)", status="4xx") == 1
    assert found.value("process_resident_memory_bytes") > 10 * 2**20
    assert found.value("snapapp_web_pool_size") == 4


def test_scraping_often_asks_the_database_once(client: TestClient, db: Db) -> None:
    assert ("snapapp_queue_waiting_jobs", frozenset({("queue", "mail")})) not in scraped(client).samples
    make_job(db, queue="mail")
    for _ in range(5):
        assert ("snapapp_queue_waiting_jobs", frozenset({("queue", "mail")})) not in scraped(client).samples


def test_while_requests_hold_every_connection_a_scrape_waits_for_one_but_once(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice is as long as Prometheus waits: it would hear nothing of the connections, nor of anything else."""
    both = Barrier(2)

    def ask(_: CachedAnswer[object]) -> None:
        both.wait(timeout=3)

    monkeypatch.setattr(CachedAnswer, "look", ask)
    assert "snapapp_web_pool_in_use" in scraped(client).names()


def test_without_the_database_the_rest_is_still_told(server: Postgres, url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client:
        assert "snapapp_workers" in scraped(client).names()
        with away(server, url):
            until(lambda: scraped(client).value("snapapp_database_up") == 0)
            found = scraped(client)
            assert not {name for name in found.names() if name.startswith(("snapapp_queue", "snapapp_workers"))}
            assert "process_resident_memory_bytes" in found.names()
            [alert] = alerts(client)
            assert (alert["id"], alert["severity"]) == ("DB_UNHEALTHY", "CRITICAL")
            snapshot = client.get("/internal/observability/health").json()
            assert (snapshot["status"], snapshot["queue"]) == ("DOWN", None)
        until(lambda: scraped(client).value("snapapp_database_up") == 1)
        until(lambda: "snapapp_workers" in scraped(client).names())


def test_a_database_that_takes_no_writes_is_up_and_its_numbers_are_told(url: str, db: Db, tmp_path: Path) -> None:
    """Other alerts say what that stops: no worker beats."""
    make_job(db, queue="mail")
    db.execute(f"ALTER DATABASE {db.info.dbname} SET default_transaction_read_only = on")
    with served(url, tmp_path, worker_enabled=False) as client:
        assert client.get("/actuator/health").json()["components"]["database"]["status"] == "DOWN"
        found = scraped(client)
    assert found.value("snapapp_database_up") == 1
    assert found.samples["snapapp_queue_waiting_jobs", frozenset({("queue", "mail")})] == 1


# --- /internal/observability ------------------------------------------------------------------------------------


def test_requests_are_counted_by_route_and_class_of_status(client: TestClient) -> None:
    """S26: per-route HTTP counts."""
    client.get("/internal/jobs/1")
    client.get("/internal/jobs/2")
    client.get("/internal/jobs/no-number")
    client.get("/actuator/metrics")
    told = client.get("/internal/observability/http-metrics").json()
    assert told.keys() == {"generatedAt", "totalRequests", "totalErrors", "routesCount", "routes"}
    assert (told["totalRequests"], told["totalErrors"], told["routesCount"]) == (4, 3, 2)
    [jobs, metrics] = told["routes"]
    average, longest = jobs.pop("avgDurationMs"), jobs.pop("maxDurationMs")
    assert (type(average), type(longest)) == (int, int), "whole milliseconds"
    assert 0 <= average <= longest
    assert jobs == {
        "method": "GET",
        "routePattern": "/internal/jobs/{jobId}",
        "requests": 3,
        "errors": 3,
        "status2xx": 0,
        "status4xx": 3,
        "status5xx": 0,
        "statusOther": 0,
    }
    assert (metrics["status2xx"], metrics["errors"]) == (1, 0)


@pytest.mark.parametrize("path", ["http-metrics", "snap-job-metrics", "health", "alerts"])
def test_observability_wants_the_token(url: str, tmp_path: Path, path: str) -> None:
    with served(url, tmp_path, worker_enabled=False, internal_token="secret") as client:
        refused = client.get(f"/internal/observability/{path}")
        assert (refused.status_code, refused.json()) == (401, {"status": 401, "message": "Internal API token required"})
        told = client.get(f"/internal/observability/{path}", headers={"X-Internal-Token": "secret"})
        assert told.status_code == 200


def test_health_tells_the_queues_numbers(client: TestClient, db: Db) -> None:
    """Q38, Q49."""
    make_jobs(db, 2)
    make_job(db, "COMPLETED", started_at=ago(seconds=4), finished_at=ago(seconds=2))
    make_job(db, "RUNNING")
    make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    make_job(db, "FAILED")
    told = client.get("/internal/observability/health").json()
    assert 1900 < told["queue"].pop("avgJobDurationMs24h") < 2100
    assert told["queue"] == {"pendingCount": 2, "processingCount": 2, "failedCount": 1, "stuckCount": 1}
    assert told["status"] == "UP"
    assert told["components"]["database"]["status"] == "UP"


def alerts(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/internal/observability/alerts").json()["alerts"]
    for alert in found:
        assert alert.keys() == {"id", "severity", "message", "metrics", "suggestedAction", "threshold"}
        assert alert["threshold"].keys() == {"expected", "actual"}
    return found


def test_nothing_is_said_while_all_is_well(client: TestClient, db: Db) -> None:
    make_jobs(db, 2)
    make_job(db, "RUNNING")
    assert alerts(client) == []


def test_stuck_jobs_and_long_ones_are_alerts(client: TestClient, db: Db) -> None:
    """Q49: QUEUE_STUCK_JOBS above 0, QUEUE_AVG_DURATION_HIGH above 5000 ms."""
    ended = ago(seconds=2)
    make_job(db, "COMPLETED", started_at=ended - timedelta(seconds=7), finished_at=ended)
    make_job(db, "RUNNING", lock_expires_at=ago(seconds=1))
    stuck, long = alerts(client)
    assert (stuck["id"], stuck["severity"], stuck["threshold"]["actual"]) == ("QUEUE_STUCK_JOBS", "HIGH", "1")
    assert (long["id"], long["severity"]) == ("QUEUE_AVG_DURATION_HIGH", "MEDIUM")
    assert long["threshold"] == {"expected": "at most 5000 ms", "actual": "7000 ms"}


def test_a_long_wait_is_an_alert_from_when_on_its_queue_says(client: TestClient, db: Db) -> None:
    """M61, M63: LongWaitDetected; a queue can be silenced, and what is paused waits because somebody wanted it."""
    for queue, long_wait in (("usual", None), ("quick", "30 s"), ("silent", "9 years"), ("paused", None)):
        db.execute("INSERT INTO job_queue (name, long_wait) VALUES (%s, %s)", [queue, long_wait])
    db.execute("SELECT pause_queue('paused', 'lunch')")
    for queue, minutes in (("usual", 4), ("quick", 1), ("silent", 600), ("paused", 600)):
        make_job(db, queue=queue, next_retry_at=ago(minutes=minutes))
    told = {alert["metrics"]["queue"]: alert for alert in alerts(client) if alert["id"] == "QUEUE_LONG_WAIT"}
    assert set(told) == {"quick"}
    assert told["quick"]["threshold"]["expected"] == "at most 30 s"
    make_job(db, queue="usual", next_retry_at=ago(minutes=6))
    until(lambda: "usual" in [alert["metrics"].get("queue") for alert in alerts(client)])


def test_a_full_disk_is_an_alert(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**9) as client:
        assert [alert["id"] for alert in alerts(client)] == ["DISK_LOW"]


def test_a_disk_that_cannot_be_read_is_an_alert(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_folder: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("shutil.disk_usage", refused)
    (alert,) = alerts(client)
    assert alert["message"] == "The data directory cannot be read: [Errno 13] Permission denied"
    assert alert["threshold"]["actual"] == "unknown"


def test_a_failed_backup_is_an_alert_and_a_number(client: TestClient, db: Db) -> None:
    add = "INSERT INTO backup_run (what, began_at, ended_at, is_good, said) VALUES (%s, %s, %s, %s, %s)"
    db.execute(add, ("backup", ago(days=2), ago(days=2), True, ""))
    db.execute(add, ("backup", ago(hours=1), ago(hours=1), False, "the disk is full"))
    found = scraped(client)
    assert found.value("snapapp_backup_age_seconds", what="backup") >= 2 * 86_400
    assert found.value("snapapp_backup_failed", what="backup") == 1
    assert found.value("snapapp_backup_failed", what="drill") == 0


def test_an_old_backup_is_an_alert_where_there_should_be_one(url: str, db: Db, tmp_path: Path) -> None:
    add = "INSERT INTO backup_run (what, began_at, ended_at, is_good, said) VALUES (%s, %s, %s, %s, %s)"
    db.execute(add, ("backup", ago(days=2), ago(days=2), True, ""))
    with served(url, tmp_path, worker_enabled=False, backup_to=str(tmp_path)) as client:
        old, never = alerts(client)
    assert (old["id"], old["severity"], old["threshold"]["actual"]) == ("BACKUP_OLD", "HIGH", "48 h old")
    assert (never["id"], never["threshold"]["actual"]) == ("DRILL_OLD", "none")


def test_a_database_that_answers_and_cannot_count_is_degraded(client: TestClient, db: Db) -> None:
    """Q49: somebody holds a lock on everything."""
    with db.transaction():
        db.execute("LOCK TABLE snap_processing_job IN ACCESS EXCLUSIVE MODE")
        [alert] = alerts(client)
    assert (alert["id"], alert["severity"]) == ("DB_DEGRADED", "MEDIUM")
    until(lambda: alerts(client) == [])
