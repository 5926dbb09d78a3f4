"""A video that many snaps share is fetched once (S31, FE4, FE8), by however many processes, however they end."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from snapapp.sources import Limits, Reason, SourceUnavailable, guard, open_remote
from snapapp.sources.cache import BLOCK, Cache
from snapapp.sources.http_client import Version
from snapapp.sources.limits import MIB
from tests.jobs.working import until
from tests.sources.server import Film, Server, Visit

CONTENT = random.Random(2).randbytes(9 * BLOCK + 777)


@pytest.fixture
def shared(limits: Limits) -> Limits:
    return replace(limits, cache_bytes=64 * MIB)


@pytest.fixture
def film(server: Server) -> Film:
    film = Film(CONTENT)
    server.acts["/v"] = film
    return film


def entries(limits: Limits) -> list[Path]:
    assert limits.folder
    return sorted(limits.folder.iterdir())


def used(limits: Limits) -> int:
    return sum(path.stat().st_blocks * 512 for path in entries(limits))


def read(server: Server, limits: Limits, path: str = "/v") -> tuple[bytes, int, int]:
    with open_remote(server.url(path), limits) as file:
        return file.read(), file._connection.bytes, file._connection.requests


# --- Sharing ------------------------------------------------------------------------------------------------


def test_the_second_snap_of_a_video_asks_for_one_byte(server: Server, shared: Limits, film: Film) -> None:
    assert read(server, shared) == (CONTENT, len(CONTENT), 2)
    assert read(server, shared) == (CONTENT, 1, 1)
    assert len(entries(shared)) == 1


def test_what_another_moment_fetched_is_used_too(server: Server, shared: Limits, film: Film) -> None:
    with open_remote(server.url("/v"), shared) as file:
        file.seek(5 * BLOCK)
        file.read(2 * BLOCK)
    content, fetched, _ = read(server, shared)
    assert (content, fetched) == (CONTENT, 1 + len(CONTENT) - 3 * BLOCK)


def test_two_that_read_at_once_see_each_others_blocks(server: Server, shared: Limits, film: Film) -> None:
    with open_remote(server.url("/v"), shared) as one, open_remote(server.url("/v"), shared) as other:
        assert one.read() == other.read() == CONTENT
        assert other._connection.bytes == 1


@pytest.mark.parametrize("honours_ranges", [True, False])
def test_a_crowd_fetches_a_video_once(server: Server, shared: Limits, film: Film, honours_ranges: bool) -> None:
    film.honours_ranges = honours_ranges
    barrier = threading.Barrier(8)

    def snap(_: int) -> tuple[bytes, int, int]:
        barrier.wait(timeout=20)
        return read(server, shared)

    with ThreadPoolExecutor(8) as pool:
        contents, fetched, _ = zip(*pool.map(snap, range(8)), strict=True)
    assert set(contents) == {CONTENT}
    assert len(CONTENT) <= sum(fetched) <= len(CONTENT) + (7 * BLOCK if honours_ranges else 0)  # each may begin
    assert len(entries(shared)) == 1


def test_a_whole_that_is_here_is_not_downloaded_again(server: Server, shared: Limits, film: Film) -> None:
    film.honours_ranges = False
    assert read(server, shared) == (CONTENT, len(CONTENT), 1)
    assert read(server, shared) == (CONTENT, 0, 1)


def test_a_changed_video_is_another_one(server: Server, shared: Limits, film: Film) -> None:
    read(server, shared)
    film.content, film.etag = CONTENT[::-1], '"2"'
    assert read(server, shared)[0] == CONTENT[::-1]
    film.content, film.etag = CONTENT, '"1"'
    assert read(server, shared) == (CONTENT, 1, 1)


@pytest.mark.parametrize("path", ["/w", "/v?other"])
def test_another_url_is_another_video_whatever_its_validators_say(
    server: Server, shared: Limits, film: Film, path: str
) -> None:
    read(server, shared)
    server.acts["/w"] = Film(CONTENT[::-1])
    assert read(server, shared, path)[1] == len(CONTENT)


def test_the_fragment_of_a_url_makes_no_other_video(server: Server, shared: Limits, film: Film) -> None:
    read(server, shared)
    assert read(server, shared, "/v#t=10") == (CONTENT, 1, 1)


def test_a_video_that_nothing_tells_from_the_next_is_nobody_elses(server: Server, shared: Limits, film: Film) -> None:
    film.etag = film.last_modified = None
    assert read(server, shared) == (CONTENT, len(CONTENT), 2)
    assert read(server, shared) == (CONTENT, len(CONTENT), 2)
    assert entries(shared) == []


def test_a_video_of_unannounced_length_is_nobody_elses(server: Server, shared: Limits) -> None:
    """Whether a body that ends with its connection is whole, nobody knows."""

    def unannounced(visit: Visit) -> None:
        visit.head(200, ETag='"1"', Connection="close")
        visit.wfile.write(CONTENT)
        visit.close_connection = True

    server.acts["/v"] = unannounced
    assert read(server, shared)[0] == CONTENT
    assert entries(shared) == []


def test_without_a_cache_nothing_stays(server: Server, limits: Limits, film: Film) -> None:
    with open_remote(server.url("/v"), limits) as file:
        assert file.read() == CONTENT
        assert entries(limits) == []


def test_a_source_that_is_gone_is_not_served_from_the_cache(server: Server, shared: Limits, film: Film) -> None:
    read(server, shared)
    server.acts["/v"] = lambda visit: visit.say(404)
    with pytest.raises(Exception, match="nothing at"):
        read(server, shared)


def test_nobody_else_on_the_machine_may_look(server: Server, shared: Limits, film: Film) -> None:
    read(server, shared)
    assert shared.folder
    assert shared.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in entries(shared)] == [0o600]


# --- The bound ----------------------------------------------------------------------------------------------


def test_the_cache_keeps_its_bound_and_drops_what_was_used_longest_ago(server: Server, limits: Limits) -> None:
    """S32: a disk has an end."""
    limits = replace(limits, cache_bytes=8 * MIB)
    for number in range(5):
        server.acts[f"/{number}"] = Film(random.Random(number).randbytes(10 * BLOCK))
        read(server, limits, f"/{number}")
        for path in entries(limits):  # rows are moved in time, and so are files
            os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns - 10**9))
        assert read(server, limits, "/0")[1] == 1
        assert used(limits) <= 8 * MIB
    assert 0 < used(limits) <= 8 * MIB
    assert [read(server, limits, f"/{number}")[1] == 1 for number in (0, 4, 1)] == [True, True, False]


def test_a_video_larger_than_the_cache_is_read_all_the_same(server: Server, limits: Limits) -> None:
    content = random.Random(3).randbytes(100 * BLOCK)
    server.acts["/v"] = Film(content)
    limits = replace(limits, cache_bytes=2 * MIB)
    with open_remote(server.url("/v"), limits) as file:
        assert file.read() == content
        assert used(limits) <= 2 * MIB
    assert read(server, limits)[0] == content


def test_the_bound_holds_when_a_video_is_closed(server: Server, limits: Limits) -> None:
    limits = replace(limits, cache_bytes=2 * MIB)
    server.acts["/v"] = Film(bytes(40 * BLOCK))
    read(server, limits)
    assert used(limits) <= 2 * MIB


def test_an_entry_that_is_removed_while_it_is_read_is_read_to_its_end(
    server: Server, shared: Limits, film: Film
) -> None:
    with open_remote(server.url("/v"), shared) as file:
        file.read(3 * BLOCK)
        entries(shared)[0].unlink()
        file.seek(0)
        assert file.read() == CONTENT


def test_a_cache_that_is_switched_off_is_emptied(server: Server, shared: Limits, film: Film) -> None:
    read(server, shared)
    read(server, replace(shared, cache_bytes=0))
    assert entries(shared) == []


def test_what_is_not_ours_in_the_folder_is_left_alone(server: Server, limits: Limits, film: Film) -> None:
    assert limits.folder
    limits.folder.mkdir()
    (limits.folder / "notes.txt").write_bytes(bytes(MIB))
    (limits.folder / "folder.d").mkdir()
    read(server, replace(limits, cache_bytes=1))
    Cache(replace(limits, cache_bytes=1)).make_room()
    assert [path.name for path in entries(limits)] == ["folder.d", "notes.txt"]


# --- Crashes ------------------------------------------------------------------------------------------------

WHOLE = len(CONTENT)


def damage(path: Path, how: str) -> None:
    with path.open("r+b") as file:
        if how == "a bit":
            file.seek(16 + 1000)
            byte = file.read(1)[0]
            file.seek(16 + 1000)
            file.write(bytes([byte ^ 1]))
        elif how == "a checksum":
            file.write(b"\xff")
        elif how == "a hole":  # what a power cut leaves: the length is there, the bytes are not
            file.seek(16 + 4096)
            file.write(bytes(BLOCK // 2))
        elif how == "the end":
            file.truncate(path.stat().st_size - 100)
        elif how == "everything":
            file.truncate(0)
        else:
            file.write(random.Random(4).randbytes(path.stat().st_size + 5_000))


@pytest.mark.parametrize("how", ["a bit", "a checksum", "a hole", "the end", "everything", "garbage"])
def test_damaged_blocks_cost_a_fetch_and_are_never_shown(server: Server, shared: Limits, film: Film, how: str) -> None:
    """FE8."""
    read(server, shared)
    damage(entries(shared)[0], how)
    assert read(server, shared)[0] == CONTENT
    assert read(server, shared) == (CONTENT, 1, 1)


READER = """
import sys
from pathlib import Path
from snapapp.sources import Limits, open_remote
url, folder, host = sys.argv[1:]
limits = Limits(folder=Path(folder), cache_bytes=1 << 26, allowed_hosts=frozenset({host}))
with open_remote(url, limits) as file:
    while piece := file.read(1000):
        print(file.tell(), flush=True)
"""


@pytest.fixture
def readers(server: Server, shared: Limits) -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(server: Server, limits: Limits) -> "subprocess.Popen[bytes]":
    arguments = [server.url("/v"), str(limits.folder), f"127.0.0.1:{server.port}"]
    return subprocess.Popen([sys.executable, "-c", READER, *arguments], stdout=subprocess.PIPE)


def test_a_reader_that_is_killed_leaves_what_it_brought_and_nothing_else(
    server: Server, shared: Limits, film: Film, readers: list["subprocess.Popen[bytes]"]
) -> None:
    """FE4: the kernel gives its turn to the next."""

    def stuck(visit: Visit) -> None:
        part = film.asked(visit)
        assert part is not None
        if part.start >= 4 * BLOCK:
            visit.server.is_closing.wait()
        else:
            film(visit)

    server.acts["/v"] = stuck
    readers.append(start(server, shared))
    until(lambda: any(f"bytes={4 * BLOCK}-" in request.headers["range"] for request in server.requests))
    readers[0].send_signal(signal.SIGKILL)
    readers[0].wait()
    server.acts["/v"] = film
    assert read(server, shared)[:2] == (CONTENT, 1 + WHOLE - 4 * BLOCK)
    assert len(entries(shared)) == 1


def test_a_reader_that_hangs_does_not_hold_the_others_for_ever(server: Server, shared: Limits, film: Film) -> None:
    quick = replace(shared, timeout=timedelta(seconds=1))
    with (
        open_remote(server.url("/v"), shared) as hanging,
        hanging._blocks.turn(0),
        open_remote(server.url("/v"), quick) as file,
    ):
        assert b"".join(iter(lambda: file.read(1000), b"")) == CONTENT
        assert file._connection.requests > 3


def test_a_full_disk_is_said_to_be_full(
    server: Server, shared: Limits, film: Film, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is not ours: pwrite stands for one that fills up after it took a part."""
    rest = [3 * BLOCK]

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        taken = data[: rest[0]]
        rest[0] -= len(taken)
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, taken, offset)

    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(SourceUnavailable) as caught:
        read(server, shared)
    assert caught.value.reason is Reason.NO_ROOM
    monkeypatch.undo()
    assert read(server, shared)[0] == CONTENT


@pytest.mark.parametrize("cache_bytes", [0, MIB])
def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(
    server: Server, limits: Limits, film: Film, cache_bytes: int, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        read(server, replace(limits, folder=tmp_path / "file" / "sources", cache_bytes=cache_bytes))


def test_versions_differ_by_all_that_the_server_says(tmp_path: Path) -> None:
    kept = Cache(Limits(folder=tmp_path, cache_bytes=MIB))
    origin = guard.source_url("http://cdn.example/v")
    for version in [
        Version(1, '"1"', None),
        Version(2, '"1"', None),
        Version(1, '"2"', None),
        Version(1, None, '"1"'),
        Version(1, '"1"', '"1"'),
    ]:
        kept.blocks(origin, version).close()
    assert len(list(tmp_path.iterdir())) == 5
