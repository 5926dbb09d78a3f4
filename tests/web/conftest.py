"""A real browser against a real `snapapp serve`."""

import http.client
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright
from psycopg.errors import DeadlockDetected
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from snapapp.jobs.rows.database import connect
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.jobs.working import PATIENCE, until
from tests.running import Served, free_port

HOSTILE = '<img src=x onerror="document.title=1">\u202e</script><b>'

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

# What has changed is on the page.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))"

IS_TAKEN_OVER = "!navigator.serviceWorker || Boolean(navigator.serviceWorker.controller)"

# The first has no window, nor what belongs to one: a page takes a third of the time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WITHIN = PATIENCE
OTHER_SCREENS = ((390, "light"), (1280, "light"), (1280, "dark"))  # than the narrow dark one, which is hardest to read
expect.set_options(timeout=WITHIN * 1000)


class Server:
    """`snapapp serve` with its worker; it can be stopped, and started again on the same port."""

    def __init__(self, url: str, folder: Path, **settings: str) -> None:
        port = str(free_port())
        own = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_DATA_DIR": str(folder), "SNAPAPP_PORT": port}
        self._settings = {"SNAPAPP_RETRY_BASE_MS": "200", "SNAPAPP_RETRY_JITTER": "0"} | own | settings
        self.folder = folder
        self.url = url
        self.home = f"http://localhost:{port}/"
        self.ops = f"{self.home}ops"
        self.served: Served | None = None

    def start(self) -> None:
        self.served = Served(self.folder, **self._settings).until_up()

    def stop(self) -> None:
        if self.served is not None:
            served, self.served = self.served, None
            served.signal(signal.SIGTERM)
            try:
                assert served.end() == 0, served.said()
            finally:
                served.process.kill()
                served.process.wait()


@contextmanager
def launched() -> Iterator[Browser]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.skip(f"there is no browser: none of {', '.join(BROWSERS)} is on the PATH")
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=as_root)
        yield browser
        browser.close()


@pytest.fixture(scope="package")  # its event loop runs on our thread, and no test elsewhere could run one
def browser() -> Iterator[Browser]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="package")
def monolith(servers: Callable[[str], Postgres], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests here that leave it as they found it: with the browser it takes two seconds of a
    processor to come."""
    with servers(EMBEDDED).database("migrated") as url:
        server = Server(url, tmp_path_factory.mktemp("monolith"))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def serve(url: str, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:

        def begin(**settings: str) -> Server:
            server = Server(url, tmp_path, **settings)
            server.start()
            stack.callback(server.stop)
            return server

        yield begin


# What tests make. Where a limit or a pause stayed, the next test's jobs would wait.
MADE = "video, snap, snap_processing_job, job_parent, job_audit, job_queue, job_limit, job_rule_change, job_history"


@pytest.fixture
def url(monolith: Server) -> str:
    """The server's database, without what earlier tests have made."""
    with connect(monolith.url, name="test") as db:
        # the server works meanwhile, and locks the same tables in another order
        for attempt in Retrying(
            retry=retry_if_exception_type(DeadlockDetected), stop=stop_after_attempt(5), reraise=True
        ):
            with attempt:
                db.execute(f"TRUNCATE {MADE}, job_cost RESTART IDENTITY CASCADE".encode())
    return monolith.url


@pytest.fixture
def site(monolith: Server, url: str) -> Server:
    return monolith


class Complaints(list[str]):
    """What the browser said against the page: errors in it, and what its security policy stopped."""


@contextmanager
def opened(browser: Browser, home: str, **options: object) -> Iterator[tuple[Page, Complaints]]:
    context = browser.new_context(**options)  # type: ignore[arg-type]
    page = context.new_page()
    page.set_default_timeout(WITHIN * 1000)
    complaints = Complaints()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.goto(home)
    try:
        yield page, complaints
    finally:
        with suppress(Error):  # it may have crashed, and then the test has said so
            context.close()


def until_true(page: Page, expression: str) -> None:
    """Playwright's own `wait_for_function` asks a second time out of the page, whose policy forbids it `eval`."""
    until(lambda: page.evaluate(expression))


def heed_routes(page: Page) -> None:
    """A browser begins to ask the test late: what a page sends just after its first route, or while a service worker
    takes the page over, reaches the server all the same. From here on every route is asked."""
    until_true(page, IS_TAKEN_OVER)
    page.route("**/v2/none", lambda route: route.abort())
    until_true(page, "fetch('/v2/none').then(() => false, () => true)")


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    """The page at /ops, live. Whatever the browser complains of fails the test."""
    with opened(browser, site.ops) as (page, complaints):
        page.wait_for_selector("#link[data-state=live]")
        yield page
    assert complaints == []


def get(site: Server, path: str, method: str = "GET", **headers: str) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(str(urlsplit(site.home).netloc), timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()
