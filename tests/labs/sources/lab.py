"""What a moment of a long remote video costs: a real one of a given size, served locally in ranges, with its index at
the end or at the front, and read anew for each moment."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import BinaryIO, cast

import av

from snapapp.sources import Limits, open_remote
from snapapp.sources.limits import MIB
from tests.sources import videos
from tests.sources.server import Server, Visit, serving

SECONDS = 2.0
MOST_SHARE = 0.01
MOST_REQUESTS = 30


@dataclass(frozen=True)
class Cost:
    layout: str
    at: float
    size: int
    bytes: int
    requests: int
    pictures: int
    seconds: float
    again: tuple[int, int]  # bytes and requests of a second snap of this moment

    @property
    def share(self) -> float:
        return self.bytes / self.size

    @property
    def is_dear(self) -> bool:
        return self.share > MOST_SHARE or self.requests > MOST_REQUESTS

    def __str__(self) -> str:
        return (
            f"index at the {self.layout}, {SECONDS:g} s from {self.at:7.1f} s of {self.size / MIB:.0f} MB:"
            f" {self.bytes / MIB:5.2f} MB ({self.share:.2%}) in {self.requests:2} requests,"
            f" {self.pictures} pictures, {self.seconds:.2f} s;"
            f" a second snap {self.again[0]} bytes in {self.again[1]} request"
        )


def run(size: int, moments: int, mbit: float = 8) -> Iterator[Cost]:
    with tempfile.TemporaryDirectory() as name, serving(Server()) as server:
        folder = Path(name)
        videos.encode(folder / "few.mp4", seconds=10, width=1280, height=720, mbit=mbit)
        for layout, options in {"end": {}, "front": {"movflags": "faststart"}}.items():
            path = folder / f"{layout}.mp4"
            videos.repeat(folder / "few.mp4", path, size, options=options)
            server.acts[f"/{layout}"] = from_disk(path)
            yield from _costs(server, layout, path, moments)
            path.unlink()


def from_disk(path: Path) -> "Disk":
    return Disk(path, path.stat().st_size)


@dataclass(frozen=True)
class Disk:
    """A server's way to send parts of a file that is too large for memory."""

    path: Path
    size: int

    def __call__(self, visit: Visit) -> None:
        start, _, last = visit.headers["Range"].removeprefix("bytes=").partition("-")
        stop = min(int(last) + 1, self.size)
        with self.path.open("rb") as file:
            file.seek(int(start))
            body = file.read(stop - int(start))
        visit.say(206, body, ETag='"1"', Content_Range=f"bytes {start}-{stop - 1}/{self.size}")


def _costs(server: Server, layout: str, path: Path, moments: int) -> Iterator[Cost]:
    with av.open(str(path)) as container:
        duration = (container.duration or 0) / av.time_base
    for number in range(moments):
        at = round(duration * (number + 0.5) / moments + 0.123, 3)
        with _limits(server) as limits:
            yield _cost(server, layout, path, at, limits)


@contextmanager
def _limits(server: Server) -> Iterator[Limits]:
    with tempfile.TemporaryDirectory() as folder:
        allowed = frozenset({f"127.0.0.1:{server.port}"})
        yield Limits(allowed_hosts=allowed, folder=Path(folder), cache_bytes=512 * MIB)


def _cost(server: Server, layout: str, path: Path, at: float, limits: Limits) -> Cost:
    began = perf_counter()
    first = _read(server.url(f"/{layout}"), at, limits)
    seconds = perf_counter() - began
    again = _read(server.url(f"/{layout}"), at, limits)
    if not first.shown == again.shown == videos.moment(path, at, SECONDS):
        raise AssertionError(f"the pictures from {at} s are not those of the file")
    cost = Cost(layout, at, path.stat().st_size, first.bytes, first.requests, len(first.shown), 0, (0, 0))
    return replace(cost, seconds=seconds, again=(again.bytes, again.requests))


@dataclass(frozen=True)
class _Read:
    shown: list[tuple[float, bytes]]
    bytes: int
    requests: int


def _read(url: str, at: float, limits: Limits) -> _Read:
    with open_remote(url, limits) as file:
        shown = videos.moment(cast(BinaryIO, file), at, SECONDS)
        return _Read(shown, file._connection.bytes, file._connection.requests)
