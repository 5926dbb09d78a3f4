"""/internal/failures: dead letters by what went wrong, retried and discarded step by step; and /internal/audit, where
all of that stands."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from snapapp.jobs.rows import retention
from snapapp.jobs.rows.people import failures
from tests.factory import Db, ago, make_job, make_jobs, row, scalar, statuses

FAILURES = "/internal/failures"
AUDIT = "/internal/audit"
HOSTILE = "'; DROP TABLE snap_processing_job; --\u202e</script>%s\\"


def step(client: TestClient, action: str = "retry", **wanted: Any) -> dict[str, Any]:
    body = {"action": action, "filter": {"all": True}, "run": str(uuid4())} | wanted
    answer = client.post(f"{FAILURES}/step", json=body, headers={"X-Operator": "ana%20maria"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def deeds(client: TestClient, **query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(AUDIT, params=query).json()["items"]
    return found


# --- groups -----------------------------------------------------------------------------------------------------


def test_failures_with_one_kind_and_first_line_are_one_group(client: TestClient, db: Db) -> None:
    make_jobs(db, 2, "FAILED", kind="mail", queue="out", last_error="refused\nby a", finished_at=ago(minutes=30))
    newest = make_job(db, "FAILED", kind="mail", queue="slow", last_error="refused\nby b")
    make_job(db, "FAILED", kind="mail", last_error="timeout", finished_at=ago(hours=2))
    make_job(db, "FAILED", kind="other", last_error="refused")
    make_job(db, "CANCELLED", kind="mail", last_error="refused")
    found = client.get(FAILURES).json()
    assert (found["seen"], found["more"]) == (5, False)
    first, *others = found["items"]
    assert (first["kind"], first["line"], first["jobs"], first["newest"]) == ("mail", "refused", 3, newest)
    assert (first["queues"], first["lastTenMinutes"], first["lastHour"]) == (["out", "slow"], 1, 3)
    assert {(each["kind"], each["line"], each["lastHour"]) for each in others} == {
        ("mail", "timeout", 0),
        ("other", "refused", 1),
    }


def test_only_the_newest_failures_are_grouped(db: Db) -> None:
    make_job(db, "FAILED", last_error="old")
    make_jobs(db, 3, "FAILED", last_error="new")
    found = failures.groups(db, newest=3)
    assert ([group.line for group in found.groups], found.seen, found.more) == (["new"], 3, True)


def test_a_group_is_found_in_the_list_by_its_very_line(client: TestClient, db: Db) -> None:
    long = make_job(db, "FAILED", last_error="x" * 2000)
    nothing = make_job(db, "FAILED")
    hostile = make_job(db, "FAILED", last_error=HOSTILE)
    make_job(db, "FAILED", last_error=f"{HOSTILE}, and more")
    for group in client.get(FAILURES).json()["items"]:
        listed = client.get("/internal/jobs", params={"status": "FAILED", "errorLine": group["line"]}).json()["items"]
        assert [job["id"] for job in listed] == [group["newest"]]
    assert {long, nothing, hostile} < set(statuses(db))


@pytest.mark.parametrize("status", ["FAILED", "PENDING", "RUNNING", "CANCELLED", None])
def test_jobs_are_listed_by_a_text_in_their_error(client: TestClient, db: Db, status: str | None) -> None:
    wanted = make_job(db, status or "COMPLETED", last_error="100% of _it_ broke\nhere")
    make_job(db, status or "COMPLETED", last_error="something else")
    make_job(db, status or "COMPLETED")
    query = {"error": "% of _it_", "status": status} if status else {"error": "% of _it_"}
    assert [job["id"] for job in client.get("/internal/jobs", params=query).json()["items"]] == [wanted]


# --- many at once -----------------------------------------------------------------------------------------------


def test_a_group_is_retried_step_by_step_and_stands_in_the_audit_once(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "STEP", 2)
    wanted = make_jobs(db, 5, "FAILED", kind="mail", last_error="refused\nlong ago")
    other = make_job(db, "FAILED", kind="mail", last_error="refused again")
    which = {"kind": "mail", "errorLine": "refused"}
    counted = step(client, filter=which)
    assert (counted["matching"], counted["done"], counted["next"], counted["upTo"]) == (5, 0, None, other)
    assert set(statuses(db).values()) == {"FAILED"}
    assert deeds(client) == []

    late = make_job(db, "FAILED", kind="mail", last_error="refused")
    run, done = str(uuid4()), []
    after: int | None = 0
    while after is not None:
        some = step(client, filter=which, preview=False, run=run, after=after, upTo=counted["upTo"])
        after = some["next"]
        done.append(some["done"])
    assert done == [2, 2, 1]
    assert statuses(db) == dict.fromkeys(wanted, "PENDING") | {other: "FAILED", late: "FAILED"}
    [deed] = deeds(client)
    assert (deed["who"], deed["door"], deed["action"], deed["jobs"]) == ("ana maria", "this machine", "jobs.retry", 5)
    assert deed["detail"] == which


def test_what_fails_again_meanwhile_is_not_met_twice(client: TestClient, db: Db) -> None:
    [first, second] = make_jobs(db, 2, "FAILED")
    assert step(client, preview=False, upTo=second)["done"] == 2
    db.execute("UPDATE snap_processing_job SET status = 'FAILED', finished_at = now() WHERE id = %s", [first])
    assert step(client, preview=False, after=second, upTo=second)["done"] == 0
    assert statuses(db) == {first: "FAILED", second: "PENDING"}


def test_failures_are_discarded_with_the_reason(client: TestClient, db: Db) -> None:
    job_id = make_job(db, "FAILED", last_error="oops")
    assert step(client, "discard", preview=False, reason="a test")["done"] == 1
    assert (row(db, job_id).status, row(db, job_id).last_error) == ("CANCELLED", "discarded: a test")
    assert deeds(client)[0]["detail"] == {"all": True, "reason": "a test"}


def test_a_job_that_is_refused_does_not_hold_up_the_others(client: TestClient, db: Db) -> None:
    held = make_job(db, "FAILED", unique_key="k", unique_scope="live")
    make_job(db, unique_key="k", unique_scope="live")
    free = make_job(db, "FAILED")
    some = step(client, preview=False)
    assert (some["done"], some["refused"], some["refusals"][0]["id"]) == (1, 1, held)
    assert "holds its unique key" in some["refusals"][0]["why"]
    assert row(db, free).status == "PENDING"
    assert deeds(client)[0]["jobs"] == 1


def test_a_run_is_not_continued_as_another_deed(client: TestClient, db: Db) -> None:
    """Or a line of the audit could be made to say that somebody else did it."""
    make_jobs(db, 2, "FAILED", kind="a")
    other = make_job(db, "FAILED", kind="b")
    run = str(uuid4())
    step(client, filter={"kind": "a"}, preview=False, run=run)
    body = {"action": "retry", "filter": {"kind": "b"}, "preview": False, "run": run}
    assert client.post(f"{FAILURES}/step", json=body).json()["refused"] == 1
    assert row(db, other).status == "FAILED"
    assert [deed["jobs"] for deed in deeds(client)] == [2]


@pytest.mark.parametrize(
    "changes",
    [
        {"filter": {}},
        {"filter": {"all": True, "kind": "a"}},
        {"filter": {"kind": "a", "colour": "red"}},
        {"filter": {"errorLine": "a\0b"}},
        {"action": "cancel"},
        {"after": -1},
        {"upTo": 2**63},
        {"run": "mine"},
        {"preview": "no"},
    ],
)
def test_a_step_that_makes_no_sense_changes_nothing(client: TestClient, db: Db, changes: dict[str, Any]) -> None:
    job_id = make_job(db, "FAILED")
    body = {"action": "retry", "filter": {"all": True}, "preview": False, "run": str(uuid4())} | changes
    assert client.post(f"{FAILURES}/step", json=body).status_code == 400
    assert statuses(db) == {job_id: "FAILED"}


# --- the audit --------------------------------------------------------------------------------------------------


def test_every_deed_is_in_the_audit(client: TestClient, db: Db, nightly: str) -> None:
    job_id = make_job(db, "FAILED")
    asked = [
        (f"/internal/jobs/{job_id}/retry", f"job {job_id}", {}),
        (f"/internal/jobs/{job_id}/now", f"job {job_id}", {}),
        (f"/internal/jobs/{job_id}/replay", f"job {job_id}", {"copy": job_id + 1}),
        (f"/internal/jobs/{job_id}/cancel", f"job {job_id}", {}),
        (f"/internal/jobs/{job_id + 1}/discard", f"job {job_id + 1}", {"reason": "lunch"}),
        ("/internal/queues/a/b/pause", "queue a/b", {"reason": "lunch"}),
        ("/internal/queues/a/b/resume", "queue a/b", {}),
        (f"/internal/schedules/{nightly}/pause", f"schedule {nightly}", {"reason": "lunch"}),
        (f"/internal/schedules/{nightly}/resume", f"schedule {nightly}", {}),
        (f"/internal/schedules/{nightly}/run", f"schedule {nightly}", {"job": job_id + 2}),
    ]
    for path, _, _ in asked:
        answer = client.post(path, json={"reason": "lunch"}, headers={"X-Operator": "Z%0A%C3%A9", "X-Request-Id": "r"})
        assert answer.status_code < 300, answer.text
    written = deeds(client)[::-1]
    assert [(deed["subject"], deed["detail"]) for deed in written] == [(subject, said) for _, subject, said in asked]
    assert [deed["action"] for deed in written[:6]] == [
        "job.retry",
        "job.now",
        "job.replay",
        "job.cancel",
        "job.discard",
        "queue.pause",
    ]
    assert {(deed["who"], deed["door"], deed["requestId"]) for deed in written} == {("Zé", "this machine", "r")}


def test_what_is_refused_is_not_in_the_audit(client: TestClient, db: Db) -> None:
    running = make_job(db, "RUNNING")
    assert client.post(f"/internal/jobs/{running}/retry").status_code == 409
    assert client.post(f"/internal/jobs/{running}/now").status_code == 409
    assert client.post(f"/internal/jobs/{running}/discard").status_code == 409
    assert client.post("/internal/jobs/77/replay").status_code == 404
    assert scalar(db, "SELECT count(*) FROM job_audit") == 0


def test_a_deed_whose_row_cannot_be_written_is_not_done(client: TestClient, db: Db) -> None:
    """One transaction: neither without the other."""
    db.execute("ALTER TABLE job_audit ADD CONSTRAINT nothing CHECK (action <> 'job.retry')")
    job_id = make_job(db, "FAILED")
    assert client.post(f"/internal/jobs/{job_id}/retry").status_code == 500
    assert statuses(db) == {job_id: "FAILED"}


def test_the_audit_is_read_page_by_page_and_by_subject(client: TestClient, db: Db) -> None:
    ids = make_jobs(db, 3, "FAILED")
    for job_id in ids:
        client.post(f"/internal/jobs/{job_id}/retry", headers={"X-Operator": "<b>" + "x" * 200})
    page = client.get(AUDIT, params={"limit": 2}).json()
    assert [deed["subject"] for deed in page["items"]] == [f"job {job_id}" for job_id in ids[:0:-1]]
    assert [deed["subject"] for deed in deeds(client, before=page["next"])] == [f"job {ids[0]}"]
    [deed] = deeds(client, subject=f"job {ids[1]}")
    assert deed["who"] == "<b>" + "x" * 77


def test_the_audit_is_kept_for_ninety_days_whatever_else_is(client: TestClient, db: Db) -> None:
    for job_id in make_jobs(db, 2, "FAILED"):
        client.post(f"/internal/jobs/{job_id}/retry")
    db.execute("UPDATE job_audit SET at = now() - interval '80 days' - id * interval '6 days'")
    retention.prune_fleet(db, keep=timedelta(days=1))
    assert [deed["subject"] for deed in deeds(client)] == ["job 1"]


# --- what else the page asks for --------------------------------------------------------------------------------


def test_a_job_names_its_parents_and_children(client: TestClient, db: Db) -> None:
    [parent, child] = [make_job(db, "COMPLETED", kind="parent"), make_job(db, kind="child")]
    db.execute("INSERT INTO job_parent VALUES (%s, %s, true)", [child, parent])
    shown = {"mustComplete": True}
    assert client.get(f"/internal/jobs/{child}/family").json() == {
        "parents": [{"id": parent, "kind": "parent", "status": "COMPLETED"} | shown],
        "children": [],
    }
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [child])
    assert client.get(f"/internal/jobs/{parent}/family").json()["children"] == [
        {"id": child, "kind": None, "status": None} | shown
    ]


def test_a_workflow_is_drawn_from_any_of_its_jobs(client: TestClient, db: Db) -> None:
    """Two parents, this one, a child with a parent of its own: all are around each."""
    one, other, aside, own = (make_job(db, "COMPLETED", kind=kind) for kind in ("one", "other", "aside", "own"))
    child = make_job(db, kind="child")
    lonely = make_job(db)
    edges = [(one, own, True), (other, own, False), (own, child, True), (aside, child, True)]
    for parent, its_child, must in edges:
        db.execute("INSERT INTO job_parent VALUES (%s, %s, %s)", [its_child, parent, must])
    for job_id in (one, own, child, aside):
        graph = client.get(f"/internal/jobs/{job_id}/graph").json()
        assert [node["id"] for node in graph["nodes"]] == [one, other, aside, own, child]
        assert sorted((e["parent"], e["child"], e["mustComplete"]) for e in graph["edges"]) == sorted(edges)
        assert graph["more"] is False
    assert graph["nodes"][4] == {"id": child, "kind": "child", "status": "PENDING"}
    assert client.get(f"/internal/jobs/{lonely}/graph").json()["edges"] == []


def test_a_drawing_of_thousands_has_a_bound_and_says_so(client: TestClient, db: Db) -> None:
    """The job itself is in it, and no line leads to what is not."""
    first, *others = make_jobs(db, 2000, "COMPLETED")
    last = make_job(db)
    db.execute("INSERT INTO job_parent SELECT id, %s, true FROM unnest(%s::bigint[]) AS id", [first, others])
    db.execute("INSERT INTO job_parent SELECT %s, id, true FROM unnest(%s::bigint[]) AS id", [last, others])
    for job_id in (first, others[1500], last):
        graph = client.get(f"/internal/jobs/{job_id}/graph").json()
        nodes = {node["id"] for node in graph["nodes"]}
        assert job_id in nodes
        assert 3 <= len(nodes) <= 60
        assert {end for edge in graph["edges"] for end in (edge["parent"], edge["child"])} == nodes
        assert graph["more"] is True


def test_limits_are_listed_with_what_runs_under_them(client: TestClient, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('queue:mail', 1)")
    make_job(db, "RUNNING", queue="mail", gate="held")
    [limit] = client.get("/internal/limits").json()["items"]
    assert (limit["keyPattern"], limit["maxRunning"], limit["rate"]) == ("queue:mail", 1, None)
    assert (limit["running"], limit["keysRunning"], limit["keysFull"]) == (1, 1, 1)
