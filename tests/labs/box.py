"""A box under load for a long time: PostgreSQL, the API, its worker, children and decoders in one memory cgroup without
swap, while people read, videos are uploaded, moments of 1080p and 4K become snaps, and now and then a job eats memory.

As root, on Linux with cgroups (v1 or v2). It prints what is for docs/operate/sizing.md: the p99 of reads, the memory of
each part at rest and at most, its slope, kills by the kernel. --plot draws it. Whoever loads the box is outside of the
cgroup, but on the same cores. Exit code 0: no kill by the kernel, every good snap done, and reads as quick as asked."""

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.jobs.working import until
from tests.labs.media import speed
from tests.labs.stack import MB, WITHIN, Alone, is_made, mark, memory_of, upload

READS_A_SECOND = 10.0
LOOK_EVERY = 2.0  # seconds
PILL_EVERY, UPLOAD_EVERY = 60.0, 30.0  # seconds
READ_WITHIN = 0.3  # seconds, p99
V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
COLOURS = {"api": "#1f5fbf", "child": "#c05020", "decoder": "#208050", "postgresql": "#803090"}


@dataclass
class Seen:
    """Each list is written by one thread."""

    reads: list[float] = field(default_factory=list)  # seconds
    errors: list[str] = field(default_factory=list)
    memory: list[tuple[float, Counter[str]]] = field(default_factory=list)
    snaps: Counter[str] = field(default_factory=Counter)
    uploads: int = 0
    pills: int = 0


class Group:
    """A memory cgroup with a limit and no swap."""

    def __init__(self, folder: Path, limit_mb: int) -> None:
        self.folder, self._is_v1 = folder, folder.is_relative_to(V1)
        limit = "memory.limit_in_bytes" if self._is_v1 else "memory.max"
        (folder / limit).write_text(str(limit_mb * MB))
        if (folder / "memory.swap.max").exists():
            (folder / "memory.swap.max").write_text("0")

    def take(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def kills(self) -> int:
        text = (self.folder / ("memory.oom_control" if self._is_v1 else "memory.events")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])


@contextmanager
def group(limit_mb: int) -> Iterator[Group]:
    folder = (V1 if V1.is_dir() else V2) / f"snapapp-box-{os.getpid()}"
    folder.mkdir()
    try:
        yield Group(folder, limit_mb)
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text(), within=60)
        folder.rmdir()


def load(api: httpx.Client, served: Alone, films: dict[str, Path], seconds: float) -> Seen:
    seen, over = Seen(), threading.Event()
    videos = {name: upload(api, film) for name, film in films.items()}
    for video in videos.values():
        until(lambda video=video: api.get(f"/v2/videos/{video}").json()["videoProbe"], within=WITHIN)  # type: ignore[misc]
    began = time.monotonic()

    def snaps(name: str) -> None:
        made = mark(api, videos[name], 1.0 + seen.snaps[name] % 50)
        until(lambda: is_made(api, made), within=WITHIN)
        seen.snaps[name] += 1

    def read() -> None:
        asked = time.monotonic()
        api.get("/v2/snaps", params={"size": 20}).raise_for_status()
        seen.reads.append(time.monotonic() - asked)

    def look() -> None:
        seen.memory.append((time.monotonic() - began, memory_of(served)))

    def film() -> None:
        upload(api, films["1080p"])
        seen.uploads += 1

    def pill() -> None:
        api.post("/internal/jobs", json={"kind": "process.pill"}).raise_for_status()
        seen.pills += 1

    turns: list[tuple[Callable[[], None], float]] = [
        (lambda: snaps("1080p"), 0),
        (lambda: snaps("4K"), 5),
        (read, 1 / READS_A_SECOND),
        (look, LOOK_EVERY),
        (film, UPLOAD_EVERY),
        (pill, PILL_EVERY),
    ]
    threads = [threading.Thread(target=repeat, args=(act, pause, over, seen.errors)) for act, pause in turns]
    for thread in threads:
        thread.start()
    over.wait(seconds)
    over.set()
    for thread in threads:
        thread.join()
    return seen


def repeat(act: Callable[[], None], pause: float, over: threading.Event, errors: list[str]) -> None:
    while not over.wait(pause):
        try:
            act()
        except (httpx.HTTPError, AssertionError, KeyError) as error:
            errors.append(f"{type(error).__name__}: {error}")


# --- what came of it ------------------------------------------------------------------------------------------------


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def slope(points: list[tuple[float, float]]) -> float:
    """MB an hour, of the second half: the first warms up."""
    later = points[len(points) // 2 :]
    return statistics.linear_regression(*zip(*later, strict=True)).slope * 3600 if len(later) > 1 else 0.0


def told(seen: Seen, kills: int, limit_mb: int) -> None:
    print(f"{limit_mb} MB; load {' '.join(f'{each:.1f}' for each in os.getloadavg())}; {os.cpu_count()} cores")
    reads = [f"p{part:g} {1000 * percentile(seen.reads, part / 100):.0f} ms" for part in (50, 95, 99)]
    print(f"{len(seen.reads)} reads: {', '.join(reads)}")
    print(f"snaps {dict(seen.snaps)}; uploads {seen.uploads}; pills {seen.pills}; killed by the kernel {kills}")
    for part in COLOURS:
        sizes = [(at, sizes[part] / MB) for at, sizes in seen.memory]
        highest, middle = max(size for _, size in sizes), statistics.median(size for _, size in sizes)
        print(f"{part}: median {middle:.0f} MB, at most {highest:.0f} MB, slope {slope(sizes):+.0f} MB an hour")
    total = [(at, sizes.total() / MB) for at, sizes in seen.memory]
    print(f"together: at most {max(size for _, size in total):.0f} MB, slope {slope(total):+.0f} MB an hour")
    for error, times in Counter(seen.errors).most_common(5):
        print(f"{times} times {error}")


def drawn(seen: Seen, limit_mb: int) -> str:
    """The memory of each part over time, one line each, and the limit."""
    end = seen.memory[-1][0]
    lines = [
        f'<text x="8" y="16">MB (PSS) over {end / 60:.0f} minutes; the limit is {limit_mb} MB</text>',
        '<line x1="40" y1="40" x2="740" y2="40" stroke="#999" stroke-dasharray="4 3"/>',
    ]
    for place, (part, colour) in enumerate(COLOURS.items()):
        points = " ".join(
            f"{40 + 700 * at / end:.0f},{240 - 200 * sizes[part] / MB / limit_mb:.1f}" for at, sizes in seen.memory
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        lines.append(f'<text x="{40 + 110 * place}" y="260" fill="{colour}">{part}</text>')
    style = 'font-family="sans-serif" font-size="12"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 270" {style}>\n{chr(10).join(lines)}\n</svg>\n'


def run(limit_mb: int, seconds: float) -> tuple[Seen, int]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-box-")))
        films = {"1080p": folder / "1080p.mp4", "4K": folder / "4k.mp4"}
        for height, film in zip(("1080", "2160"), films.values(), strict=True):
            speed.child("make", film, height)
        box = stack.enter_context(group(limit_mb))
        settings: dict[str, Any] = {"SNAPAPP_DEMO": "false", "SNAPAPP_PROCESSORS": "tests.labs.executors.kinds"}
        served = Alone(folder, **settings)
        box.take(served.process.pid)  # before it starts anything
        with served.up(), httpx.Client(base_url=f"http://localhost:{served.port}", timeout=60) as api:
            seen = load(api, served, films, seconds)
        return seen, box.kills


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--limit-mb", type=int, default=1950, help="what the kernel of a box of 2 GB says it has")
    parser.add_argument("--plot", type=Path, help="an SVG that is written")
    arguments = parser.parse_args()
    seen, kills = run(arguments.limit_mb, 60 * arguments.minutes)
    told(seen, kills, arguments.limit_mb)
    if arguments.plot:
        arguments.plot.write_text(drawn(seen, arguments.limit_mb))
    is_quick = percentile(seen.reads, 0.99) < READ_WITHIN
    return 0 if is_quick and not kills and not seen.errors else 1


if __name__ == "__main__":
    raise SystemExit(main())
