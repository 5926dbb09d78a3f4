"""The machine that this process runs on, as the kernel describes it. The database is not asked, so the answer comes
even while the database is away."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread

from snapapp.jobs.os import memory, processes
from snapapp.settings.table import Settings
from snapapp.storage import room_of

_MB = 2**20
_PROCESSES = 20
_ANSWERS_IN = 1.0  # seconds for all disks together, because a disk behind a network may hang for ever

_Usage = tuple[Path, int, int, int]  # an existing folder, its device, its bytes in all and free
_questions: dict[Path, Future[_Usage]] = {}  # each is answered by a thread; while one hangs, no other is asked
_turn = Lock()


@dataclass(frozen=True, slots=True)
class Memory:
    total_mb: int
    free_mb: int  # the least of what the machine and this process's control groups leave
    swapped_mb: int


@dataclass(frozen=True, slots=True)
class Disk:
    folder: str
    what: str  # what is kept there
    total_mb: int | None  # None: the disk did not answer
    free_mb: int | None
    floor_mb: int | None  # with less free than this, new heavy work is refused


@dataclass(frozen=True, slots=True)
class Process:
    """This process, or one that it started."""

    pid: int
    name: str
    is_child: bool
    memory_mb: int


@dataclass(frozen=True, slots=True)
class Box:
    host: str
    cores: int
    load: tuple[float, float, float] | None  # over 1, 5 and 15 minutes
    memory: Memory | None  # None: not known on this system (not Linux)
    disks: list[Disk]
    processes: list[Process]


def look(settings: Settings) -> Box:
    """Describes the machine. If a disk hangs, this takes a second."""
    return Box(os.uname().nodename, os.cpu_count() or 1, _load(), _memory(), list(_disks(settings)), list(_processes()))


def _load() -> tuple[float, float, float] | None:
    try:
        return os.getloadavg()
    except OSError:
        return None


def _memory() -> Memory | None:
    total, free = memory.total_mb(), memory.free_mb()
    return None if total is None or free is None else Memory(total, free, memory.swapped_mb() or 0)


def _disks(settings: Settings) -> Iterator[Disk]:
    """The disks of snapapp's folders, each once even if several folders are on it."""
    room = room_of(settings)
    ours = (
        (room.folder.absolute(), "files", room.floor_mb),
        (settings.data_dir.absolute(), "data", room.floor_mb),
        (Path(tempfile.gettempdir()), "scratch", None),
    )
    questions = [(*each, _ask(each[0])) for each in ours]
    wait([its for *_, its in questions], timeout=_ANSWERS_IN)
    seen = set()
    for folder, what, floor, its in questions:
        if not its.done():
            yield Disk(str(folder), what, None, None, floor)
        elif its.exception() is None:  # an error means that this process may not enter the folder
            there, device, total, free = its.result()
            if device not in seen:
                seen.add(device)
                yield Disk(str(there), what, total // _MB, free // _MB, floor)


def _ask(folder: Path) -> Future[_Usage]:
    with _turn:
        if folder not in _questions or _questions[folder].done():
            its = _questions[folder] = Future()
            Thread(target=_answer, args=(folder, its), name=f"disk of {folder}", daemon=True).start()
        return _questions[folder]


def _answer(folder: Path, its: Future[_Usage]) -> None:
    try:
        there = next(each for each in (folder, *folder.parents) if each.exists())
        usage = shutil.disk_usage(there)
        its.set_result((there, there.stat().st_dev, usage.total, usage.free))
    except Exception as error:  # noqa: BLE001 - a thread's outermost edge; without a result the folder stays blocked
        its.set_exception(error)


def _processes() -> Iterator[Process]:
    own = os.getpid()
    yield Process(own, _name(own), False, memory.resident_mb(own))
    children = [Process(pid, _name(pid), True, memory.resident_mb(pid)) for pid in processes.below(own)]
    yield from sorted(children, key=lambda its: -its.memory_mb)[: _PROCESSES - 1]


def _name(pid: int) -> str:
    return memory.text(Path(f"/proc/{pid}/comm")).strip() or "?"
