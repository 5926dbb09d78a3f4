"""The child's side: it starts one decoder after another, serves each, and checks whatever a decoder says, because its
video may have taken it over."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from io import UnsupportedOperation
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

from snapapp.errors import SnapError
from snapapp.jobs import process_hooks
from snapapp.jobs.executors.process_group import foreign_signal
from snapapp.jobs.os import environment
from snapapp.processing.decoder import protocol
from snapapp.storage import NoRoom, full_disk_as_no_room

WORK = "snapapp.processing.decoder.work"
_NAME = re.compile(r"[a-z]+(_[0-9]{5})?\.(jpg|png|mp4)")
_MOST_FILES = 1000
_LARGEST_PICTURE = 64 << 20  # bytes: a picture is read into memory
_SCARCE = 64 << 20  # bytes of free disk; with more nobody lacks room, and a job that waits for it would wait for ever
_LAST_WORDS = 2000  # bytes of a dead decoder's stderr in the error
_TEXT, _STEP = 4000, 100  # characters

Progress = Callable[[int, str], None]


class Refused(SnapError):
    """This video, or this payload, will fail in the same way every time."""


class DecoderFailed(SnapError):
    """The decoder raised an error that is not the video's fault."""


class OutOfMemory(DecoderFailed):
    """The decoder was refused memory."""


class DecoderDied(SnapError):
    """The decoder ended without an answer: its video made it crash, or memory ran out."""


class _Inside(Exception):
    """The decoder's traceback, as the cause of a DecoderFailed."""


@dataclass(frozen=True, slots=True)
class Made:
    """A decoder's answer and the files that it wrote. The decoder has ended, so nothing of this changes any more."""

    told: Any
    pictures: BinaryIO
    film: BinaryIO
    _places: dict[str, tuple[int, int] | None]

    @property
    def names(self) -> list[str]:
        return list(self._places)

    def content(self, name: str) -> bytes | BinaryIO:
        place = self._places[name]
        if place is None:
            self.film.seek(0)
            return self.film
        return os.pread(self.pictures.fileno(), place[1], place[0])


class Decoders:
    """Runs decoders, through a fork server that is started with the first job, or by `start`, and again after it
    died."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._turn = Lock()  # one decoder at a time
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The process id of the fork server."""
        return self._server.pid if self._server else None

    def start(self) -> socket.socket:
        if self._server and self._control and self._server.poll() is None:
            return self._control
        self.stop()
        ours, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self._server = subprocess.Popen(
                [sys.executable, "-m", "snapapp.processing.decoder.fork_server", str(number), *self._modules],
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                env=environment.plain(),
            )
        process_hooks.keep(self._server.pid)
        self._control = ours
        return ours

    def stop(self) -> None:
        """Ends the fork server. Calling it twice does no harm."""
        if self._control:
            self._control.close()  # the fork server ends when this socket closes
        if self._server:
            process_hooks.forget(self._server.pid)
            self._server.wait()
        self._control = self._server = None

    @contextmanager
    def run(
        self, do: str, payload: dict[str, Any], video: BinaryIO, scratch: Path, progress: Progress
    ) -> Iterator[Made]:
        """Has a decoder run a function on the payload. `do` is `module:function`, of a module that the fork server has
        imported."""
        with ExitStack() as stack:
            with full_disk_as_no_room():
                scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
                words, pictures, film = (stack.enter_context(tempfile.TemporaryFile(dir=scratch)) for _ in range(3))
            descriptor = _descriptor(video)
            stacks = words.fileno() if process_hooks.stacks is None else process_hooks.stacks
            files = [words.fileno(), stacks, pictures.fileno(), film.fileno()]
            files += [] if descriptor is None else [descriptor]
            size = video.seek(0, os.SEEK_END) if descriptor is None else None
            data_bytes = resource.getrlimit(resource.RLIMIT_DATA)[0]
            task = {"do": do, "payload": payload, "size": size, "data_bytes": data_bytes}
            with self._turn, self._decoder(files) as (connection, end):
                with suppress(BrokenPipeError):  # the decoder is dead; its missing answer tells
                    protocol.send_message(connection, task)
                answer = _serve_until_answer(connection, video, progress)
            if answer is None:
                raise _death(end[0], words)
            yield _result_of(answer, pictures, film)

    @contextmanager
    def _decoder(self, files: list[int]) -> Iterator[tuple[int, list[int]]]:
        """A connection to a new decoder. After the `with` the decoder has ended, and the list holds its wait status."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                control = self._fork([theirs.fileno(), *files])
            end: list[int] = []
            try:
                yield ours.fileno(), end
            finally:
                with suppress(OSError):
                    control.sendall(protocol.KILL)  # its answer has been read
                    end.append(_wait_status(control))
                if not end:  # the fork server died, and its decoder with it
                    self.stop()
                    end.append(signal.SIGKILL)

    def _fork(self, files: list[int]) -> socket.socket:
        with suppress(OSError):  # the fork server died meanwhile
            control = self.start()
            socket.send_fds(control, [protocol.FORK], files)
            return control
        self.stop()
        control = self.start()
        socket.send_fds(control, [protocol.FORK], files)
        return control


def _wait_status(control: socket.socket) -> int:
    data = b""
    while len(data) < protocol.ENDED.size:
        part = control.recv(protocol.ENDED.size - len(data))
        if not part:
            raise ConnectionResetError
        data += part
    status: int = protocol.ENDED.unpack(data)[0]
    return status


def _descriptor(video: BinaryIO) -> int | None:
    try:
        return video.fileno()
    except (AttributeError, UnsupportedOperation):
        return None  # a remote video has no descriptor


# --- messages of a decoder, which its video may have taken over -------------------------------------------------


def _serve_until_answer(connection: int, video: BinaryIO, progress: Progress) -> dict[str, Any] | None:
    """Serves the decoder until its answer; None if it ended without one."""
    while message := _next_message(connection):
        if "read" in message:
            piece = _piece(video, message["read"])
            with suppress(BrokenPipeError):  # it is dead; the missing message tells
                protocol.send_bytes(connection, piece)
        elif "progress" in message:
            percent, step = message["progress"]
            progress(int(percent), str(step)[:_STEP])
        else:
            return message
    return None


def _next_message(connection: int) -> dict[str, Any] | None:
    try:
        return protocol.receive_message(connection)
    except ConnectionResetError:
        return None


def _piece(video: BinaryIO, wanted: Any) -> bytes:
    place, size = (int(number) for number in wanted)
    if place < 0 or not 0 <= size <= protocol.PIECE:
        raise protocol.Garbled(f"a piece of {size} bytes at {place}")
    video.seek(place)
    return video.read(size)


def _result_of(answer: dict[str, Any], pictures: BinaryIO, film: BinaryIO) -> Made:
    if "refused" in answer:
        raise Refused(str(answer["refused"])[:_TEXT])
    if "failed" in answer:
        error, trace = str(answer["failed"])[:_TEXT], str(answer.get("trace"))[:_TEXT]
        if answer.get("lacked_memory"):
            raise OutOfMemory(error) from MemoryError(trace)
        if answer.get("lacked_room") and shutil.disk_usage(pictures.fileno()).free < _SCARCE:
            raise NoRoom(f"The disk of SNAPAPP_DATA_DIR is full: {error}")
        raise DecoderFailed(error) from _Inside(trace)
    length = os.fstat(pictures.fileno()).st_size
    files = dict(answer["files"])
    if len(files) > _MOST_FILES:
        raise protocol.Garbled(f"{len(files)} files")
    return Made(answer["made"], pictures, film, {_name(name): _place(place, length) for name, place in files.items()})


def _name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise protocol.Garbled(f"a file of the name {name[:100]!r}")
    return name


def _place(place: Any, length: int) -> tuple[int, int] | None:
    if place is None:
        return None
    begins, size = (int(number) for number in place)
    if not 0 <= begins <= begins + size <= length:
        raise protocol.Garbled(f"a file from {begins} to {begins + size} of {length} bytes")
    if size > _LARGEST_PICTURE:
        raise protocol.Garbled(f"a picture of {size} bytes")
    return begins, size


def _death(status: int, words: BinaryIO) -> DecoderDied:
    code = os.waitstatus_to_exitcode(status)
    how = f"was killed by {foreign_signal(code)}" if code < 0 else f"exited with code {code}"
    words.seek(max(0, words.seek(0, os.SEEK_END) - _LAST_WORDS))
    last_words = words.read(_LAST_WORDS).decode(errors="replace").strip()
    return DecoderDied(f"the decoder {how}" + (f"\n{last_words}" if last_words else ""))
