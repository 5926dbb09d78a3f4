"""The page at /queue, as a person sees it."""

import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from snapapp.jobs.enqueue import enqueue_many
from snapapp.jobs.rows import lifecycle
from tests.factory import Db, make_job, row
from tests.jobs.working import until
from tests.web.conftest import Server, opened

expect.set_options(timeout=20_000)

HOSTILE = '<img src=x onerror="document.title=1">\u202e</script><b>'


def line(page: Page, job_id: int) -> Locator:
    return page.locator("#jobs li", has=page.locator(f'a[href="#job-{job_id}"]'))


def state(page: Page, job_id: int) -> Locator:
    return line(page, job_id).locator(".state")


def start(page: Page, db: Db, button: int) -> int:
    """Presses a button; the id of the job that it made."""
    before = newest(db)
    page.locator("#starters button").nth(button).click()
    until(lambda: newest(db) > before)
    return newest(db)


def newest(db: Db) -> int:
    [(found,)] = db.execute("SELECT coalesce(max(id), 0) FROM snap_processing_job").fetchall()
    return int(found)


# --- the first minute -------------------------------------------------------------------------------------------


def test_the_page_says_what_this_is_and_how_it_is(page: Page) -> None:
    """M63: a dashboard."""
    expect(page.get_by_role("heading", name="snapapp")).to_be_visible()
    expect(page.locator("#health")).to_have_attribute("data-state", "UP")
    expect(page.locator("#health")).to_contain_text("worker working")
    expect(page.locator("#none")).to_have_text("No job yet. Start one above.")
    expect(page.locator("#workers tbody tr")).to_have_count(1)
    expect(page.get_by_role("link", name="API")).to_have_attribute("href", "/docs")


@pytest.mark.parametrize(
    ("button", "kind", "end"),
    [
        (0, "demo.hello", "completed"),
        (1, "demo.sleep", "completed"),
        (2, "demo.crunch", "completed"),
        (3, "demo.fail", "completed"),
        (4, "demo.fail", "failed"),
    ],
)
def test_a_demo_job_is_started_and_seen_to_its_end(page: Page, db: Db, button: int, kind: str, end: str) -> None:
    job_id = start(page, db, button)
    expect(line(page, job_id).locator(".kind")).to_have_text(kind)
    expect(state(page, job_id)).to_contain_text(end)
    expect(page.locator("#spoken")).to_have_text(f"Job {job_id}, {kind}: {end}")
    if kind in ("demo.sleep", "demo.crunch"):
        assert row(db, job_id).progress["percent"] > 0


def test_a_running_job_shows_how_far_it_is(page: Page, db: Db) -> None:
    """Held by nobody who would end it: a page that is slow to look would otherwise find it at its end."""
    job_id = make_job(db, "RUNNING", kind="somebody.elses", progress={"percent": 40, "note": "half of it"})
    expect(state(page, job_id)).to_contain_text("running")
    expect(line(page, job_id).locator("progress")).to_be_visible()
    assert line(page, job_id).locator("progress").evaluate("bar => bar.value") == 40
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [job_id])


def test_a_job_that_is_enqueued_elsewhere_appears(page: Page, db: Db) -> None:
    job_id = make_job(db, kind="somebody.elses")
    expect(state(page, job_id)).to_contain_text("pending")
    lifecycle.cancel(db, job_id)
    expect(state(page, job_id)).to_contain_text("cancelled")
    db.execute("DELETE FROM snap_processing_job WHERE id = %s", [job_id])
    expect(line(page, job_id)).to_have_count(0)


# --- one job ----------------------------------------------------------------------------------------------------


def test_a_job_opens_with_all_that_is_known_and_runs_again_when_told_to(page: Page, db: Db) -> None:
    job_id = start(page, db, 4)
    expect(state(page, job_id)).to_contain_text("failed")
    line(page, job_id).locator(".kind").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name=f"Job {job_id} · demo.fail")).to_be_visible()
    expect(dialog).to_contain_text("about to fail")
    expect(dialog).to_contain_text(f"snapapp jobs show {job_id}")
    expect(dialog).to_contain_text(f"WHERE id = {job_id} \\gx")
    dialog.locator("summary", has_text="as it was told to").click()
    expect(dialog.locator("details pre")).to_contain_text("kinds.py")
    db.execute("UPDATE snap_processing_job SET payload = '{}', kind = 'demo.hello' WHERE id = %s", [job_id])
    dialog.get_by_role("button", name="Retry").click()
    expect(dialog.locator("#job-state")).to_contain_text("completed")
    expect(dialog.get_by_role("button", name="Retry")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    expect(line(page, job_id).locator("a")).to_be_focused()


def test_a_running_job_is_asked_to_stop_and_a_copy_of_it_runs(page: Page, db: Db) -> None:
    job_id = make_job(db, kind="demo.sleep", queue="demo", payload={"seconds": 60})
    expect(state(page, job_id)).to_contain_text("running")
    line(page, job_id).locator("a").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog.locator("#job-state")).to_contain_text("cancelled")
    dialog.get_by_role("button", name="Run a copy").click()
    expect(dialog.get_by_role("heading", name=f"Job {job_id + 1} · demo.sleep")).to_be_visible()
    expect(dialog.get_by_role("link", name=f"job {job_id}")).to_be_visible()
    assert row(db, job_id + 1).replay_of == job_id
    lifecycle.cancel(db, job_id + 1)


def test_a_refusal_is_said_in_words(browser: Browser, site: Server, db: Db) -> None:
    job_id = make_job(db, "FAILED", unique_key="k", unique_scope="live")
    holder = make_job(db, unique_key="k", unique_scope="live")
    with opened(browser, site.queue) as (page, complaints):
        line(page, job_id).locator("a").click()
        page.get_by_role("button", name="Retry").click()
        expect(page.locator("#job-said")).to_contain_text(f"job {holder} holds its unique key k")
    assert [said for said in complaints if "409" not in said] == []


def test_a_job_that_is_pruned_while_one_looks_at_it_is_gone_in_words(browser: Browser, site: Server, db: Db) -> None:
    job_id = make_job(db, "FAILED")
    with opened(browser, site.queue) as (page, complaints):
        line(page, job_id).locator("a").click()
        expect(page.get_by_role("button", name="Retry")).to_be_visible()
        db.execute("DELETE FROM snap_processing_job WHERE id = %s", [job_id])
        expect(page.locator("#job-said")).to_have_text(f"there is no job {job_id}")
        expect(page.get_by_role("button", name="Retry")).to_be_hidden()
    assert [said for said in complaints if "404" not in said] == []


def test_the_keyboard_is_enough(page: Page, db: Db) -> None:
    page.locator("#starters button").first.focus()
    page.keyboard.press("Enter")
    until(lambda: newest(db) == 1)
    expect(state(page, 1)).to_contain_text("completed")
    line(page, 1).locator("a").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_what_a_job_says_stays_text(page: Page, db: Db) -> None:
    job_id = make_job(
        db, "FAILED", kind=HOSTILE, queue=HOSTILE, last_error=HOSTILE, payload={HOSTILE: HOSTILE},
        errors=[{"attempt": 1, "error": HOSTILE, "trace": HOSTILE}],
    )  # fmt: skip
    db.execute("INSERT INTO job_log (job_id, attempt, message) VALUES (%s, 1, %s)", [job_id, HOSTILE])
    expect(line(page, job_id).locator(".kind")).to_have_text(HOSTILE)
    line(page, job_id).locator("a").click()
    expect(page.locator("dialog .log")).to_contain_text(HOSTILE)
    assert page.locator("#jobs img, #jobs b, dialog img, dialog b, #job-body script").count() == 0
    assert page.title() == "Queue · snapapp"


# --- who may see it ---------------------------------------------------------------------------------------------


@pytest.fixture
def guarded(browser: Browser, serve: Callable[..., Server]) -> Iterator[Page]:
    site = serve(SNAPAPP_INTERNAL_TOKEN="open-the-door-please")
    with opened(browser, site.queue) as (page, complaints):
        yield page
    assert [said for said in complaints if "401" not in said] == []


def test_a_server_with_a_token_is_asked_with_it(guarded: Page, db: Db) -> None:
    expect(guarded.locator("#token-value")).to_be_focused()
    expect(guarded.locator("#starters button").first).to_be_disabled()
    expect(guarded.locator("#none")).to_have_text("Nothing is known of the jobs yet.")
    guarded.keyboard.type("wrong")
    guarded.keyboard.press("Enter")
    expect(guarded.locator("#token-said")).to_contain_text("not the one")
    guarded.locator("#token-value").fill("open-the-door-please")
    guarded.get_by_role("button", name="Show the queue").click()
    expect(guarded.locator("#link")).to_have_attribute("data-state", "live")
    expect(guarded.locator("#token")).to_be_hidden()
    assert start(guarded, db, 0) == 1
    expect(state(guarded, 1)).to_contain_text("completed")
    guarded.reload()
    expect(guarded.locator("#link")).to_have_attribute("data-state", "live")
    assert guarded.evaluate("localStorage.length + document.cookie.length") == 0


def test_from_another_name_the_page_says_what_opens_the_door(browser: Browser, site: Server) -> None:
    port = urlsplit(site.home).port
    with opened(browser, f"http://{port}.localhost:{port}/queue") as (page, _):
        expect(page.locator("#notice")).to_contain_text("SNAPAPP_INTERNAL_TOKEN")
        expect(page.locator("#notice a")).to_have_attribute("href", site.queue)
        expect(page.locator("#link-said")).to_have_text("not allowed in")
        expect(page.locator("#starters button").first).to_be_disabled()


# --- a long life ------------------------------------------------------------------------------------------------


def test_a_server_that_goes_is_noticed_and_one_that_comes_back_is_found(browser: Browser, site: Server, db: Db) -> None:
    """FD6: an open page does not keep the server from ending."""
    with opened(browser, site.queue) as (page, _):
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        site.stop()
        expect(page.locator("#link")).to_have_attribute("data-state", "away")
        expect(page.locator("#health")).to_have_attribute("data-state", "DOWN")
        job_id = make_job(db, kind="meanwhile")
        site.start()
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        expect(state(page, job_id)).to_contain_text("pending")
        expect(page.locator("#health")).to_have_attribute("data-state", "UP")


def test_where_the_stream_is_refused_the_page_asks_again_and_again(browser: Browser, site: Server, db: Db) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.route("**/internal/jobs/stream", lambda route: route.fulfill(status=503, body="{}"))
        page.goto(site.queue)
        expect(page.locator("#link")).to_have_attribute("data-state", "polling")
        job_id = make_job(db)
        expect(state(page, job_id)).to_contain_text("pending")


def test_where_the_proxy_knows_no_internal_addresses_the_page_says_so(browser: Browser, site: Server) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.route("**/internal/**", lambda route: route.fulfill(status=404, body="{}"))
        page.goto(site.queue)
        expect(page.locator("#notice")).to_contain_text("has closed it at this address")
        expect(page.locator("#starters button").first).to_be_disabled()


def test_a_flood_does_not_freeze_the_page(page: Page, db: Db) -> None:
    """Between two frames never more than a moment, and the list stays short."""
    page.evaluate(
        """() => {
            let last = performance.now();
            window.longest = 0;
            const frame = (at) => {
                window.longest = Math.max(window.longest, at - last);
                last = at;
                requestAnimationFrame(frame);
            };
            requestAnimationFrame(frame);
        }"""
    )
    for _ in range(20):
        enqueue_many(db, [{"kind": "demo.hello", "queue": "demo"}] * 1000)
    expect(state(page, 20_000)).to_contain_text("completed", timeout=60_000)
    assert page.locator("#jobs li").count() <= 100
    assert page.evaluate("window.longest") < 1000  # ms
    assert page.evaluate("document.querySelectorAll('*').length") < 2000


def test_more_than_the_server_counts_is_said_to_be_more(page: Page, db: Db) -> None:
    db.execute("INSERT INTO snap_processing_job (kind, queue) SELECT 'unknown', 'full' FROM generate_series(1, 10005)")
    expect(page.locator("#queues tbody tr", has_text="full")).to_have_text("full10,000+00")


def test_the_list_stands_still_under_the_pointer(page: Page, db: Db) -> None:
    first = make_job(db)
    line(page, first).hover()
    make_job(db, kind="newer")
    expect(page.locator("#held")).to_contain_text("1 not shown")
    assert page.locator("#jobs li").count() == 1
    page.mouse.move(1, 1)
    expect(page.locator("#jobs li")).to_have_count(2)


# --- how it looks -----------------------------------------------------------------------------------------------

CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgb = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
        .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
        .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
    const behind = (element) => { for (; element; element = element.parentElement) {
        const colour = rgb(getComputedStyle(element).backgroundColor); if (colour[3] === 255) return colour; }
        return rgb(getComputedStyle(document.body).backgroundColor); };
    const poor = [];
    for (const element of document.querySelectorAll("body *")) {
        const says = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!says || !element.checkVisibility() || element.closest(":disabled, .unseen, noscript")) continue;
        const [one, other] = [light(rgb(getComputedStyle(element).color)), light(behind(element))];
        const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
        if (contrast < 4.5) poor.push(`${element.tagName}.${element.className} ${contrast.toFixed(2)}`);
    }
    return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_text_can_be_read_and_nothing_sticks_out(page: Page, db: Db, scheme: Any, width: int) -> None:
    """Contrast of 4.5 to 1 in every state, light and dark; no sideways scrolling."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for status in ("PENDING", "RUNNING", "RETRY_WAIT", "COMPLETED", "FAILED", "CANCELLED"):
        last = make_job(db, status, last_error="e" * 300, kind="k" * 60)
    expect(page.locator("#jobs li")).to_have_count(6)
    assert page.evaluate(CONTRASTS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    line(page, last).locator("a").click()
    expect(page.locator("dialog dl")).to_be_visible()
    assert page.evaluate(CONTRASTS) == []
    assert page.evaluate("document.querySelector('dialog').scrollWidth") <= width


# --- the files --------------------------------------------------------------------------------------------------


def get(site: Server, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(str(urlsplit(site.home).netloc), timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


FILES = ["/", "/queue", "/static/page.js", "/static/app.css", "/static/favicon.svg", "/robots.txt"]


def test_files_are_asked_for_each_time_and_sent_once(site: Server) -> None:
    for path in FILES:
        answer, body = get(site, path)
        assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-cache"), path
        assert "noindex" in answer.headers["X-Robots-Tag"]
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        again, nothing = get(site, path, **{"If-None-Match": f'"other", W/{answer.headers["ETag"]}'})
        assert (again.status, nothing, again.headers["ETag"]) == (304, b"", answer.headers["ETag"])
        changed, whole = get(site, path, **{"If-None-Match": '"other"'})
        assert (changed.status, whole) == (200, body)
        head, empty = get(site, path, "HEAD")
        assert (head.status, empty, head.headers["Content-Length"]) == (200, b"", str(len(body)))
    for path in ("/static/nothing", "/static/__init__.py", "/static/..%2f__init__.py", "/static/"):
        answer, body = get(site, path)
        assert (answer.status, json.loads(body)["message"]) == (404, "Not Found"), path


def test_without_javascript_the_page_says_what_to_do_instead(browser: Browser, site: Server) -> None:
    with opened(browser, site.queue, java_script_enabled=False) as (page, complaints):
        expect(page.locator("noscript .notice")).to_contain_text("snapapp jobs list")
        expect(page.locator("aside")).to_contain_text("SELECT * FROM queue_overview;")
        assert complaints == []
