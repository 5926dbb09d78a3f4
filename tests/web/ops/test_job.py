"""One job at /ops/jobs/{id}: what became of it, its relatives, and what can be done."""

from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp.jobs.rows import roster
from tests.commands import MEMBER
from tests.factory import Db, ago, enqueue, hence, make_job, make_jobs, row, running_job
from tests.web.conftest import DRAWN, HOSTILE, Server, opened
from tests.web.ops.console import IS_OPEN, confirm, deeds, look, panel, visit

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


@at_length
def test_a_workflow_is_drawn_and_each_of_its_jobs_is_a_way_on(page: Page, site: Server, db: Db) -> None:
    first = make_job(db, "COMPLETED", kind="film.fetch")
    parts = make_jobs(db, 12, "COMPLETED", kind="film.part")
    db.execute("UPDATE snap_processing_job SET status = 'FAILED' WHERE id = %s", [parts[4]])
    last = make_job(db, kind="film.join")
    db.execute("INSERT INTO job_parent SELECT id, %s, true FROM unnest(%s::bigint[]) AS id", [first, parts])
    db.execute("INSERT INTO job_parent SELECT %s, id, false FROM unnest(%s::bigint[]) AS id", [last, parts])
    visit(page, site, f"ops/jobs/{last}")
    drawing = page.locator("svg.graph")
    expect(drawing.locator(".own")).to_contain_text(f"#{last}")
    assert drawing.locator(".node").count() == 1 + 8 + 1
    expect(drawing.locator("[data-state=FAILED]")).to_contain_text(f"#{parts[4]}")  # it keeps a box of its own
    expect(drawing.get_by_text("5 more")).to_be_visible()
    assert drawing.locator("path.must").count() == drawing.locator("path.may").count() == 8
    left = [drawing.locator(".node", has_text=f"job {job_id},").bounding_box() for job_id in (first, parts[4], last)]
    places = [box["x"] for box in left if box]
    assert places == sorted(set(places))
    assert len(places) == 3
    expect(panel(page, "Workflow").get_by_role("listitem")).to_have_count(12)  # the same as a list
    page.evaluate("window.stayed = true")
    drawing.get_by_role("link", name=f"job {first}, film.fetch").click()
    expect(page.get_by_role("heading", name=f"Job {first} · film.fetch")).to_be_visible()
    assert page.evaluate("window.stayed") is True
    page.locator("svg.graph").get_by_role("link", name=f"job {parts[4]}, ").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Job {parts[4]} · film.part")).to_be_visible()


@at_length
def test_a_job_without_relatives_has_no_drawing(page: Page, site: Server, db: Db) -> None:
    visit(page, site, f"ops/jobs/{make_job(db, kind='unknown')}")
    expect(page.get_by_role("heading", name="Facts")).to_be_visible()
    expect(panel(page, "Workflow")).to_be_hidden()


@pytest.mark.at_length  # api/internal/test_jobs has both in every run
def test_a_job_shows_what_became_of_it_and_is_retried(page: Page, site: Server, db: Db) -> None:
    errors = [{"attempt": 1, "error": "refused", "trace": "in mail.py", "at": "2026-01-01T00:00:00Z"}]
    parent = make_job(db, "COMPLETED", kind="parent")
    job_id = make_job(db, "FAILED", kind="unknown", last_error="refused", errors=errors, payload={"to": "ana"})
    db.execute("INSERT INTO job_parent VALUES (%s, %s, true)", [job_id, parent])
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, 'knocking')", [job_id])
    visit(page, site, f"ops/jobs/{job_id}")
    expect(page.locator(".explain")).to_contain_text(f"retry_job({job_id})")
    page.locator("summary", has_text="refused").click()
    expect(page.locator(".steps pre")).to_have_text("in mail.py")
    expect(panel(page, "What it said last")).to_contain_text("knocking")
    expect(panel(page, "What it was given, and what it returned")).to_contain_text('"to": "ana"')
    expect(panel(page, "Workflow")).to_contain_text(f"#{parent}")
    page.get_by_role("button", name="Retry").click()
    confirm(page, "Retry the job")
    expect(page.locator(".title .state")).to_contain_text("pending")
    expect(panel(page, "Audit").locator("tbody tr")).to_contain_text("Ana")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Leave it")).to_be_focused()  # Enter alone loses nothing
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Discard").click()
    confirm(page, "Discard the job", reason="a test")
    expect(page.locator(".title .state")).to_contain_text("cancelled")
    assert row(db, job_id).last_error == "discarded: a test"
    page.get_by_role("button", name="Run a copy").click()
    confirm(page, "Run a copy")
    expect(page.get_by_role("heading", name=f"Job {job_id + 1} · unknown")).to_be_visible()
    assert [action for _, action, _, _ in deeds(db)] == ["job.retry", "job.discard", "job.replay"]


@at_length
def test_who_reads_a_job_is_not_disturbed_by_what_it_says(page: Page, site: Server, db: Db) -> None:
    """A closed fold opened again, the keyboard lost its place, and the line that was about to be copied was gone."""
    job = running_job(db, kind="unknown")
    say = "INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)"
    db.execute(say, [job.id, "the first line"])
    visit(page, site, f"ops/jobs/{job.id}")
    payload = page.locator("details", has=page.get_by_text("Payload"))
    payload.locator("summary").click()
    assert not payload.evaluate(IS_OPEN)
    db.execute(say, [job.id, "the second line"])
    look(page)
    expect(page.locator(".log")).to_contain_text("the second line")
    assert not payload.evaluate(IS_OPEN)
    expect(payload.locator("summary")).to_be_focused()
    page.get_by_text("the first line").evaluate("(line) => getSelection().selectAllChildren(line)")
    db.execute(say, [job.id, "the third line"])
    with page.expect_response(f"**/internal/jobs/{job.id}"):
        look(page)
    page.evaluate(DRAWN)
    assert page.evaluate("getSelection().toString()") == "the first line"


@at_length
def test_a_delayed_job_is_run_now(page: Page, site: Server, db: Db) -> None:
    delayed, due = make_job(db, kind="unknown", next_retry_at=hence(hours=1)), make_job(db, kind="unknown")
    child = enqueue(db, "unknown", after=[delayed], delay=timedelta(hours=1))
    visit(page, site, f"ops/jobs/{delayed}")
    page.get_by_role("button", name="Run now").click()
    confirm(page, "Run it now")
    expect(page.locator(".explain")).to_contain_text("has been due for")
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)
    assert [(action, subject) for _, action, subject, _ in deeds(db)] == [("job.now", f"job {delayed}")]
    for other in (due, child):
        visit(page, site, f"ops/jobs/{other}")
        expect(page.get_by_role("button", name="Discard")).to_be_visible()
        expect(page.get_by_role("button", name="Run now")).to_have_count(0)


def test_a_job_or_page_that_is_not_there_is_said_not_to_be(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.home}ops/jobs/77") as (page, complaints):
        expect(page.locator("main .none").first).to_have_text("There is no job 77: it may have been pruned.")
        page.goto(f"{site.home}ops/job")
        expect(page.locator("main .none")).to_have_text("There is no page at this address. What happens now")
        page.get_by_role("link", name="What happens now").click()
        expect(page.locator(".tile").first).to_contain_text("Waiting")
    assert [said for said in complaints if "404" not in said] == []


def test_what_a_job_says_stays_text(page: Page, site: Server, db: Db) -> None:
    job_id = make_job(
        db, "FAILED", kind=HOSTILE, queue=HOSTILE, tenant=HOSTILE, last_error=HOSTILE, payload={HOSTILE: HOSTILE},
        errors=[{"attempt": 1, "error": HOSTILE, "trace": HOSTILE}, {"error": None}],
    )  # fmt: skip
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, HOSTILE])
    for path in (
        "ops",
        f"ops/jobs?kind={quote(HOSTILE)}&errorLine={quote(HOSTILE)}",
        "ops/queues",
        f"ops/jobs/{job_id}",
    ):
        visit(page, site, path)
        expect(page.locator("main")).to_contain_text(HOSTILE)
        assert page.locator("main img, main script, main .rows b, main .job b b").count() == 0
        assert "snapapp ops" in page.title()
    page.get_by_role("link", name=HOSTILE).first.click()
    expect(page.locator("tbody tr")).to_have_count(1)
    panel(page, "Jobs, newest first").get_by_role("button", name="SQL").click()
    shown = page.locator(".panel .code code").text_content()
    assert shown is not None
    assert len(db.execute(shown.encode()).fetchall()) == 1


@at_length
def test_what_a_job_waits_for_is_a_link_and_a_hung_one_is_not_said_to_stop(page: Page, site: Server, db: Db) -> None:
    roster.beat(db, replace(MEMBER, name="box-1"), roster.Report(), lives_for=timedelta(minutes=1))
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('queue:media', 1)")
    runs = make_job(db, "RUNNING", kind="unknown", queue="media", gate="held", claimed_by=MEMBER.id)
    note = f"threads that ignore their deadline: 1 (unknown {runs})"
    db.execute("UPDATE job_worker SET note = %s WHERE id = %s", [note, MEMBER.id])
    waits = make_job(db, kind="unknown", queue="media", gate="held", next_retry_at=ago(minutes=2))
    visit(page, site, f"ops/jobs/{waits}")
    expect(page.locator(".explain")).to_contain_text("snapapp limits set 'queue:media' --max-running N")
    expect(panel(page, "Facts")).not_to_contain_text("held")
    page.locator(".explain").get_by_role("link", name=f"job {runs}").click()
    expect(page.locator(".explain").get_by_role("link", name="box-1")).to_have_attribute("href", "/ops/workers")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#sure-text")).to_have_text("Its thread ignores its deadline, so it ends only with its worker.")
    page.locator("#sure-no").click()
    db.execute("DELETE FROM job_worker WHERE id = %s", [MEMBER.id])
