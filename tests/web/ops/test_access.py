"""Who may see /ops, and what the page says to others."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.factory import Db, make_job, scalar
from tests.jobs.working import until
from tests.web.conftest import Server, opened
from tests.web.ops.console import confirm, deeds

at_length = pytest.mark.at_length  # what the page shows here, api/internal has in every run


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


@at_length
def test_where_the_proxy_knows_no_internal_addresses_the_page_says_so(browser: Browser, site: Server) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.route("**/internal/**", lambda route: route.fulfill(status=404, body="not here"))
        page.goto(site.ops)
        expect(page.locator("#notice")).to_contain_text("has closed it at this address")


def test_without_javascript_the_page_says_what_to_do_instead(browser: Browser, site: Server) -> None:
    with opened(browser, site.ops, java_script_enabled=False) as (page, complaints):
        expect(page.locator("noscript .notice")).to_contain_text("snapapp jobs list")
        assert complaints == []
