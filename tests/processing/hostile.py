"""What a decoder might try that a video has taken over: each try says what came of it."""

import ctypes
import encodings.idna  # noqa: F401 - which a name is looked up with: in the sandbox it is too late
import mmap
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

_PTRACE_ATTACH = 16
_CALLS = {  # x86_64, aarch64
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "pidfd_open": (434, 434),
    "openat": (257, 56),
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "keyctl": (250, 219),
    "unshare": (272, 97),
}
_PAGE = mmap.PAGESIZE


class HasConnection(Protocol):
    connection: int


def attack(targets: dict[str, Any], channels: HasConnection | None = None) -> dict[str, str]:
    """Name of the door -> `shut: …` or `open: …`."""
    return {name: _tried(name, try_it, targets) for name, try_it in _TRIES.items()}


def names(payload: dict[str, Any], channels: Any) -> Any:
    """Tells what it did not make."""
    channels.output.files |= payload["files"]
    return payload["made"]


def fills(payload: dict[str, Any], channels: HasConnection) -> None:
    raise OSError(28, "No space left on device")


def dies(payload: dict[str, Any], channels: HasConnection) -> None:
    ctypes.string_at(0)


def hungry(payload: dict[str, Any], channels: HasConnection) -> None:
    bytearray(1 << 30)


def hangs(payload: dict[str, Any], channels: HasConnection) -> None:
    while True:
        time.sleep(60)


def vast(payload: dict[str, Any], channels: HasConnection) -> str:
    return "x" * 5_000_000


def no_number(payload: dict[str, Any], channels: HasConnection) -> float:
    return float("nan")


def fills_the_disk(payload: dict[str, Any], channels: Any) -> None:
    film = channels.output.film("preview.mp4")
    film.seek(payload["from"])
    film.write(b"x")


def holes(payload: dict[str, Any], channels: Any) -> None:
    """A picture of nothing, which costs no disk and would cost its reader the memory."""
    os.ftruncate(channels.output._pictures, payload["size"])
    channels.output.files["poster.jpg"] = [0, payload["size"]]


def reads(payload: dict[str, Any], channels: Any) -> list[Any]:
    first = channels.source.read(3)
    channels.source.seek(-3, os.SEEK_END)
    return [first.decode(), channels.source.read(100).decode(), channels.source.tell()]


def reads_for_ever(payload: dict[str, Any], channels: Any) -> None:
    while True:
        channels.source.seek(0)
        channels.source.read(1)


def stays(payload: dict[str, Any], channels: Any) -> None:
    """Answers, and will not go."""
    channels.progress(1, str(os.getpid()))
    _send(channels, '{"made": null, "files": {}}')
    while True:
        time.sleep(60)


def asks(payload: dict[str, Any], channels: HasConnection) -> None:
    """For a piece of the video that is none."""
    _send(channels, payload["says"])
    os.read(channels.connection, 1)


def _send(channels: HasConnection, body: str) -> None:
    os.write(channels.connection, b"j" + len(body).to_bytes(4, "big") + body.encode())


def _tried(name: str, try_it: Callable[[dict[str, Any]], object], targets: dict[str, Any]) -> str:
    try:
        return f"open: {try_it(targets)!r:.80}"
    except OSError as error:
        return f"shut: {error.strerror}"
    except KeyError:
        return "there is no such target"


def _secret(targets: dict[str, Any]) -> bytes:
    return Path(targets["env_file"]).read_bytes()


def _environment(targets: dict[str, Any]) -> bytes:
    return Path(f"/proc/{targets['worker']}/environ").read_bytes()


def _memory(targets: dict[str, Any]) -> int:
    return os.open(f"/proc/{targets['worker']}/mem", os.O_RDONLY)


def _own_maps(targets: dict[str, Any]) -> bytes:
    return Path("/proc/self/maps").read_bytes()


def _database_by_its_socket(targets: dict[str, Any]) -> object:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(targets["database_socket"])
        return line.getpeername()


def _database_by_tcp(targets: dict[str, Any]) -> object:
    with socket.socket(socket.AF_INET) as line:
        line.connect(("127.0.0.1", targets["database_port"]))
        return line.getpeername()


def _other_host(targets: dict[str, Any]) -> object:
    with socket.create_connection(("127.0.0.1", targets["other_port"]), timeout=5) as line:
        return line.getpeername()


def _datagram(targets: dict[str, Any]) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        return way.sendto(b"secret", ("127.0.0.1", targets["other_port"]))


def _listen(targets: dict[str, Any]) -> object:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()


def _others_file(targets: dict[str, Any]) -> bytes:
    return Path(targets["others_file"]).read_bytes()


def _others_folder(targets: dict[str, Any]) -> list[str]:
    return [path.name for path in Path(targets["others_file"]).parent.iterdir()]


def _whether_it_is_there(targets: dict[str, Any]) -> int:
    return Path(targets["others_file"]).stat().st_size


def _write_elsewhere(targets: dict[str, Any]) -> int:
    return Path(targets["elsewhere"]).write_bytes(b"owned")


def _change_others_file(targets: dict[str, Any]) -> None:
    os.utime(targets["others_file"])


def _run(targets: dict[str, Any]) -> bytes:
    return subprocess.run(["/bin/sh", "-c", "echo owned"], stdout=subprocess.PIPE, check=True).stdout


def _fork(targets: dict[str, Any]) -> int:
    if (child := os.fork()) == 0:
        os._exit(0)
    return os.waitpid(child, 0)[0]


def _signal(targets: dict[str, Any]) -> None:
    os.kill(targets["worker"], 0)


def _trace(targets: dict[str, Any]) -> int:
    return _call("ptrace", _PTRACE_ATTACH, targets["neighbour"], 0, 0)


def _vm(targets: dict[str, Any]) -> int:
    return _call("process_vm_readv", targets["worker"], 0, 0, 0, 0, 0)


def _process(targets: dict[str, Any]) -> int:
    return _call("pidfd_open", targets["worker"], 0)


def _raw_open(targets: dict[str, Any]) -> int:
    return _call("openat", -100, ctypes.c_char_p(targets["env_file"].encode()), 0)


def _raw_socket(targets: dict[str, Any]) -> int:
    return _call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)


def _packets(targets: dict[str, Any]) -> int:
    return _call("socket", 16, socket.SOCK_RAW, 0)  # netlink, which any user may speak


def _ring(targets: dict[str, Any]) -> int:
    return _call("io_uring_setup", 4, ctypes.create_string_buffer(120))


def _file_of_memory(targets: dict[str, Any]) -> int:
    return _call("memfd_create", ctypes.c_char_p(b"program"), 0)


def _keys(targets: dict[str, Any]) -> int:
    return _call("keyctl", 0, -3, 1)  # KEYCTL_GET_KEYRING_ID of the session's


def _namespace(targets: dict[str, Any]) -> int:
    return _call("unshare", 0)


def _code(targets: dict[str, Any]) -> int:
    """Memory that can be written and run."""
    with mmap.mmap(-1, _PAGE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC) as memory:
        return len(memory)


def _call(name: str, *arguments: Any) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    answer = int(libc.syscall(ctypes.c_long(_CALLS[name][os.uname().machine == "aarch64"]), *wide))
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


_TRIES: dict[str, Callable[[dict[str, Any]], object]] = {
    function.__name__.strip("_"): function
    for function in (
        *(_secret, _environment, _memory, _own_maps, _database_by_its_socket, _database_by_tcp, _other_host, _datagram),
        *(_listen, _others_file, _others_folder, _whether_it_is_there, _write_elsewhere, _change_others_file, _run),
        *(_fork, _signal, _trace, _vm, _process, _raw_open, _raw_socket, _packets, _ring, _file_of_memory, _keys),
        *(_namespace, _code),
    )
}
