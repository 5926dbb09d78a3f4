"""Stored files over HTTP: what a browser, a player, a slow client and a hostile one get."""

import http.client
import os
import re
import socket
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from fastapi import Request
from starlette.testclient import TestClient

from snapapp.api.http.files import media
from snapapp.api.http.files.media import TYPES, answer, disposition
from snapapp.process.monolith import Monolith
from snapapp.storage import Local, Room
from tests.api.conftest import served
from tests.api.internal.test_live import serving
from tests.jobs.working import until

PREFIX = "snaps/0197a0f0-0000-7000-8000-000000000001/3/"
CONTENT = os.urandom(700_001)
MB = 2**20


def house_of(client: TestClient) -> Monolith:
    monolith: Monolith = client.app.state.monolith  # type: ignore[attr-defined]  # it is the FastAPI we made
    return monolith


def link(client: TestClient, name: str = "clip.mp4", *, at: datetime | None = None) -> str:
    return house_of(client).links.base(PREFIX, at or datetime.now(UTC)) + name


@pytest.fixture
def stocked(client: TestClient) -> TestClient:
    house_of(client).storage.put(f"{PREFIX}clip.mp4", CONTENT)
    return client


# --- what comes -------------------------------------------------------------------------------------------------


def test_a_link_gives_the_file_without_any_header(stocked: TestClient) -> None:
    """product.md, media access."""
    given = stocked.get(link(stocked))
    assert (given.status_code, given.content) == (200, CONTENT)
    assert given.headers["content-type"] == "video/mp4"
    assert given.headers["content-length"] == str(len(CONTENT))
    assert given.headers["accept-ranges"] == "bytes"
    assert given.headers["content-disposition"] == 'inline; filename="clip.mp4"'
    assert given.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in given.headers["content-security-policy"]
    assert re.fullmatch(r"private, max-age=(8[6-9]|9[0-7])\d{3}", given.headers["cache-control"])


def test_the_first_link_needs_no_disk(stocked: TestClient, tmp_path: Path) -> None:
    """What signs it was made when the process started; on a full disk lists and exports were 500."""
    (tmp_path / "signing-secret").unlink(missing_ok=True)
    (tmp_path / "signing-secret").mkdir()  # there nothing can be kept any more
    assert stocked.get(link(stocked)).status_code == 200


def test_head_gives_the_same_without_the_bytes(stocked: TestClient) -> None:
    whole, head = stocked.get(link(stocked)), stocked.head(link(stocked), headers={"Range": "bytes=0-9"})
    assert (head.status_code, head.content) == (200, b"")
    names = ("content-type", "content-length", "etag", "last-modified", "accept-ranges", "content-disposition")
    assert [head.headers[name] for name in names] == [whole.headers[name] for name in names]


@pytest.mark.parametrize(
    ("asked", "start", "stop"),
    [("0-0", 0, 1), ("1000-300000", 1000, 300_001), ("700000-", 700_000, 700_001), ("-5", 699_996, 700_001)],
)
def test_a_range_gives_its_bytes(stocked: TestClient, asked: str, start: int, stop: int) -> None:
    given = stocked.get(link(stocked), headers={"Range": f"bytes={asked}"})
    assert (given.status_code, given.content) == (206, CONTENT[start:stop])
    assert given.headers["content-range"] == f"bytes {start}-{stop - 1}/700001"
    assert given.headers["content-length"] == str(stop - start)


def test_a_range_past_the_end_says_where_that_is(stocked: TestClient) -> None:
    given = stocked.get(link(stocked), headers={"Range": "bytes=700001-"})
    assert (given.status_code, given.headers["content-range"]) == (416, "bytes */700001")
    assert given.json()["message"] == "The range starts past the end: there are 700001 bytes"


def test_a_client_that_has_it_gets_nothing(stocked: TestClient) -> None:
    first = stocked.get(link(stocked))
    again = stocked.get(link(stocked), headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    since = {"If-Modified-Since": first.headers["last-modified"]}
    assert stocked.get(link(stocked), headers=since).status_code == 304
    assert stocked.get(link(stocked), headers={"If-Match": '"x"'}).status_code == 412
    part = stocked.get(link(stocked), headers={"Range": "bytes=0-9", "If-Range": first.headers["etag"]})
    assert part.status_code == 206
    house_of(stocked).storage.put(f"{PREFIX}clip.mp4", CONTENT[::-1])
    whole = stocked.get(link(stocked), headers={"Range": "bytes=0-9", "If-Range": first.headers["etag"]})
    assert (whole.status_code, whole.content) == (200, CONTENT[::-1])


def test_an_empty_file_is_a_file(client: TestClient) -> None:
    house_of(client).storage.put(f"{PREFIX}clip.mp4", b"")
    given = client.get(link(client))
    assert (given.status_code, given.content, given.headers["content-length"]) == (200, b"", "0")


# --- what is refused --------------------------------------------------------------------------------------------


def test_no_file_and_no_link_of_ours_are_both_not_found_and_tell_no_key(stocked: TestClient) -> None:
    fine = link(stocked, "")
    house_of(stocked).storage.put("snaps/other/1/clip.mp4", b"theirs")
    (house_of(stocked).settings.data_dir / "media" / PREFIX / "link").symlink_to("/etc/passwd")
    for path in [
        f"{fine}frame_00001.jpg",
        f"{fine}link",
        f"{fine}%2e%2e/%2e%2e/other/1/clip.mp4",
        f"{fine}..%2F..%2Fother%2F1%2Fclip.mp4",
        f"{fine}%2Fetc%2Fpasswd",
        f"{fine}clip.mp4/",
        f"{fine}clip.mp4%00.jpg",
        f"{fine}clip.mp4%0d%0aX-Evil:%20yes",
        f"{fine}%ff%fe",
        f"{fine}{'a' * 5000}",
        fine,
        f"/media/{'A' * 60}/clip.mp4",
        "/media/x/clip.mp4",
        "/media/%C3%A9/clip.mp4",
    ]:
        for given in (stocked.get(path), stocked.head(path)):
            assert given.status_code == 404, path
            assert "snaps/" not in given.text
            assert "x-evil" not in given.headers


def test_an_expired_link_says_so(stocked: TestClient) -> None:
    given = stocked.get(link(stocked, at=datetime.now(UTC) - timedelta(days=2)))
    assert (given.status_code, given.json()["error"]) == (410, "Gone")
    assert "expired" in given.json()["message"]


def test_links_that_never_end_are_for_clients_that_keep_them(url: str, tmp_path: Path) -> None:
    """http.md: they last as long as the tenant's token does."""
    with served(url, tmp_path, worker_enabled=False, media_url_ttl=timedelta(0)) as client:
        house_of(client).storage.put(f"{PREFIX}clip.mp4", b"x")
        kept = client.get(link(client, at=datetime.now(UTC) - timedelta(days=4000)))
        assert (kept.content, kept.headers["Cache-Control"]) == (b"x", "private, max-age=31536000")


def test_only_reading_is_possible(stocked: TestClient) -> None:
    for method in ("PUT", "POST", "DELETE", "PATCH"):
        assert stocked.request(method, link(stocked)).status_code == 405


def test_the_secret_of_the_settings_signs(url: str, tmp_path: Path) -> None:
    secrets = ("a secret that is shared by two processes",)
    with (
        served(url, tmp_path / "a", worker_enabled=False, signing_secret=secrets) as one,
        served(url, tmp_path / "b", worker_enabled=False, signing_secret=secrets) as other,
    ):
        house_of(other).storage.put(f"{PREFIX}clip.mp4", b"x")
        assert other.get(link(one)).content == b"x"
        assert not (tmp_path / "a" / "signing-secret").exists()


# --- names and types --------------------------------------------------------------------------------------------


def asking(method: str = "GET", **headers: str) -> Request:
    raw = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": method, "headers": raw, "path": "/"})


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return Local(tmp_path, Room(tmp_path, 0))


def headers_of(local: Local, key: str, **options: Any) -> dict[str, str]:
    return dict(answer(local, key, asking("HEAD"), **options).headers)


@pytest.mark.parametrize(
    "name", ["page.html", "page.svg", "page.xhtml", "script.js", "a.pdf", "source", "jpg", "x.swf"]
)
def test_what_a_browser_might_run_is_only_ever_downloaded(local: Local, name: str) -> None:
    """4.1: stored XSS, content sniffing."""
    local.put(f"a/{name}", b"<script>alert(1)</script>")
    given = headers_of(local, f"a/{name}")
    assert given["content-type"] == "application/octet-stream"
    assert given["content-disposition"].startswith("attachment;")
    assert given["x-content-type-options"] == "nosniff"
    assert given["content-security-policy"].startswith("default-src 'none'")
    assert headers_of(local, f"a/{name}", kind="text/html")["content-type"] == "application/octet-stream"


def test_what_a_probe_found_decides_where_a_key_says_nothing(local: Local) -> None:
    local.put("videos/t/1/source", b"x")
    given = headers_of(local, "videos/t/1/source", kind="mov", name="holiday.html")
    assert given["content-type"] == "video/quicktime"
    assert {headers_of(local, "videos/t/1/source", kind=kind)["content-type"] for kind in TYPES} == {*TYPES.values()}


def test_what_may_be_taken_back_is_asked_for_again(local: Local) -> None:
    local.put("a/b.jpg", b"x")
    assert headers_of(local, "a/b.jpg")["cache-control"] == "private, no-cache"
    assert headers_of(local, "a/b.jpg", fresh_for=timedelta(minutes=1))["cache-control"] == "private, max-age=60"


@pytest.mark.parametrize(
    "name",
    [
        "plain.mp4",
        "with blanks.mp4",
        'quo"ted.mp4',
        "back\\slash.mp4",
        "../../etc/passwd",
        "boi número 7 – ação.mp4",
        "牛.mp4",
        "a\r\nSet-Cookie: x=1",
        "a\x00b",
        "gnp.\u202eexe.mp4",
        "a;b=c.mp4",
        "100%41.mp4",
        "\udcff.mp4",
        "x" * 5000 + ".mp4",
        "",
    ],
)
def test_any_file_name_makes_one_header_and_no_path(name: str) -> None:
    text = disposition(name, download=True)
    assert text.isascii()
    assert text.isprintable()
    found = re.fullmatch(
        r"""attachment; filename="([A-Za-z0-9 ._-]*)"(?:; filename\*=UTF-8''([A-Za-z0-9%._~-]+))?""", text
    )
    assert found
    saved = unquote(found[2]) if found[2] else found[1]
    assert "/" not in saved
    assert "\\" not in saved
    assert len(saved) <= 150
    if name.isprintable() and not re.search(r"[/\\]", name) and len(name) < 150:
        assert saved == name


# --- slow, gone, and broken -------------------------------------------------------------------------------------


@contextmanager
def get(port: int, path: str) -> Iterator[http.client.HTTPResponse]:
    """Through a small pipe: else the kernel takes many MB that nobody reads."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        connection.request("GET", path)
        with connection.getresponse() as answer:
            yield answer


@pytest.fixture
def large(url: str, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A gigabyte with holes for bytes, and a server with a socket."""
    with serving(url, data_dir=tmp_path) as running:
        monolith: Monolith = running.app.state.monolith
        monolith.storage.put(f"{PREFIX}clip.mp4", b"begin")
        path = tmp_path / "media" / PREFIX / "clip.mp4"
        os.truncate(path, 1024 * MB)
        link = monolith.links.base(PREFIX, datetime.now(UTC)) + "clip.mp4"
        yield SimpleNamespace(port=running.port, link=link, storage=monolith.storage, path=path)


def open_files(path: Path) -> int:
    links = (os.path.realpath(number) for number in Path("/proc/self/fd").iterdir())
    return sum(link.removesuffix(" (deleted)") == str(path) for link in links)


def threads() -> int:
    """That ever worked for a route or read for a client."""
    return sum("AnyIO" in thread.name for thread in threading.enumerate())


def test_slow_clients_hold_neither_memory_nor_threads(large: SimpleNamespace) -> None:
    """Forty of a gigabyte each, none of whom reads on: other requests are answered as ever."""
    with ExitStack() as clients:
        clients.enter_context(get(large.port, large.link)).read(10)
        tracemalloc.start()
        clients.callback(tracemalloc.stop)
        slow = [clients.enter_context(get(large.port, large.link)) for _ in range(40)]
        assert all(each.read(5) == b"begin" for each in slow)
        assert open_files(large.path) == 41
        held = tracemalloc.get_traced_memory()[0]
        with get(large.port, "/actuator/health/liveness") as alive:
            assert alive.status == 200
        assert threads() <= media.READERS + 2
    assert held < 40 * 3 * media.BLOCK


def test_a_storage_that_hangs_leaves_places_for_other_routes(
    large: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand requests for files, whose clients had gone, were all that the server takes."""
    goes_on = threading.Event()
    monkeypatch.setattr(large.storage, "open", lambda _key: goes_on.wait(20))
    monkeypatch.setattr(media, "WAITING", 2)
    with ExitStack() as clients:
        clients.callback(goes_on.set)
        for _ in range(media.READERS + 2):
            waiting = clients.enter_context(closing(http.client.HTTPConnection("127.0.0.1", large.port)))
            waiting.request("GET", large.link)
        until(lambda: media._threads.is_full)
        with get(large.port, large.link) as refused:
            assert (refused.status, refused.getheader("Retry-After")) == (503, "5")


def test_a_client_that_goes_is_noticed(large: SimpleNamespace) -> None:
    with get(large.port, large.link) as given:
        given.read(10)
        assert open_files(large.path) == 1
    until(lambda: open_files(large.path) == 0)


def test_a_client_that_takes_nothing_is_cut(large: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "SEND_WITHIN", 0.3)
    with get(large.port, large.link) as given:
        given.read(10)
        until(lambda: open_files(large.path) == 0)


def test_a_file_that_is_deleted_while_it_is_sent_comes_whole(large: SimpleNamespace) -> None:
    os.truncate(large.path, 64 * MB)
    with get(large.port, large.link) as given:
        begin = given.read(5)
        large.storage.delete(f"{PREFIX}clip.mp4")
        rest = given.read()
        assert (begin, len(rest)) == (b"begin", 64 * MB - 5)
    with get(large.port, large.link) as gone:
        assert gone.status == 404


def test_a_file_that_becomes_shorter_while_it_is_sent_is_cut_and_never_padded(large: SimpleNamespace) -> None:
    with get(large.port, large.link) as given:
        given.read(5)
        os.truncate(large.path, 32 * MB)
        with pytest.raises(http.client.IncompleteRead):
            given.read()
    until(lambda: open_files(large.path) == 0)
