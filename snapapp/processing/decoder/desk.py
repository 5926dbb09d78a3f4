"""The life of a decoder: it takes what it was handed, shuts itself in, does one thing and ends."""

import ctypes
import faulthandler
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, cast

from snapapp.errors import Invalid
from snapapp.media import OutOfMemory, Unusable
from snapapp.processing.decoder import walls, wire

_BLOCK = 128 * 1024
_PR_SET_PDEATHSIG = 1
_LONGEST = 4000  # characters of what is told


@dataclass(frozen=True, slots=True)
class Desk:
    """All that a decoder has."""

    source: BinaryIO
    output: "Handed"
    line: int

    def progress(self, percent: int, step: str) -> None:
        wire.say(self.line, {"progress": [percent, step]})


class Handed:
    """The output: pictures one after the other in one file, the film in another."""

    def __init__(self, pictures: int, film: int) -> None:
        self._pictures = pictures
        self._film = film
        self._length = 0
        self.files: dict[str, list[int] | None] = {}  # where each begins, and its length; None: it is the film

    def write(self, name: str, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._pictures, left) :]
        self.files[name] = [self._length, len(data)]
        self._length += len(data)

    def film(self, name: str) -> BinaryIO:
        self.files[name] = None
        return cast(BinaryIO, _Bare(self._film))


class _Bare:
    """An open file as FFmpeg's readers and writers need one. io.FileIO asks the system about it, which is refused."""

    def __init__(self, file: int) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if size >= 0:
            return os.read(self._file, size)
        parts = []
        while part := os.read(self._file, _BLOCK):
            parts.append(part)
        return b"".join(parts)

    def write(self, data: bytes) -> int:
        return os.write(self._file, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return os.lseek(self._file, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._file, 0, os.SEEK_CUR)

    def truncate(self) -> int:
        os.ftruncate(self._file, length := self.tell())
        return length

    def close(self) -> None:
        """It is open as long as we are."""


class _Fetched:
    """A video that lies elsewhere: the child reads it for us."""

    def __init__(self, line: int, size: int) -> None:
        self._line = line
        self._size = size
        self._place = 0

    def read(self, size: int) -> bytes:
        wire.say(self._line, {"read": [self._place, min(size, wire.PIECE)]})
        data = wire.handed(self._line)
        if data is None:
            os._exit(1)  # nobody is left to decode for
        self._place += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def tell(self) -> int:
        return self._place


def live(files: list[int]) -> NoReturn:
    """Of a process that was just forked: the line, a file for last words, one for where it is when somebody asks, one
    for pictures, one for the film, and the video, if it can be handed over."""
    code = 1
    try:
        _die_with_the_server()
        line, words, stacks, pictures, film, *video = files
        faulthandler.register(signal.SIGURG, file=stacks)  # as the child does
        os.dup2(words, sys.stderr.fileno())
        os.dup2(words, sys.stdout.fileno())
        order = wire.heard(line)
        if order is not None:
            source = _Bare(video[0]) if video else _Fetched(line, order["size"])
            desk = Desk(cast(BinaryIO, source), Handed(pictures, film), line)
            walls.stand_behind(order["data_bytes"])
            wire.say(line, _answer(order, desk))
            code = 0
    except BaseException:  # noqa: BLE001 - the outermost edge of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _die_with_the_server() -> None:
    server = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != server:
        os._exit(1)


def _answer(order: dict[str, Any], desk: Desk) -> dict[str, Any]:
    module, _, name = order["do"].partition(":")
    try:
        made = getattr(sys.modules[module], name)(order["order"], desk)
        return {"made": made, "files": desk.output.files}
    except (Unusable, Invalid) as error:
        return {"refused": str(error)[:_LONGEST]}
    except BaseException as error:  # noqa: BLE001 - the outermost edge of this process
        return {
            "failed": f"{type(error).__name__}: {error}"[:_LONGEST],
            "trace": "".join(traceback.format_tb(error.__traceback__))[-_LONGEST:],
            "lacked_memory": isinstance(error, MemoryError | OutOfMemory),
        }
