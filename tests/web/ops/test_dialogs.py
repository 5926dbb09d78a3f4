"""The questions that /ops asks before it does something, and the answers to them."""

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.factory import Db, make_job, make_jobs, scalar
from tests.jobs.working import until
from tests.web.conftest import DRAWN, HOSTILE, Server, opened
from tests.web.ops.console import deeds, look, panel, visit

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


@pytest.mark.at_length  # api/internal/test_failures has it in every run
def test_a_group_of_failures_is_counted_and_retried_with_a_name(page: Page, db: Db) -> None:
    make_jobs(db, 3, "FAILED", kind="unknown", last_error=HOSTILE)
    make_job(db, "FAILED", kind="unknown", last_error="another")
    look(page)
    line = panel(page, "Failures by what went wrong").locator("tbody tr", has_text="onerror")
    line.get_by_role("button", name="Retry").click()
    dialog = page.locator("#many")
    expect(dialog.locator("#many-said")).to_have_text("3 jobs will be retried. What fails from now on is left alone.")
    expect(dialog.locator("#many-which")).to_contain_text(HOSTILE)
    dialog.get_by_label("Your name").fill("Zé")
    dialog.get_by_role("button", name="Retry 3 jobs").click()
    expect(dialog.locator("#many-said")).to_have_text("3 of 3 retried.")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    expect(line).to_have_count(0)
    page.keyboard.press("Enter")
    expect(panel(page, "Failures by what went wrong").get_by_role("button", name="Retry")).to_be_focused()
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'") == 3
    assert deeds(db) == [("Zé", "jobs.retry", "jobs", 3)]


@at_length
def test_a_count_that_was_left_does_not_put_its_jobs_into_the_next_question(page: Page, db: Db) -> None:
    """Its late answer made "Retry" of one group into "Discard" of the other, below the words about the one."""
    make_jobs(db, 2, "FAILED", kind="unknown", last_error="slow")
    make_job(db, "FAILED", kind="unknown", last_error="quick")
    look(page)
    lines = panel(page, "Failures by what went wrong").locator("tbody tr")
    held: list[Route] = []
    page.route("**/internal/failures/step", lambda route: held.append(route), times=1)
    lines.filter(has_text="slow").get_by_role("button", name="Discard").click()
    until(lambda: page.evaluate("1") and bool(held))
    page.keyboard.press("Escape")
    lines.filter(has_text="quick").get_by_role("button", name="Retry").click()
    expect(page.locator("#many-yes")).to_have_text("Retry 1 job")
    with page.expect_response("**/internal/failures/step"):
        held[0].continue_()
    page.evaluate(DRAWN)
    page.locator("#many-yes").click()
    expect(page.locator("#many-said")).to_have_text("1 of 1 retried.")
    left = db.execute("SELECT last_error FROM snap_processing_job WHERE status = 'FAILED'").fetchall()
    assert left == [("slow",), ("slow",)]


@at_length
def test_a_long_retry_shows_how_far_it_is_and_can_be_stopped(page: Page, db: Db) -> None:
    """After its first step, which another transaction holds up until somebody has pressed Stop."""
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at) SELECT 'unknown', 'FAILED', now()"
        " FROM generate_series(1, 1200)"
    )
    look(page)
    panel(page, "Failures by what went wrong").get_by_role("button", name="Retry").click()
    dialog = page.locator("#many")
    with db.transaction():
        db.execute("SELECT FROM snap_processing_job WHERE id = 600 FOR UPDATE")
        dialog.get_by_role("button", name="Retry 1,200 jobs").click()
        expect(dialog.locator("#many-said")).to_have_text("500 of 1,200 retried …")
        assert dialog.locator("progress").evaluate("bar => bar.value") == 500
        dialog.get_by_role("button", name="Stop").click()
    expect(dialog.locator("#many-said")).to_contain_text("Stopped: ")
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'FAILED'") >= 200
    [(_, action, _, jobs)] = deeds(db)
    assert (action, jobs) == (
        "jobs.retry",
        scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'PENDING'"),
    )


def leaving_a_slow_retry(page: Page) -> Route:
    """Its dialog is left before the answer, which is held back."""
    held: list[Route] = []
    page.route("**/retry", lambda route: held.append(route), times=1)
    page.get_by_role("button", name="Retry").click()
    page.locator("#sure-yes").click()
    until(lambda: page.evaluate("1") and bool(held))
    page.keyboard.press("Escape")
    return held[0]


@at_length
def test_an_answer_closes_no_other_question(page: Page, site: Server, db: Db) -> None:
    """Whoever left the dialog of a slow change, and typed a reason into the next one, lost what was typed."""
    visit(page, site, f"ops/jobs/{make_job(db, 'FAILED', kind='unknown')}")
    retry = leaving_a_slow_retry(page)
    page.get_by_role("button", name="Discard").click()
    page.get_by_label("Reason").fill("obsolete")
    with page.expect_response("**/retry"):
        retry.continue_()
    page.evaluate(DRAWN)
    expect(page.locator("#sure")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("obsolete")


@at_length
@pytest.mark.parametrize("asks_another", [False, True], ids=["and asked nothing", "and asked another"])
def test_a_refusal_is_said_also_to_whoever_has_left_its_question(
    browser: Browser, site: Server, db: Db, asks_another: bool
) -> None:
    """They believe that it is done."""
    job_id = make_job(db, "FAILED", unique_key="k", unique_scope="live", kind="unknown")
    holder = make_job(db, unique_key="k", unique_scope="live", kind="unknown")
    with opened(browser, f"{site.ops}/jobs/{job_id}") as (page, complaints):
        retry = leaving_a_slow_retry(page)
        expect(page.locator("#sure")).to_be_hidden()
        if asks_another:
            page.get_by_role("button", name="Discard").click()
        retry.continue_()
        expect(page.locator("#sure")).to_be_visible()
        expect(page.locator("#sure-said")).to_contain_text(f"job {holder} holds its unique key k")
        expect(page.locator("#sure-title")).to_have_text(f"{'Discard' if asks_another else 'Retry'} job {job_id}")
        expect(page.locator("#sure-yes")).to_be_enabled()
    assert [said for said in complaints if "409" not in said] == []


@at_length
def test_a_refusal_stays_in_the_dialog_in_words(browser: Browser, site: Server, db: Db) -> None:
    job_id = make_job(db, "FAILED", unique_key="k", unique_scope="live", kind="unknown")
    holder = make_job(db, unique_key="k", unique_scope="live", kind="unknown")
    with opened(browser, f"{site.ops}/jobs/{job_id}") as (page, complaints):
        page.get_by_role("button", name="Retry").click()
        page.locator("#sure-yes").click()
        expect(page.locator("#sure-said")).to_contain_text(f"job {holder} holds its unique key k")
        expect(page.locator("#sure-yes")).to_be_focused()
    assert [said for said in complaints if "409" not in said] == []


def test_enter_behind_a_reason_does_what_was_asked_and_keeps_the_keyboards_place(page: Page, db: Db) -> None:
    make_job(db, kind="unknown", queue="mail")
    db.execute("SELECT pause_queue('reports', 'month end')")  # nothing waits there: resumed, it leaves the list
    look(page)
    lines = panel(page, "Queues").locator("tbody tr")
    pauses = lines.filter(has_text="mail").get_by_role("button", name="Pause")
    pauses.press("Enter")
    make_job(db, kind="unknown", queue="mail")  # its line changes behind the question
    look(page)
    expect(lines.filter(has_text="mail").get_by_role("cell").first).to_have_text("2")
    page.keyboard.press("Escape")
    expect(pauses).to_be_focused()
    page.keyboard.press("Enter")
    page.locator("#sure-reason").fill("lunch")
    page.keyboard.press("Enter")
    expect(lines.filter(has_text="mail")).to_contain_text("paused lunch")
    expect(page.locator("#spoken")).to_have_text("Pause mail: done.")
    lines.filter(has_text="reports").get_by_role("button", name="Resume").press("Enter")
    page.keyboard.press("Enter")
    expect(lines).to_have_count(1)
    expect(lines.get_by_role("button", name="Resume")).to_be_focused()


def test_enter_alone_discards_nothing_and_a_late_count_leaves_who_types_in_peace(page: Page, db: Db) -> None:
    """The focus went to the button that discards them all, also out of the name that was being typed."""
    make_jobs(db, 2, "FAILED", kind="unknown", last_error="slow")
    look(page)
    group = panel(page, "Failures by what went wrong")
    group.get_by_role("button", name="Discard").press("Enter")
    expect(page.locator("#many-yes")).to_have_text("Discard 2 jobs")
    expect(page.locator("#many-no")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#many")).to_be_hidden()
    held: list[Route] = []
    page.route("**/internal/failures/step", lambda route: held.append(route), times=1)
    group.get_by_role("button", name="Retry").press("Enter")
    page.locator("#many-name").press_sequentially("Ana")
    until(lambda: page.evaluate("1") and bool(held))
    held[0].continue_()
    expect(page.locator("#many-yes")).to_have_text("Retry 2 jobs")
    page.keyboard.type(" Souza")
    expect(page.locator("#many-name")).to_have_value("Ana Souza")
    page.keyboard.press("Escape")
