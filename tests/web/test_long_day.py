"""A list of moments after a long day, and a page that has stood open as long."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.conftest import Server, heed_routes, opened
from tests.web.operating import brete, mark_at, moments, ready

__all__ = ["brete"]  # a fixture

TYPE = """async () => {
    for (let turn = 0; turn < 5; turn += 1) {
        document.querySelector("#fields input").dispatchEvent(new Event("input"));
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }
}"""


def show_many(page: Page, count: int) -> None:
    """As if each page of the list had been asked for."""
    page.unroute("**/snaps?*")

    def answer(route: Any) -> None:
        answered = route.fetch().json()
        [snap] = answered["items"]
        many = [snap | {"snapId": f"00000000-0000-4000-8000-{place:012}"} for place in range(count)]
        route.fulfill(body=json.dumps(answered | {"items": [snap, *many]}), content_type="application/json")

    page.route("**/snaps?*", answer)
    page.reload()
    expect(moments(page)).to_have_count(count + 1)
    moments(page).first.get_by_role("button", name="Describe", exact=True).click()
    expect(page.get_by_label("Subject")).to_be_focused()


def work_of_keys(page: Page) -> float:
    """Seconds of a processor that its scripts take for five keys: a busy machine changes little about them."""
    processor = page.context.new_cdp_session(page)
    processor.send("Performance.enable", {"timeDomain": "threadTicks"})

    def taken() -> float:
        metrics = processor.send("Performance.getMetrics")["metrics"]
        return next(float(each["value"]) for each in metrics if each["name"] == "ScriptDuration")

    before = taken()
    page.evaluate(TYPE)
    return taken() - before


@pytest.mark.at_length  # two thousand moments are drawn
def test_a_key_in_a_long_list_takes_time_in_proportion_to_it(browser: Browser, site: Server, brete: Path) -> None:
    """Each key compared every moment with every other one."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        mark_at(page, 0.4)
        expect(moments(page).first.locator(".state")).to_contain_text("clip", timeout=90_000)
        heed_routes(page)
        show_many(page, 250)
        short = work_of_keys(page)
        show_many(page, 2000)
        assert work_of_keys(page) < 9 * short  # eight times as many; it was 14
