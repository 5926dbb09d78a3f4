"""The page at /ops, as whoever is on call sees it."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from snapapp.jobs.adding import enqueue_many
from snapapp.jobs.rows import roster
from snapapp.jobs.rows.database import connect
from tests.commands import MEMBER
from tests.factory import Db, ago, enqueue, hence, make_job, make_jobs, move, row, running_job, scalar
from tests.jobs.working import until
from tests.web.conftest import CONTRASTS, DRAWN, HOSTILE, OTHER_SCREENS, Server, get, opened

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


def visit(page: Page, site: Server, path: str) -> None:
    page.goto(site.home + path)
    expect(page.locator("#link")).to_have_attribute("data-state", "live")


def look(page: Page) -> None:
    """What a window does that somebody comes back to; by itself it looks every three seconds, which others show."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def panel(page: Page, title: str) -> Locator:
    return page.locator(".panel", has=page.get_by_role("heading", name=title, exact=True))


def confirm(page: Page, button: str, *, name: str = "Ana", reason: str | None = None) -> None:
    dialog = page.locator("#sure")
    if reason is not None:
        dialog.get_by_label("Reason").fill(reason)
    dialog.get_by_label("Your name").fill(name)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_be_hidden()


def deeds(db: Db) -> list[tuple[Any, ...]]:
    return db.execute("SELECT who, action, subject, jobs FROM job_audit ORDER BY id").fetchall()


# --- now --------------------------------------------------------------------------------------------------------


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
    expect(panel(page, "Queues").locator("tbody tr")).to_contain_text(["mail"])
    expect(panel(page, "Failures by what went wrong").locator("tbody tr")).to_contain_text(["refused"])
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
    rate = """([second]) => import('/static/ops-now.js').then(({ perMinute }) => {
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
    expect(item.get_by_text("snapapp jobs retry --failed --kind mail.send")).to_be_visible()
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
def test_statements_behind_numbers_that_are_no_list_show_their_rows(page: Page, site: Server, db: Db) -> None:
    due = make_job(db, kind="unknown", queue="mail")
    db.execute("INSERT INTO job_limit (key_pattern, max_running) VALUES ('queue:media', 3)")
    make_jobs(db, 2, "RUNNING", kind="unknown", queue="media", gate="held")
    visit(page, site, "ops/queues")
    assert shown(page, db, "Queues")[-1] == [(due,)]
    assert shown(page, db, "Limits")[-1] == [("queue:media",)]
    visit(page, site, "ops/box")
    assert len(shown(page, db, "Connections")[-1]) > 1
    assert shown(page, db, "Tables")[-1]


def shown(page: Page, db: Db, title: str) -> list[list[tuple[Any, ...]]]:
    """The first column of each statement that a panel shows, as the database answers it."""
    part = panel(page, title)
    part.get_by_role("button", name="SQL").click()
    said = part.locator(".code code").first.inner_text()
    statements = [each for each in said.split(";") if re.sub("--.*", "", each).strip()]
    return [[row[:1] for row in db.execute(each.encode()).fetchall()] for each in statements]


@at_length
def test_a_week_is_drawn_and_leads_to_a_kind_and_its_jobs(page: Page, site: Server, db: Db) -> None:
    for kind in ("", "mail"):
        for hours, completed in ((1, 3), (2, 5), (100, 7)):
            counts = [completed, 2, 0, 1, [0, 10], [0] * 20 + [10]]
            db.execute(
                "INSERT INTO job_history"
                " VALUES (date_trunc('hour', now()) - %s * interval '1 hour', 60, %s, %s, %s, %s, %s, %s, %s)",
                [hours, kind, *counts],
            )
    visit(page, site, "ops")
    page.get_by_role("link", name="A week").click()
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    ended = panel(page, "Attempts that ended")
    expect(ended).to_contain_text("15 completed6 failed0 cancelled3 retried")
    expect(ended.locator("rect.completed")).to_have_count(3)
    runs = panel(page, "Run time")
    expect(runs).to_contain_text("the worst p95 was 1 s")
    line = runs.locator("path.p95").get_attribute("d") or ""
    assert (line.count("M"), line.count("L")) == (2, 1)  # a gap of four days is none that was bridged
    mail = panel(page, "By kind").locator("tbody tr")
    expect(mail).to_contain_text(["mail"])
    week = re.compile(r"^/ops/jobs\?kind=mail&status=COMPLETED&finishedFrom=20[-0-9]+T[0-9]{2}%3A[0-9]{2}Z$")
    expect(mail.get_by_role("link", name="15")).to_have_attribute("href", week)
    mail.get_by_role("link", name="mail").click()
    page.wait_for_url("**/ops/history?over=7d&kind=mail")
    page.get_by_role("link", name="24 h").click()
    page.wait_for_url("**/ops/history?over=24h&kind=mail")
    expect(panel(page, "Attempts that ended")).to_contain_text("8 completed4 failed")


@at_length
def test_a_point_of_a_plot_leads_to_the_jobs_of_its_time(page: Page, site: Server, db: Db) -> None:
    """By a click, and for everybody by the table of the same numbers."""
    at = scalar(db, "SELECT date_trunc('minute', now()) - interval '20 min'")
    db.execute("INSERT INTO job_history VALUES (%s, 1, '', 1, 1, 0, 0, '{0,2}', '{0,2}')", [at])
    old = {"created_at": ago(hours=2)}
    inside = make_job(db, "COMPLETED", finished_at=at + timedelta(seconds=30), **old)
    failed = make_job(db, "FAILED", finished_at=at + timedelta(seconds=59), **old)
    make_job(db, "COMPLETED", finished_at=at + timedelta(seconds=60), **old)
    make_job(db, "COMPLETED", finished_at=at - timedelta(seconds=1), **old)
    lines = panel(page, "Jobs, newest first").locator("tbody tr")
    visit(page, site, "ops/history")
    panel(page, "Attempts that ended").locator("rect.completed").click()
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(f"#{inside}")
    expect(page.locator(".chip")).to_contain_text("They ended from")
    page.get_by_role("button", name="Whenever they ended").click()
    expect(lines).to_have_count(3)
    visit(page, site, "ops/history")
    panel(page, "Run time").locator("rect.hover").click()
    expect(lines).to_have_count(2)
    visit(page, site, "ops/history")
    page.get_by_text("The plots as a table").click()
    page.locator(".steps-table tbody tr").get_by_role("link").nth(2).click()
    expect(lines).to_have_count(1)
    expect(lines).to_contain_text(f"#{failed}")
    page.get_by_role("button", name="SQL").click()
    shown = page.locator(".panel .code code").text_content()
    assert shown is not None
    assert [each[0] for each in db.execute(shown.encode()).fetchall()] == [failed]


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
    dialog.get_by_role("button", name="Close").click()
    expect(line).to_have_count(0)
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


@pytest.mark.at_length  # api/internal/test_queues pauses it in every run
def test_a_queue_is_paused_with_a_reason_and_resumed(page: Page, db: Db) -> None:
    make_job(db, kind="unknown", queue="mail")
    look(page)
    line = panel(page, "Queues").locator("tbody tr", has_text="mail")
    line.get_by_role("button", name="Pause").click()
    confirm(page, "Pause the queue", reason="lunch")
    expect(line).to_contain_text("paused lunch")
    line.get_by_role("button", name="Resume").click()
    confirm(page, "Resume the queue")
    expect(line).not_to_contain_text("paused")
    assert deeds(db) == [("Ana", "queue.pause", "queue mail", 0), ("Ana", "queue.resume", "queue mail", 0)]


def test_enter_behind_a_reason_does_what_was_asked_and_keeps_the_keyboards_place(page: Page, db: Db) -> None:
    make_job(db, kind="unknown", queue="mail")
    db.execute("SELECT pause_queue('reports', 'month end')")  # nothing waits there: resumed, it leaves the list
    look(page)
    lines = panel(page, "Queues").locator("tbody tr")
    lines.filter(has_text="mail").get_by_role("button", name="Pause").press("Enter")
    page.locator("#sure-reason").fill("lunch")
    page.keyboard.press("Enter")
    expect(lines.filter(has_text="mail")).to_contain_text("paused lunch")
    expect(page.locator("#spoken")).to_have_text("Pause mail: done.")
    lines.filter(has_text="reports").get_by_role("button", name="Resume").press("Enter")
    page.keyboard.press("Enter")
    expect(lines).to_have_count(1)
    expect(lines.get_by_role("button", name="Resume")).to_be_focused()


@at_length
def test_a_demo_job_is_started_and_leads_to_its_page(page: Page, db: Db) -> None:
    page.get_by_role("button", name="demo.hello").click()
    page.get_by_role("link", name="job 1", exact=True).click()  # the tile of the oldest due may name it, too
    expect(page.get_by_role("heading", name="Job 1 · demo.hello")).to_be_visible()
    expect(page.locator(".title .state")).to_contain_text("completed")
    page.go_back()
    expect(page.locator(".tile").first).to_be_visible()


# --- jobs -------------------------------------------------------------------------------------------------------


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


@pytest.mark.at_length  # api/internal/test_live has its events in every run
def test_a_job_that_is_enqueued_elsewhere_appears_and_goes_on(page: Page, site: Server, db: Db) -> None:
    visit(page, site, "ops/jobs?kind=unknown")
    expect(page.locator("#link-said")).to_have_text("live")
    job_id = make_job(db, kind="unknown")
    line = page.locator("tbody tr", has=page.get_by_role("link", name=f"#{job_id}", exact=True))
    expect(line).to_contain_text("pending")
    db.execute("SELECT cancel_job(%s)", [job_id])
    expect(line).to_contain_text("cancelled")


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
    page.get_by_role("button", name="Discard").click()
    confirm(page, "Discard the job", reason="a test")
    expect(page.locator(".title .state")).to_contain_text("cancelled")
    assert row(db, job_id).last_error == "discarded: a test"
    page.get_by_role("button", name="Run a copy").click()
    confirm(page, "Run a copy")
    expect(page.get_by_role("heading", name=f"Job {job_id + 1} · unknown")).to_be_visible()
    assert [action for _, action, _, _ in deeds(db)] == ["job.retry", "job.discard", "job.replay"]


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


IS_OPEN = "(fold) => fold.open"


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


@at_length
def test_a_refusal_stays_in_the_dialog_in_words(browser: Browser, site: Server, db: Db) -> None:
    job_id = make_job(db, "FAILED", unique_key="k", unique_scope="live", kind="unknown")
    holder = make_job(db, unique_key="k", unique_scope="live", kind="unknown")
    with opened(browser, f"{site.ops}/jobs/{job_id}") as (page, complaints):
        page.get_by_role("button", name="Retry").click()
        page.locator("#sure-yes").click()
        expect(page.locator("#sure-said")).to_contain_text(f"job {holder} holds its unique key k")
    assert [said for said in complaints if "409" not in said] == []


def test_a_job_that_is_not_there_is_said_not_to_be(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.home}ops/jobs/77") as (page, complaints):
        expect(page.locator("main .none").first).to_have_text("There is no job 77: it may have been pruned.")
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


# --- the others -------------------------------------------------------------------------------------------------


@pytest.mark.at_length  # api/internal has the lists in every run
def test_schedules_workers_and_the_audit_have_their_views(page: Page, site: Server, db: Db) -> None:
    visit(page, site, "ops/schedules")
    page.get_by_role("link", name="storage.sweep", exact=True).first.click()
    expect(panel(page, "Next").locator("li")).to_have_count(10)
    page.get_by_role("button", name="Pause").click()
    confirm(page, "Pause it", reason="lunch")
    expect(page.locator(".explain")).to_contain_text("It is paused: lunch.")
    page.get_by_role("button", name="Resume").click()
    confirm(page, "Resume it")
    expect(page.locator(".explain")).not_to_contain_text("paused")
    page.get_by_role("link", name="Workers").click()
    expect(panel(page, "Workers").locator("tbody tr")).to_contain_text(["active"])
    expect(panel(page, "Pools")).to_contain_text("No supervisor is at work")
    page.get_by_role("link", name="Audit").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("tbody tr").last).to_contain_text("reason: lunch")


@at_length
def test_a_schedule_that_no_worker_has_is_said_first_not_to_fire(page: Page, site: Server, db: Db) -> None:
    db.execute("INSERT INTO job_schedule (name, spec) VALUES ('reports.nightly', '0 3 * * *')")
    visit(page, site, "ops/schedules/reports.nightly")
    expect(page.locator(".explain .bad")).to_contain_text(
        "It does not fire: no worker that is alive has it in its code."
    )
    expect(panel(page, "Next")).to_be_hidden()
    db.execute("DELETE FROM job_schedule WHERE name = 'reports.nightly'")


# --- who may see it, and a long life ----------------------------------------------------------------------------


def test_a_server_with_a_token_is_asked_with_it(browser: Browser, serve: Callable[..., Server], db: Db) -> None:
    site = serve(SNAPAPP_INTERNAL_TOKEN="open-the-door-please")
    job_id = make_job(db, "FAILED", kind="unknown")
    with opened(browser, f"{site.ops}/jobs/{job_id}") as (page, complaints):
        expect(page.locator("#token-value")).to_be_focused()
        expect(page.locator("main")).to_be_hidden()
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("#token-said")).to_contain_text("not the one")
        # as it is pasted from a chat, with a character that no header holds
        page.evaluate("sessionStorage.setItem('token', 'open\u200b-the-door')")
        page.reload()
        expect(page.locator("#token-said")).to_contain_text("not the one")
        held: list[Route] = []
        page.route("**/internal/role", lambda route: held.append(route), times=1)
        until(lambda: page.evaluate("1") and bool(held))
        page.locator("#token-value").fill("open-the-door-please")
        page.keyboard.press("Enter")
        held[0].continue_()  # the refusal of a look from before does not forget this token
        page.get_by_role("button", name="Retry").click()
        confirm(page, "Retry the job")
        until(lambda: deeds(db) != [])
        assert scalar(db, "SELECT door FROM job_audit") == "token"
        page.reload()
        expect(page.get_by_role("heading", name=f"Job {job_id}")).to_be_visible()
    assert [said for said in complaints if "401" not in said] == []


@pytest.mark.at_length  # api/internal refuses whoever only reads, in every run
def test_whoever_only_reads_is_shown_no_buttons_that_change_something(
    browser: Browser, serve: Callable[..., Server], db: Db
) -> None:
    site = serve(SNAPAPP_INTERNAL_TOKEN="open-the-door-please", SNAPAPP_INTERNAL_READ_TOKEN="let-me-look-around")
    job_id = make_job(db, "FAILED", kind="unknown", queue="mail", last_error="away")
    with opened(browser, site.ops) as (page, _):
        page.locator("#token-value").fill("let-me-look-around")
        page.keyboard.press("Enter")
        expect(page.get_by_text("reading only")).to_be_visible()
        for path in (
            "ops",
            "ops/jobs?status=FAILED",
            f"ops/jobs/{job_id}",
            "ops/queues",
            "ops/schedules/storage.sweep",
        ):
            page.goto(site.home + path)
            expect(page.locator("#link")).to_have_attribute("data-state", "live")
            expect(page.locator(".changes").first).to_be_attached()  # it is known what is not shown
            words = re.compile("Retry|Discard|Pause|Resume|Run |Replay|Cancel|demo")
            expect(page.locator("main").get_by_role("button", name=words)).to_have_count(0)


def test_from_another_name_the_page_says_what_opens_the_door(browser: Browser, site: Server) -> None:
    port = urlsplit(site.home).port
    with opened(browser, f"http://{port}.localhost:{port}/ops") as (page, _):
        expect(page.locator("#notice")).to_contain_text("SNAPAPP_INTERNAL_TOKEN")
        expect(page.locator("#notice a")).to_have_attribute("href", site.ops)
        expect(page.locator("main")).to_be_hidden()


@at_length
def test_an_address_that_is_not_named_is_not_told_to_set_a_token(
    browser: Browser, serve: Callable[..., Server]
) -> None:
    site = serve(SNAPAPP_INTERNAL_ALLOW="10.0.0.0/8", SNAPAPP_INTERNAL_TOKEN="open-the-door-please")
    with opened(browser, site.ops, extra_http_headers={"X-Forwarded-For": "203.0.113.7"}) as (page, _):
        expect(page.locator("#notice")).to_have_text("SNAPAPP_INTERNAL_ALLOW does not name your address.")
        expect(page.locator("main")).to_be_hidden()


@pytest.mark.at_length  # a server that goes is noticed in every run, below
@pytest.mark.parametrize("path", ["ops", *(pytest.param(one, marks=at_length) for one in ("ops/jobs", "ops/workers"))])
def test_where_the_database_is_away_what_was_seen_stays_with_its_time(
    browser: Browser, site: Server, path: str
) -> None:
    with opened(browser, site.home + path) as (page, _):
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        before = page.locator("main").inner_text()
        away = json.dumps({"status": 503, "message": "The database is away, try again", "details": []})
        page.route("**/internal/**", lambda route: route.fulfill(status=503, body=away))
        expect(page.locator("#away")).to_contain_text("The database is away, try again. What you see is from ")
        expect(page.locator("#link-said")).to_have_text("the database is away")
        assert len(page.locator("main").inner_text()) >= len(before)
        page.unroute("**/internal/**")
        expect(page.locator("#away")).to_be_hidden()


@at_length
def test_the_machine_is_shown_while_the_database_is_away(browser: Browser, site: Server, db: Db) -> None:
    with opened(browser, site.home + "ops/box") as (page, _):
        machine, postgres = panel(page, "The machine"), panel(page, "PostgreSQL")
        expect(postgres.locator(".tile").nth(1)).to_contain_text("Connections")
        expect(panel(page, "Tables")).to_contain_text("snap_processing_job")
        expect(panel(page, "Connections").locator("tbody")).to_contain_text("snapapp")
        away = json.dumps({"status": 503, "message": "The database is away, try again", "details": []})
        page.route("**/internal/box/server", lambda route: route.fulfill(status=503, body=away))
        expect(postgres.locator(".trouble")).to_contain_text("The database is away")
        expect(postgres.locator(".tile").nth(1)).to_contain_text("Connections")  # as it was
        expect(machine.locator(".trouble")).to_be_empty()
        expect(machine.locator(".tile").first).to_contain_text("Memory free")
        expect(page.locator("#away")).to_be_hidden()


@at_length
def test_who_holds_back_vacuum_is_seen(page: Page, site: Server, db: Db, url: str) -> None:
    with connect(url, name="a forgotten console") as other:
        other.execute("BEGIN")
        other.execute("SELECT pg_current_xact_id()")
        visit(page, site, "ops/box")
        expect(panel(page, "Who holds back vacuum")).to_contain_text("a forgotten console")
        expect(panel(page, "Who holds back vacuum")).to_contain_text("idle in transaction")


@at_length
def test_each_kind_has_its_costs(page: Page, site: Server, db: Db) -> None:
    job_id = make_job(db, "COMPLETED", kind="film")
    db.execute("INSERT INTO job_cost VALUES (%s, 1, 1, 'film', 'COMPLETED', now(), 5, 1500, 900, 128)", [job_id])
    visit(page, site, "ops/costs")
    line = page.locator("tbody tr")
    expect(line).to_contain_text("film1")
    expect(line).to_contain_text("5 ms5 ms1 s1 s900 ms900 ms128 MB128 MB")


@at_length
def test_times_and_counts_of_a_kind_lead_to_its_plots_and_to_its_jobs(page: Page, site: Server, db: Db) -> None:
    job_id = make_job(db, "COMPLETED", kind="mail", finished_at=ago(minutes=1))
    db.execute("INSERT INTO job_cost VALUES (%s, 1, 1, 'mail', 'COMPLETED', now(), 5, 1500, 900, 128)", [job_id])
    for kind in ("mail", ""):
        values = [kind, 1, 0, 0, 2, [0, 0, 1], [0] * 20 + [1]]
        db.execute("INSERT INTO job_history VALUES (now(), 1, %s, %s, %s, %s, %s, %s, %s)", values)
    for view, title, bare in (
        ("queues", "The last hour, by kind", 0),
        ("costs", "What an attempt of each kind costs", 3),
    ):
        visit(page, site, f"ops/{view}")
        line = panel(page, title).locator("tbody tr")
        expect(line).to_contain_text("mail")
        numbers = line.locator("td.num:not(:empty)")
        leading = numbers.filter(has=page.get_by_role("link"))
        assert numbers.count() - leading.count() == bare, line.inner_html()  # since when, and memory: no rows
        leading.last.get_by_role("link").click()
        expect(page).to_have_url(re.compile(r"/ops/history\?kind=mail$"))


def test_a_server_that_goes_is_noticed_and_one_that_comes_back_is_found(browser: Browser, site: Server, db: Db) -> None:
    """FD6: an open page does not keep the server from ending."""
    with opened(browser, f"{site.ops}/jobs") as (page, _):
        expect(page.locator("#link-said")).to_have_text("live")
        site.stop()
        expect(page.locator("#away")).to_contain_text("The server does not answer. What you see is from ")
        job_id = make_job(db, kind="meanwhile")
        site.start()
        expect(page.get_by_role("link", name=f"#{job_id}")).to_be_visible()
        expect(page.locator("#away")).to_be_hidden()


@at_length
def test_where_the_proxy_knows_no_internal_addresses_the_page_says_so(browser: Browser, site: Server) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.route("**/internal/**", lambda route: route.fulfill(status=404, body="not here"))
        page.goto(site.ops)
        expect(page.locator("#notice")).to_contain_text("has closed it at this address")


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


# the name of the view, and what stands below a number
ALL_SEEN = """(width) => [...document.querySelectorAll("#views [aria-current], .tile .quiet")].filter((each) => {
    const { left, right } = each.getBoundingClientRect();
    return left < 0 || right > width || each.scrollWidth > each.clientWidth + 1 && each.localName !== "a";
}).map((each) => each.textContent)"""


KEYS_DIFFER = """new Set([...document.querySelectorAll(".key")].slice(0, 4)
    .map((each) => getComputedStyle(each, "::before").borderTopColor)).size"""
LIKE_THE_CURRENT = """(links) => {
    const looks = (each) => { const { borderBottomColor, backgroundColor } = getComputedStyle(each);
        return borderBottomColor + backgroundColor; };
    const all = [...document.querySelectorAll(links)], current = all.find((each) => each.hasAttribute("aria-current"));
    return all.filter((each) => looks(each) === looks(current)).length;
}"""


def test_in_forced_colours_a_key_and_what_is_chosen_are_still_told_apart(page: Page, site: Server) -> None:
    page.emulate_media(forced_colors="active")
    visit(page, site, "ops/history")
    assert page.evaluate(KEYS_DIFFER) == 4
    assert page.evaluate(LIKE_THE_CURRENT, "#views a") == 1
    assert page.evaluate(LIKE_THE_CURRENT, ".spans a") == 1


@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "dark"), *(pytest.param(*one, marks=at_length) for one in OTHER_SCREENS)]
)
def test_every_text_can_be_read_and_nothing_sticks_out(
    page: Page, site: Server, db: Db, scheme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for status in ("PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED", "FAILED", "CANCELLED"):
        last = make_job(db, status, last_error="e" * 300, kind="k" * 60, queue="q" * 60)
    db.execute("SELECT pause_queue(repeat('q', 60), repeat('r', 100))")
    db.execute("INSERT INTO job_cost VALUES (%s, 1, 1, 'k', 'COMPLETED', now(), 945, 945, 945, 945)", [last])
    deed = "INSERT INTO job_audit (who, door, action, subject, jobs) VALUES ('', 'terminal', 'job.retry', %s, 1)"
    db.execute(deed.encode(), [f"job {last}"])
    views = [f"jobs/{last}", *("jobs", "queues", "schedules", "workers", "history", "box", "costs", "audit")]
    for path in ("ops", *(f"ops/{view}" for view in views)):
        visit(page, site, path)
        assert page.evaluate(CONTRASTS) == [], path
        assert page.locator("th").filter(has_not_text=re.compile(".")).count() == 0, path  # each column has a name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.evaluate(ALL_SEEN, width) == [], path
        for wider in (768, 1280):  # they have more columns than a phone, or two panels side by side
            page.set_viewport_size({"width": wider, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= wider, path
        page.set_viewport_size({"width": width, "height": 844})


# --- the files --------------------------------------------------------------------------------------------------

FILES = ["/", "/ops", "/ops/jobs/42", "/static/page.js", "/static/app.css", "/static/favicon.svg", "/robots.txt"]


def test_files_are_asked_for_each_time_and_sent_once(site: Server) -> None:
    for path in FILES:
        answer, body = get(site, path)
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-cache"), path
        assert "noindex" in answer.headers["X-Robots-Tag"]
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        again, nothing = get(site, path, **{"If-None-Match": f'"other", W/{answer.headers["ETag"]}'})
        assert (again.status, nothing, again.headers["ETag"]) == (304, b"", answer.headers["ETag"])
        changed, whole = get(site, path, **{"If-None-Match": '"other"'})
        assert (changed.status, whole) == (200, body)
        head, empty = get(site, path, "HEAD")
        assert (head.status, empty, head.headers["Content-Length"]) == (200, b"", str(len(body)))
    for path in ("/static/nothing", "/static/__init__.py", "/static/..%2f__init__.py", "/static/"):
        answer, body = get(site, path)
        assert (answer.status, json.loads(body)["message"]) == (404, "Not Found"), path


def test_without_javascript_the_page_says_what_to_do_instead(browser: Browser, site: Server) -> None:
    with opened(browser, site.ops, java_script_enabled=False) as (page, complaints):
        expect(page.locator("noscript .notice")).to_contain_text("snapapp jobs list")
        assert complaints == []
