"""A moment's own page: what was said of it is corrected there."""

from fnmatch import fnmatch
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp.processing import media_work
from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.web.conftest import CONTRASTS, HOSTILE, Server, opened
from tests.web.operating import brete, ready
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES
from tests.web.test_share import english_in

at_length = pytest.mark.at_length  # in every run a moment is corrected below, and api/product tries all corrections

__all__ = ["brete"]  # a fixture

FILMED = "SELECT to_char(filmed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS') FROM snap"


def open_marked(page: Page, site: Server, brete: Path) -> None:
    """The page of a moment that was just marked."""
    ready(page, brete)
    with page.expect_response(
        lambda answer: answer.request.method == "POST" and answer.url.endswith("/v2/snaps")
    ) as it:
        page.keyboard.press("s")
    page.goto(f"{site.home}snaps/{it.value.json()['snapId']}")
    expect(page.locator("#title")).not_to_be_empty()


@at_length
def test_the_filming_date_is_corrected_by_somebody_with_a_name(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    with opened(browser, site.home, timezone_id="America/Sao_Paulo") as (page, complaints):
        open_marked(page, site, brete)
        expect(page.locator("#record")).to_contain_text("Mar 1, 2026, 8:15:00")
        page.get_by_role("button", name="Correct when it was filmed").click()
        expect(page.locator("#filmed")).to_be_focused()
        expect(page.locator("#filmed")).to_have_value("2026-03-01T08:15")
        expect(page.get_by_label("Who corrects it")).to_have_value("Ana")
        said = page.locator("#filmed-said")
        for value, words in (
            ("", "Enter a day"),
            ("2999-01-01T00:00", "has not been yet"),
            ("1925-01-01T00:00", "such"),
        ):
            page.locator("#filmed").fill(value)
            page.keyboard.press("Enter")
            expect(said).to_contain_text(words)
        page.get_by_label("Who corrects it").fill(" ")
        page.locator("#filmed").fill("2026-02-28T08:15:30")
        page.keyboard.press("Enter")
        expect(said).to_contain_text("part of the evidence")
        assert scalar(db, FILMED) == "2026-03-01 11:15:00"
        page.get_by_label("Who corrects it").fill(HOSTILE)
        assert page.evaluate(CONTRASTS) == []
        page.keyboard.press("Enter")
        expect(page.locator("#record")).to_contain_text("Feb 28, 2026, 8:15:30")
        expect(page.locator("#correct-filmed")).to_be_hidden()
        expect(page.locator("#corrections li")).to_contain_text("Mar 1, 2026, 8:15:00")
        expect(page.locator("#corrections li")).to_contain_text(HOSTILE)
        expect(page.locator("#corrections li p")).to_contain_text("→ Filmed Feb 28, 2026, 8:15:30")
        assert page.locator("#corrections img, #corrections b").count() == 0
        assert scalar(db, FILMED) == "2026-02-28 11:15:30"

        page.get_by_role("button", name="Correct when it was filmed").click()
        page.keyboard.press("Escape")
        expect(page.locator("#correct-filmed")).to_be_hidden()
        page.get_by_role("button", name="Correct when it was filmed").click()
        page.locator("#filmed").fill("2026-01-01T00:00")
        # Somebody else was quicker. Until it is finished the page asks again and again, and would learn of it.
        expect(page.locator("#state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
        db.execute("UPDATE snap SET filmed_at = filmed_at - interval '1 day'")
        page.keyboard.press("Enter")
        expect(said).to_contain_text("Somebody else has corrected it meanwhile")
        assert scalar(db, FILMED) == "2026-02-27 11:15:30"
    assert [each for each in complaints if "412" not in each] == []


@at_length
def test_what_the_page_learns_while_a_time_is_typed_is_not_corrected_with_it(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    """A moment that is in work is asked for each second: with the version of somebody else's correction the typed one
    replaced theirs, and nobody was told."""
    db.execute("SELECT pause_queue('media')")
    try:
        with opened(browser, site.home, timezone_id="America/Sao_Paulo") as (page, _):
            open_marked(page, site, brete)
            page.get_by_role("button", name="Correct when it was filmed").click()
            page.locator("#filmed").fill("2026-01-01T00:00")
            db.execute("UPDATE snap SET filmed_at = filmed_at - interval '1 day'")
            expect(page.locator("#record")).to_contain_text("Feb 28, 2026")
            page.keyboard.press("Enter")
            expect(page.locator("#filmed-said")).to_contain_text("Somebody else has corrected it meanwhile")
            assert scalar(db, FILMED) == "2026-02-28 11:15:00"

            def is_replaced() -> bool:
                """By whoever has seen it, and saves again."""
                page.keyboard.press("Enter")
                return bool(page.locator("#done").text_content())

            until(is_replaced)
            assert scalar(db, FILMED) == "2026-01-01 03:00:00"
    finally:
        db.execute("SELECT resume_queue('media')")


CORRECT = """async () => {
    for (const numberValue of [1046.0625, 76012345678912]) {
        const attributes = [{ key: "brinco", type: "number", numberValue }];
        const body = JSON.stringify({ nickname: "Ana", id: "BR-1", attributes });
        const headers = { "Content-Type": "application/json" };
        await fetch(`/v2${location.pathname}/subject`, { method: "PATCH", headers, body });
    }
}"""


def test_it_is_corrected_in_portuguese_and_a_number_is_shown_with_all_its_digits(
    browser: Browser, site: Server, brete: Path, db: Db
) -> None:
    """And with no others: 1.046 is another animal, and in Brazil a thousand and forty-six."""
    with opened(browser, site.home, timezone_id="America/Sao_Paulo") as (page, complaints):
        open_marked(page, site, brete)
        page.get_by_role("button", name="PT").click()
        page.get_by_role("button", name="Corrigir quando foi filmado").click()
        page.locator("#filmed").fill("2026-02-28T08:15:30")
        page.keyboard.press("Enter")
        expect(page.locator("#done")).to_have_text("Corrigido. O que era antes está abaixo.")
        expect(page.locator("#record")).to_contain_text("28 de fev. de 2026, 08:15:30")
        assert english_in(page) == set()
        for weight in (412.5011, 412.5012):  # a record says what was entered, and a correction what is apart
            weighed = {"key": "peso_referencia", "type": "number", "numberValue": weight}
            subject = page.url.replace("/snaps/", "/v2/snaps/") + "/subject"
            page.request.patch(subject, data={"nickname": "Ana", "attributes": [weighed]})
        page.reload()
        expect(page.locator("#record")).to_contain_text("412,5012")
        expect(page.locator("#corrections p").last).to_have_text("Peso, kg 412,5011 → Peso, kg 412,5012")
        page.get_by_role("button", name="EN").click()
        page.evaluate(CORRECT)
        page.reload()
        expect(page.locator("#record")).to_contain_text("76012345678912")
        expect(page.locator("#corrections")).to_contain_text("1046.0625 → ")
    assert complaints == []


@at_length
def test_whoever_waits_for_the_evidence_keeps_the_focus(browser: Browser, site: Server, brete: Path) -> None:
    """The page asks each second until the moment is finished, and draws what is new."""
    with opened(browser, site.home) as (page, complaints):
        open_marked(page, site, brete)
        expect(page.locator("#state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
        api = f"**/v2/snaps/{page.url.rpartition('/')[2]}"
        waiting = page.evaluate("async () => (await fetch(`/v2${location.pathname}`)).json()") | {"status": "PENDING"}
        waiting["job"] |= {"status": "PENDING", "progress": media_work.WAITS}
        page.route(api, lambda asked: asked.fulfill(json=waiting))
        page.reload()
        expect(page.locator("#state")).to_have_text("waits for room on the server's disk")
        correct = page.get_by_role("button", name="Correct when it was filmed")
        correct.focus()
        for _ in range(2):
            page.wait_for_event("response", lambda answer: fnmatch(answer.url, api))
        expect(correct).to_be_focused()
        page.route(api, lambda asked: asked.fulfill(status=502, body="Bad Gateway"), times=1)  # the server restarts
        expect(page.locator("#lost")).to_contain_text("The server does not answer as it should: status 502")
        page.unroute(api)
        expect(page.locator("#state")).to_have_text(SOME_FRAMES)
        expect(page.locator("#lost")).to_be_empty()
    assert [said for said in complaints if "502" not in said] == []


@at_length
def test_on_paper_it_is_the_evidence_black_on_white(browser: Browser, site: Server, brete: Path) -> None:
    with opened(browser, site.home) as (page, complaints):
        open_marked(page, site, brete)
        expect(page.locator("#state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(CONTRASTS) == []
        for only_on_a_screen in page.locator("nav, button, input, video, #in-video").all():
            expect(only_on_a_screen).to_be_hidden()
        for part in ("#frames", "#record", "#files"):
            expect(page.locator(part)).to_be_visible()
        assert page.evaluate("getComputedStyle(document.querySelector('#frames li')).breakInside") == "avoid"
    assert complaints == []
