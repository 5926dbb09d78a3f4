"""What servers answer: no ranges, wrong ones, statuses, redirects."""

import io
import pickle
import socket
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from snapapp.sources import Limits, Reason, SourceRefused, SourceUnavailable, open_remote
from snapapp.sources.cache import BLOCK
from tests.sources.conftest import Open
from tests.sources.reading import CONTENT, chunked, error_of
from tests.sources.server import Film, Server, Visit


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, len(CONTENT)])
def test_a_server_that_ignores_ranges_is_downloaded_with_one_request(server: Server, opened: Open, size: int) -> None:
    server.acts["/v"] = Film(CONTENT[:size], honours_ranges=False)
    file = opened("/v")
    file.seek(-1, io.SEEK_END)
    assert file.read() == CONTENT[size - 1 : size]
    file.seek(0)
    assert file.read() == CONTENT[:size]
    assert (file._connection.requests, file._connection.bytes, file.size) == (1, size, size)


def test_a_whole_that_is_announced_too_large_is_refused_at_once(server: Server, opened: Open) -> None:
    server.acts["/v"] = lambda visit: visit.say(200, b"", Content_Length=10**12)
    error = error_of(opened, max_bytes=10**6)
    assert (error.reason, type(error)) == (Reason.TOO_LARGE, SourceRefused)


def until_closed(pieces: Iterator[bytes]) -> Any:
    def act(visit: Visit) -> None:
        visit.head(200, Connection="close")
        visit.drip(pieces, every=0)

    return act


@pytest.mark.parametrize("framing", [chunked, until_closed])
def test_an_endless_body_ends_at_the_cap(server: Server, opened: Open, framing: Any) -> None:
    server.acts["/v"] = framing(repeat(bytes(100_000)))
    assert error_of(opened, max_bytes=3_000_000).reason is Reason.TOO_LARGE


@pytest.mark.parametrize("size", [b"-1", b"-5", b"-ffffffffffffffff", b"x", b"", b"1" * 70_000])
def test_a_chunk_of_an_impossible_size_ends_the_body(server: Server, opened: Open, size: bytes) -> None:
    """The library would read -1 to the end, into memory."""

    def act(visit: Visit) -> None:
        visit.head(200, Transfer_Encoding="chunked")
        visit.drip(chain([size + b"\r\n"], repeat(bytes(100_000))), every=0)

    server.acts["/v"] = act
    error = error_of(opened, max_bytes=10_000_000)
    assert (error.reason, isinstance(error, SourceUnavailable)) == (Reason.BROKEN, True)


def test_a_video_that_claims_to_be_larger_than_any_is_refused(server: Server, opened: Open) -> None:
    server.acts["/v"] = lambda visit: visit.say(206, bytes(BLOCK), Content_Range=f"bytes 0-{BLOCK - 1}/{10**17}")
    assert error_of(opened).reason is Reason.TOO_LARGE


def test_reading_all_of_a_video_larger_than_memory_ends_at_the_cap(server: Server, opened: Open) -> None:
    size = 1 << 40

    def act(visit: Visit) -> None:
        start, _, last = visit.headers["Range"].removeprefix("bytes=").partition("-")
        visit.say(206, bytes(int(last) + 1 - int(start)), Content_Range=f"bytes {start}-{last}/{size}")

    server.acts["/v"] = act
    file = opened("/v", max_bytes=100 * BLOCK)
    for wanted in (-1, size, 10**18):
        with pytest.raises(SourceRefused) as caught:
            file.read(wanted)
        assert (caught.value.reason, file.tell()) == (Reason.TOO_LARGE, 0)


@pytest.mark.parametrize("framing", [chunked, until_closed])
def test_a_body_of_unannounced_length_is_what_came(server: Server, opened: Open, framing: Any) -> None:
    pieces = [CONTENT[start : start + 50_000] for start in range(0, len(CONTENT), 50_000)]
    server.acts["/v"] = framing(iter([*pieces, b""]))
    file = opened("/v")
    assert (file.size, file.read()) == (len(CONTENT), CONTENT)


def test_a_chunked_body_that_breaks_off_is_not_taken_for_the_whole(server: Server, opened: Open) -> None:
    server.acts["/v"] = chunked(iter([CONTENT[:100_000]]))
    error = error_of(opened)
    assert (error.reason, isinstance(error, SourceUnavailable)) == (Reason.BROKEN, True)


WRONG_RANGES = [
    {},
    {"Content_Range": "bytes 0-99"},
    {"Content_Range": "bytes */1000"},
    {"Content_Range": "items 0-9/10"},
    {"Content_Range": "bytes 1-99/1000"},
    {"Content_Range": "bytes 9-0/1000"},
    {"Content_Range": "bytes 0-1000/1000"},
    {"Content_Range": "bytes 0-9/*"},
    {"Content_Range": "bytes 0-9/" + "9" * 40},
    {"Content_Range": "bytes ٠-٩/١٠٠".encode().decode("latin-1")},
    {"Content_Type": "multipart/byteranges; boundary=x"},
]


@pytest.mark.parametrize("named", WRONG_RANGES)
def test_a_server_that_does_ranges_wrong_is_asked_for_the_whole(
    server: Server, opened: Open, named: dict[str, object]
) -> None:
    whole = Film(CONTENT)

    def act(visit: Visit) -> None:
        if visit.headers["Range"]:
            visit.say(206, CONTENT[:10], named)
        else:
            whole(visit)

    server.acts["/v"] = act
    assert opened("/v").read() == CONTENT


def test_a_part_that_nobody_asked_for_is_refused(server: Server, opened: Open) -> None:
    server.acts["/v"] = lambda visit: visit.say(206, b"x")
    assert error_of(opened).reason is Reason.BROKEN


# --- Statuses and headers -----------------------------------------------------------------------------------


PERMANENT = {
    404: Reason.NOT_FOUND,
    410: Reason.NOT_FOUND,
    401: Reason.DENIED,
    403: Reason.DENIED,
    451: Reason.DENIED,
    400: Reason.BROKEN,
    418: Reason.BROKEN,
    204: Reason.BROKEN,
    302: Reason.BROKEN,
    416: Reason.EMPTY,
}


@pytest.mark.parametrize(("status", "reason"), PERMANENT.items())
def test_what_a_person_must_change_is_permanent(server: Server, opened: Open, status: int, reason: Reason) -> None:
    """D8: the queue decides by the class of the error alone."""
    server.acts["/v"] = lambda visit: visit.say(status)
    error = error_of(opened)
    assert (error.reason, type(error), len(server.requests)) == (reason, SourceRefused, 1)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_transient(server: Server, opened: Open, status: int) -> None:
    """D8."""
    server.acts["/v"] = lambda visit: visit.say(status)
    error = error_of(opened)
    assert (error.reason, isinstance(error, SourceUnavailable), len(server.requests)) == (Reason.BUSY, True, 1)


def test_a_refused_connection_is_transient(opened: Open, server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SourceUnavailable, match="refuses connections") as caught:
        open_remote(f"http://127.0.0.1:{port}/", Limits(allowed_hosts=frozenset({f"127.0.0.1:{port}"})))
    assert caught.value.reason is Reason.UNREACHABLE


@pytest.mark.parametrize("act", [lambda visit: visit.say(200), lambda visit: visit.say(206, Content_Range="bytes */0")])
def test_an_empty_video_is_refused(server: Server, opened: Open, act: Any) -> None:
    server.acts["/v"] = act
    assert error_of(opened).reason in (Reason.EMPTY, Reason.BROKEN)


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "x-evil"])
@pytest.mark.parametrize("status", [200, 206])
def test_a_compressed_body_is_refused(server: Server, opened: Open, coding: str, status: int) -> None:
    server.acts["/v"] = lambda visit: visit.say(
        status, b"x" * 10, Content_Encoding=coding, Content_Range="bytes 0-9/1000"
    )
    error = error_of(opened)
    assert (error.reason, type(error), "compressed" in str(error)) == (Reason.BROKEN, SourceRefused, True)
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("coding", ["", "identity", "Identity "])
def test_a_body_that_is_said_to_be_plain_is_read(server: Server, opened: Open, coding: str) -> None:
    film = Film(CONTENT)
    server.acts["/v"] = lambda visit: visit.say(200, CONTENT, film.named(), Content_Encoding=coding)
    assert opened("/v").read() == CONTENT


def test_a_message_shows_no_query(server: Server, opened: Open) -> None:
    assert "secret" not in str(error_of(opened, "/absent?signature=secret"))


def test_an_error_survives_the_way_out_of_a_child(server: Server, opened: Open) -> None:
    error = error_of(opened, "/absent")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.reason, str(copy)) == (type(error), error.reason, str(error))


# --- Redirects ----------------------------------------------------------------------------------------------


def test_redirects_are_followed_once_and_remembered(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    server.acts["/short"] = lambda visit: visit.say(302, Location="/longer/\xc3\xa9.mp4?x=1")
    server.acts["/longer/%C3%A9.mp4"] = lambda visit: visit.say(307, Location=server.url("/v"))
    file = opened("/short")
    assert file.read() == CONTENT
    assert [request.path for request in server.requests[:4]] == ["/short", "/longer/%C3%A9.mp4?x=1", "/v", "/v"]


def test_a_redirect_in_circles_ends(server: Server, opened: Open) -> None:
    server.acts["/v"] = lambda visit: visit.say(302, Location="/v")
    error = error_of(opened)
    assert (error.reason, type(error), len(server.requests)) == (Reason.BROKEN, SourceRefused, 6)


def test_a_signature_that_expires_while_reading_is_fetched_anew(server: Server, opened: Open) -> None:
    film, valid = Film(CONTENT), ["1"]

    def signed(visit: Visit) -> None:
        film(visit) if visit.path.endswith(f"?{valid[0]}") else visit.say(403)

    server.acts["/signed"] = signed
    server.acts["/v"] = lambda visit: visit.say(302, Location=f"/signed?{valid[0]}")
    file = opened("/v")
    valid[0] = "2"
    assert file.read() == CONTENT
