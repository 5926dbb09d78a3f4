"""Uploads of what looks like a film."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from starlette.testclient import TestClient

from tests.api.examples import monolith

VIDEOS = "/v2/videos"

FILM = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(range(256)) * 64


def upload(client: TestClient, content: bytes = FILM, name: str = "") -> dict[str, Any]:
    answer = client.post(VIDEOS, content=content, headers={"X-File-Name": name})
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


def stored(client: TestClient) -> list[str]:
    return [each.key for each in monolith(client).storage.listed()]


def nothing_left(client: TestClient) -> bool:
    """Neither an object nor the beginning of one."""
    return not [path for path in monolith(client).settings.data_dir.joinpath("media").rglob("*") if path.is_file()]


class Remote(BaseHTTPRequestHandler):
    """Somebody else's server: it knows one film, and ranges."""

    protocol_version = "HTTP/1.1"
    modified = "Sun, 01 Mar 2026 08:15:00 GMT"

    def do_GET(self) -> None:
        if self.path == "/page.html":
            self.send_response(200)
            self.send_header("Content-Length", "20")
            self.end_headers()
            self.wfile.write(b"<!doctype html><p>No")
            return
        if self.path != "/film.mp4":
            self.send_error(404)
            return
        start, end = 0, len(FILM)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(FILM)) + 1, len(FILM))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(FILM)}")
        else:
            self.send_response(200)
        self.send_header("ETag", '"v1"')
        self.send_header("Last-Modified", self.modified)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(FILM[start:end])

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def remote() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Remote) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def name(client: TestClient, video_url: object) -> Any:
    return client.post(f"{VIDEOS}/remote", json={"videoUrl": video_url})
