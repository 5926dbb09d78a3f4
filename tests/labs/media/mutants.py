"""Videos broken at random, each read by a process of its own with a memory limit. Whatever it is, there are two ways to
end: the files are made, or a reason is given that a person can read."""

import io
import json
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from select import select

from snapapp import media
from tests.media.material import GOOD, Folder, irregular, make, make_overlay, make_wanted

MB = 1024 * 1024
MEMORY_MB = 600  # beyond what the process has before it begins
SECONDS = 60
SEEDS = ["b_frames", "irregular", "edit_list", "with_sound", "fragmented", "mkv", "webm_vp9", "webm_vp8", "hevc"]
SEEDS += ["h264_10_bit", "av1", "mpeg4", "mjpeg_odd", "prores", "rotated"]

Break = Callable[[bytearray, random.Random], None]


@dataclass
class Report:
    done: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    most_memory_mb: int = 0


@dataclass(frozen=True)
class Ending:
    kind: str
    """"done", the name of one of our errors, or "problem"."""
    words: str
    memory_mb: int = 0


def run(count: int, seed: int = 1) -> Report:
    report = Report()
    with tempfile.TemporaryDirectory(prefix="snapapp-mutants-") as folder:
        in_child(lambda: make_seeds(Path(folder)), memory_mb=4000)
        seeds = [path.read_bytes() for path in sorted(Path(folder).iterdir())]
    for number in range(count):
        mutant = broken(seeds, random.Random(f"{seed}/{number}"))
        note(report, f"seed {seed}, mutant {number}", in_child(lambda data=mutant, use=number: used(data, use)))  # type: ignore[misc]
    return report


def note(report: Report, name: str, ending: Ending) -> None:
    report.most_memory_mb = max(report.most_memory_mb, ending.memory_mb)
    if ending.kind == "done":
        report.done += 1
    elif ending.kind == "problem":
        report.problems.append(f"{name}: {ending.words}")
    else:
        report.reasons[ending.kind] += 1


def make_seeds(folder: Path) -> Ending:
    for name in SEEDS:
        recipe = GOOD[name]
        short = replace(recipe, size=(160, 90) if recipe.size[0] % 2 == 0 else (161, 91), times=recipe.times[:40])
        make(short, folder / (name + recipe.suffix))
    make(replace(GOOD["mov"], size=(160, 90), times=irregular(40)), folder / "mov.mov")
    return Ending("done", "")


# --- how to break them -----------------------------------------------------------------------------------------


def broken(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(BREAKS)(data, chance)
    return bytes(data)


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 4, 30, 300))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_headers(data: bytearray, chance: random.Random) -> None:
    """Where the structure is: the first bytes, and an index wherever it lies."""
    starts = [
        place for name in (b"moov", b"moof", b"stbl", b"trak", b"\x16\x54\xae\x6b") if (place := data.find(name)) >= 0
    ]
    begin = chance.choice([0, *starts])
    for _ in range(chance.choice((1, 3, 10))):
        place = min(len(data) - 1, begin + int(chance.expovariate(1 / 300)))
        data[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def lie(data: bytearray, chance: random.Random) -> None:
    """A length, a count, a size or an offset that is a great deal too large."""
    names = (b"stsz", b"stts", b"ctts", b"stco", b"stsc", b"stsd", b"elst", b"mdhd", b"mvhd", b"tkhd", b"avc1", b"hvc1")
    places = [place for name in names if (place := data.find(name)) >= 0] or [chance.randrange(len(data))]
    place = chance.choice(places) + 4 + 4 * chance.randrange(10)
    data[place : place + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\0\x10\0\0"))


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(1, len(data)) :]


def cut_out(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data))
    del data[begin : begin + chance.choice((1, 7, 512, 5000))]
    data += b"\0" * (not data)


def blank(data: bytearray, chance: random.Random) -> None:
    begin, long = chance.randrange(len(data)), chance.choice((16, 512, 4096))
    data[begin : begin + long] = bytes([chance.choice((0, 255))]) * min(long, len(data) - begin)


def repeat(data: bytearray, chance: random.Random) -> None:
    begin, place = chance.randrange(len(data)), chance.randrange(len(data))
    data[place:place] = data[begin : begin + chance.choice((8, 400, 9000))]


def swap(data: bytearray, chance: random.Random) -> None:
    long = chance.choice((4, 64, 2000))
    one, other = sorted(chance.randrange(max(1, len(data) - long)) for _ in range(2))
    if other - one >= long:
        data[one : one + long], data[other : other + long] = data[other : other + long], data[one : one + long]


BREAKS: list[Break] = [flip, flip, flip_headers, flip_headers, lie, lie, cut, cut_out, blank, repeat, swap]


# --- one of them, in a process of its own ----------------------------------------------------------------------


def used(data: bytes, number: int) -> Ending:
    """As a worker would: looked at, then one of the three things that can be made of it."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            use(data, number, Path(folder))
        except media.MediaError as error:
            words = str(error)
            return Ending(type(error).__name__ if len(words) > 15 else "problem", words)
    return Ending("done", "")


def use(data: bytes, number: int, folder: Path) -> None:
    media.probe(io.BytesIO(data))
    if number % 8 == 0:
        media.still(io.BytesIO(data), 0.7)
    elif number % 8 == 1:
        with (folder / "preview.mp4").open("w+b", buffering=0) as film:
            made = media.preview(io.BytesIO(data), film)
        assert made.frame_count > 0
        assert media.probe(io.BytesIO((folder / "preview.mp4").read_bytes())).compatible
    else:
        overlay = make_overlay(("São João", "412.5"), shows_frame=True, shows_time=True)
        moment = {"start_frame": 12} if number % 4 == 2 else {"start_seconds": 0.7}
        wanted = make_wanted(**moment, clip_seconds=0.6, overlay=overlay)
        made_of_it = media.extract(io.BytesIO(data), wanted, Folder(folder))
        names = {artefact.file_name for artefact in made_of_it.artefacts}
        assert names == {path.name for path in folder.iterdir()}
        assert made_of_it.frame_count > 0
        json.dumps(media.as_json(made_of_it), allow_nan=False)


def in_child(work: Callable[[], Ending], memory_mb: int = MEMORY_MB) -> Ending:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        os._exit(work_in_child(work, memory_mb, writer))
    os.close(writer)
    said = b""
    try:
        while select([reader], [], [], SECONDS)[0] and (part := os.read(reader, 65536)):
            said += part
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL if not said else 0)
        _, status, usage = os.wait4(child, 0)
    finally:
        os.close(reader)
    if not said:
        how = signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else f"code {os.WEXITSTATUS(status)}"
        return Ending("problem", f"the process ended with {how} and said nothing")
    kind, words = json.loads(said)
    return Ending(kind, words, usage.ru_maxrss // 1024)


def work_in_child(work: Callable[[], Ending], memory_mb: int, writer: int) -> int:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + memory_mb * MB, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS // 2, SECONDS // 2))
    try:
        ending = work()
    except BaseException:  # noqa: BLE001 - whatever else it is, it is what we look for
        ending = Ending("problem", traceback.format_exc(limit=-4))
    os.write(writer, json.dumps([ending.kind, ending.words]).encode())
    sys.stdout.flush()
    return 0
