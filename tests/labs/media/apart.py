"""What it costs that videos are decoded by a process that can do nothing else: the same work both ways, by turns."""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from snapapp import media
from snapapp.processing.decoder.client import WORK, Decoders
from snapapp.processing.decoder.work import wanted_of
from tests import ROOT
from tests.labs.media import speed
from tests.media.material import GOOD, Folder, make

ORDER: dict[str, Any] = {
    "wanted": {"start_seconds": 1.0, "start_frame": None, "duration_seconds": 1.0, "clip_seconds": 2.0, "fps": 5}
    | {"max_width": 1280, "format": "jpg", "quality": 3},
    "overlay": None,
    "subject_id": "BR-1",
    "values": [],
}
_IMPORT = "import snapapp.jobs.executors.child, snapapp.processing.media_work, snapapp.processing.decoder.work"


def report(runs: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="snapapp-apart-") as name:
        folder = Path(name)
        small, large = make(GOOD["plain"], folder / "small.mp4"), folder / "1080.mp4"
        speed.child("make", large, "1080")
        decoders = Decoders(WORK)
        try:
            return [
                *compared("a probe", runs * 5, *_ways("probe", small, folder, decoders)),
                *compared("a snap of 320×180", runs * 2, *_ways("extract", small, folder, decoders)),
                *compared("a snap of 1080p", runs, *_ways("extract", large, folder, decoders)),
                *compared("from nothing to the first probe", runs, *_beginnings(small, folder)),
            ]
        finally:
            decoders.stop()


def compared(what: str, runs: int, here: Callable[[], object], apart: Callable[[], object]) -> list[str]:
    taken: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for way, seconds in zip((here, apart), taken, strict=True):
            began = perf_counter()
            way()
            if run:  # the first loads what the others find
                seconds.append(perf_counter() - began)
    in_one, in_two = (median(seconds) * 1000 for seconds in taken)
    return [
        f"{what}: {in_one:.1f} ms in one process, {in_two:.1f} ms apart: {in_two / in_one:.2f} ({runs} runs by turns)"
    ]


def _ways(do: str, path: Path, folder: Path, decoders: Decoders) -> tuple[Callable[[], object], Callable[[], object]]:
    def here() -> None:
        with path.open("rb") as video, tempfile.TemporaryDirectory(dir=folder) as made:
            if do == "probe":
                media.probe(video)
            else:
                media.extract(video, wanted_of(ORDER), Folder(Path(made)))

    def apart() -> None:
        with path.open("rb") as video, decoders.run(f"{WORK}:{do}", ORDER, video, folder, lambda *_: None):
            pass

    return here, apart


def _beginnings(path: Path, folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """A child's start, with all that it needs, and its first job."""
    one = f"{_IMPORT}; from snapapp import media; media.probe(open({str(path)!r}, 'rb'))"
    two = (
        "import snapapp.jobs.executors.child; from snapapp.processing.media_work import DECODERS as d; d.start();"
        f"from pathlib import Path; video = open({str(path)!r}, 'rb');"
        f"d.run('{WORK}:probe', {{}}, video, Path({str(folder)!r}), print).__enter__(); d.stop()"
    )

    def python(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

    return python(one), python(two)
