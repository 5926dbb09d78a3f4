"""The life of a decoder: it takes the files that it was handed, shuts itself in, carries out one task and ends."""

import errno
import faulthandler
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, cast

from snapapp.errors import Invalid
from snapapp.jobs.os import parentage
from snapapp.media import OutOfMemory, Unusable
from snapapp.processing.decoder import protocol, sandbox

_BLOCK = 128 * 1024
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_LONGEST = 4000  # characters of an error or a traceback


@dataclass(frozen=True, slots=True)
class Channels:
    """Everything that a decoder has."""

    source: BinaryIO
    output: "Output"
    connection: int

    def progress(self, percent: int, step: str) -> None:
        protocol.send_message(self.connection, {"progress": [percent, step]})


class Output:
    """A decoder's output: all pictures one after the other in one file, the film in another."""

    def __init__(self, pictures: int, film: int) -> None:
        self._pictures = pictures
        self._film = film
        self._length = 0
        self.files: dict[str, list[int] | None] = {}  # where a picture begins, and its length; None for the film

    def write(self, name: str, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._pictures, left) :]
        self.files[name] = [self._length, len(data)]
        self._length += len(data)

    def film(self, name: str) -> BinaryIO:
        self.files[name] = None
        return cast(BinaryIO, _OpenFile(self._film))


class _OpenFile:
    """An open file as FFmpeg reads and writes it. io.FileIO makes system calls that the sandbox refuse."""

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
        """Does nothing: the file stays open until the decoder ends."""


class _RemoteVideo:
    """A remote video, which the child reads for the decoder."""

    def __init__(self, connection: int, size: int) -> None:
        self._connection = connection
        self._size = size
        self._place = 0

    def read(self, size: int) -> bytes:
        protocol.send_message(self._connection, {"read": [self._place, min(size, protocol.PIECE)]})
        data = protocol.receive_bytes(self._connection)
        if data is None:
            os._exit(1)  # the child is gone
        self._place += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._place = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: self._size}[whence])
        return self._place

    def tell(self) -> int:
        return self._place


def live(files: list[int], server: int) -> NoReturn:
    """Runs a decoder in a process that `server` has just forked, and that dies with it. The files are: the connection
    to the child, a file for stderr, one for stack traces on request, one for pictures, one for the film, and the video
    if it is a local file."""
    code = 1
    try:
        parentage.die_with(server)
        connection, words, stacks, pictures, film, *video = files
        # the signal by which stack traces are asked for, as in the child
        faulthandler.register(signal.SIGURG, file=stacks)
        os.dup2(words, sys.stderr.fileno())
        os.dup2(words, sys.stdout.fileno())
        task = protocol.receive_message(connection)
        if task is not None:
            source = _OpenFile(video[0]) if video else _RemoteVideo(connection, task["size"])
            channels = Channels(cast(BinaryIO, source), Output(pictures, film), connection)
            sandbox.enter(task["data_bytes"])
            protocol.send_message(connection, _answer(task, channels))
            code = 0
    except BaseException:  # noqa: BLE001 - the outermost edge of this process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _answer(task: dict[str, Any], channels: Channels) -> dict[str, Any]:
    module, _, name = task["do"].partition(":")
    try:
        result = getattr(sys.modules[module], name)(task["payload"], channels)
        return {"made": result, "files": channels.output.files}
    except (Unusable, Invalid) as error:
        return {"refused": str(error)[:_LONGEST]}
    except BaseException as error:  # noqa: BLE001 - the outermost edge of this process
        return {
            "failed": f"{type(error).__name__}: {error}"[:_LONGEST],
            "trace": "".join(traceback.format_tb(error.__traceback__))[-_LONGEST:],
            "lacked_memory": isinstance(error, MemoryError | OutOfMemory),
            "lacked_room": isinstance(error, OSError) and error.errno in _NO_ROOM,
        }
