"""One second of frames and a two-second clip out of a minute of 1080p: our one pass, in a process that is already
there, as a worker's child is, against the usual three commands of FFmpeg. One after the other by turns."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

from tests import ROOT

FONT = ROOT / "snapapp" / "media" / "fonts" / "DejaVuSans-Bold.ttf"
MOMENT = 31.7

# This module loads no PyAV: on Linux a program that is started inherits the peak of the memory of who started it.


@dataclass(frozen=True)
class Measured:
    seconds: float
    cpu: float
    peak_mb: float


def report(runs: int) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="snapapp-speed-") as folder:
        lines = [f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; medians of {runs} runs, by turns"]
        for height in (1080, 2160):
            source = Path(folder) / f"{height}.mp4"
            child("make", source, str(height))
            lines += compared(source, runs)
        return lines


def compared(source: Path, runs: int) -> list[str]:
    ours: list[Measured] = []
    theirs: list[Measured] = []
    with worker(source) as once:
        once()  # the first run loads the font and the codecs
        for _ in range(runs):
            ours.append(once())
            if commands_are_there():
                theirs.append(three_commands(source))
    lines = [f"{source.stem}p: one pass       {shown(ours)}"]
    if not theirs:
        return [*lines, "the three commands: skipped, there is no ffmpeg here (Debian: apt install ffmpeg)"]
    faster, leaner = ratio(theirs, ours, "seconds"), ratio(theirs, ours, "cpu")
    return [
        *lines,
        f"{source.stem}p: three commands {shown(theirs)}",
        f"{source.stem}p: {faster:.2f} times as fast, {leaner:.2f} times less CPU",
    ]


def shown(measured: list[Measured]) -> str:
    seconds, cpu = (median(getattr(one, name) for one in measured) for name in ("seconds", "cpu"))
    return f"{seconds:.3f} s, {cpu:.3f} s of CPU, peak {max(one.peak_mb for one in measured):.0f} MB"


def ratio(theirs: list[Measured], ours: list[Measured], name: str) -> float:
    return float(median(getattr(one, name) for one in theirs) / median(getattr(one, name) for one in ours))


# --- ours ------------------------------------------------------------------------------------------------------


@contextmanager
def worker(source: Path) -> Iterator["Once"]:
    command = [sys.executable, "-m", "tests.labs.media.speed_child", "work", str(source), str(MOMENT)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Once(process)
        assert process.stdin
        process.stdin.close()


@dataclass(frozen=True)
class Once:
    process: "subprocess.Popen[str]"

    def __call__(self) -> Measured:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return Measured(**json.loads(self.process.stdout.readline()))


def child(what: str, *arguments: str | Path) -> None:
    command = [sys.executable, "-m", "tests.labs.media.speed_child", what, *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True)


# --- theirs ----------------------------------------------------------------------------------------------------


def commands_are_there() -> bool:
    return bool(shutil.which("ffmpeg") and shutil.which("ffprobe"))


def three_commands(source: Path) -> Measured:
    card = "text=1020:x=w-tw-20:y=20:fontsize=18:fontcolor=white:box=1:boxcolor=black@0.7:boxborderw=10"
    scale = "scale='min(1280,iw)':-2"
    frames = f"fps=5,{scale},drawtext=fontfile={FONT}:{card}"
    with tempfile.TemporaryDirectory() as folder:
        quiet = ["ffmpeg", "-v", "error", "-ss", str(MOMENT)]
        film = [*("-c:v", "libx264", "-preset", "veryfast", "-crf", "23", "-pix_fmt", "yuv420p"), "-an"]
        commands = [
            ["ffprobe", "-v", "error", "-show_format", "-show_streams", "-of", "json", str(source)],
            [*quiet, "-t", "1", "-i", str(source), "-vf", frames, "-q:v", "3", f"{folder}/frame_%05d.jpg"],
            [*quiet, "-t", "2", "-i", str(source), "-vf", scale, *film, "-movflags", "+faststart", f"{folder}/c.mp4"],
        ]
        each = [timed(command) for command in commands]
    return Measured(sum(one.seconds for one in each), sum(one.cpu for one in each), max(one.peak_mb for one in each))


def timed(command: list[str]) -> Measured:
    began = perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return Measured(perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
