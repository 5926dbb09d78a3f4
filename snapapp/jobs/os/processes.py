"""Whether a process of this machine still lives. A number alone does not tell: it may belong to another one by now."""

import os
import platform
from pathlib import Path


def machine() -> str:
    """Two processes with the same answer see the same pids. Where that cannot be known, nobody shares an answer."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - not a path but a name
    except OSError:
        return f"{platform.node()}:{os.getpid()}:{os.urandom(8).hex()}"


def started(pid: int) -> int | None:
    """When a process started, in the kernel's ticks since boot: with it, a reused pid is not mistaken. None: dead."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def is_gone(pid: int, since: int) -> bool:
    """Is the process that started then no more? One that cannot be seen (hidepid, a sandbox) is not therefore dead."""
    if (found := started(pid)) is not None:
        return found != since
    return Path(f"/proc/{pid}").exists() or not answers(pid)


def answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def children(pid: int | str) -> list[int]:
    """Of a process, as far as they can be seen; `self` is ours."""
    try:
        lists = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
        return [int(child) for each in lists for child in each.read_text(encoding="ascii").split()]
    except OSError:
        return []
