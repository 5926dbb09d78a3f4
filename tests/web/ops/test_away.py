"""What /ops shows while the database or the server is away."""

import json

import pytest
from playwright.sync_api import Browser, expect

from tests.factory import Db, make_job
from tests.web.conftest import Server, opened
from tests.web.ops.console import panel

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


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
def test_the_answer_of_a_proxy_is_not_taken_for_a_database_that_is_away(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.ops}/jobs") as (page, _):
        expect(page.locator("#link-said")).to_have_text("live")
        page.route("**/internal/**", lambda route: route.fulfill(status=502, body="<h1>502 Bad Gateway</h1>"))
        expect(page.locator("#away")).to_contain_text("The server does not answer: a proxy says status 502. What you")
        expect(page.locator("#link-said")).to_have_text("no answer")


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
