"""A tenant that requires its token, and its people, each in a browser that signed in by a personal link."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.testclient import TestClient

from tests.api.conftest import served

OPERATORS = "/v2/operators"
TOKEN = {"X-Assinatura-Token": "dev-default-token"}
ROLES = {"ana": "operator", "bia": "operator", "rui": "reviewer", "eva": "admin"}


class People:
    """`tenant` is a client with the tenant's token. Others are made, and signed in, when they are asked for."""

    def __init__(self, served: TestClient) -> None:
        self._served = served
        self.tenant = self.browser(TOKEN)
        self.ids: dict[str, int] = {}
        self.links: dict[str, str] = {}
        self._browsers: dict[str, TestClient] = {}

    def browser(self, headers: dict[str, str] | None = None, client: str = "127.0.0.1") -> TestClient:
        browser = TestClient(
            self._served.app,
            base_url="http://localhost",
            client=(client, 1),
            headers=headers,
            raise_server_exceptions=False,
            follow_redirects=False,
        )
        browser.portal = self._served.portal  # else each request begins an event loop, and threads
        return browser

    def added(self, name: str, **changes: Any) -> dict[str, Any]:
        asked = {"nickname": name, "email": f"{name}@fazenda.example", "role": ROLES.get(name)} | changes
        answer = self.tenant.post(OPERATORS, json=asked)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        self.ids[name], self.links[name] = made["id"], urlsplit(made["link"]).path
        return made

    def known(self, name: str) -> int:
        """The id of a person, who is added if they are not there yet."""
        return self.ids[name] if name in self.ids else int(self.added(name)["id"])

    def signed_in(self, name: str) -> TestClient:
        """A new browser of theirs."""
        browser = self.browser()
        answer = browser.post(self.links[name])
        assert answer.status_code == 303, answer.text
        return browser

    def __getitem__(self, name: str) -> TestClient:
        if name not in self._browsers:
            self.known(name)
            self._browsers[name] = self.signed_in(name)
        return self._browsers[name]


@contextmanager
def a_farm(url: str, folder: Path, **changes: Any) -> Iterator[People]:
    with served(url, folder, worker_enabled=False, require_api_token=True, **changes) as client:
        yield People(client)
