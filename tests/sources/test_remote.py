"""Reading a remote video like a file, from servers of every manner (media.md; failure-modes 4.1; D8)."""

import io
import pickle
import random
import socket
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapapp.errors import SnapError
from snapapp.settings.loading import load
from snapapp.sources import (
    Limits,
    Reason,
    RemoteFile,
    SourceError,
    SourceRefused,
    SourceUnavailable,
    beginning,
    open_remote,
)
from snapapp.sources.cache import BLOCK
from snapapp.sources.remote import ahead
from tests.jobs.working import until
from tests.sources.conftest import Open
from tests.sources.server import Film, Server, Visit, serving

CONTENT = random.Random(1).randbytes(5 * BLOCK + 12_345)
OPEN_FILES = Path("/proc/self/fd")
SHORT = timedelta(milliseconds=400)


def error_of(opened: Open, path: str = "/v", **limits: object) -> SourceError:
    """Of opening and reading it all."""
    with pytest.raises(SourceError) as caught:
        opened(path, **limits).read()
    assert isinstance(caught.value, SnapError)
    assert str(caught.value).endswith(".")
    return caught.value


# --- A file -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def remote() -> Iterator[RemoteFile]:
    with serving(Server()) as server:
        server.acts["/v"] = Film(CONTENT)
        allowed = frozenset({f"127.0.0.1:{server.port}"})
        with open_remote(server.url("/v"), Limits(allowed_hosts=allowed)) as file:
            yield file


@pytest.mark.parametrize("honours_ranges", [True, False])
def test_of_a_beginning_no_more_is_fetched_also_without_ranges(honours_ranges: bool) -> None:
    film = Film(CONTENT * 20, honours_ranges=honours_ranges)
    with serving(Server()) as server:
        server.acts["/v"] = film
        limits = Limits(allowed_hosts=frozenset({f"127.0.0.1:{server.port}"}), max_bytes=BLOCK)
        assert beginning(server.url("/v"), limits, 1024) == CONTENT[:1024]
        assert beginning(server.url("/v"), limits, 10) == CONTENT[:10]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 2 * BLOCK)),
        st.tuples(st.just("set"), st.integers(0, len(CONTENT) + 1000)),
        st.tuples(st.just("current"), st.integers(-BLOCK, BLOCK)),
        st.tuples(st.just("end"), st.integers(-len(CONTENT), 1000)),
        st.tuples(st.just("into"), st.integers(0, BLOCK + 1)),
    ),
    max_size=20,
)


def step(file: io.BytesIO | RemoteFile, what: str, number: int) -> object:
    if what == "read":
        return file.read(number)
    if what == "into":
        buffer = bytearray(number)
        return file.readinto(buffer), buffer
    whence = {"set": io.SEEK_SET, "current": io.SEEK_CUR, "end": io.SEEK_END}[what]
    if what == "current" and file.tell() + number < 0:
        return None  # BytesIO stops at 0, we refuse
    return file.seek(number, whence)


@given(STEPS)
@settings(max_examples=200)
def test_reading_and_seeking_are_those_of_the_bytes_themselves(
    remote: RemoteFile, steps: list[tuple[str, int]]
) -> None:
    model = io.BytesIO(CONTENT)
    remote.seek(0)
    for what, number in steps:
        assert step(remote, what, number) == step(model, what, number)
        assert remote.tell() == model.tell()


def test_everything_was_fetched_once(remote: RemoteFile) -> None:
    remote.seek(0)
    assert remote.read() == CONTENT
    assert remote.bytes_fetched == len(CONTENT)


def test_it_is_a_raw_file_as_the_standard_library_knows_them(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v")
    assert (file.readable(), file.seekable(), file.writable(), file.closed) == (True, True, False, False)
    assert (file.size, file.etag) == (len(CONTENT), '"1"')
    with io.BufferedReader(file) as buffered:
        assert buffered.read() == CONTENT
    assert file.closed


def test_wrong_seeks_move_nothing(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v")
    file.seek(7)
    for offset, whence in [(-1, 0), (-8, 1), (-len(CONTENT) - 1, 2), (0, 3), (0, -1)]:
        with pytest.raises(ValueError, match=r"whence|nothing"):
            file.seek(offset, whence)
    assert file.tell() == 7
    file.seek(10**15)
    assert (file.read(5), file.read(), file.tell()) == (b"", b"", 10**15)


def test_closing_twice_is_fine_and_reading_afterwards_is_an_error(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v")
    file.close()
    file.close()
    for use in (lambda: file.read(1), lambda: file.seek(0), file.tell, lambda: file.readinto(bytearray(1))):
        with pytest.raises(ValueError, match="closed"):
            use()


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="there is no /proc")
def test_nothing_stays_open(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    server.acts["/whole"] = Film(CONTENT, honours_ranges=False)
    server.acts["/broken"] = lambda visit: visit.say(206, b"x", Content_Encoding="gzip")
    before = len(list(OPEN_FILES.iterdir()))
    for path in ("/v", "/whole", "/v"):
        opened(path).close()
    for path in ("/broken", "/absent"):
        error_of(opened, path)
    until(lambda: len(list(OPEN_FILES.iterdir())) <= before)  # the server's ends are closed by its threads


# --- What it costs ------------------------------------------------------------------------------------------


def test_reading_on_fetches_more_at_a_time_over_one_connection(server: Server, opened: Open) -> None:
    server.acts["/v"] = film = Film(bytes(30 * BLOCK))
    file = opened("/v")
    while file.read(10_000):
        pass
    assert [len(part) // BLOCK for part in film.sent] == [1, 1, 2, 4, 8, 8, 6]
    assert (file.requests, file.bytes_fetched, server.connections) == (7, file.size, 1)


def test_a_jump_fetches_one_block_and_going_on_remembers_where_it_was(server: Server, opened: Open) -> None:
    server.acts["/v"] = film = Film(bytes(1000 * BLOCK))
    file = opened("/v")
    for index in range(8):  # pictures and sound far apart, read in turns
        for start in (100, 500):
            file.seek((start + index) * BLOCK)
            file.read(100)
    assert [(part.start // BLOCK, len(part) // BLOCK) for part in film.sent[1:]] == [
        (100, 1), (500, 1), (101, 1), (501, 1), (102, 2), (502, 2), (104, 4), (504, 4),
    ]  # fmt: skip


def test_one_large_read_is_one_request(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(bytes(100 * BLOCK))
    file = opened("/v")
    assert len(file.read(50 * BLOCK)) == 50 * BLOCK
    assert file.requests == 2


def test_a_fetch_stops_where_the_bytes_are_here_already(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v")
    file.seek(3 * BLOCK)
    file.read(1)
    file.seek(0)
    assert file.read() == CONTENT
    assert file.bytes_fetched == file.size


@given(st.integers(0, 10**6))
def test_reading_ahead_at_most_doubles_and_has_a_bound(run: int) -> None:
    assert 1 <= ahead(run) <= min(64, max(1, run))
    assert ahead(run) <= ahead(run + 1)


def test_a_download_beyond_the_cap_is_refused(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v", max_bytes=2 * BLOCK)
    assert file.read(2 * BLOCK) == CONTENT[: 2 * BLOCK]
    with pytest.raises(SourceRefused) as caught:
        file.read(1)
    assert (caught.value.reason, file.tell()) == (Reason.TOO_LARGE, 2 * BLOCK)


def test_waiting_is_counted_and_thinking_is_not(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v", timeout=SHORT)
    assert not server.is_closing.wait(2 * SHORT.total_seconds())  # somebody decodes meanwhile
    assert file.read() == CONTENT


# --- Servers without ranges ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, BLOCK - 1, BLOCK, BLOCK + 1, len(CONTENT)])
def test_a_server_that_ignores_ranges_is_downloaded_with_one_request(server: Server, opened: Open, size: int) -> None:
    server.acts["/v"] = Film(CONTENT[:size], honours_ranges=False)
    file = opened("/v")
    file.seek(-1, io.SEEK_END)
    assert file.read() == CONTENT[size - 1 : size]
    file.seek(0)
    assert file.read() == CONTENT[:size]
    assert (file.requests, file.bytes_fetched, file.size) == (1, size, size)


def test_a_whole_that_is_announced_too_large_is_refused_at_once(server: Server, opened: Open) -> None:
    server.acts["/v"] = lambda visit: visit.say(200, b"", Content_Length=10**12)
    error = error_of(opened, max_bytes=10**6)
    assert (error.reason, type(error)) == (Reason.TOO_LARGE, SourceRefused)


def chunked(pieces: Iterator[bytes]) -> Any:
    def act(visit: Visit) -> None:
        visit.head(200, Transfer_Encoding="chunked")
        visit.drip((b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces), every=0)

    return act


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


# --- Sources that change ------------------------------------------------------------------------------------


@pytest.mark.parametrize("honours_if_range", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        {"etag": '"2"'},
        {"etag": '"2"', "content": CONTENT[:-1]},
        {"etag": None, "last_modified": "Thu, 01 Jan 2026 00:00:00 GMT"},
        {"content": CONTENT + b"x"},
    ],
)
def test_a_source_that_changes_midway_is_noticed(
    server: Server, opened: Open, change: dict[str, object], honours_if_range: bool
) -> None:
    server.acts["/v"] = film = Film(CONTENT, honours_if_range=honours_if_range)
    file = opened("/v")
    for name, value in change.items():
        setattr(film, name, value)
    with pytest.raises(SourceUnavailable) as caught:
        file.read()
    assert caught.value.reason is Reason.CHANGED


def test_a_source_that_shrinks_below_where_we_read_has_changed(server: Server, opened: Open) -> None:
    server.acts["/v"] = film = Film(CONTENT, etag=None, last_modified=None)
    file = opened("/v")
    film.content = CONTENT[:10]
    with pytest.raises(SourceUnavailable) as caught:
        file.read()
    assert caught.value.reason is Reason.CHANGED


@pytest.mark.parametrize(
    ("etag", "last_modified", "condition"),
    [
        ('"1"', "Thu, 01 Jan 2026 00:00:00 GMT", '"1"'),
        ('W/"1"', "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 GMT"),
        (None, "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:00 GMT"),
        ('W/"1"', None, None),
        (None, None, None),
    ],
)
def test_parts_are_asked_for_on_the_condition_that_nothing_changed(
    server: Server, opened: Open, etag: str | None, last_modified: str | None, condition: str | None
) -> None:
    server.acts["/v"] = Film(CONTENT, etag=etag, last_modified=last_modified)
    assert opened("/v").read() == CONTENT
    assert server.requests[1].headers.get("if-range") == condition


# --- Broken connections -------------------------------------------------------------------------------------


def test_a_short_body_is_gone_on_with(server: Server, opened: Open) -> None:
    film = Film(CONTENT)

    def breaking(visit: Visit) -> None:
        part = film.asked(visit)
        assert part is not None
        visit.head(206, Content_Length=len(part), Content_Range=film.of(part), ETag=film.etag)
        visit.wfile.write(CONTENT[part.start : part.stop][:200_000])
        visit.close_connection = True

    server.acts["/v"] = breaking
    assert opened("/v").read() == CONTENT


def test_a_part_that_is_shorter_than_asked_is_gone_on_with(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT, longest=100_000)
    file = opened("/v")
    assert (file.read(), server.connections) == (CONTENT, 1)


def test_parts_too_small_to_be_meant_well_end(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT, longest=1)
    error = error_of(opened, max_requests=50)
    assert (error.reason, type(error), len(server.requests)) == (Reason.BROKEN, SourceRefused, 50)


def test_a_part_that_is_longer_than_asked_is_cut(server: Server, opened: Open) -> None:
    film = Film(CONTENT)

    def generous(visit: Visit) -> None:
        part = film.asked(visit)
        assert part is not None
        visit.say(206, CONTENT[part.start :], film.named(), Content_Range=film.of(range(part.start, len(CONTENT))))

    server.acts["/v"] = generous
    file = opened("/v")
    assert file.read() == CONTENT
    assert file.bytes_fetched < len(CONTENT) + 1000


def test_a_connection_that_brings_nothing_is_tried_three_times(server: Server, opened: Open) -> None:
    film = Film(CONTENT)
    server.acts["/v"] = film
    file = opened("/v")
    server.acts["/v"] = lambda visit: setattr(visit, "close_connection", True)
    with pytest.raises(SourceUnavailable) as caught:
        file.read()
    assert (caught.value.reason, file.tell()) == (Reason.BROKEN, 0)
    assert len(server.requests) == 1 + 3 + 1  # and once for the kept connection
    server.acts["/v"] = film
    assert file.read() == CONTENT


def test_a_connection_that_is_not_kept_is_made_anew(server: Server, opened: Open) -> None:
    film = Film(CONTENT)

    def leaving(visit: Visit) -> None:
        visit.close_connection = True
        film(visit)

    server.acts["/v"] = leaving
    file = opened("/v")
    assert (file.read(), len(server.requests), server.connections) == (CONTENT, 2, 2)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example ESMTP\r\n",
        b"\x16\x03\x01\x02\x00",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_http_is_said_to_be_none(server: Server, opened: Open, nonsense: bytes) -> None:
    server.acts["/v"] = lambda visit: visit.drip(iter([nonsense]), every=0)
    error = error_of(opened)
    assert (error.reason, isinstance(error, SourceUnavailable)) == (Reason.BROKEN, True)


def test_a_chunked_part_is_read_and_its_missing_end_not_waited_for(server: Server, opened: Open) -> None:
    film = Film(CONTENT)

    def endless(visit: Visit) -> None:
        part = film.asked(visit)
        assert part is not None
        visit.head(206, Transfer_Encoding="chunked", Content_Range=film.of(part), ETag=film.etag)
        visit.wfile.write(b"%x\r\n%s\r\n" % (len(part), CONTENT[part.start : part.stop]))
        visit.server.is_closing.wait()

    server.acts["/v"] = endless
    assert opened("/v").read() == CONTENT


# --- Slow ones ----------------------------------------------------------------------------------------------


def slow_head(visit: Visit) -> None:
    visit.drip(bytes([each]) for each in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"z" * 1000)


def slow_headers(visit: Visit) -> None:
    visit.wfile.write(b"HTTP/1.1 200 OK\r\n")
    visit.drip(repeat(b"X: y\r\n"))


def slow_body(visit: Visit) -> None:
    visit.head(200, Content_Length=10**6)
    visit.drip(repeat(b"z"))


def slow_part(visit: Visit) -> None:
    visit.head(206, Content_Length=BLOCK, Content_Range=f"bytes 0-{BLOCK - 1}/{10**9}")
    visit.drip(repeat(b"z"))


def slow_chunks(visit: Visit) -> None:
    visit.head(200, Transfer_Encoding="chunked")
    visit.drip(repeat(b"1\r\nz\r\n"))


def slow_chunk_size(visit: Visit) -> None:
    visit.head(200, Transfer_Encoding="chunked")
    visit.drip(repeat(b"0"))


def silence(visit: Visit) -> None:
    visit.server.is_closing.wait()


def promises(visit: Visit) -> None:
    visit.drip(repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), every=0)


SLOW = [slow_head, slow_headers, slow_body, slow_part, slow_chunks, slow_chunk_size, silence, promises]


@pytest.mark.parametrize("act", SLOW)
@pytest.mark.timeout(10)
def test_a_server_that_sends_a_byte_now_and_then_has_until_the_timeout_in_all(
    server: Server, opened: Open, act: Any
) -> None:
    server.acts["/v"] = act
    error = error_of(opened, timeout=SHORT)
    assert (error.reason, isinstance(error, SourceUnavailable)) == (Reason.TOO_SLOW, True)
    assert "0.4 s in all" in str(error)


@pytest.mark.timeout(10)
def test_a_server_that_falls_silent_has_a_moment(server: Server, opened: Open) -> None:
    server.acts["/v"] = silence
    assert error_of(opened, timeout=timedelta(minutes=5), stall=SHORT).reason is Reason.TOO_SLOW


@pytest.mark.timeout(10)
def test_the_timeout_is_for_all_reads_together(server: Server, opened: Open) -> None:
    film = Film(CONTENT)

    def lame(visit: Visit) -> None:
        visit.server.is_closing.wait(0.3)
        film(visit)

    server.acts["/v"] = lame
    assert error_of(opened, timeout=timedelta(seconds=0.5)).reason is Reason.TOO_SLOW
    assert len(server.requests) >= 2


# --- Settings -----------------------------------------------------------------------------------------------


def test_limits_come_from_the_settings() -> None:
    environment = {"FETCH_MAX_MB": "7", "FETCH_TIMEOUT_MS": "5000", "FETCH_ALLOWED_HOSTS": "nas, [::1]:9000"}
    environment |= {"SOURCE_CACHE_MB": "3", "DATA_DIR": "/srv/snapapp"}
    limits = Limits.of(load({f"SNAPAPP_{name}": value for name, value in environment.items()}))
    assert (limits.max_bytes, limits.cache_bytes, limits.timeout) == (7 << 20, 3 << 20, timedelta(seconds=5))
    assert limits.allowed_hosts == {"nas", "[::1]:9000"}
    assert str(limits.folder) == "/srv/snapapp/cache/sources"


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_bytes": 0},
        {"max_requests": 0},
        {"cache_bytes": -1},
        {"timeout": timedelta(0)},
        {"stall": timedelta(-1)},
        {"cache_bytes": 1},
    ],
)
def test_limits_that_allow_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"limits|cache"):
        Limits(**wrong)
