"""Streams of bytes into and out of a backup: read from a program, counted and hashed, encrypted or decrypted by age."""

import hashlib
import io
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from snapapp.backup.errors import BackupError
from snapapp.backup.manifest import Part
from snapapp.jobs.os.parentage import ends_with_us

BLOCK = 1 << 20


class Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class Counted:
    """Passes on what it reads from a source, and counts and hashes it."""

    def __init__(self, source: Readable) -> None:
        self._source = source
        self._digest = hashlib.sha256()
        self._size = 0

    def read(self, size: int = -1, /) -> bytes:
        block = self._source.read(size)
        self._digest.update(block)
        self._size += len(block)
        return block

    def part(self) -> Part:
        return Part(self._size, self._digest.hexdigest())


def size_and_hash(source: Readable) -> Part:
    """Reads the source to its end, and returns its size and hash."""
    reader = Counted(source)
    while reader.read(BLOCK):
        pass
    return reader.part()


class Program(io.RawIOBase):
    """The output of a program, as a file. A thread feeds the program its input. If the program or its input fails,
    reading raises an error instead of reaching the end, so that nobody keeps half a file as a whole one."""

    def __init__(
        self, argv: Sequence[str], source: Readable | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._name = Path(argv[0]).name
        self._complaint = tempfile.TemporaryFile()  # noqa: SIM115 - closed with us
        self._trouble: BaseException | None = None  # written by the feeding thread, read when it has ended
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if source is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaint,
                env=env,
                preexec_fn=ends_with_us(),
            )
        except FileNotFoundError as error:
            raise BackupError(f"The program {self._name} is missing: type `apt install {self._name}`.") from error
        self._feeder = threading.Thread(target=self._feed, args=(source,), daemon=True)
        self._feeder.start()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        assert self._process.stdout
        block = self._process.stdout.read(len(target))
        if not block:
            self._end()
        target[: len(block)] = block
        return len(block)

    def close(self) -> None:
        if not self.closed:
            self._process.kill()
            self._process.wait()
            self._feeder.join()
            for pipe in (self._process.stdout, self._complaint):
                assert pipe
                pipe.close()
        super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _feed(self, source: Readable | None) -> None:
        into = self._process.stdin
        if source is None or into is None:
            return
        try:
            with suppress(BrokenPipeError), into:  # the program ended early; its exit code and its errors say why
                while block := source.read(BLOCK):
                    into.write(block)
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge: the reader raises it
            self._trouble = error
            self._process.kill()

    def _end(self) -> None:
        self._feeder.join()
        code = self._process.wait()
        if self._trouble:
            raise self._trouble
        if code:
            self._complaint.seek(0)
            errors = " ".join(self._complaint.read().decode(errors="replace").split())
            raise BackupError(f"{self._name} failed with {code}: {errors[-500:]}")


def encrypt(source: Readable, key: Path) -> Program:
    """Encrypts with age. It authenticates each piece, so a file that was changed cannot be decrypted."""
    return Program(["age", "--encrypt", "--identity", str(key)], source)


def decrypt(source: Readable, key: Path) -> Program:
    return Program(["age", "--decrypt", "--identity", str(key)], source)
