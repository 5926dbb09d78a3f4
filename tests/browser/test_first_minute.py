"""The top of the page at /: a video, a key, and what becomes of a moment."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from snapapp.processing import demo
from tests.browser.conftest import Server, opened
from tests.browser.test_home import CONTRASTS, HOSTILE
from tests.conftest import Postgres
from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.media import material

PATIENCE = 90_000  # ms: a child paints, others decode
SOME_FRAMES = "5 frames + clip"
ALL_FRAMES_ARE_THERE = (
    "[...document.querySelectorAll('.frames img')].every((each) => each.complete && each.naturalWidth === 640)"
)


@pytest.fixture
def brete(tmp_path: Path) -> Path:
    return material.make(material.GOOD["faststart"], tmp_path / "brete.mp4")


@pytest.fixture
def url(server: Postgres) -> Iterator[str]:
    """Here each test has a database and a server of its own: what came by a form stays."""
    with server.database("migrated") as url:
        yield url


@pytest.fixture
def site(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.fixture
def new_house(empty_url: str, tmp_path: Path) -> Iterator[Server]:
    """With a database that it makes itself, as the first `make run` does."""
    server = Server(empty_url, tmp_path)
    server.start()
    yield server
    server.stop()


def cards(page: Page) -> Any:
    return page.locator("#snaps .snap")


def send(page: Page, video: Path) -> None:
    """By the form, which stands open where there is no video."""
    expect(page.locator("#film-said")).to_contain_text("no video yet")
    page.locator("#upload-file").set_input_files(video)
    page.get_by_role("button", name="Send it").click()
    expect(page.locator("#upload-said")).to_contain_text("It is here")
    expect(page.locator("#mark")).to_be_enabled()


def marked(db: Db) -> int:
    return int(scalar(db, "SELECT count(*) FROM snap"))


def test_the_first_minute(browser: Browser, new_house: Server) -> None:
    """A new house makes a video and three snaps of it by itself; S marks a fourth, and its frames appear."""
    with opened(browser, new_house.home) as (page, complaints):
        expect(page.locator("#film")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#mark-at")).to_have_text(f"0:{demo.WAITING.passes:.2f}")
        expect(page.locator("#snaps .state", has_text=SOME_FRAMES)).to_have_count(3, timeout=PATIENCE)
        assert page.evaluate("document.getElementById('film').paused")
        page.keyboard.press("s")
        expect(cards(page)).to_have_count(4)
        expect(cards(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
        expect(page.locator("#spoken")).to_contain_text(SOME_FRAMES)
        expect(page.locator("#happened-psql")).to_contain_text("WHERE snap_id = '")

        cards(page).first.click()
        dialog = page.get_by_role("dialog")
        expect(dialog.locator(".frames img")).to_have_count(5)
        until(
            lambda: page.evaluate(ALL_FRAMES_ARE_THERE)
        )  # wait_for_function evaluates in the page, whose CSP forbids it
        until(lambda: page.evaluate("document.querySelector('#snap-body video').duration > 1.9"))
        page.keyboard.press("Escape")
        expect(cards(page).first).to_be_focused()

        page.locator("#happened-rows a").click()
        expect(page.get_by_role("dialog")).to_contain_text("snap.process")
    assert complaints == []


def test_the_page_and_the_job_mean_the_same_video(page: Page) -> None:
    expect(page.locator("#film")).to_have_attribute("data-demo", str(demo.VIDEO))
    expect(page.locator("#film")).to_have_attribute("data-pause", f"{demo.WAITING.passes:g}")


def test_a_hostile_name_is_shown_as_text(page: Page, brete: Path, db: Db) -> None:
    send(page, brete)
    page.get_by_label("What it shows").fill(HOSTILE)
    page.get_by_role("button", name="Mark").click()
    card = cards(page).first
    expect(card.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    expect(card.locator(".facts > b")).to_have_text(HOSTILE)
    card.click()
    expect(page.locator("#snap-title")).to_contain_text("onerror")
    assert page.locator("#snaps .facts img, #snaps b b, #snap-title img, #snap-title b").count() == 0
    assert page.title() == "snapapp"
    assert marked(db) == 1


def test_who_types_marks_nothing_and_the_key_can_be_switched_off(page: Page, brete: Path, db: Db) -> None:
    send(page, brete)
    page.get_by_label("What it shows").press("s")
    page.get_by_label("the key S does it too").uncheck()
    page.keyboard.press("s")
    page.get_by_label("the key S does it too").check()
    page.keyboard.press("Control+s")
    page.keyboard.press("S")
    expect(cards(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    assert marked(db) == 1


def test_a_video_that_the_browser_cannot_play_is_marked_where_its_still_is(page: Page, brete: Path, db: Db) -> None:
    """Not where the demo pauses."""
    send(page, brete)
    page.evaluate("document.getElementById('film').dispatchEvent(new Event('error'))")
    expect(page.locator("#film-said")).to_contain_text("this is what it shows at 0:00.00")
    page.keyboard.press("s")
    expect(cards(page)).to_have_count(1)
    assert scalar(db, "SELECT start_seconds FROM snap") == 0


def test_without_a_worker_the_page_says_why_nothing_happens(
    browser: Browser, serve: Callable[..., Server], brete: Path
) -> None:
    site = serve(SNAPAPP_WORKER_ENABLED="false")
    with opened(browser, site.home) as (page, complaints):
        send(page, brete)
        page.keyboard.press("s")
        expect(cards(page).first.locator(".state")).to_have_text("queued")
        expect(page.locator("#mark-said")).to_contain_text("It waits in the queue.")
        expect(page.locator("#mark-said")).to_contain_text("worker")
    assert complaints == []


def test_what_is_no_video_is_refused_in_words(browser: Browser, site: Server, tmp_path: Path) -> None:
    page_of_text = tmp_path / "page.mp4"
    page_of_text.write_text("<html>" * 100)
    with opened(browser, site.home) as (page, complaints):
        page.locator("#upload-file").set_input_files(page_of_text)
        page.get_by_role("button", name="Send it").click()
        expect(page.locator("#upload-said")).to_contain_text("send mp4, mov, mkv or webm")
        expect(page.locator("#mark")).to_be_disabled()
    assert [said for said in complaints if "400" not in said] == []


def test_where_tokens_are_required_one_signs_in(browser: Browser, serve: Callable[..., Server]) -> None:
    site = serve(SNAPAPP_REQUIRE_API_TOKEN="true")
    with opened(browser, site.home) as (page, complaints):
        page.locator("#sign-in-token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.locator("#sign-in-said")).to_contain_text("Invalid")
        page.locator("#sign-in-token").fill("dev-default-token")
        page.keyboard.press("Enter")
        expect(page.locator("#sign-in")).to_be_hidden()
        expect(page.locator("#film-said")).to_contain_text("no video yet")
    assert [said for said in complaints if "401" not in said] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_all_of_it_can_be_read(page: Page, brete: Path, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    send(page, brete)
    page.get_by_label("What it shows").fill("w" * 190)
    page.get_by_role("button", name="Mark").click()
    expect(cards(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    cards(page).first.click()
    expect(page.locator("#snap-body dl")).to_be_visible()
    assert page.evaluate(CONTRASTS) == []
    assert page.evaluate("document.getElementById('snap').scrollWidth") <= 390
