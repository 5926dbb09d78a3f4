"""The API's page at /docs, as a person sees it."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.factory import Db, hence, make_job, row
from tests.web.conftest import CONTRASTS, HOSTILE, OTHER_SCREENS, WITHIN, Server, get, opened

at_length = pytest.mark.at_length  # the operations themselves are called in every run, and test_static reaches each

TOKEN = "open-the-door-please"
LARGE = 9007199254740993  # 2^53 + 1, which a browser's JSON.parse makes even


def operation(page: Page, name: str) -> Locator:
    return page.locator(f"details.operation#{name}")


def open_one(page: Page, name: str) -> Locator:
    found = operation(page, name)
    found.locator("> summary").click()
    expect(found.get_by_role("button", name="Try it")).to_be_visible()
    return found


def send(found: Locator) -> Locator:
    """Presses the button; the answer, once it is whole."""
    found.get_by_role("button", name="Try it").click()
    expect(found.get_by_role("button", name="Stop")).to_be_hidden()
    return found.locator(".answer")


def keep(page: Page, header: str, value: str) -> None:
    form = page.get_by_role("form", name=header)
    form.get_by_label(header).fill(value)
    page.keyboard.press("Enter")
    expect(form.get_by_role("status")).to_contain_text("kept in this tab")


def shell(found: Locator) -> str:
    return found.locator("form .code code").inner_text()


@pytest.fixture
def page(browser: Browser, site: Server) -> Iterator[Page]:
    """The page at /docs. Whatever the browser complains of, and whatever it asks another host, fails the test."""
    with opened(browser, "about:blank") as (page, complaints):
        asked: set[str] = set()
        page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
        page.goto(f"{site.home}docs")
        page.wait_for_selector(".operation")
        yield page
    assert complaints == []
    assert asked == {urlsplit(site.home).netloc}


# --- what is shown ----------------------------------------------------------------------------------------------


# Opens one operation after the other by its link, and tells what can then be seen of it.
OPEN_ALL = """async () => {
  const seen = [];
  for (const link of document.querySelectorAll("#docs-contents a")) {
    const found = document.querySelector(link.hash);
    const opened = new Promise((done) => found.addEventListener("toggle", done, { once: true }));
    link.click();
    if (!found.open) await opened;
    const fields = [...found.querySelectorAll("input, select, textarea")].filter((each) => each.checkVisibility());
    seen.push({
      id: found.id,
      group: found.closest("section.group").querySelector("h2").textContent,
      open: found.open,
      summary: found.querySelector("summary").textContent,
      statuses: [...found.querySelectorAll(".statuses > li > .status")].map((each) => each.innerText),
      text: found.innerText,
      fields: fields.flatMap((each) => [...each.labels].map((label) => label.innerText)),
    });
  }
  return seen;
}"""


@pytest.mark.at_length  # test_static reaches each in every run
def test_every_operation_is_there_under_its_tag_and_can_be_opened(page: Page, site: Server) -> None:
    described = json.loads(get(site, "/openapi.json")[1])
    known = [(path, method, each) for path, methods in described["paths"].items() for method, each in methods.items()]
    expect(page.locator(".operation")).to_have_count(len(known))
    expect(page.locator("#docs-contents a")).to_have_count(len(known))
    seen = {found["id"]: found for found in page.evaluate(OPEN_ALL)}
    for path, method, each in known:
        found = seen[each["operationId"]]
        assert (found["group"], found["open"]) == (each["tags"][0], True)
        assert f"{method.upper()}{path}" in found["summary"]
        assert found["statuses"] == list(each["responses"])
        assert "[object" not in found["text"]
        assert "undefined" not in found["text"]
        assert {parameter["name"] for parameter in each.get("parameters", [])} <= {*found["fields"]}, found


@at_length
def test_an_address_opens_its_operation(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.home}docs#enqueueJob") as (page, complaints):
        found = operation(page, "enqueueJob")
        expect(found).to_have_attribute("open", "")
        expect(found.locator("> summary")).to_be_focused()
        fields = found.locator("form .fields").first
        expect(fields).to_contain_text("Which processor is to run it.")
        expect(fields).to_contain_text("integer or null, -1000 to 1000")
        page.evaluate("location.hash = 'listJobs'")
        expect(operation(page, "listJobs").locator("> summary")).to_be_focused()
        expect(found).to_contain_text("What 400, 403, 404, 408, 409, 413, 429, 503 look like")
        assert complaints == []


@at_length
def test_an_operation_is_found_by_a_word_without_the_mouse(page: Page) -> None:
    all_of_them = page.locator(".operation").count()
    page.keyboard.press("/")
    expect(page.locator("#docs-search")).to_be_focused()
    page.keyboard.type("internal CANCELLED again")
    expect(page.locator(".operation:visible")).to_have_count(1)
    expect(page.locator("#docs-found")).to_have_text(f"1 of {all_of_them}")
    page.keyboard.press("Enter")
    expect(operation(page, "retryJob")).to_have_attribute("open", "")
    expect(operation(page, "retryJob").locator("> summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(operation(page, "retryJob")).not_to_have_attribute("open", "")
    page.keyboard.press("/")
    page.keyboard.type(" nothing is like this")
    expect(page.locator("#docs-none")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".operation:visible")).to_have_count(all_of_them)


# --- trying -----------------------------------------------------------------------------------------------------


@pytest.mark.at_length  # the line for a shell does what the form says in every run
def test_a_job_is_enqueued_from_the_page_and_looked_at(page: Page, db: Db) -> None:
    answer = send(open_one(page, "enqueueJob"))
    expect(answer.locator(".status")).to_have_text("201 Created")
    expect(answer).to_contain_text("location: /internal/jobs/1")
    assert json.loads(answer.locator("> pre").inner_text())["outcome"] == "created"
    assert (row(db, 1).kind, row(db, 1).payload) == ("demo.hello", {"name": "Ana"})
    found = open_one(page, "showJob")
    found.get_by_label("job_id").fill("1")
    expect(send(found)).to_contain_text('"kind": "demo.hello"')


@at_length
def test_a_parameter_that_may_be_left_out_is_sent_when_it_is_ticked(page: Page, db: Db) -> None:
    for kind in ("demo.hello", "other", "other"):
        make_job(db, kind=kind, status="COMPLETED")
    found = open_one(page, "listJobs")
    expect(found.get_by_label("kind", exact=True)).to_have_value("demo.hello")
    assert len(json.loads(send(found).locator("> pre").inner_text())["items"]) == 3
    found.get_by_role("checkbox", name="send kind").check()
    assert [job["id"] for job in json.loads(send(found).locator("> pre").inner_text())["items"]] == [1]
    found.get_by_label("kind", exact=True).fill("other")
    found.get_by_label("limit", exact=True).fill("1")
    expect(found.get_by_role("checkbox", name="send limit")).to_be_checked()
    assert "/internal/jobs?limit=1&kind=other'" in shell(found)
    assert [job["id"] for job in json.loads(send(found).locator("> pre").inner_text())["items"]] == [3]


@at_length
def test_a_number_is_shown_as_it_was_sent(page: Page, db: Db) -> None:
    payload = {"n": LARGE, "f": 1.0, "text": 'a "b" {c: [1,2]}, \\', "empty": {}, "none": []}
    make_job(db, status="COMPLETED", payload=payload)
    found = open_one(page, "showJob")
    found.get_by_label("job_id").fill("1")
    said = send(found).locator("> pre").inner_text()
    assert f'\n    "n": {LARGE}' in said
    assert json.loads(said)["payload"] == payload
    found.get_by_label("job_id").fill(str(LARGE))
    expect(found.locator("form .code")).to_contain_text(f"/internal/jobs/{LARGE}'")


@at_length
def test_a_stream_is_shown_as_it_comes_until_it_is_stopped(page: Page, db: Db) -> None:
    found = open_one(page, "stream")
    found.get_by_role("button", name="Try it").click()
    expect(found.locator(".answer")).to_contain_text("event: snapshot")
    make_job(db, kind="while.one.looks")
    expect(found.locator(".answer")).to_contain_text("while.one.looks")
    found.get_by_role("button", name="Stop").click()
    expect(found.locator(".answer")).to_contain_text("stopped after")
    expect(found.get_by_role("button", name="Stop")).to_be_hidden()


def test_the_line_for_a_shell_does_what_the_form_says(page: Page, db: Db) -> None:
    found = open_one(page, "enqueueJob")
    payload = {"says": 'it\'s "$HOME" `id` \\ !1', "wide": "ü☃"}
    found.get_by_label("Body").fill(json.dumps({"kind": "by.hand", "payload": payload}, ensure_ascii=False, indent=1))
    environment = {name: os.environ[name] for name in ("PATH", "HOME")} | {"LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        ["bash", "-c", shell(found)], env=environment, capture_output=True, text=True, timeout=WITHIN, check=True
    )
    assert json.loads(done.stdout)["outcome"] == "created", done
    assert (row(db, 1).kind, row(db, 1).payload) == ("by.hand", payload)


@at_length
def test_the_body_of_another_shape_is_one_press_away(page: Page, db: Db) -> None:
    make_job(db, kind="demo.fail", next_retry_at=hence(hours=1))
    found = open_one(page, "changeMany")
    found.get_by_role("button", name="CancelMany").click()
    assert '"action": "cancel"' in shell(found)
    said = json.loads(send(found).locator("> pre").inner_text())
    assert (said["preview"], said["action"]) == (True, "cancel")
    assert row(db, 1).status == "PENDING"


# --- the token --------------------------------------------------------------------------------------------------


@pytest.mark.at_length  # ops/test_access asks with a token in every run
def test_the_token_is_kept_for_both_pages_and_stays_out_of_the_line_to_copy(browser: Browser, serve: Any) -> None:
    site = serve(SNAPAPP_INTERNAL_TOKEN=TOKEN)
    with opened(browser, f"{site.home}docs") as (page, complaints):
        found = open_one(page, "listJobs")
        answer = send(found)
        expect(answer.locator(".status")).to_have_text("401 Unauthorized")
        answer.get_by_role("link", name="X-Internal-Token").click()
        keep(page, "X-Internal-Token", TOKEN)
        expect(send(found).locator(".status")).to_have_text("200 OK")
        assert '-H "X-Internal-Token: $SNAPAPP_INTERNAL_TOKEN"' in shell(found)
        assert TOKEN not in page.content()
        page.get_by_role("link", name="Ops", exact=True).click()
        expect(page.locator("#link")).to_have_attribute("data-state", "live")
        page.get_by_role("link", name="API").click()
        page.get_by_role("form", name="X-Internal-Token").get_by_role("button", name="Forget").click()
        assert page.evaluate("sessionStorage.length + localStorage.length + document.cookie.length") == 0
    assert [said for said in complaints if "401" not in said] == []


@at_length
def test_a_header_is_sent_to_the_operations_that_ask_for_it_and_to_no_other(browser: Browser, serve: Any) -> None:
    site = serve(SNAPAPP_INTERNAL_TOKEN=TOKEN)
    sent: dict[str, dict[str, str]] = {}
    with opened(browser, f"{site.home}docs") as (page, complaints):
        keep(page, "X-Internal-Token", TOKEN)
        page.on("request", lambda request: sent.update({urlsplit(request.url).path: request.headers}))
        snaps, jobs, health = (open_one(page, name) for name in ("listSnaps", "listJobs", "health"))
        expect(snaps).to_contain_text("asks for X-Assinatura-Codigo, X-Assinatura-Token, or nothing")
        expect(jobs).to_contain_text("asks for X-Internal-Token")
        assert "-H" not in shell(snaps)
        keep(page, "X-Assinatura-Codigo", "default")
        assert '-H "X-Assinatura-Codigo: $X_ASSINATURA_CODIGO"' in shell(snaps)
        for found in (snaps, jobs, health):
            expect(send(found).locator(".status")).to_have_text("200 OK")
        assert complaints == []
    ours = {"x-internal-token", "x-assinatura-codigo", "x-assinatura-token"}
    assert {path: ours & headers.keys() for path, headers in sent.items() if not path.startswith("/static/")} == {
        "/v2/snaps": {"x-assinatura-codigo"},
        "/internal/jobs": {"x-internal-token"},
        "/actuator/health": set(),
    }


# --- what a description may hold --------------------------------------------------------------------------------

NODE: dict[str, Any] = {
    "type": "object",
    "description": HOSTILE,
    "required": ["child"],
    "properties": {
        "child": {"$ref": "#/components/schemas/Node"},
        "others": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
        "byName": {"type": "object", "additionalProperties": {"$ref": "#/components/schemas/Node"}},
        HOSTILE: {"type": ["string", "null"], "description": HOSTILE, "examples": [HOSTILE]},
    },
}
STRANGE: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": HOSTILE, "version": HOSTILE, "summary": HOSTILE},
    "paths": {
        "/actuator/health": {
            "put": {
                "summary": HOSTILE,
                "parameters": [{"name": "q", "in": "query", "schema": {"type": "string", "examples": [HOSTILE]}}],
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}}},
                "responses": {
                    "200": {
                        "description": HOSTILE,
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Node"}}},
                    }
                },
            }
        }
    },
    "components": {"schemas": {"Node": NODE}},
}


@at_length
def test_a_description_stays_text_and_may_speak_of_itself(browser: Browser, site: Server) -> None:
    with opened(browser, "about:blank") as (page, complaints):
        page.route("**/openapi.json", lambda route: route.fulfill(json=STRANGE))
        page.goto(f"{site.home}docs")
        page.locator(".operation > summary").click()
        found = page.locator(".operation")
        expect(found.locator(".fields").first).to_contain_text("Node: as above")
        assert json.loads(found.get_by_label("Body").input_value())["child"] is None
        expect(found).to_contain_text(HOSTILE)
        assert page.locator("img[src=x], main b, main script").count() == 0
        expect(send(found).locator(".status")).to_have_text("405 Method Not Allowed")
        assert [said for said in complaints if "405" not in said] == []


def test_a_server_that_cannot_describe_itself_is_said_in_words(browser: Browser, site: Server) -> None:
    with opened(browser, "about:blank") as (page, _):
        page.route("**/openapi.json", lambda route: route.fulfill(status=503, body="{}"))
        page.goto(f"{site.home}docs")
        expect(page.locator("#docs-notice")).to_contain_text("/openapi.json cannot be read: status 503")


# --- how it looks -----------------------------------------------------------------------------------------------


@pytest.mark.at_length  # ops/test_views measures it in every run
@pytest.mark.parametrize(
    ("width", "scheme"), [(390, "dark"), *(pytest.param(*one, marks=at_length) for one in OTHER_SCREENS)]
)
def test_every_text_can_be_read_and_nothing_sticks_out(page: Page, scheme: Any, width: int) -> None:
    """Contrast of 4.5 to 1, light and dark, with everything unfolded; no sideways scrolling."""
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    for name in ("stream", "enqueueJob", "listSchedules"):
        found = open_one(page, name)
        found.get_by_role("button", name="Try it").click()
        expect(found.locator(".answer .status")).to_contain_text("20")
        if name == "stream":  # it would go on for ever; the others end by themselves
            found.get_by_role("button", name="Stop").click()
        expect(found.get_by_role("button", name="Stop")).to_be_hidden()
    page.evaluate("for (const fold of document.querySelectorAll('.operation[open] details')) fold.open = true")
    assert page.evaluate(CONTRASTS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_the_page_says_where_the_same_is(browser: Browser, site: Server) -> None:
    with opened(browser, f"{site.home}docs", java_script_enabled=False) as (page, complaints):
        expect(page.locator("noscript a")).to_have_attribute("href", "/openapi.json")
        assert complaints == []
