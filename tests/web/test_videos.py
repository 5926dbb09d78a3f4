"""Videos at /: they are sent, found again and shown, and the page says what is so of each."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.media import material
from tests.web.conftest import DRAWN, Server, opened
from tests.web.operating import NEWEST, another, at, brete, go, moments, page, ready, send
from tests.web.test_first_minute import PATIENCE

__all__ = ["brete", "page"]


@pytest.mark.at_length  # media/test_hostile has damaged files in every run
def test_a_damaged_file_is_said_to_be_one_and_a_line_that_is_cut_can_be_given_up(
    browser: Browser, site: Server, brete: Path, tmp_path: Path
) -> None:
    """In Portuguese, and so are the words of the server."""
    damaged = tmp_path / "damaged.mp4"
    damaged.write_bytes(brete.read_bytes()[:2000])
    no_video = tmp_path / "page.mp4"
    no_video.write_text("<html>" * 100)
    with opened(browser, site.home, locale="pt-BR") as (page, complaints):
        expect(page.locator("#film-said")).to_contain_text("Ainda não há vídeo")
        expect(page.locator("#template option", has_text="Padrão")).to_have_count(1)
        held: list[Route] = []
        page.route("**/v2/uploads/*", lambda route: held.append(route), times=1)
        with page.expect_request(lambda request: request.method == "PATCH"):
            send(page, brete, damaged, no_video)
        page.locator("#uploads li", has_text="brete.mp4").get_by_role("button", name="Cancelar").click()
        expect(page.locator("#uploads li", has_text="brete.mp4")).to_contain_text("cancelado")
        expect(page.locator("#uploads li", has_text="page.mp4")).to_contain_text("envie mp4, mov, mkv, webm, ts")
        page.locator("#videos button", has_text="damaged.mp4").click()
        expect(page.locator("#film-said")).to_contain_text(
            "Este arquivo não pode ser usado: o arquivo não contém imagens"
        )
        expect(page.locator("#videos li", has_text="damaged.mp4")).to_contain_text("não pode ser usado")
        expect(page.locator("#mark")).to_be_disabled()
        page.keyboard.press("s")
        expect(moments(page)).to_have_count(0)
        page.get_by_role("button", name="Excluir este arquivo").click()
        expect(page.locator("#no-videos")).to_be_visible()
    # 404: a look at the file that was on its way when it was deleted
    assert [said for said in complaints if not re.search("40[04]|ERR_FAILED", said)] == []


def test_an_upload_goes_on_where_a_dead_server_a_person_and_a_reload_stopped_it(
    browser: Browser, serve: Callable[..., Server], brete: Path, url: str, tmp_path: Path
) -> None:
    """Killed with -9, halted, and the page loaded anew: each part begins at the byte that was missing."""
    site = serve(SNAPAPP_WORKER_ENABLED="false")
    large = tmp_path / "tarde.mp4"
    large.write_bytes(brete.read_bytes() + (12 * 2**20).to_bytes(4, "big") + b"free" + bytes(12 * 2**20 - 8))
    line = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 1_500_000}

    def there() -> int:
        return sum(file.stat().st_size for file in site.folder.rglob(".resumable/*/*/bytes"))

    def parts(asked: list[int]) -> list[int]:
        return [offset for offset in asked if offset >= 0]

    with opened(browser, site.home) as (page, _):
        network = page.context.new_cdp_session(page)
        network.send("Network.emulateNetworkConditions", line)
        began: list[int] = []
        page.on("request", lambda asked: began.append(int(asked.headers.get("upload-offset", "-1"))))
        send(page, large)
        uploading = page.locator("#uploads li", has_text="tarde.mp4")
        until(lambda: page.evaluate("1") and there() > 500_000)
        assert site.served
        site.served.process.kill()
        site.served.end()
        dead, before = there(), len(began)
        site.start()
        until(lambda: page.evaluate("1") and there() > dead + 500_000)
        uploading.get_by_role("button", name="Pause").click()
        expect(uploading).to_contain_text("halted at")
        uploading.get_by_role("button", name="Go on").click()
        halted = there()
        until(lambda: page.evaluate("1") and there() > halted + 500_000)
        page.reload()
        expect(uploading).to_contain_text("% are here. Choose the file again")
        reloaded, last = there(), len(began)
        network.send("Network.emulateNetworkConditions", line | {"uploadThroughput": -1})
        send(page, large)
        expect(page.locator("#upload-said")).to_have_text("tarde.mp4 is here.")
        expect(uploading).to_have_count(0)
        assert all(offset >= dead for offset in parts(began[before:]))
        assert all(offset >= reloaded > 0 for offset in parts(began[last:]))
        assert sorted(parts(began)) == parts(began)  # never back
        [made] = site.folder.rglob("source")
        assert made.read_bytes() == large.read_bytes()
        assert page.evaluate("localStorage.getItem('uploads')") is None


@pytest.mark.at_length  # an upload goes on in every run, above
def test_an_upload_takes_no_player_from_whoever_marks_and_is_taken_when_its_answer_is_lost(
    browser: Browser, site: Server, brete: Path, tmp_path: Path, db: Db
) -> None:
    """It is there minutes later: somebody may mark in another video, and the next moment would be the new one's."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        shown = page.evaluate(NEWEST)
        held: list[Route] = []
        lost: list[Route] = []

        def hold(route: Route) -> None:
            route.continue_() if held else held.append(route)

        def lose(route: Route) -> None:  # but not what the page asks of the video that it shows
            if lost or route.request.url.endswith(shown):
                route.continue_()
            else:
                lost.append(route)
                route.abort()

        # not times=1: whoever is the last to be asked once ends the interception, also of what is held
        page.route("**/v2/uploads/*", hold)
        page.route("**/v2/videos/*", lose)
        send(page, another(brete, tmp_path / "curral.mp4"))
        until(lambda: page.evaluate("1") and bool(held))
        go(page, 1.2)
        page.keyboard.press("ArrowRight")
        held[0].continue_()
        expect(page.locator("#upload-said")).to_have_text("curral.mp4 is here.")
        expect(page.locator("#uploads > li")).to_have_count(0)
        expect(page.locator("#videos > li")).to_have_count(2)
        expect(page.locator("#video-title")).to_have_text("brete.mp4")
    assert lost
    assert scalar(db, "SELECT count(*) FROM video") == 2


@pytest.mark.at_length  # an upload goes on after a dead server in every run
def test_a_file_that_is_gone_while_it_is_sent_is_said_to_be_and_goes_on_when_it_is_back(
    browser: Browser, site: Server, brete: Path, tmp_path: Path
) -> None:
    """A card is pulled out: the page said for ever that the line broke."""
    large = another(brete, tmp_path / "tarde.mp4")
    large.write_bytes(large.read_bytes() + (12 * 2**20).to_bytes(4, "big") + b"free" + bytes(12 * 2**20 - 8))
    with opened(browser, site.home) as (page, _):
        held: list[Route] = []
        page.route("**/v2/uploads/*", lambda route: held.append(route), times=1)
        send(page, large)
        until(lambda: page.evaluate("1") and bool(held))
        away = large.rename(large.with_name("away"))
        held[0].continue_()
        uploading = page.locator("#uploads > li")
        expect(uploading).to_contain_text("not taken: the file was moved or changed, or its card was taken out")
        away.rename(large)
        uploading.get_by_role("button", name="Go on").click()
        expect(page.locator("#upload-said")).to_have_text("tarde.mp4 is here.")


@pytest.mark.at_length  # an upload is followed to its end in every run
def test_a_file_that_is_sent_while_the_page_still_asks_what_there_is_is_shown(
    page: Page, brete: Path, tmp_path: Path
) -> None:
    ready(page, brete)
    asking: list[Route] = []
    page.route("**/v2/templates", lambda route: asking.append(route), times=1)
    with page.expect_request("**/v2/templates"):
        page.reload()
    send(page, another(brete, tmp_path / "curral.mp4"))
    expect(page.locator("#upload-said")).to_have_text("curral.mp4 is here.")
    asking[0].continue_()
    expect(page.locator("#video-title")).to_have_text("curral.mp4")
    expect(page.locator("#videos > li")).to_have_count(2)

    asked_for = f"**/v2/videos/{page.url.partition('=')[2]}"

    def hold_second(route: Route) -> None:  # the first is for the list of those opened last
        asking.append(route)
        if len(asking) == 2:
            route.continue_()

    page.route(asked_for, hold_second)
    page.reload()
    until(lambda: page.evaluate("1") and len(asking) == 3)
    send(page, another(brete, tmp_path / "lote.mp4", times=2))
    expect(page.locator("#video-title")).to_have_text("lote.mp4")
    with page.expect_response(asked_for):
        asking[2].continue_()
    page.evaluate(DRAWN)
    expect(page.locator("#video-title")).to_have_text("lote.mp4")


@pytest.mark.at_length  # api/product has the search for videos in every run
def test_a_video_is_found_by_its_name_and_the_last_ones_stand_first(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    db.execute("""INSERT INTO video (tenant, file_name, storage_key, size_bytes, sha256, probe)
        SELECT 'default', 'curral-' || n || '.mp4', 'videos/x/' || n, 1, sha256(convert_to(n::text, 'UTF8')),
               '{"compatible": false, "reason": "it is gone"}' FROM generate_series(1, 30) AS n""")
    page.reload()
    expect(page.locator("#video-title")).to_have_text("brete.mp4")
    found = page.locator("#videos > li")
    expect(found).to_have_count(20)
    page.locator("#more-videos").click()
    expect(found).to_have_count(31)
    page.get_by_label("Find a video").fill("CURRAL-27")
    expect(found).to_have_count(1)
    found.get_by_role("button").press("Enter")
    expect(page.locator("#video-title")).to_have_text("curral-27.mp4")
    expect(found.get_by_role("button")).to_be_focused()
    expect(page.locator("#opened > li")).to_contain_text("brete.mp4")
    page.get_by_label("Find a video").fill("nothing")
    expect(page.locator("#no-videos")).to_have_text("No video is called so.")
    page.goto(page.url.partition("?")[0])  # the last one again
    expect(page.locator("#video-title")).to_have_text("curral-27.mp4")


@pytest.mark.at_length  # processing has the copy, and api the stills, in every run
def test_what_the_browser_cannot_play_is_stepped_through_and_marked_until_there_is_a_copy(
    page: Page, tmp_path: Path, db: Db
) -> None:
    camera = material.make(material.GOOD["hevc"], tmp_path / "camera.mp4")
    ready(page, camera)
    expect(page.locator("#copy-said")).to_contain_text("does not play the video (hevc)")
    page.keyboard.press(".")
    page.keyboard.press(".")
    expect(page.locator("#frame")).to_have_text("frame 2")
    until(lambda: bool(page.evaluate("document.getElementById('still').naturalWidth")))
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(1)
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    assert scalar(db, "SELECT start_seconds FROM snap") == 0.08
    page.get_by_role("button", name="Make a copy that plays").click()
    expect(page.locator("#copy")).to_be_hidden(timeout=PATIENCE)
    expect(page.locator("#film")).to_be_visible()
    at(page, "0:00.08")


@pytest.mark.at_length  # the keyboard steps through a film in every run
def test_each_step_through_stills_shows_the_next_frame(page: Page, tmp_path: Path, db: Db) -> None:
    """At 29.97 frames a second the second frame begins at 33.37 ms."""
    recipe = replace(material.GOOD["hevc"], times=tuple(range(0, 75 * 3003, 3003)))
    ready(page, material.make(recipe, tmp_path / "camera.mp4"))
    for number in range(1, 5):
        page.keyboard.press(".")
        expect(page.locator("#frame")).to_have_text(f"frame {number}")
    page.keyboard.press("s")
    until(lambda: scalar(db, "SELECT count(*) FROM snap") == 1)
    assert 4 * 3003 / 90_000 <= scalar(db, "SELECT start_seconds FROM snap") < 5 * 3003 / 90_000


@pytest.mark.at_length  # two seconds lie between two looks; what is examined is shown in every run
def test_a_video_whose_state_could_not_be_asked_for_once_is_asked_for_again(
    browser: Browser, site: Server, brete: Path, tmp_path: Path, db: Db
) -> None:
    """While the server restarts. It stood in the list as being examined until the page was loaded anew."""
    with opened(browser, site.home) as (page, _):
        ready(page, brete)
        db.execute("SELECT pause_queue('light')")
        try:
            send(page, another(brete, tmp_path / "curral.mp4"))
            expect(page.locator("#film-said")).to_contain_text("Looking at")
            asked: list[Route] = []

            def lose(route: Route) -> None:
                asked.append(route)
                route.abort()

            page.route("**/v2/videos/*", lose)
            page.locator("#videos button", has_text="brete.mp4").click()  # only the list asks from here on
            asked.clear()
            until(lambda: page.evaluate("1") and len(asked) >= 2)  # one may be the player's last one
            page.unroute("**/v2/videos/*")
        finally:
            db.execute("SELECT resume_queue('light')")
        new = page.locator("#videos button", has_text="curral.mp4")
        expect(new).to_contain_text("being examined")
        expect(new).not_to_contain_text("being examined")


@pytest.mark.at_length  # two videos are sent
def test_a_press_on_a_video_counts_while_the_list_is_drawn_anew(
    page: Page, brete: Path, tmp_path: Path, db: Db
) -> None:
    """As it is every two seconds while a video is examined: a slow finger chose nothing."""
    ready(page, brete)
    its = page.url
    db.execute("SELECT pause_queue('light')")
    try:
        send(page, another(brete, tmp_path / "curral.mp4"))
        new = page.locator("#videos button", has_text="curral.mp4")
        expect(new).to_contain_text("being examined")
        page.locator("#videos button", has_text="brete.mp4").hover()
        page.mouse.down()
    finally:
        db.execute("SELECT resume_queue('light')")
    expect(new).not_to_contain_text("being examined")
    page.mouse.up()
    expect(page).to_have_url(its)


@pytest.mark.at_length  # media/test_probe has what is there of a file that was cut off in every run
def test_of_a_video_that_was_cut_off_the_timeline_ends_with_what_is_there(page: Page, tmp_path: Path) -> None:
    """The browser believes the header: moments in the rest of the timeline failed."""
    data = material.make(material.GOOD["webm_vp9"], tmp_path / "whole.webm").read_bytes()
    cut = tmp_path / "cut.webm"
    cut.write_bytes(data[: len(data) * 2 // 3])
    ready(page, cut)
    expect(page.locator("#film")).to_be_visible()
    expect(page.locator("#now")).to_contain_text(re.compile(r"/ 0:0[12]\.\d\d"))
    page.keyboard.press("End")
    page.keyboard.press("s")
    expect(moments(page).locator(".state")).to_have_text(re.compile(r"\d frames? \+ clip"), timeout=PATIENCE)
