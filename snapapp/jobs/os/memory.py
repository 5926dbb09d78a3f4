"""How much memory a process has taken, and how much may still be taken here, as the kernel tells it: of the machine,
and of each group around us."""

from collections.abc import Iterator
from pathlib import Path
from resource import getpagesize

_MB = 1024 * 1024
_UNLIMITED = 1 << 60  # version 1 says "no limit" with a number of this size

# What a group may use, what it uses, and of that what the kernel gives back when asked: by version of control groups.
# Above its "high" mark the kernel only slows a group down: it counts as a limit all the same.
_V2 = (("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1 = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


def free_mb(root: Path = Path("/")) -> int | None:
    """The least of what the machine and the groups leave; None where nobody can tell (not Linux)."""
    machine = _field(root / "proc/meminfo", "MemAvailable:")
    if machine is None:
        return None
    return min([machine * 1024, *_left_in_groups(root)]) // _MB


def total_mb(root: Path = Path("/")) -> int | None:
    """Of the machine; None where nobody can tell."""
    machine = _field(root / "proc/meminfo", "MemTotal:")
    return None if machine is None else machine * 1024 // _MB


def swapped_mb(root: Path = Path("/")) -> int | None:
    """What the machine has moved out to disk."""
    total, free = (_field(root / "proc/meminfo", name) for name in ("SwapTotal:", "SwapFree:"))
    return None if total is None or free is None else (total - free) * 1024 // _MB


def resident_mb(pid: int) -> int:
    """Of a process, now; 0 where nobody can tell."""
    fields = text(Path(f"/proc/{pid}/statm")).split()
    return int(fields[1]) * getpagesize() // _MB if fields else 0


def _left_in_groups(root: Path) -> Iterator[int]:
    for line in text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            yield from _left_up_from(root / "sys/fs/cgroup", path, _V2)
        elif "memory" in controllers.split(","):
            yield from _left_up_from(root / "sys/fs/cgroup/memory", path, _V1)


def _left_up_from(top: Path, path: str, files: tuple[tuple[str, ...], str, str]) -> Iterator[int]:
    """A limit holds for all groups below. In a container the path may be one that only the host can see: then what is
    above it counts."""
    limit_names, used_name, spare_name = files
    here = top / path.strip("/")
    for group in (here, *here.parents):
        limits = [limit for name in limit_names if (limit := _number(group / name)) is not None and limit < _UNLIMITED]
        used = _number(group / used_name)
        if limits and used is not None:
            spare = _field(group / "memory.stat", spare_name) or 0
            yield max(0, min(limits) - used + spare)
        if group == top:
            return


def _field(file: Path, name: str) -> int | None:
    for line in text(file).splitlines():
        if line.startswith(f"{name} "):
            return int(line.split()[1])
    return None


def _number(file: Path) -> int | None:
    said = text(file).strip()
    return int(said) if said.isdigit() else None  # else it is "max", or not there


def text(file: Path) -> str:
    """Of a file that the kernel keeps; nothing where it is not there, or its process has ended meanwhile."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
