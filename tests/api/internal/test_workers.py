"""/internal/workers: the roster, and how workers ended."""

from datetime import timedelta

from starlette.testclient import TestClient

from snapapp.jobs.rows import roster
from snapapp.jobs.rows.roster import Counts, Member, Report
from tests.factory import Db
from tests.jobs.working import until

WORKERS = "/internal/workers"


def member(name: str) -> Member:
    return Member(name * 32, name, "box", "boot", 1, 1, ["mail"], ["mail.send"], 4)


def test_the_roster_is_shown_as_of_the_last_beat(client: TestClient, db: Db) -> None:
    """Q39, R47."""
    counts = Counts(claimed=5, completed=3, failed=1, retried=1, busy_ms=80.0)
    roster.beat(db, member("a"), Report(counts, current_jobs=[7], note="polling"), lives_for=timedelta(minutes=1))
    [shown] = client.get(WORKERS).json()["items"]
    assert (shown["id"], shown["status"], shown["kinds"], shown["currentJobs"]) == (
        "a" * 32,
        "ACTIVE",
        ["mail.send"],
        [7],
    )
    assert (shown["jobsCompleted"], shown["meanMs"], shown["note"]) == (3, 20.0, "polling")
    assert 0 <= shown["lastBeatSeconds"] < 10
    db.execute("UPDATE job_worker SET expires_at = now() - interval '1 s'")
    assert [each["status"] for each in client.get(WORKERS).json()["items"]] == ["LOST"]


def test_exits_are_told_newest_first_and_page_by_page(client: TestClient, db: Db) -> None:
    """M22."""
    for name in "abc":
        roster.beat(db, member(name), Report(), lives_for=timedelta(minutes=1))
        roster.leave(db, member(name).id, f"reason {name}")
    first = client.get(f"{WORKERS}/exits", params={"limit": 2}).json()
    assert [each["reason"] for each in first["items"]] == ["reason c", "reason b"]
    rest = client.get(f"{WORKERS}/exits", params={"limit": 2, "before": first["next"]}).json()
    assert [each["name"] for each in rest["items"]] == ["a"]
    assert rest["next"] is None
    assert client.get(WORKERS).json() == {"items": []}


def test_the_embedded_worker_stands_on_the_roster_and_says_how_it_ended(working_client: TestClient) -> None:
    until(lambda: working_client.get(WORKERS).json()["items"])
    [shown] = working_client.get(WORKERS).json()["items"]
    assert "demo.hello" in shown["kinds"]
