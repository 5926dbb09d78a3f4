"""/internal/jobs through HTTP: what is asked of it, what it answers, and the rows that come of it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from snapapp.jobs.model import Finished, Status, Succeeded
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.costs import CollectedCosts
from snapapp.jobs.rows.roster import Member, Report
from tests.factory import Db, ago, enqueue, hence, make_job, make_jobs, move, row, running_job, scalar, statuses
from tests.jobs.working import until

JOBS = "/internal/jobs"


def items(client: TestClient, **query: Any) -> list[int]:
    answer = client.get(JOBS, params=query)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["items"]]


# --- lists ------------------------------------------------------------------------------------------------------


def test_jobs_are_listed_newest_first_and_page_by_page(client: TestClient, db: Db) -> None:
    """S22, W48."""
    ids = sorted(make_jobs(db, 5), reverse=True)
    first = client.get(JOBS, params={"limit": 2}).json()
    assert [job["id"] for job in first["items"]] == ids[:2]
    assert first["next"] == ids[1]
    assert datetime.fromisoformat(first["now"]).tzinfo
    assert items(client, before=ids[1], limit=100) == ids[2:]
    assert client.get(JOBS, params={"before": ids[1]}).json()["next"] is None


def test_a_list_is_narrowed_by_status_kind_queue_and_tenant(client: TestClient, db: Db) -> None:
    """R48."""
    odd = make_job(db, "FAILED", kind="odd", queue="mail", tenant="olho")
    plain = make_job(db)
    for query in ({"status": "FAILED"}, {"kind": "odd"}, {"queue": "mail"}, {"tenant": "olho"}):
        assert items(client, **query) == [odd]
    assert items(client, tenant="") == [plain]
    assert items(client, status="RUNNING") == []


def test_a_line_has_the_fields_of_the_row_in_camel_case(client: TestClient, db: Db) -> None:
    job_id = make_job(db, "RUNNING", progress={"percent": 4}, started_at=ago())
    [line] = client.get(JOBS).json()["items"]
    it = row(db, job_id)
    assert line["attemptCount"] == 1
    assert line["progress"] == {"percent": 4}
    assert line["lastError"] is None
    assert datetime.fromisoformat(line["createdAt"]) == it.created_at
    assert {"snapId", "payload", "explain"}.isdisjoint(line)


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"limit": 0}, "limit: "),
        ({"limit": 101}, "limit: "),
        ({"limit": "1_0"}, "limit: "),
        ({"limit": ""}, "limit: "),
        ({"before": 0}, "before: "),
        ({"before": 2**63}, "before: "),
        ({"before": "9" * 5000}, "before: "),
        ({"before": "٣"}, "before: "),
        ({"status": "LOST"}, "status: "),
        ({"kind": ""}, "kind: "),
        ({"kind": "a\0b"}, "kind: "),
        ({"kind": "k" * 201}, "kind: "),
        ({"tenant": "\0"}, "tenant: "),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(client: TestClient, query: dict[str, Any], detail: str) -> None:
    answer = client.get(JOBS, params=query)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert answer.json()["details"][0].startswith(detail)


# --- one job ----------------------------------------------------------------------------------------------------


def test_a_job_is_shown_whole_with_its_log_and_an_explanation(client: TestClient, db: Db) -> None:
    """R48, S25."""
    job_id = make_job(
        db,
        "FAILED",
        payload={"to": "ação"},
        errors=[{"attempt": 1, "error": "ValueError: no"}],
        last_error="ValueError: no",
        created_at=ago(seconds=10),
        started_at=ago(seconds=4),
        request_id="req",
    )
    say(db, job_id, "here")
    shown = client.get(f"{JOBS}/{job_id}").json()
    assert shown["payload"] == {"to": "ação"}
    assert shown["errors"] == [{"attempt": 1, "error": "ValueError: no"}]
    assert [line["message"] for line in shown["logs"]] == ["here"]
    assert shown["explain"].startswith("It is FAILED since ")
    assert 5900 < shown["waitedMs"] < 6100
    assert 3900 < shown["ranMs"] < 4100
    assert shown["requestId"] == "req"


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("path", ["", "/logs", "/retry", "/now", "/replay", "/cancel"])
def test_a_job_that_never_was_is_not_found(client: TestClient, path: str) -> None:
    method = "GET" if path in ("", "/logs") else "POST"
    answer = client.request(method, f"{JOBS}/42{path}")
    assert answer.status_code == 404
    assert answer.json()["message"] == "there is no job 42"
    assert answer.json()["error"] == "Not Found"


@pytest.mark.leaves_nothing
@pytest.mark.parametrize("job_id", ["0", "-1", "9223372036854775808", "x", "1_0", "1.0", "%00"])
def test_what_cannot_be_an_id_is_refused(client: TestClient, job_id: str) -> None:
    answer = client.get(f"{JOBS}/{job_id}")
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")


@pytest.mark.parametrize("payload", ["1e400", "-1.5e400", f"{'[' * 300}{']' * 300}", f"{'[' * 5000}{']' * 5000}"])
def test_what_postgresql_keeps_and_json_readers_do_not_is_shown_all_the_same(
    client: TestClient, db: Db, payload: str
) -> None:
    db.execute("SELECT enqueue_job('test', %s::jsonb)", [f'{{"a": {payload}}}'])
    [line] = client.get(JOBS).json()["items"]
    answer = client.get(f"{JOBS}/{line['id']}")
    assert answer.status_code == 200
    assert answer.json()["payload"]


def test_a_child_is_shown_with_how_far_its_parents_are(client: TestClient, db: Db) -> None:
    """M63, R43."""
    parent = make_job(db, "COMPLETED")
    child = enqueue(db, after=[parent, running_job(db).id])
    shown = client.get(f"{JOBS}/{child}").json()
    assert (shown["gate"], shown["waitsFor"]) == ("after", 1)
    assert shown["parents"] == {"expected": 2, "succeeded": 1, "failed": 0, "open": 1}
    assert client.get(f"{JOBS}/{parent}").json()["parents"] is None


def test_a_log_is_paged_from_its_end(client: TestClient, db: Db) -> None:
    job_id = make_job(db)
    for number in range(5):
        say(db, job_id, str(number))
    logs = f"{JOBS}/{job_id}/logs"
    last = client.get(logs, params={"limit": 2}).json()
    assert [line["message"] for line in last["items"]] == ["3", "4"]
    first = client.get(logs, params={"before": last["next"]}).json()
    assert [line["message"] for line in first["items"]] == ["0", "1", "2"]
    assert first["next"] is None
    assert client.get(f"{JOBS}/{make_job(db)}/logs").json() == {"items": [], "next": None}


def say(db: Db, job_id: int, message: str) -> None:
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, message])


# --- adding -----------------------------------------------------------------------------------------------------


def test_a_job_is_enqueued_with_everything_that_was_said(client: TestClient, db: Db) -> None:
    """W48, Q48, S25: the id of the request rides along."""
    sent = {
        "kind": "mail.send",
        "payload": {"to": "Ana", "n": [1.5, None]},
        "queue": "mail",
        "priority": 7.0,
        "delayMs": 60_000,
        "uniqueKey": "a",
        "uniqueScope": "ever",
        "onConflict": None,
        "maxAttempts": 9,
        "timeoutMs": 5000,
        "concurrencyKey": "camera",
        "tenant": "olho",
        "snapId": "2f0a3c1e-9f0b-4a0e-8d8e-0d6b5f1d2c3b",
        "neverHeardOf": "ignored",
    }
    answer = client.post(JOBS, json=sent, headers={"X-Request-Id": "req-7"})
    made = answer.json()
    assert (answer.status_code, made["outcome"]) == (201, "created")
    assert answer.headers["Location"] == f"{JOBS}/{made['id']}"
    it = row(db, made["id"])
    assert (it.kind, it.payload, it.queue, it.priority) == ("mail.send", sent["payload"], "mail", 7)
    assert (it.unique_key, it.unique_scope, it.max_attempts, it.timeout_ms) == ("a", "ever", 9, 5000)
    assert (it.concurrency_key, it.tenant, str(it.snap_id), it.request_id) == (
        "camera",
        "olho",
        sent["snapId"],
        "req-7",
    )
    assert timedelta(seconds=59) < it.next_retry_at - it.created_at < timedelta(seconds=61)


def test_a_job_waits_for_those_that_it_comes_after(client: TestClient, db: Db) -> None:
    first = client.post(JOBS, json={"kind": "test"}).json()["id"]
    sent = {"kind": "test", "after": [first], "onParentFailure": "run"}
    child = client.post(JOBS, json=sent).json()["id"]
    parents = client.get(f"{JOBS}/{child}").json()["parents"]
    assert parents == {"expected": 1, "succeeded": 0, "failed": 0, "open": 1}
    assert scalar(db, f"SELECT parent_id FROM job_parent WHERE job_id = {child}") == first
    assert row(db, child).gate == "after"
    unknown = client.post(JOBS, json={"kind": "test", "after": [child + 1]})
    assert (unknown.status_code, scalar(db, "SELECT count(*) FROM snap_processing_job")) == (404, 2)
    for wrong in ({"after": ["x"]}, {"after": [first], "onConflict": "replace"}, {"onParentFailure": "explode"}):
        assert client.post(JOBS, json={"kind": "test"} | wrong).status_code == 400


def test_a_job_for_a_moment_is_due_then(client: TestClient, db: Db) -> None:
    made = client.post(JOBS, json={"kind": "test", "runAt": "2030-01-31T08:00:00-03:00"}).json()
    assert row(db, made["id"]).next_retry_at == datetime(2030, 1, 31, 11, tzinfo=UTC)


def test_a_kind_that_no_worker_knows_is_accepted_and_said(client: TestClient, db: Db) -> None:
    said = client.post(JOBS, json={"kind": "test"}).json()
    assert said["kindIsKnown"] is False
    assert said["note"] == "No worker that is alive knows the kind test: the job waits for one."
    member = Member("a" * 32, "box-1", "box", "boot", 1, 1, [], ["test"], 4)
    roster.beat(db, member, Report(), lives_for=timedelta(minutes=1))
    said = client.post(JOBS, json={"kind": "test"}).json()
    assert (said["kindIsKnown"], said["note"]) == (True, None)


def test_a_held_key_is_answered_with_its_holder(client: TestClient, db: Db) -> None:
    wanted = {"kind": "test", "uniqueKey": "a", "payload": {"n": 1}}
    made = client.post(JOBS, json=wanted)
    assert (made.status_code, made.json()["outcome"]) == (201, "created")
    job_id = made.json()["id"]
    again = client.post(JOBS, json=wanted | {"payload": {"n": 2}})
    assert (again.status_code, again.json()["id"], again.json()["outcome"]) == (200, job_id, "existing")
    assert again.headers["Location"] == f"{JOBS}/{job_id}"
    ignored = client.post(JOBS, json=wanted | {"onConflict": "ignore"})
    assert (ignored.status_code, ignored.json()["id"], ignored.json()["outcome"]) == (200, None, "ignored")
    assert row(db, job_id).payload == {"n": 1}
    replaced = client.post(JOBS, json=wanted | {"onConflict": "replace", "payload": {"n": 3}})
    assert (replaced.status_code, replaced.json()["id"], replaced.json()["outcome"]) == (200, job_id, "replaced")
    assert row(db, job_id).payload == {"n": 3}
    move(db, job_id, status="RUNNING", claimed_by="w", locked_at=ago(), lock_expires_at=ago(), attempt_count=1)
    late = client.post(JOBS, json=wanted | {"onConflict": "replace"})
    assert (late.status_code, late.json()["error"]) == (409, "Conflict")
    assert f"job {job_id} holds the unique key a" in late.json()["message"]


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("sent", "detail"),
    [
        ({}, "kind: "),
        ({"kind": None}, "kind: "),
        ({"kind": ""}, "kind: "),
        ({"kind": 5}, "kind: "),
        ({"kind": "a\0"}, "kind: "),
        ({"kind": "k" * 201}, "kind: "),
        ({"payload": []}, "payload: "),
        ({"payload": "x"}, "payload: "),
        ({"priority": "5"}, "priority: "),
        ({"priority": True}, "priority: "),
        ({"priority": 1.5}, "priority: "),
        ({"priority": 1001}, "priority: "),
        ({"priority": 2**63}, "priority: "),
        ({"priority": 10**400}, "priority: "),
        ({"delayMs": -1}, "delayMs: "),
        ({"delayMs": 2**63}, "delayMs: "),
        ({"runAt": "2030-01-31T08:00:00"}, "runAt: "),
        ({"runAt": "tomorrow"}, "runAt: "),
        ({"runAt": 5}, "runAt: "),
        ({"runAt": "1979-12-31T00:00:00Z"}, "runAt: "),
        ({"runAt": "9999-12-31T23:59:59-12:00"}, "runAt: "),
        ({"runAt": "2030-01-31T08:00:00Z", "delayMs": 1}, "body: "),
        ({"maxAttempts": 0}, "maxAttempts: "),
        ({"timeoutMs": 0}, "timeoutMs: "),
        ({"timeoutMs": 604_800_001}, "timeoutMs: "),
        ({"uniqueScope": "live"}, "body: "),
        ({"uniqueKey": "a", "uniqueScope": "always"}, "uniqueScope: "),
        ({"uniqueKey": "a\0"}, "uniqueKey: "),
        ({"onConflict": "fight"}, "onConflict: "),
        ({"concurrencyKey": "k" * 501}, "concurrencyKey: "),
        ({"tenant": "\0"}, "tenant: "),
        ({"snapId": "x"}, "snapId: "),
    ],
)
def test_a_job_that_could_not_be_is_refused_by_field(
    client: TestClient, db: Db, sent: dict[str, Any], detail: str
) -> None:
    """FC21, FE7."""
    answer = client.post(JOBS, json=sent if not sent or "kind" in sent else {"kind": "test"} | sent)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert answer.json()["details"][0].startswith(detail), answer.json()
    assert statuses(db) == {}


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"payload": {"a": "\0"}}, "the payload holds a NUL character"),
        ({"payload": {"a": "x" * (1024 * 1024 + 1 - 8)}}, "has 1048577 bytes as JSON, more than the 1048576 allowed"),
        ({"payload": {"a": [1e300] * 5000}}, "more than the 1048576 bytes allowed"),
        ({"kind": "ç" * 101}, "kind must be text of at most 200 bytes"),
    ],
)
def test_what_the_queue_refuses_is_a_bad_request(
    client: TestClient, db: Db, sent: dict[str, Any], message: str
) -> None:
    """FC21, FE7."""
    answer = client.post(JOBS, json={"kind": "test"} | sent)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
    assert statuses(db) == {}


def test_a_payload_of_exactly_the_limit_is_taken(client: TestClient, db: Db) -> None:
    made = client.post(JOBS, json={"kind": "test", "payload": {"a": "x" * (1024 * 1024 - 8)}})
    assert made.status_code == 201
    assert len(client.get(f"{JOBS}/{made.json()['id']}").json()["payload"]["a"]) == 1024 * 1024 - 8


def test_a_job_enqueued_over_http_runs(working_client: TestClient) -> None:
    made = working_client.post(JOBS, json={"kind": "demo.hello", "payload": {"name": "Ana"}}).json()
    until(lambda: working_client.get(f"{JOBS}/{made['id']}").json()["status"] == "COMPLETED")
    shown = working_client.get(f"{JOBS}/{made['id']}").json()
    assert "Ana" in json.dumps(shown["result"])
    assert shown["explain"].startswith("It is COMPLETED")


# --- changing one -----------------------------------------------------------------------------------------------


def test_a_failed_job_runs_again_from_zero(client: TestClient, db: Db) -> None:
    """R38, R48."""
    job_id = make_job(db, "FAILED", attempt_count=3)
    answer = client.post(f"{JOBS}/{job_id}/retry")
    assert (answer.status_code, answer.json()["status"], answer.json()["attemptCount"]) == (200, "PENDING", 0)
    assert row(db, job_id).status == "PENDING"
    again = client.post(f"{JOBS}/{job_id}/retry")
    assert again.status_code == 409
    assert again.json()["message"] == f"job {job_id} is PENDING: only a FAILED or CANCELLED job can be retried"


def test_a_waiting_job_is_run_now(client: TestClient, db: Db) -> None:
    """R48."""
    job_id = make_job(db, "RETRY_WAIT", attempt_count=1, next_retry_at=hence(hours=1))
    answer = client.post(f"{JOBS}/{job_id}/now")
    assert (answer.status_code, answer.json()["status"], answer.json()["attemptCount"]) == (200, "RETRY_WAIT", 1)
    assert datetime.fromisoformat(answer.json()["nextRetryAt"]) == row(db, job_id).next_retry_at < hence(minutes=1)
    assert client.post(f"{JOBS}/{job_id}/now").json() == answer.json()
    child = enqueue(db, after=[job_id])
    refused = client.post(f"{JOBS}/{child}/now")
    assert refused.status_code == 409
    assert refused.json()["message"] == f"job {child} waits for its parents: it can run when they have ended"


def test_a_job_is_replayed_as_a_copy(client: TestClient, db: Db) -> None:
    """R36, R48."""
    job_id = make_job(db, "COMPLETED", payload={"n": 1})
    answer = client.post(f"{JOBS}/{job_id}/replay")
    copy = answer.json()["id"]
    assert (answer.status_code, answer.headers["Location"]) == (201, f"{JOBS}/{copy}")
    assert (row(db, copy).replay_of, row(db, copy).payload) == (job_id, {"n": 1})


def test_a_waiting_job_is_cancelled_and_a_running_one_is_asked(client: TestClient, db: Db) -> None:
    """R37, R48, D17."""
    waiting, running, over = make_job(db), make_job(db, "RUNNING"), make_job(db, "COMPLETED")
    answer = client.post(f"{JOBS}/{waiting}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    answer = client.post(f"{JOBS}/{running}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (202, "RUNNING")
    assert row(db, running).cancel_requested_at
    answer = client.post(f"{JOBS}/{over}/cancel")
    assert (answer.status_code, answer.json()["message"]) == (
        409,
        f"job {over} is COMPLETED: there is nothing to cancel",
    )


# --- changing many ----------------------------------------------------------------------------------------------


def change(client: TestClient, action: str, **more: Any) -> Any:
    answer = client.post(f"{JOBS}/bulk", json={"action": action} | more)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_bulk_is_a_preview_unless_it_is_said_otherwise(client: TestClient, db: Db) -> None:
    failed = make_jobs(db, 12, status="FAILED")
    make_job(db, "FAILED", kind="other")
    before = statuses(db)
    for preview in ({}, {"preview": True}, {"preview": None}):
        said = change(client, "retry", filter={"kind": "test"}, **preview)
        assert (said["preview"], said["matching"], said["more"], said["done"]) == (True, 12, False, 0)
        assert [job["id"] for job in said["sample"]] == sorted(failed, reverse=True)[:10]
    assert statuses(db) == before


def test_dead_letters_are_retried_oldest_first_and_those_that_are_left_are_announced(
    client: TestClient, db: Db
) -> None:
    """R38."""
    failed = make_jobs(db, 5, status="FAILED")
    said = change(client, "retry", filter={"all": True}, preview=False, limit=3)
    assert (said["matching"], said["more"], said["done"], said["sample"]) == (3, True, 3, [])
    assert [status for _, status in sorted(statuses(db).items())] == ["PENDING"] * 3 + ["FAILED"] * 2
    assert change(client, "retry", filter={"all": True}, preview=False)["done"] == 2
    assert {row(db, job_id).status for job_id in failed} == {"PENDING"}


def test_a_refusal_in_a_bulk_is_told_and_spoils_nothing(client: TestClient, db: Db) -> None:
    make_job(db, unique_key="a", unique_scope="live")
    held, free = make_job(db, "FAILED", unique_key="a", unique_scope="live"), make_job(db, "FAILED")
    said = change(client, "retry", filter={"queue": "default"}, preview=False)
    assert (said["done"], said["refused"]) == (1, 1)
    [refusal] = said["refusals"]
    assert refusal["id"] == held
    assert "holds its unique key a" in refusal["why"]
    assert row(db, free).status == "PENDING"


def test_waiting_jobs_are_cancelled_and_running_ones_only_on_request(client: TestClient, db: Db) -> None:
    pending, retry_wait, suspect = (
        make_job(db),
        make_job(db, "RETRY_WAIT"),
        make_job(db, "RETRY_WAIT", losses=2, gate="alone"),
    )
    running = make_job(db, "RUNNING")
    assert change(client, "cancel", filter={"all": True, "status": "PENDING"}, preview=False)["done"] == 1
    assert row(db, pending).status == "CANCELLED"
    assert change(client, "cancel", filter={"tenant": ""}, preview=False)["done"] == 2
    assert {row(db, job_id).status for job_id in (retry_wait, suspect)} == {"CANCELLED"}
    assert row(db, running).cancel_requested_at is None
    said = change(client, "cancel", filter={"all": True, "status": "RUNNING"}, preview=False)
    assert (said["done"], said["askedToStop"]) == (1, 1)
    assert row(db, running).cancel_requested_at
    assert change(client, "retry", filter={"all": True, "status": "CANCELLED"}, preview=False)["done"] == 3


def test_a_bulk_is_narrowed_by_error_age_and_work(client: TestClient, db: Db) -> None:
    """R36, R48."""
    old = {"created_at": ago(days=2), "last_error": "Timeout: no answer"}
    timed_out, other = make_job(db, "FAILED", **old), make_job(db, "FAILED", last_error="ValueError")
    done = make_job(db, "COMPLETED", unique_key="spec:9f86d081", unique_scope="live")
    preview = change(client, "retry", filter={"error": "timeout"})
    assert [job["id"] for job in preview["sample"]] == [timed_out]
    for query in ("error=timeout", "olderThanMs=86400000"):
        assert [job["id"] for job in client.get(f"{JOBS}?{query}").json()["items"]] == [timed_out]
    assert [job["id"] for job in client.get(f"{JOBS}?hash=9f86d0").json()["items"]] == [done]
    assert change(client, "retry", filter={"olderThanMs": 86_400_000}, preview=False)["done"] == 1
    assert change(client, "discard", filter={"all": True}, reason="of no use", preview=False)["done"] == 1
    assert row(db, other).last_error == "discarded: of no use"
    assert change(client, "replay", filter={"hash": "9f86d081"}, preview=False)["done"] == 1
    assert sorted(statuses(db).values()) == ["CANCELLED", "COMPLETED", "PENDING", "PENDING"]
    assert db.execute("SELECT count(*) FROM snap_processing_job WHERE replay_of = %s", [done]).fetchone() == (1,)


def test_jobs_are_listed_and_changed_by_when_they_ended(client: TestClient, db: Db) -> None:
    old = {"created_at": ago(days=2)}
    young, fits = (make_job(db, "FAILED", finished_at=ago(hours=hours), **old) for hours in (1, 3))
    within = {"finishedFrom": ago(hours=4).isoformat(), "finishedUntil": ago(hours=2).isoformat()}
    listed = client.get(JOBS, params=within).json()["items"]
    assert [job["id"] for job in listed] == [fits]
    assert change(client, "retry", filter=within, preview=False)["done"] == 1
    assert statuses(db) == {young: "FAILED", fits: "PENDING"}
    assert client.get(JOBS, params={"finishedFrom": "yesterday"}).status_code == 400


@pytest.mark.parametrize(
    "sent",
    [
        {},
        {"action": "discard", "filter": {"all": True, "status": "PENDING"}, "reason": "x"},
        {"action": "replay", "filter": {"all": True, "status": "PENDING"}},
        {"action": "retry", "filter": {"hash": "nothex"}},
        {"action": "retry", "filter": {"olderThanMs": -1}},
        {"action": "retry"},
        {"action": "retry", "filter": {}},
        {"action": "retry", "filter": {"status": "FAILED"}},
        {"action": "retry", "filter": {"all": False}},
        {"action": "retry", "filter": {"all": "true"}},
        {"action": "retry", "filter": {"all": True, "kind": "test"}},
        {"action": "retry", "filter": {"knid": "test", "queue": "default"}},
        {"action": "retry", "filter": {"all": True, "status": "RUNNING"}},
        {"action": "cancel", "filter": {"all": True, "status": "FAILED"}},
        {"action": "discard", "filter": {"all": True}},
        {"action": "retry", "filter": {"all": True}, "preview": "false"},
        {"action": "retry", "filter": {"all": True}, "preview": 0},
        {"action": "retry", "filter": {"all": True}, "preview": False, "limit": 0},
        {"action": "retry", "filter": {"all": True}, "preview": False, "limit": 10_001},
    ],
)
def test_a_clumsy_bulk_is_refused(client: TestClient, db: Db, sent: dict[str, Any]) -> None:
    job_id = make_job(db, "FAILED")
    answer = client.post(f"{JOBS}/bulk", json=sent)
    assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed")
    assert row(db, job_id).status == "FAILED"


@pytest.mark.at_length  # a few are in every run
def test_thousands_are_changed_in_one_call(client: TestClient, db: Db) -> None:
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at)"
        " SELECT 'test', 'FAILED', now() FROM generate_series(1, 2500)"
    )
    said = change(client, "retry", filter={"kind": "test"}, preview=False, limit=2000)
    assert (said["done"], said["more"], said["refused"]) == (2000, True, 0)
    assert db.execute("SELECT count(*) FROM snap_processing_job WHERE status = 'FAILED'").fetchone() == (500,)


def test_a_method_that_is_not_there_is_answered_with_those_that_are(client: TestClient) -> None:
    """Also where a path could be taken for an id, and where two routes share one."""
    for method, path, allowed in (
        ("GET", f"{JOBS}/bulk", "POST"),
        ("DELETE", JOBS, "GET, POST"),
        ("PUT", f"{JOBS}/5", "GET"),
        ("GET", f"{JOBS}/5/retry", "POST"),
        ("GET", "/internal/queues/a/b/pause", "POST"),
        ("DELETE", "/v2/snaps/mine", "GET"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["error"]) == (405, "Method Not Allowed"), path
        assert {*answer.headers["Allow"].split(", ")} == {*allowed.split(", ")}, path


# --- costs ------------------------------------------------------------------------------------------------------


def test_a_job_tells_what_its_attempts_cost(client: TestClient, db: Db) -> None:
    mine, collected = running_job(db), CollectedCosts()
    mine.cpu, mine.peak, mine.due_at = 1.5, 300 * 1024 * 1024, ago(seconds=5)
    collected.add([Finished(mine, Succeeded(None), 2.0)], Status.RETRY_WAIT)
    collected.write(db)
    [cost] = client.get(f"{JOBS}/{mine.id}").json()["costs"]
    assert (cost["attempt"], cost["outcome"], cost["wallMs"]) == (1, "RETRY_WAIT", 2000)
    assert (cost["cpuMs"], cost["peakMb"], cost["standsFor"]) == (1500, 300, 1)
    assert 2900 < cost["waitMs"] < 10_000


def test_a_job_that_has_not_run_has_cost_nothing(client: TestClient, db: Db) -> None:
    assert client.get(f"{JOBS}/{make_job(db)}").json()["costs"] == []
