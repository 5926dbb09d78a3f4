"""The machine that this process runs on, as the kernel describes it. The database is not asked, so the answer comes
even while the database is away."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from threading import Lock

from pydantic import Field

from snapapp.api.http.schema import Shown
from snapapp.jobs.os import memory, processes
from snapapp.jobs.os.threads import in_a_thread
from snapapp.settings.table import Settings
from snapapp.storage import room_of

_MB = 2**20
_PROCESSES = 20
_ANSWERS_IN = 1.0  # seconds for all disks together, because a disk behind a network may hang for ever

_Usage = tuple[Path, int, int, int]  # an existing folder, its device, its bytes in all and free
_answers: dict[Path, Future[_Usage]] = {}  # each comes from a thread; while one hangs, the folder is not asked again
_lock = Lock()  # of `_answers`


class MemoryLine(Shown):
    total_mb: int = Field(description="Of the machine.")
    free_mb: int = Field(description="The least that the machine and the control groups around this process leave.")
    swapped_mb: int = Field(description="What the machine has moved out to disk.")


class DiskLine(Shown):
    """A disk that holds some of our folders."""

    folder: str
    what: str = Field(description="`files`, `data` or `scratch`.", examples=["files"])
    total_mb: int | None = Field(description="Null: the disk did not answer within a second.")
    free_mb: int | None
    floor_mb: int | None = Field(description="With less free, new heavy work is refused; null: it has no floor.")


class ProcessLine(Shown):
    """This process, or one that it started."""

    pid: int
    name: str = Field(examples=["snapapp"])
    is_child: bool
    memory_mb: int = Field(description="Resident.")


class Machine(Shown):
    """The machine that this process runs on."""

    host: str
    cores: int
    load: list[float] | None = Field(description="Over 1, 5 and 15 minutes.", examples=[[0.4, 0.3, 0.2]])
    memory: MemoryLine | None = Field(description="Null: this system does not tell.")
    disks: list[DiskLine] = Field(description="Each once, however many of our folders lie on it.")
    processes: list[ProcessLine] = Field(description="This one first, then the largest it started.")


def look(settings: Settings) -> Machine:
    """Describes the machine. If a disk hangs, this takes a second."""
    return Machine(
        host=os.uname().nodename,
        cores=os.cpu_count() or 1,
        load=_load(),
        memory=_memory(),
        disks=list(_disks(settings)),
        processes=list(_processes()),
    )


def _load() -> list[float] | None:
    try:
        return [*os.getloadavg()]
    except OSError:
        return None


def _memory() -> MemoryLine | None:
    total, free = memory.total_mb(), memory.free_mb()
    if total is None or free is None:
        return None
    return MemoryLine(total_mb=total, free_mb=free, swapped_mb=memory.swapped_mb() or 0)


def _disks(settings: Settings) -> Iterator[DiskLine]:
    """The disks of snapapp's folders, each once even if several folders are on it."""
    room = room_of(settings)
    ours = (
        (room.folder.absolute(), "files", room.floor_mb),
        (settings.data_dir.absolute(), "data", room.floor_mb),
        (Path(tempfile.gettempdir()), "scratch", None),
    )
    asked = [(*each, _ask(each[0])) for each in ours]
    wait([answer for *_, answer in asked], timeout=_ANSWERS_IN)
    seen = set()
    for folder, what, floor, answer in asked:
        if not answer.done():
            yield DiskLine(folder=str(folder), what=what, total_mb=None, free_mb=None, floor_mb=floor)
        elif answer.exception() is None:  # an error means that this process may not enter the folder
            existing, device, total, free = answer.result()
            if device not in seen:
                seen.add(device)
                total_mb, free_mb = total // _MB, free // _MB
                yield DiskLine(folder=str(existing), what=what, total_mb=total_mb, free_mb=free_mb, floor_mb=floor)


def _ask(folder: Path) -> Future[_Usage]:
    with _lock:
        if folder not in _answers or _answers[folder].done():
            _answers[folder] = in_a_thread(f"disk of {folder}", _look_at, folder)
        return _answers[folder]


def _look_at(folder: Path) -> _Usage:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    usage = shutil.disk_usage(existing)
    return existing, existing.stat().st_dev, usage.total, usage.free


def _processes() -> Iterator[ProcessLine]:
    own = os.getpid()
    yield _process(own, is_child=False)
    children = [_process(pid, is_child=True) for pid in processes.below(own)]
    yield from sorted(children, key=lambda child: -child.memory_mb)[: _PROCESSES - 1]


def _process(pid: int, *, is_child: bool) -> ProcessLine:
    name = memory.text(Path(f"/proc/{pid}/comm")).strip() or "?"
    return ProcessLine(pid=pid, name=name, is_child=is_child, memory_mb=memory.resident_mb(pid))
