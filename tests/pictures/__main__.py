"""Takes the pictures and writes the page that shows them: see the package."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, expect

from snapapp import postgres
from tests import ROOT
from tests.conftest import guarded_folder
from tests.jobs.working import until
from tests.pictures.content import TOKEN, Content, fill, let_in
from tests.web.conftest import Server, launched, opened

FOLDER = ROOT / "docs" / "pictures"
LARGEST = 60_000  # bytes; a page of them should open in a field
WIDE: dict[str, Any] = {"viewport": {"width": 1280, "height": 860}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 1.5, "has_touch": True}
SCHEMES = {"light": WIDE, "dark": WIDE | {"color_scheme": "dark"}, "phone": PHONE}
LANGUAGES = {"en": "en-GB", "pt": "pt-BR"}
# every picture that is seen is there, and no clip is on its way
IS_STILL = """[...document.images].every((each) => each.getBoundingClientRect().top > innerHeight
        || !each.checkVisibility() || each.complete && each.naturalWidth)
    && [...document.querySelectorAll("video[src]")].every((each) => each.networkState === 1)"""
Look = Callable[[Page], None]


def _nothing(page: Page) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Shown:
    """A page, as what it is known, and when it is ready to be looked at."""

    name: str
    title: str
    address: Callable[[Content], str]
    ready: Look = _nothing
    kinds: tuple[str, ...] = ("en-light",)
    more: dict[str, Any] = field(default_factory=dict)
    height: int | None = None

    def pictures(self) -> Iterator[str]:
        for kind in self.kinds:
            yield f"{self.name}-{kind}.webp"


ALL = tuple(f"{language}-{scheme}" for language in LANGUAGES for scheme in SCHEMES)
THREE = ("en-light", "pt-dark", "pt-phone")


def _player(page: Page) -> None:
    page.evaluate("localStorage.setItem('operator', JSON.stringify({nickname: 'Ana', email: 'ana@fazenda.example'}))")
    page.reload()
    expect(page.locator("#moments .state[data-state=COMPLETED]").nth(8)).to_be_attached()
    page.locator("#moments li").first.get_by_role("button").nth(1).click()
    expect(page.locator("#frame")).to_contain_text("432")
    for name, value in (("brinco", "BR-1047"), ("raca", "Nelore"), ("sexo", "M"), ("lote", "7")):
        page.locator(f"#field-{name}").fill(value)
    until(lambda: page.evaluate("document.getElementById('film').readyState >= 2"))
    page.evaluate("scrollTo(0, 0)")


def _evidence(page: Page) -> None:
    expect(page.locator("#frames img")).to_have_count(5)
    expect(page.locator("#corrections li").first).to_be_attached()


def _cards(page: Page) -> None:
    expect(page.locator("#found li").nth(10)).to_be_attached()


def _compared(its: Content) -> str:
    return f"snaps/compare?a={its.snap}&b={its.other}"


def _everything(its: Content) -> str:
    return f"snaps/subject?id={its.subject}"


def _together(page: Page) -> None:
    expect(page.locator("#together")).to_be_visible()
    page.locator("#seek").fill("0.5")
    page.locator("#seek").blur()


def _operations(page: Page) -> None:
    expect(page.locator("details.operation").first).to_be_visible()


def _live(page: Page) -> None:
    expect(page.locator("#link")).to_have_attribute("data-state", "live")
    expect(page.locator("#view").locator("tbody tr, dl dd, svg path, svg rect").first).to_be_attached()


def _people(page: Page) -> None:
    page.locator("#token").fill(TOKEN)
    page.locator("#token").press("Enter")
    page.locator(".entries summary").nth(2).click()
    page.locator('.entries form[action$="/link"] button').nth(1).click()
    page.locator("#link-code summary").click()
    expect(page.locator("#link-code svg")).to_be_visible()


NO_SCRIPTS = {"java_script_enabled": False}

PAGES = (
    Shown("player", "The player: a moment is marked and described", lambda its: "", _player, ALL, height=1080),
    Shown("snaps", "Moments, found again", lambda its: "snaps", _cards, ALL),
    Shown("snap", "One moment, whole", lambda its: f"snaps/{its.snap}", _evidence, ALL),
    Shown("link", "A link, without scripts", lambda its: f"public/snaps/{its.link}", _nothing, ALL, NO_SCRIPTS),
    Shown("compare", "Two moments, side by side", _compared, _together, THREE),
    Shown("subject", "All of one animal", _everything, _nothing, THREE),
    Shown("compare-plain", "The same without scripts", _compared, kinds=("pt-light",), more=NO_SCRIPTS),
    Shown("ops", "On call: now", lambda its: "ops", _live, ("en-light", "en-dark", "en-phone")),
    Shown("ops-jobs", "On call: the jobs", lambda its: "ops/jobs", _live),
    Shown("ops-job", "On call: one job, why it failed and what can be done", lambda its: f"ops/jobs/{its.job}", _live),
    Shown("ops-queues", "On call: queues, one of them paused", lambda its: "ops/queues", _live),
    Shown("ops-history", "On call: a week", lambda its: "ops/history?over=7d", _live, ("en-light", "en-dark")),
    Shown("ops-schedules", "On call: schedules", lambda its: "ops/schedules", _live),
    Shown("ops-workers", "On call: workers", lambda its: "ops/workers", _live),
    Shown("ops-box", "On call: the machine and the database's server", lambda its: "ops/box", _live),
    Shown("ops-costs", "On call: what each kind costs", lambda its: "ops/costs", _live),
    Shown("ops-audit", "On call: who did what", lambda its: "ops/audit", _live),
    Shown("docs", "The API, to be tried", lambda its: "docs", _operations),
)  # fmt: skip
SIGNING_IN = (  # where tokens are asked for
    Shown("sign-in", "Signing in, where tokens are asked for", lambda its: "", kinds=THREE),
    Shown("sign-in-link", "Signing in by a personal link", lambda its: its.link, kinds=THREE),
    Shown("people", "Who may sign in: a link was just made", lambda its: "sign-in?next=/operators", _people, THREE),
)


def take(browser: Browser, site: Server, content: Content, shown: Shown, kind: str) -> None:
    language, scheme = kind.split("-")
    options = SCHEMES[scheme] | {"locale": LANGUAGES[language], "timezone_id": "America/Sao_Paulo"} | shown.more
    if shown.height:
        options["viewport"] = options["viewport"] | {"height": shown.height}
    with opened(browser, site.home + shown.address(content), **options) as (page, complaints):
        page.wait_for_load_state("load")
        shown.ready(page)
        until(lambda: page.evaluate(IS_STILL))
        page.wait_for_timeout(500)  # a player's own wheel goes on turning for a while
        keep(page.screenshot(animations="disabled", caret="hide"), f"{shown.name}-{kind}.webp")
    assert [said for said in complaints if "401" not in said] == [], shown.name


def keep(png: bytes, name: str) -> None:
    """As good as its size allows."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    for quality in (82, 72, 60, 45, 30):
        kept = io.BytesIO()
        picture.save(kept, "WEBP", quality=quality, method=6)
        if kept.tell() <= LARGEST:
            break
    (FOLDER / name).write_bytes(kept.getvalue())
    print(f"{name}: {kept.tell() / 1000:.0f} kB at quality {quality}", flush=True)


@contextmanager
def house(**settings: str) -> Iterator[Server]:
    with guarded_folder() as data, postgres.start(data, create=True) as server, guarded_folder() as folder:
        site = Server(server.url, folder, **settings)
        site.start()
        try:
            yield site
        finally:
            site.stop()


def document() -> str:
    """The page that shows them; a test compares."""
    lines = [
        "# Pictures",
        "",
        "What every page looks like, taken of a running server by `python -m tests.pictures`: the demo's video, a",
        "second one, and what two people marked in them. English and Portuguese, by day, by night, and on a phone.",
        "Date fields look as the browser's own language has them; this browser has only English.",
    ]
    for shown in (*PAGES[:7], *SIGNING_IN, *PAGES[7:]):
        lines += ["", f"## {shown.title}", ""]
        lines += [f"![{shown.title}: {_said(name)}]({name})" for name in shown.pictures()]
    return "\n".join(lines) + "\n"


def _said(name: str) -> str:
    return ", ".join(name.removesuffix(".webp").rsplit("-", 2)[1:])


def main(names: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "README.md").write_text(document())
    wanted = [each for each in PAGES if not names or each.name in names]
    if wanted:
        with house() as site, guarded_folder() as folder:
            _take_all(site, fill(site, folder), wanted)
    wanted = [each for each in SIGNING_IN if not names or each.name in names]
    if wanted:
        with house(SNAPAPP_REQUIRE_API_TOKEN="true", SNAPAPP_DEMO="false") as site:
            _take_all(site, Content("", "", "", let_in(site), 0), wanted)


def _take_all(site: Server, content: Content, wanted: list[Shown]) -> None:
    with launched() as browser:
        for shown in wanted:
            for kind in shown.kinds:
                take(browser, site, content, shown, kind)


if __name__ == "__main__":
    main(sys.argv[1:])
