"""Every page as axe-core judges it: 0 violations, by day and by night. The page's own policy would not let it in, so it
comes as a debugger does."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.factory import Db, make_job, make_jobs
from tests.web.conftest import HOSTILE, Server, opened
from tests.web.operating import brete, moments, ready
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES

__all__ = ["brete"]  # a fixture

VENDOR = Path(__file__).parent / "vendor"
AXE = (VENDOR / "axe.min.js").read_text()
JUDGE = """async (only) => (await axe.run(document, { resultTypes: ["violations"], ...only })).violations.flatMap(
    ({ id, help, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html.slice(0, 200)}`))"""
TARGETS = {"rules": {"target-size": {"enabled": True}}}  # at least 24 pixels, or as much room around: WCAG 2.2
# By night nothing changes but the colours.
SCHEMES: dict[Any, dict[str, Any]] = {"light": TARGETS, "dark": {"runOnly": ["color-contrast"]}}
# As a window of 1280 pixels is at 400 %, with text of twice the size on top: WCAG 1.4.4 and 1.4.10.
MAGNIFIED: ViewportSize = {"width": 320, "height": 640}
STICKS_OUT = """(size) => {
    const root = document.documentElement;
    root.style.fontSize = size;
    const isWide = root.scrollWidth > innerWidth;
    const isBeyond = (each) => each.getBoundingClientRect().right > innerWidth;
    const beyond = [...document.querySelectorAll("body *")].filter(isBeyond);
    root.style.fontSize = "";
    return isWide ? beyond.map((each) => `sticks out: ${each.outerHTML.slice(0, 200)}`) : [];
}"""
HEBREW = "פרה 12, אדומה."
# Where its first letter and its full stop stand: the full stop is left of all the rest.
READ = """(each) => {
    const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
    while (!texts.nextNode().data.includes("."));
    const range = document.createRange();
    return ["פ", "."].map((letter) => {
        const place = texts.currentNode.data.indexOf(letter);
        range.setStart(texts.currentNode, place);
        range.setEnd(texts.currentNode, place + 1);
        return Math.round(range.getBoundingClientRect().left);
    });
}"""
OPS = ("", "/jobs", "/jobs/{job}", "/queues", "/history", "/schedules", "/workers", "/box", "/costs", "/audit")


def violations(page: Page) -> list[str]:
    """Of what is shown now, in both schemes, and magnified."""
    before = page.viewport_size
    assert before
    page.set_viewport_size(MAGNIFIED)
    found: list[str] = page.evaluate(STICKS_OUT, "200%")[:3]
    page.set_viewport_size(before)
    if not page.evaluate("'axe' in window"):  # a second time, all of it would be compiled again
        page.evaluate(AXE)
    for scheme, only in SCHEMES.items():
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found += [f"{scheme}: {each}" for each in page.evaluate(JUDGE, only)]
    return found


def left_on_paper(page: Page) -> list[str]:
    """What can be done only on a screen. A moment in the player's list is a button, and printed."""
    page.emulate_media(media="print")
    every = page.locator("nav, form, button:not(.snap), input, select")
    words = "(all) => all.filter((each) => each.checkVisibility()).map((each) => each.outerHTML.slice(0, 200))"
    found: list[str] = every.evaluate_all(words)
    page.emulate_media(media="screen")
    return found


def is_read_from_the_right(page: Page, place: str) -> bool:
    expect(page.locator(place).first).to_contain_text(HEBREW)
    first, last = page.locator(place).first.evaluate(READ)
    return bool(last < first)


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    with opened(browser, site.home) as (page, complaints):
        yield page
    assert [said for said in complaints if "401" not in said and "404" not in said] == []


def test_it_is_the_one_that_its_readme_names() -> None:
    told = re.findall(r"sha256 ([0-9a-f]{64})", (VENDOR / "README.md").read_text())
    assert told == [hashlib.sha256((VENDOR / "axe.min.js").read_bytes()).hexdigest()]
    assert "Mozilla Public License" in (VENDOR / "LICENSE").read_text()


@pytest.mark.at_length  # the judge is pinned, and judges the pages in every run
def test_it_would_notice(page: Page, site: Server) -> None:
    """A field that nobody has named, and grey words on grey."""
    page.goto(f"{site.home}snaps")
    page.evaluate("document.querySelector('#q').labels[0].remove()")
    page.evaluate("document.querySelector('h1').style.color = '#d8d8d8'")
    found = " ".join(violations(page))
    assert "label: Form elements must have labels" in found
    assert "color-contrast" in found


def test_the_operators_pages(page: Page, site: Server, brete: Path) -> None:
    ready(page, brete)
    page.evaluate("localStorage.removeItem('operator')")
    page.keyboard.press("s")
    expect(page.get_by_role("dialog")).to_contain_text("Who marks?")
    assert violations(page) == []
    page.get_by_label("Name").fill("Ana" * 40)  # one word, as long as a name may be
    page.get_by_label("E-mail").fill("ana@fazenda.example")
    page.keyboard.press("Enter")
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    page.locator("#keys summary").click()
    page.get_by_label("Subject").fill(HEBREW)
    page.get_by_label("Notes").fill(HOSTILE)
    assert violations(page) == []
    page.keyboard.press("Enter")
    for place in ("#mark-said", "#moments b"):
        assert is_read_from_the_right(page, place), place
    assert left_on_paper(page) == []
    moments(page).first.get_by_role("button", name="Delete").click()
    assert violations(page) == []
    page.keyboard.press("Escape")

    page.goto(f"{site.home}snaps")
    expect(page.locator("#found li")).to_have_count(1)
    assert is_read_from_the_right(page, "#found b")
    assert left_on_paper(page) == []
    assert violations(page) == []
    page.locator("#found .card").click()
    expect(page.locator("#frames img")).to_have_count(5)
    for place in ("#title", "#record dd"):
        assert is_read_from_the_right(page, place), place
    page.get_by_role("button", name="Make a link").click()
    expect(page.locator("#share-said")).to_have_text("The link is there.")
    assert violations(page) == []

    link = page.locator("#share-url").inner_text()
    for address in (link, f"{link}x"):
        page.goto(address)
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address

    page.route("**/v2/session", lambda asked: asked.fulfill(status=401, json={"message": "Who is it?"}))
    page.goto(site.home)
    expect(page.locator("#sign-in-token")).to_be_visible()
    assert violations(page) == []


@pytest.mark.at_length  # the pages of operators are judged in every run; ops/test_views measures the contrast of /ops
def test_the_pages_of_whoever_is_on_call(page: Page, site: Server, db: Db) -> None:
    failed = make_jobs(db, 2, "FAILED", kind="mail.send", queue="mail", last_error="refused")
    waiting = make_job(db, kind="mail.send", queue="mail")
    db.execute("INSERT INTO job_parent SELECT %s, id, true FROM unnest(%s::bigint[]) AS id", [waiting, failed])
    db.execute("TRUNCATE job_cost, job_history")  # ids begin at 1 again, and another test's jobs had them
    a_minute = "VALUES (date_trunc('minute', now()), 1, '', 1, 1, 0, 1, '{1}', '{1}')"
    db.execute(f"INSERT INTO job_history {a_minute} ON CONFLICT DO NOTHING")  # the worker may have written its own
    db.execute("INSERT INTO job_cost VALUES (%s, 1, 1, 'mail.send', 'FAILED', now(), 5, 15, 9, 12)", [failed[0]])
    httpx.post(f"{site.ops}".replace("/ops", "/internal/queues/mail/pause"), json={"reason": "stocktaking"})
    for view in OPS:
        page.goto(site.ops + view.format(job=failed[0]))
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        expect(page.locator("#view").locator("tbody tr, dl dd, svg path, svg rect, .none").first).to_be_attached()
        page.evaluate("for (const fold of document.querySelectorAll('#view details')) fold.open = true")
        assert violations(page) == [], view
    page.route(
        "**/internal/**", lambda asked: asked.fulfill(status=401, json={"message": "Internal API token required"})
    )
    page.goto(site.ops)
    expect(page.locator("#token")).to_be_visible()
    assert violations(page) == []
    page.goto(f"{site.home}docs")
    page.locator("details.operation summary").first.click()
    assert violations(page) == []
