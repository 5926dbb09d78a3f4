"""The pages without a browser: where they lie, what they load, and that the operations they show are there."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from uuid import UUID

import httpx
import pytest

from snapapp import api, web
from tests.api.conftest import served
from tests.web.conftest import Server, get
from tests.web.test_share import PHRASES

STATIC = Path(web.__file__).parent / "static"
POLICY = "Content-Security-Policy"
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTMLUnsafe")


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with served(url, tmp_path, worker_enabled=False, internal_token="t") as client:
        client.headers["X-Internal-Token"] = "t"
        yield client


@pytest.mark.parametrize("path", ["/", "/ops", "/ops/jobs", "/ops/jobs/42", "/snaps", f"/snaps/{UUID(int=5)}", "/docs"])
def test_a_page_loads_only_what_lies_beside_it(client: httpx.Client, path: str) -> None:
    """A box without internet shows it, and no foreign script can read the token."""
    page = client.get(path)
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'; script-src 'self'" in page.headers[POLICY]
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert "/static/app.css" in loaded
    for address in loaded:
        assert address.startswith(("/", "?")), address
        assert client.get(urljoin(path, address)).status_code == 200, address
    assert client.head(path).headers[POLICY] == page.headers[POLICY]


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
def test_the_pages_of_fastapi_that_load_from_elsewhere_are_not_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("file", sorted(filter(Path.is_file, STATIC.rglob("*"))), ids=lambda file: file.name)
def test_no_file_of_ours_names_another_host_or_makes_html_of_text(file: Path) -> None:
    text = file.read_text(errors="replace")
    elsewhere = re.findall(r"(?:https?:)?//(?!localhost|example\.org|www\.w3\.org)[\w-]+\.\w+", text)
    assert (elsewhere, UNSAFE.findall(text)) == ([], [])


def test_every_operation_that_is_shown_can_be_reached(client: httpx.Client) -> None:
    """With the examples of its own description; a job 42 there need not be, but a route there must."""
    described = client.get("/openapi.json").json()
    client.headers["X-Assinatura-Token"] = "dev-default-token"  # /v2/operators asks for it in any case
    asked = 0
    for path, methods in described["paths"].items():
        if path == "/v2/events":  # it has no end, and nothing to refuse
            continue
        for method, operation in methods.items():
            values = {each["name"]: example(each) for each in operation.get("parameters", []) if each["in"] == "path"}
            # the stream has no end, but it refuses an empty kind as every list does
            answer = client.request(method, path.format_map(values), params={"kind": ""}, json={})
            assert answer.status_code not in (401, 403, 405, 500), (method, path, answer.text)
            assert answer.status_code != 404 or answer.json()["message"] != "Not Found", (method, path)
            asked += 1
    assert asked > 30


def example(parameter: dict[str, Any]) -> Any:
    return parameter["schema"].get("examples", ["x"])[0]


# --- two languages ----------------------------------------------------------------------------------------------

_SAID = re.compile(r'\bt\(\s*"((?:[^"\\]|\\.)*)"')
_KEY = re.compile(r'^  (?:"((?:[^"\\]|\\.)*)"|(\w+)):', re.MULTILINE)


class Texts(HTMLParser):
    """What is marked to be translated: texts of elements with data-t, attributes that data-t-of names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._is_within = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self._is_within = "data-t" in given
        self.found |= {str(given[name]) for name in (given.get("data-t-of") or "").split()}

    def handle_data(self, data: str) -> None:
        if self._is_within:
            self.found.add(" ".join(data.split()))
            self._is_within = False


def test_every_text_of_the_operators_pages_is_there_in_portuguese_and_no_other() -> None:
    said: set[str] = set()
    for file in STATIC.rglob("*.js"):
        said |= set(_SAID.findall(file.read_text()))
    labels = re.findall(r"const LABELS = \{.*?\}", (STATIC / "parts" / "moment.js").read_text())[0]
    said |= set(re.findall(r': "([^"]+)"', labels))
    for name in ("home/home.html", "pages/snap.html"):
        texts = Texts()
        texts.feed((STATIC / name).read_text())
        said |= texts.found
    known = {quoted or bare for quoted, bare in _KEY.findall((STATIC / "parts" / "portuguese.js").read_text())}
    of_the_server = {"must be a number", "must be a string"}
    assert (said - known, known - said - of_the_server) == (set(), set())


def test_a_text_of_both_catalogues_has_one_translation() -> None:
    """The pages of a browser's script and those of the server stand side by side."""
    own = {key or bare: words for key, bare, words in PHRASES.findall((STATIC / "parts" / "portuguese.js").read_text())}
    of_the_server = json.loads((Path(api.__file__).parent / "product" / "pages" / "portuguese.json").read_text())
    shared = own.keys() & of_the_server.keys()
    assert "There is no such moment." in shared
    assert {key: own[key] for key in shared} == {key: of_the_server[key] for key in shared}


FILES = ["/", "/ops", "/ops/jobs/42", "/static/parts/page.js", "/static/app.css", "/static/favicon.svg", "/robots.txt"]


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
