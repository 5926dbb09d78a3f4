"""The operator's page at /: what it says of moments, how one signs in, its keys, and how it looks."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.web.conftest import CONTRASTS, Server, heed_routes, opened
from tests.web.operating import another, at, brete, go, moments, page, ready, send
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES

__all__ = ["brete", "page"]

BACKGROUND = "(each) => getComputedStyle(each).backgroundColor"


@pytest.mark.at_length  # api/product/test_snap_actions has it in every run
def test_a_moment_that_fails_says_why_and_can_be_tried_again_or_deleted(
    page: Page, site: Server, brete: Path, db: Db
) -> None:
    ready(page, brete)
    [source] = site.folder.rglob(str(scalar(db, "SELECT storage_key FROM video")))
    away = source.rename(source.with_name("away"))
    page.keyboard.press("s")
    first = moments(page).first
    page.locator("#ticks button").focus()
    expect(first.locator(".state")).to_have_text("failed after attempt 1 of 3", timeout=PATIENCE)
    expect(page.locator("#ticks button")).to_be_focused()
    expect(first.locator(".said-of")).to_contain_text("upload it again")
    away.rename(source)
    first.get_by_role("button", name="Try again").click()
    expect(first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)

    page.reload()  # what was there is there again, and leads back to its moment
    expect(page.locator("#videos button[aria-current]")).to_contain_text("brete.mp4")
    expect(page.locator("#ticks .tick")).to_have_count(1)
    go(page, 1)
    page.locator("#ticks .tick").click()
    at(page, "0:00.00")
    go(page, 1)
    first.locator(".snap").click()
    at(page, "0:00.00")
    first.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(moments(page)).to_have_count(0)
    assert scalar(db, "SELECT count(*) FROM snap") == 0


@pytest.mark.at_length  # api/product/test_lists turns all pages in every run
def test_more_moments_than_a_page_are_all_reached(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    columns = """SELECT string_agg(column_name, ', ') FROM information_schema.columns
        WHERE table_name = 'snap' AND is_generated = 'NEVER' AND column_name NOT IN ('id', 'created_at')"""
    same = scalar(db, columns)
    older = f"""INSERT INTO snap (id, created_at, {same}) SELECT
        gen_random_uuid(), created_at - n * interval '1 minute', {same} FROM snap, generate_series(1, 120) AS n"""
    db.execute(older)
    page.reload()
    expect(moments(page)).to_have_count(50)
    moments(page).nth(1).get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(moments(page)).to_have_count(49)
    page.locator("#more-moments").evaluate("(button) => (button.click(), button.click())")  # both before an answer
    expect(moments(page)).to_have_count(99)
    page.locator("#more-moments").click()
    expect(moments(page)).to_have_count(120)
    expect(page.locator("#more-moments")).to_be_hidden()

    db.execute("UPDATE snap SET ended = NULL, processed_at = NULL")
    page.reload()
    expect(moments(page)).to_have_count(50)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/v2/snaps/" in request.url else None)
    page.wait_for_timeout(3000)
    assert len(asked) <= 12  # each of the fifty asked once a second


@pytest.mark.at_length  # a moment is finished, and two videos are sent
def test_the_moments_of_a_video_that_could_not_be_asked_for_once_are_asked_for_again(
    browser: Browser, site: Server, brete: Path, tmp_path: Path, db: Db
) -> None:
    """While the server restarts. The video stood there without its moments until the page was loaded anew."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        page.keyboard.press("s")
        expect(moments(page)).to_contain_text(SOME_FRAMES, timeout=PATIENCE)
        ready(page, another(brete, tmp_path / "curral.mp4"))
        page.reload()
        expect(page.locator("#no-moments")).to_be_visible()
        expect(page.locator("#mark")).to_be_enabled()
        heed_routes(page)
        page.route("**/snaps?*", lambda route: route.abort(), times=1)
        page.locator("#videos button", has_text="brete.mp4").click()
        expect(page.locator("#mark-said")).to_have_text("Failed to fetch")
        expect(moments(page)).to_have_count(1)
        expect(page.locator("#mark-said")).to_be_empty()


@pytest.mark.at_length  # api/product/test_snaps has what a job waits for in every run
def test_while_nobody_works_the_page_says_what_it_waits_for(page: Page, brete: Path, db: Db) -> None:
    db.execute("SELECT pause_queue('light')")
    try:
        send(page, brete)
        expect(page.locator("#film-said")).to_contain_text("waits to be examined. If this lasts")
        expect(page.locator("#mark")).to_be_disabled()
        page.locator("#filmed").focus()
        page.keyboard.type("0301")
    finally:
        db.execute("SELECT resume_queue('light')")
    expect(page.locator("#mark")).to_be_enabled()
    page.keyboard.type("2025081500AM")
    expect(page.locator("#filmed")).to_have_value("2025-03-01T08:15")

    page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'ana@fazenda.example'}))")
    db.execute("SELECT pause_queue('media')")
    try:
        page.locator("#filmed").blur()
        page.keyboard.press("s")
        expect(page.locator("#mark-said")).to_contain_text("It waits in the queue. If this lasts")
    finally:
        db.execute("SELECT resume_queue('media')")
    expect(page.locator("#mark-said")).to_be_empty()  # it is made now


def test_where_tokens_are_required_one_signs_in_and_meets_nothing_internal(
    browser: Browser, serve: Callable[..., Server]
) -> None:
    site = serve(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_INTERNAL_TOKEN="open-the-door-please")
    with opened(browser, "about:blank") as (page, complaints):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(site.home)
        page.locator("#sign-in-token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#sign-in-said")).to_contain_text("Invalid")
        expect(page.locator("#work")).to_be_hidden()
        other = page.context.new_page()
        other.goto(site.home)
        expect(other.locator("#sign-in-token")).to_be_visible()
        page.locator("#sign-in-token").fill("dev-default-token")
        page.keyboard.press("Enter")
        expect(page.locator("#sign-in")).to_be_hidden()
        other.evaluate("dispatchEvent(new Event('focus'))")
        expect(other.locator("#sign-in")).to_be_hidden()
        expect(other.locator("#work")).to_be_visible()
        expect(page.locator("#film-said")).to_contain_text("no video yet")
        expect(page.locator("input[type=password]:visible")).to_have_count(0)
        page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'a@b'}))")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator("#sign-in-token")).to_be_visible()
        assert page.evaluate("localStorage.length + document.cookie.length") == 0
        assert [url for url in asked if "/internal" in url] == []
    assert [said for said in complaints if "401" not in said] == []


def test_the_keyboard_steps_plays_and_takes_an_interval_and_space_never_scrolls(
    page: Page, brete: Path, db: Db
) -> None:
    ready(page, brete)
    page.set_viewport_size({"width": 900, "height": 400})
    page.evaluate("document.activeElement.blur()")
    scrolled = page.evaluate("scrollY")
    for key, clock, frame in [
        (".", "0:00.04", 1), (".", "0:00.08", 2), (",", "0:00.04", 1), ("ArrowRight", "0:01.04", 26),
        ("ArrowLeft", "0:00.04", 1), ("End", "0:02.9", 74), ("Home", "0:00.00", 0),
    ]:  # fmt: skip
        page.keyboard.press(key)
        expect(page.locator("#now")).to_contain_text(clock)  # a busy browser may tell no time of the last frame
        expect(page.locator("#frame")).to_have_text(f"frame {frame}")
    said = "import('/static/parts/words.js').then(({ clock }) => [59.994, 59.996, 119.999].map(clock))"
    assert page.evaluate(said) == ["0:59.99", "1:00.00", "2:00.00"]
    is_paused = "document.getElementById('film').paused"
    page.keyboard.press(" ")
    until(lambda: not page.evaluate(is_paused))
    page.keyboard.press(" ")
    until(lambda: bool(page.evaluate(is_paused)))
    assert page.evaluate("scrollY") == scrolled
    page.keyboard.press("l")
    for _ in range(3):  # held
        page.keyboard.down("l")
    page.keyboard.up("l")
    expect(page.get_by_label("Speed")).to_have_value("1.5")
    page.keyboard.press("k")
    go(page, 0.4)
    page.keyboard.press("i")
    go(page, 1.6)
    page.keyboard.press("o")
    expect(page.locator("#interval")).to_have_text("0:00.40 to 0:01.60")
    page.emulate_media(forced_colors="active")
    assert page.locator("#range").evaluate(BACKGROUND) != page.locator("body").evaluate(BACKGROUND)
    page.emulate_media(forced_colors="none")
    for detail in (1, 2):  # a double click
        page.locator("#mark").dispatch_event("click", {"detail": detail})
    expect(moments(page)).to_have_count(1)
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    taken = scalar(db, "SELECT ARRAY[start_seconds, duration_seconds, clip_seconds]::float[] FROM snap")
    assert taken == [0.4, 1.2, 1.2]
    expect(page.locator("#interval")).to_have_text("")
    page.get_by_label("Subject").press("s")  # who types marks nothing
    page.keyboard.press("Control+s")
    expect(moments(page)).to_have_count(1)

    page.keyboard.press("Escape")
    speed = page.get_by_label("Speed")
    speed.focus()
    page.keyboard.press("ArrowDown")  # the arrows and the space bar are the list's, and letters the player's
    expect(speed).to_have_value("2")
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(2)
    page.keyboard.press("Escape")
    speed.click()
    speed.select_option("1")
    expect(speed).not_to_be_focused()  # chosen with the mouse: all keys are the player's again
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(3)


@pytest.mark.at_length  # a name is filed at its own moment in every run, in test_marking
def test_a_moment_of_the_last_frame_is_described_there_with_its_picture_and_without_a_question(
    page: Page, brete: Path, db: Db
) -> None:
    """A browser draws no frame anew that it shows, so that the player stood at 0:03.00. The form of a moment whose
    picture was not there yet went on saying so beside a card that had it."""
    ready(page, brete)
    go(page, 2.4)
    page.locator("#seek").blur()
    page.keyboard.press(" ")
    until(lambda: page.evaluate("document.getElementById('film').ended"))
    expect(page.locator("#now")).to_contain_text("0:02.96 /")
    page.keyboard.press("s")
    page.get_by_role("button", name="Later").click()
    expect(moments(page).first.locator(".state")).to_have_text("1 frame + clip", timeout=PATIENCE)

    def before(route: Route) -> None:
        answer = route.fetch()
        yet = answer.json() | {"status": "PENDING", "thumbnailPath": None, "posterPath": None}
        route.fulfill(response=answer, json=yet)

    page.route(re.compile(r"/v2/snaps/[\w-]+$"), before, times=1)
    moments(page).first.locator(".snap").click()
    moments(page).first.get_by_role("button", name="Describe", exact=True).click()
    expect(page.locator("#describe-picture img")).to_be_visible()
    expect(page.locator("#now")).to_contain_text("0:02.96 /")
    page.get_by_label("Subject").fill("BR-1")
    page.keyboard.press("Enter")
    expect(page.locator("#mark-said")).to_have_text("Saved: BR-1 at 0:02.96.")


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.at_length), "dark"])
def test_on_a_phone_all_of_it_can_be_read(page: Page, brete: Path, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 380, "height": 800})
    ready(page, brete)
    page.get_by_role("button", name="Mark").click()
    page.get_by_label("Subject").fill("w" * 190)
    page.keyboard.press("Enter")
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    page.get_by_label("Keys").or_(page.locator("#keys summary")).first.click()
    assert page.evaluate(CONTRASTS) == []
    moments(page).first.get_by_role("button", name="Correct").click()  # the form offers the recent names
    expect(page.locator("#recent button")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
