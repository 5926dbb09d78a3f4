"""Reading a remote video like a file, and what that costs (media.md)."""

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapapp.sources import Limits, Reason, RemoteFile, SourceRefused, beginning, open_remote
from snapapp.sources.cache import BLOCK
from snapapp.sources.remote import ahead
from tests.jobs.working import until
from tests.sources.conftest import Open
from tests.sources.reading import CONTENT, SHORT, error_of
from tests.sources.server import Film, Server, serving

OPEN_FILES = Path("/proc/self/fd")


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
    assert remote._connection.bytes == len(CONTENT)


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
    assert (file._connection.requests, file._connection.bytes, server.connections) == (7, file.size, 1)


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
    assert file._connection.requests == 2


def test_a_fetch_stops_where_the_bytes_are_here_already(server: Server, opened: Open) -> None:
    server.acts["/v"] = Film(CONTENT)
    file = opened("/v")
    file.seek(3 * BLOCK)
    file.read(1)
    file.seek(0)
    assert file.read() == CONTENT
    assert file._connection.bytes == file.size


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
