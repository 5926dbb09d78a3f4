"""Whether a process of this machine still lives. Its pid alone does not tell, because pids are reused."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path


def machine() -> str:
    """A name for this machine and pid namespace: processes with the same name see the same pids. A unique name where
    that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path but a name
    except OSError:
        return f"{platform.node()}:{os.getpid()}:{os.urandom(8).hex()}"


def started(pid: int) -> int | None:
    """When a process started, in ticks since boot, which tells it from a later one with the same pid. None: dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_gone(pid: int, since: int) -> bool:
    """Has the process with this pid, started at `since`, ended? False if it is only hidden (hidepid, a sandbox)."""
    if (start := started(pid)) is not None:
        return start != since
    return Path(f"/proc/{pid}").exists() or not answers(pid)


def answers(pid: int) -> bool:
    """Does a process with this pid exist, also if it is another user's?"""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def children(pid: int | str) -> list[int]:
    """The pids of a process's children, as far as they are visible; "self" means this process."""
    try:
        lists = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for each in lists for child in each.read_text(encoding="ascii").split()]
    except OSError:
        return []


def below(pid: int) -> Iterator[int]:
    """All processes below this one: its children, and theirs."""
    for child in children(pid):
        yield child
        yield from below(child)
