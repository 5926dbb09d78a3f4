"""Objects as files below one folder. Each step of a path is opened relative to the folder above and never through a
symbolic link, so that neither a key nor a link that somebody puts there leads out of the folder. A file appears whole,
by a rename, and survives a power cut."""

import errno
import io
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from snapapp.storage import keys
from snapapp.storage.errors import InvalidKey, NotStored, StorageAway
from snapapp.storage.model import Reader, Source, Storage, Stored
from snapapp.storage.room import MB, Room
from snapapp.storage.uploads import Upload

_INCOMING, _RESUMABLE = ".incoming", ".resumable"  # cannot collide with a key: no key begins with a dot
_BLOCK = 128 * 1024  # bytes read ahead
_TRIES = 10  # to enter a folder that a delete elsewhere removes at the same moment
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a named pipe must not block
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO, errno.EISDIR}


class Local(Storage):
    """`root` itself may be a symbolic link; below it no link is followed."""

    def __init__(self, root: Path, room: Room) -> None:
        super().__init__(root / _INCOMING, root / _RESUMABLE, room)
        self._root = root

    def put(self, key: str, source: Source) -> None:
        with Upload(keys.checked(key), self._incoming, self._publish) as upload:
            for block in _blocks(source):
                upload.write(block)
            upload.finish()

    def open(self, key: str) -> Reader:
        *folders, name = keys.checked(key).split("/")
        with _absent_is_not_stored(key), self._folder(folders) as folder:
            file = io.FileIO(os.open(name, _FILE, dir_fd=folder))
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                file.close()
                raise NotStored(key)
            return Reader(file, _stored(key, status), block=_BLOCK)

    def stat(self, key: str) -> Stored:
        *folders, name = keys.checked(key).split("/")
        with _absent_is_not_stored(key), self._folder(folders) as folder:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise NotStored(key)
        return _stored(key, status)

    def listed(self, prefix: str = "") -> Iterator[Stored]:
        folders = keys.checked_prefix(prefix).split("/")[:-1] if prefix else []
        with suppress(NotStored), _absent_is_not_stored(prefix), self._folder(folders) as folder:
            yield from _walk(folder, prefix)

    def delete(self, key: str) -> None:
        *folders, name = keys.checked(key).split("/")
        with suppress(NotStored), _absent_is_not_stored(key), self._folder(folders) as folder:
            os.unlink(name, dir_fd=folder)
        self._prune(folders)

    def delete_prefix(self, prefix: str) -> int:
        below = [stored.key for stored in self.listed(keys.checked_prefix(prefix))]
        for key in below:
            self.delete(key)
        return len(below)

    # --- folders ----------------------------------------------------------------------------------------------

    def _publish(self, whole_file: Path, key: str) -> None:
        *folders, name = key.split("/")
        for attempt in range(_TRIES):
            try:
                with self._folder(folders, make=True) as folder:
                    os.replace(whole_file, name, dst_dir_fd=folder)
                    os.fsync(folder)
                    return
            except FileNotFoundError as error:
                if attempt == _TRIES - 1:
                    raise StorageAway(key, error) from error
            except OSError as error:
                if error.errno in _ABSENT:
                    raise InvalidKey(key, f"something else has that name: {error.strerror}") from error
                raise

    @contextmanager
    def _folder(self, names: Sequence[str], *, make: bool = False) -> Iterator[int]:
        folder = os.open(self._root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for name in names:
                inner = _enter(folder, name, make=make)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)

    def _prune(self, folders: list[str]) -> None:
        """Removes the folders of a path as far as they are empty, the deepest first."""
        with suppress(OSError):  # a folder is not empty, or was removed already
            for depth in range(len(folders), 0, -1):
                with self._folder(folders[: depth - 1]) as parent:
                    os.rmdir(folders[depth - 1], dir_fd=parent)


def _enter(folder: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=folder)
    os.fsync(folder)  # also if another process made the folder: a power cut would lose our file with it
    return os.open(name, _FOLDER, dir_fd=folder)


def _walk(folder: int, prefix: str) -> Iterator[Stored]:
    """All objects below a folder, in the order of their whole keys; so a folder is sorted by its name with the
    slash."""
    with os.scandir(folder) as entries:
        names = sorted(
            f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
            for entry in entries
            if keys.is_segment(entry.name)
        )
    for name in names:
        with suppress(NotStored), _absent_is_not_stored(prefix + name):  # it was removed meanwhile, or is a link
            if not name.endswith("/"):
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield _stored(prefix + name, status)
                continue
            inner = os.open(name[:-1], _FOLDER, dir_fd=folder)
            try:
                yield from _walk(inner, prefix + name)
            finally:
                os.close(inner)


@contextmanager
def _absent_is_not_stored(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _ABSENT:
            raise NotStored(key) from error
        raise StorageAway(key, error.strerror) from error


def _stored(key: str, status: os.stat_result) -> Stored:
    # new content is always a new file, so the inode tells apart contents written within one tick of the clock
    etag = f'"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}"'
    return Stored(key, status.st_size, etag, datetime.fromtimestamp(status.st_mtime, UTC))


def _blocks(source: Source) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
    elif isinstance(source, Path):
        with source.open("rb") as file:
            yield from _blocks(file)
    else:
        while block := source.read(MB):
            yield block
