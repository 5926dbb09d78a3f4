"""A lab: the memory of everything that one box runs — PostgreSQL, the API with its worker, the children — while real
videos become snaps.

`python -m tests.labs stack` does 1080p two at a time and 4K one at a time, and prints the highest sum of proportional
set sizes (PSS) that was seen, by part, and how many snaps a minute were made.
"""

import argparse
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, Self

import httpx

from tests.jobs.working import until
from tests.labs.media import speed
from tests.running import Served

MB = 1024 * 1024
LOOK_EVERY = 0.1  # seconds
WITHIN = 600.0
MOMENT: dict[str, Any] = {
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "durationSeconds": 1.0,
    "snapshotDurationSeconds": 2.0,
    "subject": {"attributes": [{"key": "brinco", "type": "string", "stringValue": "São João 1020"}]},
    "overlay": {"enabled": True},
}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    height: int
    at_once: int
    limit_mb: int


CASES = (Case("1080p, two at a time", 1080, 2, 700), Case("4K, one at a time", 2160, 1, 1024))


@dataclass
class Peak:
    """The sum that was highest, and its parts."""

    total: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    def note(self, parts: Counter[str]) -> None:
        if parts.total() > self.total:
            self.total, self.parts = parts.total(), parts

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {size // MB}" for name, size in self.parts.most_common())
        return f"{self.total // MB} MB ({parts})"


class Watch:
    """Looks at all processes of an installation until it is left."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.peak = Peak()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY):
            self.peak.note(memory_of(self._served))


class Alone(Served):
    """By a Python of its own: a fork would share the memory that is measured."""

    is_warm = False


def memory_of(served: Served) -> Counter[str]:
    parts: Counter[str] = Counter()
    for pid in household(served):
        try:
            program, *words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # it ended just now
            continue
        part = "postgresql" if b"postgres" in program else part_of(words)
        parts[part] += int(rollup.partition("\nPss:")[2].split()[0]) * 1024 if "\nPss:" in rollup else 0
    return parts


def part_of(words: list[bytes]) -> str:
    """Of what a Python runs; a decoder is forked by its server, and is called as that is."""
    for part in ("decoder", "child"):
        if any(part.encode() in word for word in words):
            return part
    return "api"


def household(served: Served) -> set[int]:
    """Those that carry its mark, and whoever descends from them: children are born with a clean environment."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = set(served.family())
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def run(case: Case, snaps: int) -> tuple[Peak, Peak, float]:
    """At rest, at work, and snaps a minute."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="snapapp-stack-")))
        film = folder / "film.mp4"
        speed.child("make", film, str(case.height))
        settings = {"SNAPAPP_WORKER_CHILDREN": str(case.at_once), "SNAPAPP_DEMO": "false"}
        served = stack.enter_context(Alone(folder, **settings).up())
        with httpx.Client(base_url=f"http://localhost:{served.port}", timeout=60) as api:
            video = upload(api, film)
            with Watch(served) as resting:
                until(lambda: api.get(f"/v2/videos/{video}").json()["videoProbe"], within=WITHIN)
            began = monotonic()
            with Watch(served) as working:
                marked = [mark(api, video, 1.0 + place % 50) for place in range(snaps)]
                for snap in marked:
                    until(lambda snap=snap: is_made(api, snap), within=WITHIN)  # type: ignore[misc]
            return resting.peak, working.peak, 60 * snaps / (monotonic() - began)


def upload(api: httpx.Client, film: Path) -> str:
    with film.open("rb") as content:
        answer = api.post("/v2/videos", content=iter(lambda: content.read(MB), b""))
    return str(answer.raise_for_status().json()["videoId"])


def mark(api: httpx.Client, video: str, start: float) -> str:
    answer = api.post("/v2/snaps", json={**MOMENT, "videoId": video, "startSeconds": start})
    return str(answer.raise_for_status().json()["snapId"])


def is_made(api: httpx.Client, snap: str) -> bool:
    found = api.get(f"/v2/snaps/{snap}").json()
    assert found["status"] != "FAILED", found["error"]
    return bool(found["status"] == "COMPLETED")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snaps", type=int, default=40)
    arguments = parser.parse_args()
    is_within = True
    for case in CASES:
        rest, work, rate = run(case, arguments.snaps)
        print(f"{case.name}: at most {work} at work, of {case.limit_mb} MB; {rest} before; {rate:.0f} snaps a minute")
        is_within &= work.total <= case.limit_mb * MB
    return 0 if is_within else 1
