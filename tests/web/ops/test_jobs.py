"""The list of jobs at /ops/jobs, which changes while somebody reads it."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from snapapp.jobs.adding import enqueue_many
from tests.factory import Db, make_job, make_jobs
from tests.web.conftest import DRAWN, Server
from tests.web.ops.console import look, panel, visit

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


@at_length
def test_the_list_is_narrowed_in_its_address_and_read_page_by_page(page: Page, site: Server, db: Db) -> None:
    make_jobs(db, 60, "FAILED", kind="mail", last_error="refused by a & 'b'")
    make_job(db, "FAILED", kind="mail", last_error="timeout")
    make_job(db, "COMPLETED", kind="mail")
    page.get_by_role("link", name="Jobs", exact=True).click()
    page.get_by_label("State").select_option("failed")
    page.get_by_label("Error holds").fill("a & 'b'")
    page.keyboard.press("Enter")
    lines = panel(page, "Jobs, newest first").locator("tbody tr")
    expect(lines).to_have_count(50)
    assert urlsplit(page.url).query == "status=FAILED&error=a+%26+%27b%27"
    page.get_by_role("link", name="Older").click()
    expect(lines).to_have_count(0)
    expect(panel(page, "Jobs before #11").locator("tbody tr")).to_have_count(10)
    page.reload()
    expect(panel(page, "Jobs before #11").locator("tbody tr")).to_have_count(10)
    expect(page.get_by_label("Error holds")).to_have_value("a & 'b'")
    page.get_by_role("button", name="SQL").click()
    shown = page.locator(".panel .code code").text_content()
    assert shown is not None
    assert len(db.execute(shown.encode()).fetchall()) == 10


@pytest.mark.at_length  # api/internal/test_live has its events in every run
def test_a_job_that_is_enqueued_elsewhere_appears_and_goes_on(page: Page, site: Server, db: Db) -> None:
    visit(page, site, "ops/jobs?kind=unknown")
    expect(page.locator("#link-said")).to_have_text("live")
    job_id = make_job(db, kind="unknown")
    line = page.locator("tbody tr", has=page.get_by_role("link", name=f"#{job_id}", exact=True))
    expect(line).to_contain_text("pending")
    db.execute("SELECT cancel_job(%s)", [job_id])
    expect(line).to_contain_text("cancelled")


@pytest.mark.at_length  # api/internal/test_live bounds what a stream tells in every run
def test_a_flood_does_not_freeze_the_page(page: Page, site: Server, db: Db) -> None:
    """2,000 jobs change twice each or more: the list is drawn far less often than that, and the page stays short."""
    visit(page, site, "ops/jobs")
    page.evaluate(
        """() => {
            window.drawn = 0;
            const changes = { childList: true, subtree: true, characterData: true };
            new MutationObserver(() => window.drawn++).observe(document.querySelector("main"), changes);
        }"""
    )
    for _ in range(2):
        enqueue_many(db, [{"kind": "demo.hello", "queue": "demo"}] * 1000)
    expect(page.locator("tbody tr", has_text="#2000")).to_contain_text("completed", timeout=60_000)
    assert page.locator("tbody tr").count() == 50
    assert 0 < page.evaluate("window.drawn") < 200
    assert page.evaluate("document.querySelectorAll('*').length") < 2000


@at_length
def test_the_keyboard_keeps_its_place_while_the_list_changes(page: Page, site: Server, db: Db) -> None:
    first = make_job(db, kind="unknown")
    visit(page, site, "ops/jobs?kind=unknown")
    page.get_by_role("link", name=f"#{first}", exact=True).focus()
    db.execute("SELECT cancel_job(%s)", [first])
    expect(page.locator("tbody tr")).to_contain_text(["cancelled"])
    expect(page.get_by_role("link", name=f"#{first}", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=f"Job {first}")).to_be_visible()


@at_length
def test_what_is_below_and_beside_a_list_keeps_the_focus_too(page: Page, site: Server, db: Db) -> None:
    """With each look the focus went from it to the beginning of the page."""
    page.locator(".tile", has_text="Running").focus()
    make_jobs(db, 51, kind="unknown", queue="mail")
    look(page)
    expect(page.locator(".tile", has_text="Waiting")).to_contain_text("51")
    expect(page.locator(".tile", has_text="Running")).to_be_focused()
    for path, name, newest in (("ops/jobs?kind=unknown", "Older", 51), ("ops/jobs/50", "mail", 50)):
        visit(page, site, path)
        page.get_by_role("link", name=name).first.focus()
        db.execute("SELECT cancel_job(%s)", [newest])
        expect(page.locator("main .state").first).to_contain_text("cancelled")
        page.evaluate(DRAWN)
        expect(page.get_by_role("link", name=name).first).to_be_focused()
