"""Sources that change, lines that break, servers that are slow; and the limits."""

from datetime import timedelta
from itertools import repeat
from typing import Any

import pytest

from snapapp.settings.loading import load
from snapapp.sources import Limits, Reason, SourceRefused, SourceUnavailable
from snapapp.sources.cache import BLOCK
from tests.sources.conftest import Open
from tests.sources.reading import CONTENT, SHORT, error_of
from tests.sources.server import Film, Server, Visit


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
    assert file._connection.bytes < len(CONTENT) + 1000


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
        visit.server.is_closing.wait(1.2)
        film(visit)

    server.acts["/v"] = lame
    assert error_of(opened, timeout=timedelta(seconds=2)).reason is Reason.TOO_SLOW
    assert len(server.requests) >= 2


# --- Settings -----------------------------------------------------------------------------------------------


def test_limits_come_from_the_settings() -> None:
    environment = {"FETCH_MAX_MB": "7", "FETCH_TIMEOUT_MS": "5000", "FETCH_ALLOWED_HOSTS": "nas, [::1]:9000"}
    environment |= {"SOURCE_CACHE_MB": "3", "DATA_DIR": "/srv/snapapp"}
    limits = Limits.of(load({f"SNAPAPP_{name}": value for name, value in environment.items()}))
    assert (limits.max_bytes, limits.cache_bytes, limits.timeout) == (7 << 20, 3 << 20, timedelta(seconds=5))
    assert limits.allowed_hosts == {"nas", "[::1]:9000"}
    assert str(limits.folder) == "/srv/snapapp/cache/sources"
