"""Caches remote videos on local disk, block by block, for all processes that read the same video. An entry is one
sparse file for one version of one URL. Each block is stored with its checksum and used only if that is right. So a torn
write, a power cut or two writers at once cost another fetch but never yield wrong bytes, and no temporary files,
journal or fsync are needed. Without a cache the blocks are in a file without a name, which the kernel removes.
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
from snapapp.sources.guard import SourceUrl
from snapapp.sources.http_client import Version
from snapapp.sources.limits import Limits

BLOCK = 262_144
_CHECKSUM = 16
_RECORD = _CHECKSUM + BLOCK
_SUFFIX = ".blocks"
_PAUSE = 0.01  # seconds


class Blocks:
    """The blocks of one version that are on disk. `close` keeps an entry of the cache, and removes a file without a
    name."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_open = True
        self._is_patient = True  # False once waiting for another process took too long

    def has(self, index: int) -> bool:
        """Whether the block was written; only `get` checks it."""
        return any(os.pread(self._descriptor, _CHECKSUM, index * _RECORD))

    def get(self, index: int, length: int) -> bytes | None:
        record = os.pread(self._descriptor, _CHECKSUM + length, index * _RECORD)
        block = record[_CHECKSUM:]
        return block if len(block) == length and record[:_CHECKSUM] == _checksum(block) else None

    def put(self, index: int, block: bytes) -> None:
        with _full_disk_as_no_room():
            _write(self._descriptor, _checksum(block) + block, index * _RECORD)

    @contextmanager
    def turn(self, within: float) -> Iterator[bool]:
        """Lets one process at a time fetch. Yields whether this one waited for another, whose blocks may then be there.
        After `within` seconds it fetches as well, since fetching the same bytes twice does no harm."""
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
        """Closes the file. Calling it twice does no harm."""
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
    """The folder of entries. It is kept below its limit by removing the entries that were opened longest ago. An entry
    in use may be removed too: its file lives until it is closed."""

    def __init__(self, limits: Limits) -> None:
        self._folder = limits.folder
        self._bound = limits.cache_bytes
        if self._folder:
            with _full_disk_as_no_room():
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def has_begun(self, origin: SourceUrl) -> bool:
        """Whether the first block of some version is cached, so that opening need not fetch it."""
        return any(_begins(path) for path in self._entries(f"{_digest(origin.url)}-*"))

    def blocks(self, origin: SourceUrl, version: Version) -> Blocks:
        """The blocks of this version. They are not shared if there is no cache, or if the server sends nothing to tell
        versions apart."""
        self.make_room()
        with _full_disk_as_no_room():
            if self._bound == 0 or self._folder is None or not version.is_known:
                return _open_nameless(self._folder)
            return _open_entry(self._folder / f"{_digest(origin.url)}-{_digest(repr(version))}{_SUFFIX}")

    def make_room(self) -> None:
        """Removes entries until the folder is below its limit. Safe at any time, in any number of processes."""
        entries = [entry for path in self._entries("*") if (entry := _stat(path))]
        total = sum(stat.st_blocks * 512 for _, stat in entries)
        for path, stat in sorted(entries, key=lambda each: each[1].st_mtime_ns):
            if total <= self._bound:
                break
            with suppress(FileNotFoundError):
                path.unlink()
            total -= stat.st_blocks * 512

    def _entries(self, pattern: str) -> list[Path]:
        return list(self._folder.glob(pattern + _SUFFIX)) if self._folder else []


def _open_entry(path: Path) -> Blocks:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.utime(descriptor)
    return Blocks(descriptor)


def _open_nameless(folder: Path | None) -> Blocks:
    with tempfile.TemporaryFile(dir=folder) as file:
        return Blocks(os.dup(file.fileno()))


@contextmanager
def _full_disk_as_no_room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise SourceUnavailable(
            Reason.NO_ROOM, "There is no room on our disk, that of SNAPAPP_DATA_DIR, to fetch the video."
        ) from error


def _write(descriptor: int, record: bytes, offset: int) -> None:
    written = os.pwrite(descriptor, record, offset)
    if written < len(record):  # a disk that fills up takes only a part of the last write
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
