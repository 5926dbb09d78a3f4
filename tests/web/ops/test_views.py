"""The other views of /ops: queues, history, schedules, workers, the box, costs and the audit."""

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from snapapp.jobs.rows.database import connect
from tests.factory import Db, ago, make_job, make_jobs, scalar
from tests.web.conftest import CONTRASTS, OTHER_SCREENS, Server
from tests.web.ops.console import confirm, deeds, look, panel, shown, visit

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


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


# the name of the view, and what stands below a number
ALL_SEEN = """(width) => [...document.querySelectorAll("#views [aria-current], .tile .quiet")].filter((each) => {
    const { left, right } = each.getBoundingClientRect();
    return left < 0 || right > width || each.scrollWidth > each.clientWidth + 1 && each.localName !== "a";
}).map((each) => each.textContent)"""


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
