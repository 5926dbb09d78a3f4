"""A hundred thousand dead letters are retried from the page while a worker runs jobs that do nothing: how many of those
end in a second before, meanwhile and after, how long none of them ends, what the page says, and that Stop stops it."""

import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from time import monotonic, sleep

from playwright.sync_api import Locator, Page, expect, sync_playwright

from snapapp import postgres
from snapapp.postgres.migrate import migrate
from tests.jobs.working import until
from tests.labs.console.stage import Db, asked, connected, program, worker_process
from tests.running import Served

STOCK = 20_000  # no-ops that always wait
_FEED = 5_000
_WITHIN = 600_000.0  # ms: a slow machine is no failure
_NOOPS_OVER = "SELECT count(*) FROM snap_processing_job WHERE kind = 'lab.noop' AND finished_at IS NOT NULL"
_BULK = "lab.elsewhere"  # no worker knows it: what is retried waits, and takes nothing from the no-ops but the database


@dataclass(frozen=True)
class Window:
    """No-ops that ended in some time."""

    seconds: float
    ended: int
    longest_gap: float  # seconds in which none ended

    @property
    def a_second(self) -> float:
        return self.ended / max(1e-9, self.seconds)


@dataclass
class Seen:
    jobs: int
    before: Window = Window(0, 0, 0)
    meanwhile: Window = Window(0, 0, 0)
    after: Window = Window(0, 0, 0)
    took: float = 0.0  # seconds, of the whole retry
    retried: int = 0
    progress: list[int] = field(default_factory=list)  # that the page told, one after the other
    stopped_at: int = 0  # what the page said when it was stopped
    stopped_within: float = 0.0
    retried_until_stopped: int = 0
    audited: list[tuple[str, int]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Of the throughput meanwhile to that before and after."""
        return 2 * self.meanwhile.a_second / max(1e-9, self.before.a_second + self.after.a_second)

    def problems(self) -> list[str]:
        quiet = max(self.before.longest_gap, self.after.longest_gap)
        wrong = {
            f"{self.retried:,} of {self.jobs:,} were retried": self.retried != self.jobs,
            f"the page told its progress {len(self.progress)} times": len(self.progress) < 10,
            f"half of the throughput was lost: {self.ratio:.2f}": self.ratio < 0.5,
            f"no no-op ended for {self.meanwhile.longest_gap:.1f} s": self.meanwhile.longest_gap > max(1.0, 3 * quiet),
            "it was not stopped": self.retried_until_stopped >= self.jobs,
            "the page says something else than the rows": self.stopped_at != self.retried_until_stopped,
            f"the audit says {self.audited}": self.audited
            != [("jobs.retry", self.jobs), ("jobs.retry", self.retried_until_stopped)],
        }
        return [words for words, is_wrong in wrong.items() if is_wrong]


def run(jobs: int, seconds: float) -> Seen:
    seen = Seen(jobs)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-console-")))
        server = stack.enter_context(postgres.start(folder / "postgres", create=True))
        migrate(server.url)
        db = stack.enter_context(connected(server.url))
        stack.enter_context(worker_process(folder, server.url))
        settings = {"SNAPAPP_DATABASE_URL": server.url, "SNAPAPP_WORKER_ENABLED": "false", "SNAPAPP_DEMO": "false"}
        served = Served(folder, **settings)
        stack.callback(served.process.kill)
        served.until_up()
        stack.enter_context(feeding(server.url))
        page = stack.enter_context(opened(f"http://localhost:{served.port}/ops"))
        fail(db, jobs)
        until(lambda: asked(db, _NOOPS_OVER) > 1000, within=60)  # it has found its pace
        began = clock(db)
        sleep(seconds)
        pressed = clock(db)
        retry(page, seen)
        told = clock(db)
        sleep(seconds)
        ended = clock(db)
        seen.retried = changed(db)
        stop(page, db, jobs, seen)
        seen.audited = db.execute("SELECT action, jobs FROM job_audit ORDER BY id").fetchall()
        seen.took = (told - pressed).total_seconds()
        seen.before, seen.meanwhile, seen.after = (
            window(db, *times) for times in ((began, pressed), (pressed, told), (told, ended))
        )
    return seen


# --- the page ---------------------------------------------------------------------------------------------------


@contextmanager
def opened(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(_WITHIN)
        page.goto(address)
        page.wait_for_selector("#link[data-state=live]")
        yield page
        browser.close()


def retry(page: Page, seen: Seen) -> None:
    said = count(page)
    page.get_by_role("button", name=re.compile("^Retry [0-9,]+ jobs$")).click()
    end = re.compile("retried\\.$")
    while not end.search(now := said.text_content() or ""):
        told = _first_number(now)
        if not seen.progress or seen.progress[-1] != told:
            seen.progress.append(told)
        sleep(0.05)
    page.locator("#many").get_by_role("button", name="Close").click()


def stop(page: Page, db: Db, jobs: int, seen: Seen) -> None:
    """A fifth of the way, in a second round."""
    fail(db, jobs)
    before = changed(db)
    said = count(page)
    page.get_by_role("button", name=re.compile("^Retry [0-9,]+ jobs$")).click()
    until(lambda: "of" in (now := said.text_content() or "") and _first_number(now) > jobs / 5, within=300)
    pressed = monotonic()
    page.locator("#many").get_by_role("button", name="Stop").click()
    expect(said).to_contain_text("Stopped: ", timeout=_WITHIN)
    seen.stopped_within = monotonic() - pressed
    seen.stopped_at = _first_number((said.text_content() or "").removeprefix("Stopped: "))
    sleep(2)  # were it to go on, it would by now
    seen.retried_until_stopped = changed(db) - before


def count(page: Page) -> Locator:
    """What the dialog says, when everything is counted."""
    page.goto(f"{page.url.split('/ops')[0]}/ops/jobs?status=FAILED&kind={_BULK}")
    page.get_by_role("button", name="Retry them").click()
    said = page.locator("#many-said")
    expect(said).to_contain_text("will be retried", timeout=_WITHIN)
    return said


def _first_number(words: str) -> int:
    found = re.match("[0-9,]+", words)
    return int(found[0].replace(",", "")) if found else 0


# --- the rows ---------------------------------------------------------------------------------------------------


def fail(db: Db, jobs: int) -> None:
    db.execute(
        "INSERT INTO snap_processing_job (kind, status, attempt_count, last_error, finished_at)"
        " SELECT %s, 'FAILED', 3, 'ConnectionRefusedError: no route to the mail server', now()"
        "   FROM generate_series(1, %s)",
        [_BULK, jobs],
    )
    db.execute("VACUUM ANALYZE snap_processing_job")


def changed(db: Db) -> int:
    statement = "SELECT count(*) FROM snap_processing_job WHERE kind = %s AND status = 'PENDING'"
    return int(asked(db, statement, _BULK))


def clock(db: Db) -> datetime:
    found = asked(db, "SELECT clock_timestamp()")
    assert isinstance(found, datetime)
    return found


def window(db: Db, began: datetime, ended: datetime) -> Window:
    row = db.execute(
        "SELECT count(*), coalesce(extract(epoch FROM max(gap)), 1e9)::float8 FROM ("
        "  SELECT finished_at - lag(finished_at, 1, %(began)s) OVER (ORDER BY finished_at) AS gap"
        "    FROM snap_processing_job WHERE kind = 'lab.noop' AND finished_at BETWEEN %(began)s AND %(ended)s) AS ends",
        {"began": began, "ended": ended},
    ).fetchone()
    assert row
    return Window((ended - began).total_seconds(), row[0], row[1])


@contextmanager
def feeding(url: str) -> Iterator[None]:
    """So many wait as long as this lasts."""
    over, fed = threading.Event(), threading.Event()

    def feed() -> None:
        with connected(url) as db:
            while not over.wait(0.05):
                statement = "SELECT count(*) FROM snap_processing_job WHERE kind = 'lab.noop' AND status = 'PENDING'"
                if asked(db, statement) < STOCK:
                    db.execute(
                        "INSERT INTO snap_processing_job (kind) SELECT 'lab.noop' FROM generate_series(1, %s)", [_FEED]
                    )
                else:
                    fed.set()

    thread = threading.Thread(target=feed)
    thread.start()
    fed.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()
