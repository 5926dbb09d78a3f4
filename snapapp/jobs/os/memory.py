"""Memory as the kernel reports it: used by a process, and still free on the machine and in the control groups that
this process is in."""

from collections.abc import Iterator
from pathlib import Path
from resource import getpagesize

_MB = 1024 * 1024
_UNLIMITED = 1 << 60  # control groups version 1 report a number above this for "no limit"

# For each version of control groups: the files with the limits, the file with the usage, and the field of memory.stat
# with the part of the usage that the kernel can reclaim. Above memory.high the kernel only slows a group down; we treat
# it as a limit.
_V2 = (("memory.max", "memory.high"), "memory.current", "inactive_file")
_V1 = (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file")


def free_mb(root: Path = Path("/")) -> int | None:
    """Free memory: the least of what the machine and the control groups leave. None: unknown (not Linux)."""
    machine = _field(root / "proc/meminfo", "MemAvailable:")
    if machine is None:
        return None
    return min([machine * 1024, *_left_in_groups(root)]) // _MB


def total_mb() -> int | None:
    """Memory of the machine, in MB; None: unknown."""
    machine = _field(Path("/proc/meminfo"), "MemTotal:")
    return None if machine is None else machine * 1024 // _MB


def swapped_mb() -> int | None:
    """Swap in use, in MB; None: unknown."""
    total, free = (_field(Path("/proc/meminfo"), name) for name in ("SwapTotal:", "SwapFree:"))
    return None if total is None or free is None else (total - free) * 1024 // _MB


def resident_mb(pid: int) -> int:
    """Resident memory of a process; 0: unknown."""
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
    """Yields what is left in the group and in each group above it, because their limits include ours. In a container
    the path may exist only on the host; then the groups above are used."""
    limit_names, used_name, spare_name = files
    own_group = top / path.strip("/")
    for group in (own_group, *own_group.parents):
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
    value = text(file).strip()
    return int(value) if value.isdigit() else None  # "max", or no such file


def text(file: Path) -> str:
    """The text of a kernel file; empty if it does not exist, or its process has ended."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
