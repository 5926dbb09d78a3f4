"""The pages without a browser: where they lie, what they load, and that the operations they show are there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from snapapp import web
from tests.api.conftest import served

STATIC = Path(web.__file__).parent / "static"
POLICY = "Content-Security-Policy"
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setHTMLUnsafe")


@pytest.fixture
def client(url: str, tmp_path: Path) -> Iterator[httpx.Client]:
    with served(url, tmp_path, worker_enabled=False, internal_token="t") as client:
        client.headers["X-Internal-Token"] = "t"
        yield client


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_loads_only_what_lies_beside_it(client: httpx.Client, path: str) -> None:
    """A box without internet shows it, and no foreign script can read the token."""
    page = client.get(path)
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'; script-src 'self'" in page.headers[POLICY]
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert "/static/app.css" in loaded
    for address in loaded:
        assert address.startswith("/"), address
        assert client.get(address).status_code == 200, address
    assert client.head(path).headers[POLICY] == page.headers[POLICY]


@pytest.mark.parametrize("path", ["/redoc", "/docs/oauth2-redirect"])
def test_the_pages_of_fastapi_that_load_from_elsewhere_are_not_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("file", sorted(STATIC.iterdir()), ids=lambda file: file.name)
def test_no_file_of_ours_names_another_host_or_makes_html_of_text(file: Path) -> None:
    text = file.read_text()
    elsewhere = re.findall(r"(?:https?:)?//(?!localhost|example\.org|www\.w3\.org)[\w-]+\.\w+", text)
    assert (elsewhere, UNSAFE.findall(text)) == ([], [])


def test_every_operation_that_is_shown_can_be_reached(client: httpx.Client) -> None:
    """With the examples of its own description; a job 42 there need not be, but a route there must."""
    described = client.get("/openapi.json").json()
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
