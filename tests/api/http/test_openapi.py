"""What /openapi.json says of who may ask is what happens."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from snapapp.api.http import openapi
from tests.api.conftest import served
from tests.factory import Db, at_once

OF_TENANTS = {"AssinaturaCodigo", "AssinaturaToken", "Session"}


def operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def schemes(operation: dict[str, Any]) -> set[str]:
    return {name for option in operation.get("security", []) for name in option}


def test_each_operation_names_those_whom_it_asks_and_nobody_else(client: TestClient) -> None:
    for method, path, operation in operations(client):
        wanted = {"internal": {"InternalToken"}, "v1": OF_TENANTS, "v2": OF_TENANTS}.get(path.split("/")[1], set())
        assert schemes(operation) == wanted, (method, path)
        assert ({} in operation.get("security", [])) == (wanted == OF_TENANTS), (method, path)
    known = client.get("/openapi.json").json()["components"]["securitySchemes"]
    assert {name: (scheme["in"], scheme["name"]) for name, scheme in known.items()} == {
        "InternalToken": ("header", "X-Internal-Token"),
        "AssinaturaCodigo": ("header", "X-Assinatura-Codigo"),
        "AssinaturaToken": ("header", "X-Assinatura-Token"),
        "Session": ("cookie", "snapapp_session"),
    }


def test_whoever_is_not_named_is_refused(url: str, tmp_path: Path, db: Db) -> None:
    """With another's token too: a tenant's opens nothing of /internal, and that of /internal nothing of a tenant."""
    with served(
        url, tmp_path, worker_enabled=False, require_api_token=True, internal_token="only-for-the-monolith"
    ) as client:
        for method, path, operation in operations(client):
            place = re.sub(r"{\w+}", "00000000-0000-4000-8000-000000000000", path)
            if "InternalToken" in schemes(operation):
                answer = client.request(method, place, headers={"X-Assinatura-Token": "dev-default-token"})
                assert answer.status_code == 401, (method, path)
            elif schemes(operation) and path != "/v2/session":  # where one signs in and out
                answer = client.request(method, place, headers={"X-Internal-Token": "only-for-the-monolith"}, json={})
                assert answer.status_code in (400, 401), (method, path)  # what makes no sense is told to anybody


def test_whoever_is_asked_for_a_token_is_told_of_each_refusal(client: TestClient) -> None:
    for method, path, operation in operations(client):
        asked = schemes(operation)
        assert ("429" in operation["responses"]) == bool(asked), (method, path)
        if "InternalToken" in asked:
            assert {"401", "403"} <= operation["responses"].keys(), (method, path)
            assert "SNAPAPP_INTERNAL_ALLOW" in operation["responses"]["403"]["description"]


def test_a_description_says_nothing_of_how_it_is_done(client: TestClient) -> None:
    words = re.compile(r"\b(async|threads?|event loop|coroutines?)\b", re.IGNORECASE)
    said = [(path, operation["description"]) for _, path, operation in operations(client)]
    assert [each for each in said if words.search(each[1])] == []


def test_clients_that_are_made_from_it_get_plain_names(client: TestClient) -> None:
    """Of two classes of one name FastAPI makes `snapapp__api__internal__queues__Pausing`, which moves with files."""
    assert not [name for name in client.get("/openapi.json").json()["components"]["schemas"] if "__" in name]


def test_no_two_values_have_one_name(client: TestClient) -> None:
    """Generators make constants of them: of `asc` and `ASC` the same one, and openapi-python-client makes nothing."""
    for method, path, operation in operations(client):
        for parameter in operation.get("parameters", []):
            values = [str(value).upper() for value in parameter["schema"].get("enum", [])]
            assert len(values) == len(set(values)), (method, path, parameter["name"])


def test_a_body_that_may_be_left_out_is_an_object(client: TestClient) -> None:
    """Not an object or null: openapi-python-client leaves such operations out."""
    bodies = {path: operation["requestBody"] for _, path, operation in operations(client) if "requestBody" in operation}
    optional = {path: body for path, body in bodies.items() if not body.get("required")}
    assert "/v2/snaps/{snap_id}/cancel" in optional
    for path, body in optional.items():
        for content in body["content"].values():
            assert "$ref" in content["schema"], path


def test_the_description_is_made_on_a_thread(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half a second, in which the event loop answers everybody else."""

    def description() -> dict[str, Any]:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return {"openapi": "3.1.0"}

    monkeypatch.setattr(client.app, "openapi", description)
    assert client.get("/openapi.json").json() == {"openapi": "3.1.0"}


def test_those_who_are_first_at_once_have_it_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of forty threads made its own: of sixty clients none had it after 40 seconds."""
    together, made = Barrier(2), list[FastAPI]()

    def make(app: FastAPI) -> dict[str, Any]:
        made.append(app)
        with suppress(BrokenBarrierError):
            together.wait(0.1)
        return {"paths": {}}

    monkeypatch.setattr(openapi, "_description_of", make)
    app = FastAPI()
    openapi.describe(app)
    assert at_once(app.openapi, app.openapi) == [{"paths": {}}] * 2
    assert made == [app]
