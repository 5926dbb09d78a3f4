"""The first view of /ops: how much waits and runs, what goes wrong, and what to do."""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.factory import Db, ago, hence, make_job, make_jobs, move
from tests.web.conftest import Server, opened
from tests.web.ops.console import IS_OPEN, confirm, deeds, look, panel, visit

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


def test_the_first_look_says_how_much_how_old_and_what_goes_wrong(page: Page, db: Db) -> None:
    """M63: a dashboard."""
    oldest = make_job(db, kind="unknown", queue="mail", next_retry_at=ago(minutes=5, seconds=30))
    make_jobs(db, 3, "FAILED", kind="mail.send", queue="mail", last_error="refused\nby whom")
    make_job(db, "COMPLETED", finished_at=ago(minutes=2))
    look(page)
    tiles = page.locator(".tile")
    expect(tiles.nth(0)).to_contain_text("Waiting1")
    expect(tiles.nth(2)).to_contain_text("Failed3")
    expect(tiles.nth(3)).to_contain_text("Oldest due5 min")
    expect(tiles.nth(3)).to_have_attribute("href", f"/ops/jobs/{oldest}")
    expect(page.get_by_role("table", name="Queues").locator("tbody tr")).to_contain_text(["mail"])
    expect(page.get_by_role("button", name="SQL: Queues")).to_be_visible()
    failures = panel(page, "Failures by what went wrong").locator("tbody tr")
    expect(failures).to_contain_text(["refused"])
    expect(failures.locator("time")).to_have_text(re.compile(r"\d:\d\d:\d\d.*, .* ago$"))  # a finger opens no title
    db.execute("INSERT INTO job_history VALUES (now() - interval '1 min', 1, '', 1, 0, 0, 0, '{}', '{}')")
    look(page)
    expect(panel(page, "Ended, minute by minute")).to_contain_text("1 completed")
    expect(panel(page, "Ended, minute by minute").locator("rect.completed")).to_have_count(1)
    expect(panel(page, "What the doctor finds")).to_contain_text("checks found nothing wrong")
    expect(page.locator("#health")).to_contain_text(
        re.compile(r"^ ?The doctor warns of (one thing|\d+ things), below, as of \d+ m?s ago · database")
    )


@at_length
def test_sixty_that_end_in_each_minute_are_sixty_a_minute_whatever_has_passed_of_this_one(page: Page) -> None:
    rate = """([second]) => import('/static/ops/now.js').then(({ perMinute }) => {
        const items = Array.from({ length: 60 }, (_, minute) => ({
            at: new Date(minute * 60000).toISOString(), completed: minute < 59 ? 60 : second, failed: 0, cancelled: 0,
        }));
        return perMinute(items, 59 * 60000 + second * 1000);
    })"""
    assert [page.evaluate(rate, [second]) for second in (0, 1, 30, 59)] == [60, 60, 60, 60]


@at_length
def test_failures_beyond_the_fifty_largest_groups_are_told(page: Page, db: Db) -> None:
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, finished_at, last_error)"
        " SELECT 'mail.send', 'FAILED', now(), 'error ' || number FROM generate_series(1, 53) AS number"
    )
    look(page)
    failures = panel(page, "Failures by what went wrong")
    expect(failures.locator("tbody tr")).to_have_count(50)
    expect(failures).to_contain_text("3 more went wrong in other ways.")


@at_length
def test_what_waits_leads_to_where_it_is(page: Page, db: Db) -> None:
    waiting = page.locator(".tile").nth(0)
    later = make_job(db, "RETRY_WAIT", kind="unknown", next_retry_at=hence(hours=1))
    look(page)
    expect(waiting).to_have_attribute("href", "/ops/jobs?status=RETRY_WAIT")
    make_job(db, kind="unknown", next_retry_at=hence(hours=1))
    look(page)
    expect(waiting).to_have_attribute("href", "/ops/queues")
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [later])
    look(page)
    expect(waiting).to_have_attribute("href", "/ops/jobs?status=PENDING")


@at_length
def test_a_finding_says_what_to_do_and_leads_to_what_it_speaks_of(page: Page, db: Db) -> None:
    *_, newest = make_jobs(db, 3, "FAILED", kind="mail.send", queue="mail", last_error="refused")
    found = panel(page, "What the doctor finds")
    found.get_by_role("button", name="Look again").click()
    item = found.locator("li", has_text="Dead letters of the kind mail.send")
    expect(item.get_by_text("when the cause is gone, retry them")).to_be_visible()
    expect(item.get_by_text("snapapp jobs retry --failed --kind=mail.send")).to_be_visible()
    expect(item.get_by_role("link", name=f"job {newest}")).to_have_attribute("href", f"/ops/jobs/{newest}")
    item.get_by_role("link", name="its jobs").click()
    expect(panel(page, "Jobs, newest first").locator("tbody tr")).to_have_count(3)
    assert page.url.endswith("/ops/jobs?kind=mail.send&status=FAILED")


@at_length
def test_what_happens_now_stands_apart_from_advice_on_the_set_up(page: Page, db: Db) -> None:
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('queue:media', 1)")
    runs = make_job(db, "RUNNING", kind="unknown", queue="media", gate="held")
    held = make_job(db, kind="unknown", queue="media", gate="held", next_retry_at=ago(minutes=2))
    expect(page.locator(".tile").first).to_contain_text("1 due now; full: the limit queue:media")
    found = panel(page, "What the doctor finds")
    found.get_by_role("button", name="Look again").click()
    full = found.locator("li", has_text="The limit queue:media lets 1")
    full.get_by_text("why, and what to do").click()
    move(db, held, next_retry_at=ago(minutes=4))
    found.get_by_role("button", name="Look again").click()
    expect(full).to_contain_text("has been due for 4 min")
    assert full.locator("details").evaluate(IS_OPEN), "it closed under whoever read it, with each new number"
    expect(found.get_by_role("link", name="limits")).to_have_attribute("href", "/ops/queues")
    expect(found.get_by_role("link", name=f"job {runs}", exact=True)).to_have_attribute("href", f"/ops/jobs/{runs}")
    advice = found.get_by_text("backup", exact=False).first
    expect(advice).to_be_hidden()
    found.locator("summary", has_text="advice on how it is set up").click()
    expect(advice).to_be_visible()


@at_length
def test_the_line_at_the_top_does_not_call_well_what_the_doctor_notices(page: Page, site: Server, db: Db) -> None:
    """Nor without the age of what it found; a setting is no fault, and a full disk is said to be one."""
    answers: list[dict[str, Any]] = [{"status": "UP", "components": {"worker": {"status": "UP", "state": "off"}}}]
    page.route("**/actuator/health", lambda route: route.fulfill(body=json.dumps(answers[-1])))
    told: dict[str, Any] = {"check": "xmin", "id": "XMIN_HELD", "saw": "pid 7", "numbers": {}, "why": "", "do": ""}
    told |= {"paste": None, "canFix": False, "severity": "notice"}
    findings = [told | {"check": "cost", "id": "COST_UNKNOWN"}]
    body = {"generatedAt": "2026-01-01T00:00:00Z", "worst": "notice", "findings": findings}
    page.route("**/internal/doctor*", lambda route: route.fulfill(body=json.dumps(body)))
    visit(page, site, "ops")
    expect(page.locator("#health")).to_have_text(re.compile(r"^ *The doctor found nothing wrong \d+ m?s ago: *$"))
    findings.append(told)
    answers.append({"status": "UP", "components": {}})
    page.get_by_role("button", name="Look again").click()
    expect(page.locator("#health")).to_contain_text("The doctor takes notice of one thing, below, as of")
    disk = {"status": "DOWN", "freeMb": 71680, "floorMb": 81920}
    answers.append({"status": "DOWN", "components": {"disk": disk}})
    expect(page.locator("#health")).to_have_text(" Not well: the disk is too full: 70 GB are free, the floor is 80 GB")


@at_length
def test_attempts_that_are_repeated_are_seen_before_a_job_has_failed(page: Page, db: Db) -> None:
    for kind in ("mail", ""):
        values: list[Any] = [kind, 0, 0, 0, 15, [], []]
        db.execute("INSERT INTO job_history VALUES (now(), 1, %s, %s, %s, %s, %s, %s, %s)", values)
    pace = panel(page, "Ended, minute by minute")
    repeated = pace.get_by_role("link", name="15 attempts failed and are repeated")
    expect(repeated).to_have_attribute("href", "/ops/jobs?status=RETRY_WAIT")
    expect(pace.locator("rect.retried")).to_have_count(1)
    expect(panel(page, "Pickup and run time, the last hour").locator("tbody tr")).to_contain_text("mail00015")


@at_length
def test_the_first_look_has_pickup_and_run_time_by_kind_and_each_number_its_rows(page: Page, db: Db) -> None:
    old = {"created_at": ago(hours=3), "kind": "mail"}
    young = make_job(db, "FAILED", finished_at=ago(minutes=1), last_error="no", **old)
    make_job(db, "FAILED", finished_at=ago(hours=2), last_error="no", **old)
    counts = [0, 1, 0, 0, [0, 0, 1], [0] * 20 + [1]]
    for kind in ("mail", ""):
        values = [kind, *counts]
        db.execute("INSERT INTO job_history VALUES (now(), 1, %s, %s, %s, %s, %s, %s, %s)", values)
    look(page)
    times = panel(page, "Pickup and run time, the last hour").locator("tbody tr")
    expect(times).to_contain_text("mail01002 ms2 ms874 ms1 s")
    expect(times.get_by_role("link", name="mail")).to_have_attribute("href", "/ops/history?kind=mail")
    shown = panel(page, "Pickup and run time, the last hour")
    shown.get_by_role("button", name="SQL").click()
    statement = (shown.locator(".code code").text_content() or "").split(";")[0]
    assert [each[:3] for each in db.execute(statement.encode()).fetchall()] == [("mail", 0, 1)]
    group = panel(page, "Failures by what went wrong").locator("tbody tr")
    expect(group).to_contain_text("mail211")
    group.get_by_role("link", name="1", exact=True).last.click()
    lines = panel(page, "Jobs, newest first").locator("tbody tr")
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(f"#{young}")
    page.go_back()
    panel(page, "Ended, minute by minute").get_by_role("link", name="1 failed").click()
    expect(lines).to_have_count(1)


@at_length
def test_a_finding_whose_cure_is_safe_has_a_button(page: Page, db: Db) -> None:
    make_job(db, kind="unknown", queue="mail")
    db.execute("SELECT pause_queue('mail', 'stocktaking')")
    found = panel(page, "What the doctor finds")
    found.get_by_role("button", name="Look again").click()
    item = found.locator("li", has_text="The queue mail has been paused")
    item.get_by_role("button", name="Resume").click()
    confirm(page, "Resume mail")
    expect(item).to_have_count(0)
    assert deeds(db) == [("Ana", "queue.resume", "queue mail", 0)]


@at_length
def test_a_demo_job_is_started_and_leads_to_its_page(page: Page, db: Db) -> None:
    page.get_by_role("button", name="demo.hello").click()
    page.get_by_role("link", name="job 1", exact=True).click()  # the tile of the oldest due may name it, too
    expect(page.get_by_role("heading", name="Job 1 · demo.hello")).to_be_visible()
    expect(page.locator(".title .state")).to_contain_text("completed")
    page.go_back()
    expect(page.locator(".tile").first).to_be_visible()


@at_length
def test_a_part_that_cannot_be_shown_does_not_hide_the_others(browser: Browser, site: Server, db: Db) -> None:
    make_job(db, kind="unknown", queue="mail")
    with opened(browser, "about:blank") as (page, _):
        body = json.dumps({"message": "The database took too long, try again"})
        page.route("**/internal/doctor", lambda route: route.fulfill(status=503, body=body))
        page.goto(site.ops)
        expect(panel(page, "What the doctor finds")).to_contain_text("The database took too long")
        expect(panel(page, "Queues").locator("tbody tr")).to_contain_text(["mail"])
        expect(page.locator("#away")).to_be_hidden()
