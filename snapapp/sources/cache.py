"""The bytes of remote videos on local disk, block by block, shared by every process that reads the same video.

An entry is one sparse file for one version of one URL. Each block stands beside its checksum and counts only while
that is right: a torn write, a power cut or two writers at once cost a fetch and can never show wrong bytes, so there
are no temporary files, no journal and no fsync. Without a cache the same file has no name, and the kernel removes it.
"""

import errno
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from snapapp.sources.errors import Reason, SourceUnavailable
from snapapp.sources.guard import Place
from snapapp.sources.http_client import Version
from snapapp.sources.limits import Limits

BLOCK = 262_144
_CHECKSUM = 16
_RECORD = _CHECKSUM + BLOCK
_SUFFIX = ".blocks"
_PAUSE = 0.01  # seconds


class Blocks:
    """The blocks of one version, as far as they are here. Close it; an entry stays, a file without a name goes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_open = True
        self._is_patient = True  # until it has waited in vain

    def has(self, index: int) -> bool:
        """Whether it was put; only `get` knows whether it is sound."""
        return any(os.pread(self._descriptor, _CHECKSUM, index * _RECORD))

    def get(self, index: int, length: int) -> bytes | None:
        record = os.pread(self._descriptor, _CHECKSUM + length, index * _RECORD)
        block = record[_CHECKSUM:]
        return block if len(block) == length and record[:_CHECKSUM] == _checksum(block) else None

    def put(self, index: int, block: bytes) -> None:
        with _needing_room():
            _write(self._descriptor, _checksum(block) + block, index * _RECORD)

    @contextmanager
    def turn(self, within: float) -> Iterator[bool]:
        """One process at a time fetches; the others find what it brought, and hear that they have waited. Whoever
        has waited long enough fetches as well, since the same bytes twice do no harm."""
        until = time.monotonic() + within
        has_waited = False
        while not self._is_free() and self._is_patient:
            has_waited = True
            self._is_patient = time.monotonic() < until
            time.sleep(_PAUSE)
        try:
            yield has_waited
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Twice is fine."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)

    def _is_free(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


class Cache:
    """The folder of entries, kept under its bound by removing what was opened longest ago. Removing what somebody
    reads is fine: the file loses its name and lives until it is closed."""

    def __init__(self, limits: Limits) -> None:
        self._folder = limits.folder
        self._bound = limits.cache_bytes
        if self._folder:
            with _needing_room():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def has_begun(self, origin: Place) -> bool:
        """Whether some version's first block is here, so that opening need not fetch it."""
        return any(_begins(path) for path in self._entries(f"{_digest(origin.url)}-*"))

    def blocks(self, origin: Place, version: Version) -> Blocks:
        """Those of this version. Where no cache is wanted, or the server gives nothing to tell versions by, they are
        nobody else's."""
        self.make_room()
        with _needing_room():
            if self._bound == 0 or self._folder is None or not version.is_known:
                return _nameless(self._folder)
            return _named(self._folder / f"{_digest(origin.url)}-{_digest(repr(version))}{_SUFFIX}")

    def make_room(self) -> None:
        """Safe at any time, from any number of processes."""
        used = [found for path in self._entries("*") if (found := _stat(path))]
        total = sum(stat.st_blocks * 512 for _, stat in used)
        for path, stat in sorted(used, key=lambda each: each[1].st_mtime_ns):
            if total <= self._bound:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            total -= stat.st_blocks * 512

    def _entries(self, pattern: str) -> list[Path]:
        return list(self._folder.glob(pattern + _SUFFIX)) if self._folder else []


def _named(path: Path) -> Blocks:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.utime(descriptor)
    return Blocks(descriptor)


def _nameless(folder: Path | None) -> Blocks:
    with tempfile.TemporaryFile(dir=folder) as file:
        return Blocks(os.dup(file.fileno()))


@contextmanager
def _needing_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise SourceUnavailable(Reason.NO_ROOM, "There is no room on our disk to fetch the video.") from error


def _write(descriptor: int, record: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, record, offset)
    if written < len(record):  # a disk that fills up takes a part first
        _write(descriptor, record[written:], offset + written)


def _begins(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        return any(file.read(_CHECKSUM))
    return False


def _stat(path: Path) -> tuple[Path, os.stat_result] | None:
    with suppress(FileNotFoundError):
        return path, path.stat()
    return None


def _checksum(block: bytes) -> bytes:
    return hashlib.blake2b(block, digest_size=_CHECKSUM).digest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]
