"""Restricts a process for ever. A process that decodes a video from outside needs memory, threads and the files that it
was handed, and nothing else of the kernel. Every system call that is not on the list below is refused: opening or
examining files, sockets, other programs and processes, signals to other processes.

seccomp does this. Behind it, where the kernel has it, Landlock forbids the file system, TCP, and tracing or signalling
other processes, should the list ever let too much through.
"""

import ctypes
import os
import platform
import resource
import struct
import sys
from contextlib import suppress

# (x86_64, aarch64)
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "lseek": (8, 62),
    "close": (3, 57),
    "fstat": (5, 80),
    "ftruncate": (77, 46),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "brk": (12, 214),
    "futex": (202, 98),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "getcpu": (309, 168),
    "sysinfo": (99, 179),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "gettid": (186, 178),
    "getpid": (39, 172),
    "membarrier": (324, 283),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "getrandom": (318, 278),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "getrusage": (98, 165),
}
_CONDITIONAL = {"mmap": (9, 222), "mprotect": (10, 226), "clone": (56, 220), "clone3": (435, 435), "tgkill": (234, 131)}
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column of the numbers above, AUDIT_ARCH

LARGEST_FILE = 2 << 30  # bytes of one output file; the preview of nine hours of video is smaller

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 22, 38
_SECCOMP_MODE_FILTER = 2
_ALLOW, _REFUSE, _UNKNOWN, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38, 0x80000000  # EPERM, ENOSYS
_PROT_EXEC, _CLONE_THREAD = 4, 0x10000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in the kernel's struct seccomp_data

_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION = 1  # the flag that asks for the ABI's version
_FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # ABI -> how many rights about files it has
_NETWORK, _SCOPES = 0b11, 0b11  # bind and connect, since ABI 4; abstract sockets and signals, since 6


class NoSandbox(Exception):
    """The kernel has seccomp or Landlock but refused to apply it: then nothing may be decoded."""


def missing() -> tuple[str, ...]:
    """Those of seccomp and Landlock that this machine does not have."""
    if sys.platform != "linux":
        return ("seccomp", "Landlock")
    absent = [] if platform.machine() in _MACHINES and _knows_filters() else ["seccomp"]
    return (*absent, *([] if _landlock_abi() > 0 else ["Landlock"]))


def enter(data_bytes: int = resource.RLIM_INFINITY) -> None:
    """Restricts the calling process, which was just forked and has one thread. Its open files stay open, and are all
    that it can reach."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_DATA, data_bytes)
    _lower(resource.RLIMIT_NOFILE, 64)
    _lower(resource.RLIMIT_FSIZE, LARGEST_FILE)  # Python ignores SIGXFSZ, so a longer write fails instead
    if sys.platform != "linux":
        return
    absent = missing()
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, None)
    if "Landlock" not in absent:
        _forbid_everything(_landlock_abi())
    if "seccomp" not in absent:
        _filter(_program())


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    limits = [each for each in (most, hard) if each != resource.RLIM_INFINITY]
    if limits:
        resource.setrlimit(which, (min(limits), min(limits)))


def _prctl(option: int, value: int, pointer: object) -> None:
    nothing = ctypes.c_ulong(0)
    if _libc().prctl(option, ctypes.c_ulong(value), pointer, nothing, nothing):
        raise NoSandbox(f"prctl {option}: {os.strerror(ctypes.get_errno())}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


# --- seccomp ------------------------------------------------------------------------------------------------


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def _knows_filters() -> bool:
    """Whether the kernel has seccomp filters. Asked to read a filter at a null address, a kernel that has them answers
    EFAULT."""
    _libc().prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), None, 0, 0)
    return ctypes.get_errno() == 14  # EFAULT


def _filter(program: bytes) -> None:
    _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(program) // 8, program)))


def _program() -> bytes:
    """The filter as BPF code. Each instruction has an operation, two jump distances (condition met or not) and a
    number."""
    column, arch = _MACHINES[platform.machine()]
    special = {name: numbers[column] for name, numbers in _CONDITIONAL.items()}
    lines = [_load(_ARCH), _if_equal(arch, 1, 0), _answer(_KILL), _load(_NUMBER)]
    for numbers in _ALLOWED.values():
        lines += [_if_equal(numbers[column], 0, 1), _answer(_ALLOW)]
    for name in ("mmap", "mprotect"):  # memory must not become executable
        lines += [_if_equal(special[name], 0, 4), _argument(2), _if_any(_PROT_EXEC, 0, 1)]
        lines += [_answer(_REFUSE), _answer(_ALLOW)]
    # threads only, no new process
    lines += [_if_equal(special["clone"], 0, 4), _argument(0), _if_any(_CLONE_THREAD, 0, 1)]
    lines += [_answer(_ALLOW), _answer(_REFUSE)]
    # a signal to this process itself, as abort() sends
    lines += [_if_equal(special["tgkill"], 0, 4), _argument(0), _if_equal(os.getpid(), 0, 1)]
    lines += [_answer(_ALLOW), _answer(_REFUSE)]
    # clone3's flags are in memory, which a filter cannot read; after ENOSYS the C library uses clone
    lines += [_if_equal(special["clone3"], 0, 1), _answer(_UNKNOWN), _answer(_REFUSE)]
    return b"".join(lines)


def _load(offset: int) -> bytes:
    return struct.pack("=HBBI", 0x20, 0, 0, offset)


def _argument(number: int) -> bytes:
    return _load(_ARGUMENTS + 8 * number)  # the lower half of a 64-bit argument


def _if_equal(value: int, then: int, otherwise: int) -> bytes:
    return struct.pack("=HBBI", 0x15, then, otherwise, value)


def _if_any(bits: int, then: int, otherwise: int) -> bytes:
    return struct.pack("=HBBI", 0x45, then, otherwise, bits)


def _answer(action: int) -> bytes:
    return struct.pack("=HBBI", 0x06, 0, 0, action)


# --- Landlock -----------------------------------------------------------------------------------------------


def _landlock_abi() -> int:
    return int(_libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION))


def _forbid_everything(abi: int) -> None:
    """Applies a Landlock rule set that handles every right this kernel knows, and grants none."""
    files = (1 << _FILES[min(abi, max(_FILES))]) - 1
    rights = struct.pack("=QQQ", files, _NETWORK if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    libc = _libc()
    rules = libc.syscall(_LANDLOCK_CREATE, rights, ctypes.c_size_t(len(rights)), 0)
    try:
        if rules < 0 or libc.syscall(_LANDLOCK_RESTRICT, rules, 0):
            raise NoSandbox(f"Landlock: {os.strerror(ctypes.get_errno())}")
    finally:
        with suppress(OSError):
            os.close(rules)
