"""The line breaks while somebody marks: what was marked is kept, shown, and filed once when the line is back."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from snapapp import web
from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.web import operating
from tests.web.conftest import CONTRASTS, Complaints, Server, heed_routes, opened, until_true
from tests.web.operating import another, brete, go, moments, send
from tests.web.test_axe import violations
from tests.web.test_first_minute import PATIENCE, SOME_FRAMES
from tests.web.test_share import english_in

at_length = pytest.mark.at_length  # in every run marks wait, are sent once, and never in another name, above and below

__all__ = ["brete"]  # a fixture

STATIC = Path(web.__file__).parent / "static"
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
HIDE = """(hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
IS_KEPT = "navigator.serviceWorker.ready.then(() => caches.open('shell')).then((kept) => kept.match('/')).then(Boolean)"


def others(complaints: Complaints) -> list[str]:
    """But for what a browser says of a line that is not there."""
    return [said for said in complaints if "net::ERR" not in said]


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    with opened(browser, site.home) as (page, complaints):
        yield page
    assert [said for said in others(complaints) if not re.search("40[014]|50[02]", said)] == []


def ready(page: Page, video: Path, *, filmed: str = "2026-03-01T08:15:00") -> None:
    operating.ready(page, video, filmed=filmed)
    heed_routes(page)


def cut(page: Page) -> None:
    """A page that is just loading is let through for a moment: what it asks for is stopped here, too."""
    page.context.set_offline(True)
    page.route("**/v2/**", lambda route: route.abort("internetdisconnected"))
    until_true(page, "fetch('/v2/session').then(() => false, () => true)")


def restore(page: Page) -> None:
    page.unroute("**/v2/**")
    page.context.set_offline(False)


def waiting(page: Page) -> Any:
    return page.locator("#waiting-list li")


def filed(db: Db) -> list[float]:
    return [float(row[0]) for row in db.execute("SELECT start_seconds FROM snap ORDER BY start_seconds").fetchall()]


def test_what_is_marked_without_a_line_waits_over_a_reload_and_is_filed_once(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    assert page.evaluate(IS_KEPT)
    cut(page)
    for seconds in (0.4, 1.2):
        go(page, seconds)
        page.keyboard.press("s")
        page.evaluate("document.activeElement.blur()")
    expect(waiting(page)).to_have_count(2)
    expect(moments(page).first.locator(".state")).to_have_text("waits for the line")
    expect(page.locator("#mark-said")).to_contain_text("is kept here until the line is back")
    assert violations(page) == []
    assert page.evaluate(CONTRASTS) == []
    assert filed(db) == []

    page.reload()  # by the service worker alone
    expect(waiting(page)).to_have_text([re.compile("0:00.40 brete.mp4 · Ana"), re.compile("0:01.20 brete.mp4 · Ana")])
    expect(page.locator("#lost")).to_contain_text("The server does not answer")

    restore(page)  # what was sent just after the reload may have been let through, and is filed once all the same
    expect(waiting(page)).to_have_count(0)
    expect(page.locator("#waiting")).to_be_hidden()
    expect(moments(page)).to_have_count(2)
    assert filed(db) == [0.4, 1.2]
    page.reload()
    expect(moments(page)).to_have_count(2)
    assert filed(db) == [0.4, 1.2]
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE kind = 'snap.process'") == 2


@pytest.mark.at_length  # domain/test_races files a key once in every run
def test_a_mark_whose_answer_was_lost_is_not_filed_again(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    lost: list[int] = []

    def lose(route: Route) -> None:
        lost.append(route.fetch().status)
        route.abort()

    page.route("**/v2/snaps", lose)
    page.keyboard.press("s")
    expect(waiting(page)).to_have_count(1)
    assert lost == [202]
    page.unroute("**/v2/snaps")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(waiting(page)).to_have_count(0)
    expect(moments(page)).to_have_count(1)
    expect(page.locator("#mark-said")).to_have_text("")  # no longer that it is kept
    assert len(filed(db)) == 1


COUNT_CARDS = """() => {
    const list = document.getElementById("moments");
    window.most = list.children.length;
    const count = () => (window.most = Math.max(window.most, list.children.length));
    new MutationObserver(count).observe(list, { childList: true });
}"""
OF_ONE = re.compile("/v2/snaps/[0-9a-f-]{36}$")


@at_length
def test_a_moment_that_is_heard_of_before_its_mark_is_answered_is_one_card(page: Page, brete: Path, db: Db) -> None:
    """An event tells of it, then the line breaks, then the answer comes: all the while there is one card."""
    ready(page, brete)
    page.evaluate(COUNT_CARDS)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)
        route.fetch()

    page.route("**/v2/snaps", hold)
    with page.expect_response(OF_ONE):
        page.keyboard.press("s")
    [filing] = held
    filing.abort()
    expect(moments(page).first.locator(".state")).to_have_text("waits for the line")
    page.locator("#videos button").click()  # the same again
    page.evaluate("document.activeElement.blur()")
    page.unroute("**/v2/snaps")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#waiting")).to_be_hidden()
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    assert page.evaluate("window.most") == 1
    page.keyboard.press("s")  # the same moment once more: two marks are two moments
    expect(moments(page)).to_have_count(2)
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    assert page.evaluate("window.most") == 2
    assert filed(db) == [0, 0]


@at_length
def test_a_moment_on_its_way_is_a_card_after_another_video_too(page: Page, brete: Path, tmp_path: Path) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.abort())
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text("waits for the line")
    send(page, another(brete, tmp_path / "curral.mp4"))
    expect(page.locator("#video-title")).to_have_text("curral.mp4")
    expect(moments(page)).to_have_count(0)
    page.locator("#videos button", has_text="brete.mp4").click()
    expect(moments(page).first.locator(".state")).to_have_text("waits for the line")
    page.unroute("**/v2/snaps")


@at_length
def test_what_another_window_has_sent_is_one_card_here(page: Page, site: Server, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.abort())
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text("waits for the line")
    other = page.context.new_page()
    other.goto(site.home)
    expect(moments(other)).to_have_count(1)
    expect(waiting(page)).to_have_count(0)
    expect(moments(page)).to_have_count(1)
    expect(moments(page).first.locator(".state")).to_have_text(SOME_FRAMES, timeout=PATIENCE)
    assert len(filed(db)) == 1
    heed_routes(other)
    other.evaluate(HIDE, True)  # in the background it hears nothing, and its stream is refused when it is back
    page.unroute("**/v2/snaps")
    page.keyboard.press("s")
    expect(moments(page)).to_have_count(2)
    other.route("**/v2/events", lambda route: route.fulfill(status=502, body="Bad Gateway"), times=1)
    other.evaluate(HIDE, False)
    expect(moments(other)).to_have_count(2)


@at_length
def test_what_another_window_sends_or_drops_loses_no_typed_text_and_leaves_no_card_behind(
    page: Page, site: Server, brete: Path, tmp_path: Path, db: Db
) -> None:
    """Also where another video is shown meanwhile: its card waited for the line for ever."""
    ready(page, another(brete, tmp_path / "curral.mp4"))
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.abort())
    for seconds in (0.4, 1.2, 2):
        go(page, seconds)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("s")
    expect(waiting(page)).to_have_count(3)
    page.locator("#describe input").first.fill("BR-2")
    page.keyboard.press("Escape")
    expect(moments(page).first).to_contain_text("typed and not saved: BR-2")
    page.locator("#videos button", has_text="curral.mp4").click()
    expect(moments(page)).to_have_count(0)
    page.get_by_role("button", name="Forget the moment at 0:01.20").click()
    other = page.context.new_page()
    other.goto(site.home)
    expect(waiting(page)).to_have_count(0)
    until(lambda: filed(db) == [0.4, 2])
    page.locator("#videos button", has_text="brete.mp4").click()
    expect(moments(page)).to_have_count(2)
    expect(page.locator("#moments .state", has_text=SOME_FRAMES)).to_have_count(2, timeout=PATIENCE)
    expect(moments(page).first).to_contain_text("typed and not saved: BR-2")


@at_length
def test_what_is_refused_where_its_video_is_not_shown_stands_there_until_it_is_forgotten(
    page: Page, brete: Path, tmp_path: Path, db: Db
) -> None:
    """Two moments of a video that somebody deletes meanwhile: one was said not to be marked, and none was kept."""
    ready(page, another(brete, tmp_path / "curral.mp4"))
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.abort())
    for seconds in (0.4, 1.2):
        go(page, seconds)
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("s")
    expect(waiting(page)).to_have_count(2)
    db.execute("DELETE FROM video WHERE file_name = 'brete.mp4'")
    page.unroute("**/v2/snaps")
    page.reload()
    refused = page.locator("#refused-list li")
    expect(refused).to_have_text([re.compile(f"0:0{at} brete.mp4 · Ana .*Video not found") for at in ("0.40", "1.20")])
    expect(page.locator("#waiting")).to_be_hidden()
    assert violations(page) == []
    assert page.evaluate(CONTRASTS) == []
    page.reload()
    expect(refused).to_have_count(2)
    page.get_by_role("button", name="Forget the moment at 0:00.40").click()
    page.get_by_role("button", name="Forget the moment at 0:01.20").click()
    expect(page.locator("#refused")).to_be_hidden()
    assert page.evaluate("localStorage.getItem('waiting')") is None


@at_length
def test_what_the_server_refuses_does_not_wait_and_what_is_forgotten_is_not_sent(
    page: Page, brete: Path, db: Db
) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.fulfill(status=400, json={"message": "Validation failed"}))
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text("not sent")
    expect(page.locator("#waiting")).to_be_hidden()
    page.unroute("**/v2/snaps")
    cut(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("s")
    page.get_by_role("button", name="Forget the moment at").click()
    expect(page.locator("#waiting")).to_be_hidden()
    restore(page)
    page.reload()
    expect(page.locator("#mark")).to_be_enabled()
    assert filed(db) == []


@at_length
def test_what_is_forgotten_while_an_earlier_one_hangs_is_not_sent(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.abort())
    for seconds in (0.4, 1.2):
        go(page, seconds)
        page.keyboard.press("s")
        page.evaluate("document.activeElement.blur()")
    expect(waiting(page)).to_have_count(2)
    page.get_by_role("button", name="Forget the moment at 0:01.20").focus()
    with page.expect_event("requestfailed"):
        page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#mark-said")).to_contain_text("0:00.40 is kept here")
    expect(page.get_by_role("button", name="Forget the moment at 0:01.20")).to_be_focused()
    page.unroute("**/v2/snaps")
    hanging: list[Route] = []

    def hold(route: Route) -> None:
        hanging.append(route)
        if len(hanging) > 1:
            route.continue_()

    page.route("**/v2/snaps", hold)
    with page.expect_request("**/v2/snaps"):
        page.evaluate("dispatchEvent(new Event('online'))")
    page.get_by_role("button", name="Forget the moment at 0:01.20").click()
    expect(moments(page)).to_have_count(1)  # its card has gone as well
    hanging[0].continue_()
    expect(page.locator("#waiting")).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(moments(page).first).not_to_contain_text("sending")
    assert filed(db) == [0.4]


@at_length
def test_one_that_is_sent_again_by_hand_is_kept_like_the_first_time(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.fulfill(status=400, json={"message": "Validation failed"}))
    page.keyboard.press("s")
    expect(moments(page).first.locator(".state")).to_have_text("not sent")
    page.unroute("**/v2/snaps")
    page.route("**/v2/snaps", lambda route: route.abort())
    page.get_by_role("button", name="Send again").click()
    expect(waiting(page)).to_have_count(1)
    page.unroute("**/v2/snaps")


@at_length
def test_a_browser_without_room_marks_all_the_same(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.evaluate(
        """() => { let text = "x".repeat(2 ** 22);
        for (let n = 0; text; n += 1) {
            try { localStorage.setItem(`full${n}`, text) } catch { text = text.slice(text.length / 2 + 1) } } }"""
    )
    page.route("**/v2/snaps", lambda route: route.abort())
    page.keyboard.press("s")
    expect(waiting(page)).to_have_count(1)
    page.unroute("**/v2/snaps")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#waiting")).to_be_hidden()
    expect(moments(page)).to_have_count(1)
    assert len(filed(db)) == 1


@at_length
def test_one_that_waited_longer_than_its_key_is_known_is_looked_for_first(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    with page.expect_request("**/v2/snaps") as asked:
        page.keyboard.press("s")
    until(lambda: page.evaluate("localStorage.getItem('waiting') === null"))  # it was answered
    wanted: Any = asked.value.post_data_json
    for seconds in (wanted["startSeconds"], 1.2):  # the first has been filed, under a key that is forgotten
        mark = {
            "key": f"k{seconds}",
            "keptAt": 0,
            "tenant": "default",
            "seconds": seconds,
            "name": "x",
            "videoId": wanted["videoId"],
            "wanted": wanted | {"startSeconds": seconds},
        }
        page.evaluate("(mark) => localStorage.setItem('waiting', JSON.stringify([mark]))", mark)
        page.reload()
        until(lambda: page.evaluate("localStorage.getItem('waiting') === null"))
    assert filed(db) == [0, 1.2]


def test_another_tenants_marks_are_not_sent(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    mark = '{"key": "k", "tenant": "other", "seconds": 1, "name": "x", "wanted": {"nickname": "Eva"}}'
    page.evaluate("(mark) => localStorage.setItem('waiting', `[${mark}]`)", mark)
    page.reload()
    expect(page.locator("#mark")).to_be_enabled()
    expect(page.locator("#waiting")).to_be_hidden()
    assert page.evaluate("JSON.parse(localStorage.getItem('waiting')).length") == 1
    assert filed(db) == []


@at_length
def test_a_mark_at_which_the_server_fails_does_not_keep_those_behind_it(page: Page, brete: Path, db: Db) -> None:
    """They stood behind it until its key was forgotten."""
    ready(page, brete)

    def fail(route: Route) -> None:
        if (route.request.post_data_json or {}).get("startSeconds") != 0.4:
            return route.continue_()
        return route.fulfill(status=500, json={"status": 500, "message": "Internal error"})

    page.route("**/v2/snaps", lambda route: route.fulfill(status=502, body="Bad Gateway"))
    for seconds in (0.4, 1.2):
        operating.mark_at(page, seconds)
        page.evaluate("document.activeElement.blur()")
    expect(waiting(page)).to_have_count(2)
    page.unroute("**/v2/snaps")
    page.route("**/v2/snaps", fail)
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(waiting(page)).to_have_text([re.compile("0:00.40")])
    assert filed(db) == [1.2]
    page.unroute("**/v2/snaps")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#waiting")).to_be_hidden()
    assert filed(db) == [0.4, 1.2]


@at_length
def test_a_mark_waits_while_somebody_else_is_signed_in_in_another_window(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.evaluate("localStorage.setItem('tenant', 'other')")
    page.keyboard.press("s")
    expect(waiting(page)).to_have_count(1)
    assert filed(db) == []
    page.evaluate("localStorage.setItem('tenant', 'default')")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#waiting")).to_be_hidden()
    assert len(filed(db)) == 1


@at_length
def test_a_mark_that_was_refused_to_somebody_else_waits(page: Page, brete: Path, db: Db) -> None:
    """The other one's cookie went with it: for them there is no such video."""
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.fulfill(status=404, json={"message": "Video not found"}))
    page.route("**/v2/session", lambda route: route.fulfill(json={"code": "other", "name": "Other"}))
    page.keyboard.press("s")
    expect(waiting(page)).to_have_count(1)
    page.unroute("**/v2/snaps")
    page.unroute("**/v2/session")
    page.evaluate("dispatchEvent(new Event('online'))")
    expect(page.locator("#waiting")).to_be_hidden()
    assert len(filed(db)) == 1


@at_length
def test_what_waits_is_sent_when_a_server_that_was_away_is_back(page: Page, brete: Path, db: Db) -> None:
    """The browser's own line never broke: nothing tells the page, which was opened anew meanwhile."""
    ready(page, brete)
    assert page.evaluate(IS_KEPT)
    page.route("**/v2/**", lambda route: route.fulfill(status=502, body="Bad Gateway"))
    page.keyboard.press("s")
    expect(waiting(page)).to_have_count(1)
    page.reload()
    expect(page.locator("#lost")).to_contain_text("The server does not answer")
    page.route("**/v2/templates", lambda route: route.fulfill(status=502, body="Bad Gateway"), times=1)
    page.unroute("**/v2/**")  # it is back, but for one answer
    expect(page.locator("#waiting")).to_be_hidden()
    expect(page.locator("#mark")).to_be_enabled()
    expect(page.locator("#lost")).to_be_empty()
    expect(moments(page)).to_have_count(1)
    assert len(filed(db)) == 1


@pytest.mark.at_length  # a line that is cut is waited for in every run, above
def test_a_video_that_does_not_come_is_waited_for_and_not_said_to_be_unplayable(page: Page, brete: Path) -> None:
    ready(page, brete)
    page.route("**/content*", lambda route: route.fulfill(status=502, body="Bad Gateway"), times=2)
    page.reload()
    expect(page.locator("#film-said")).to_contain_text("The video does not come: status 502")
    expect(page.locator("#mark")).to_be_enabled()
    expect(page.locator("#copy")).to_be_hidden()
    expect(page.locator("#film")).to_be_visible()


@at_length
def test_whoever_is_signed_out_while_marking_signs_in_again_beside_it(page: Page, brete: Path, db: Db) -> None:
    ready(page, brete)
    page.route("**/v2/snaps", lambda route: route.fulfill(status=401, json={"message": "Unauthorized"}))
    page.keyboard.press("s")
    expect(page.locator("#sign-in")).to_be_visible()
    expect(waiting(page)).to_have_count(1)
    expect(page.locator("#mark-said")).to_contain_text("until you have signed in again")
    assert violations(page) == []
    page.unroute("**/v2/snaps")
    page.route("**/v2/session", lambda route: route.continue_(method="GET", post_data=None))  # any token will do
    page.locator("#sign-in-token").fill("secret")
    page.keyboard.press("Enter")
    expect(page.locator("#sign-in")).to_be_hidden()
    expect(page.locator("#waiting")).to_be_hidden()
    assert len(filed(db)) == 1


@at_length
def test_with_one_thumb_on_a_phone(browser: Browser, site: Server, brete: Path, db: Db) -> None:
    """The button is under the thumb whatever is scrolled, large enough, and says what waits in Portuguese."""
    with opened(browser, site.home, **PHONE, locale="pt-BR", color_scheme="dark") as (page, complaints):
        ready(page, brete, filmed="")
        page.locator("#filmed").fill("2026-03-01T08:15:00")
        page.locator("#filmed").blur()
        cut(page)
        for top in (0, 200):
            page.evaluate("(top) => scrollTo(0, top)", top)
            box = page.locator("#mark").bounding_box()
            assert box
            assert (box["height"] >= 48, box["width"] >= 300, box["y"] + box["height"] <= 844) == (True, True, True)
        page.locator("#mark").tap()
        expect(waiting(page)).to_have_count(1)
        assert english_in(page) == set()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for button in page.locator(".buttons button:visible").all():
            small = button.bounding_box()
            assert small
            assert min(small["width"], small["height"]) >= 40, "a finger's tip"
        restore(page)
        expect(waiting(page)).to_have_count(0)
        assert len(filed(db)) == 1
    assert others(complaints) == []


def test_it_can_be_installed(page: Page, site: Server) -> None:
    told = page.context.new_cdp_session(page).send("Page.getAppManifest")
    assert (told["errors"], told["url"]) == ([], f"{site.home}static/manifest.webmanifest")
    icons = re.findall(r'"src": "([^"]+)"', told["data"])
    assert len(icons) == 3
    for icon in icons:
        assert page.request.get(f"{site.home}{icon.lstrip('/')}").status == 200


WORKED = """async ([source, status, hasRoom]) => {
    const heard = {};
    const put = async () => { if (!hasRoom) throw new DOMException("full", "QuotaExceededError"); };
    const kept = { match: async () => new Response("kept"), put };
    new Function("addEventListener", "caches", "fetch", "location", source)(
        (name, act) => (heard[name] = act), { open: async () => kept },
        async () => new Response("sent", { status }), new URL("http://farm.example/"));
    let answer;
    heard.fetch({ request: { url: "http://farm.example/", method: "GET" }, respondWith: (its) => (answer = its) });
    return (await answer).text();
}"""


def test_what_the_server_sent_is_shown_also_where_it_cannot_be_kept(browser: Browser) -> None:
    """Files of two versions beside each other would be no page."""
    worker = (STATIC / "service-worker.js").read_text()
    page = browser.new_page()
    assert page.evaluate(WORKED, [worker, 200, False]) == "sent"
    answers = [page.evaluate(WORKED, [worker, status, True]) for status in (200, 404, 502)]
    assert answers == ["sent", "sent", "kept"]  # a proxy without its server is like no line: the page waits and asks
    page.close()


def test_the_shell_is_all_that_the_page_is_made_of() -> None:
    """What is missing there is missing without a line."""
    kept = (STATIC / "service-worker.js").read_text()
    named = set(re.findall(r'"([\w/-]+\.js)"', kept))
    needed: set[str] = set()
    wanted = {"home/home.js"}
    while wanted:
        needed |= wanted
        texts = [(STATIC / name).read_text() for name in wanted]
        wanted = {name for text in texts for name in re.findall(r'"/static/([\w/-]+\.js)"', text)} - needed
    assert named == needed
