"""Uploads that come in several parts over connections that break. Each upload is a folder on the local disk, and the
length of its file says how far the upload is. No second record of the offset could disagree after a kill -9, and no row
is written for each part."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self
from uuid import UUID

from snapapp.storage import keys
from snapapp.storage.errors import NotStored, UploadExpired, UploadInUse, UploadTooLarge
from snapapp.storage.room import CHECK_EVERY, Room, full_disk_as_no_room
from snapapp.storage.uploads import Received

LASTS = timedelta(days=1)  # an upload expires so long after its last byte
_BYTES, _ABOUT = "bytes", "about"  # the files in an upload's folder


@dataclass(frozen=True, slots=True)
class Announced:
    """What is known of an upload beside its bytes."""

    length: int
    file_name: str | None = None
    metadata: str = ""  # as the client sent it, and may ask for it again
    sha256: str | None = None  # in hex, once all bytes are there
    kept_as: str | None = None  # the id of the video that it became


@dataclass(frozen=True, slots=True)
class State:
    """The state of an upload, which can be read without holding it."""

    announced: Announced
    offset: int
    expires: datetime

    @property
    def is_whole(self) -> bool:
        return self.offset == self.announced.length

    @property
    def is_expired(self) -> bool:
        return self.expires < datetime.now(UTC)


class ResumableUploads:
    """All resumable uploads of a storage. Each tenant's are in a folder of its own, so no tenant finds another's."""

    def __init__(self, folder: Path, room: Room, publish: Callable[[Path, str], None]) -> None:
        self._folder = folder
        self._room = room
        self._publish = publish

    def begin(self, tenant: str, upload_id: UUID, announced: Announced) -> State:
        self._room.require(announced.length)
        with full_disk_as_no_room():
            place = self._place(tenant, upload_id)
            place.mkdir(mode=0o700, parents=True)
            (place / _BYTES).touch(mode=0o600)
            _note(place, announced)
        return _state(place)

    def find(self, tenant: str, upload_id: UUID) -> State:
        """The state of an upload. Raises UploadExpired for an expired one, and NotStored once the sweep removed it."""
        state = _state(self._place(tenant, upload_id))
        if state.is_expired:
            raise UploadExpired(upload_id)
        return state

    def hold(self, tenant: str, upload_id: UUID) -> "Held":
        """Locks the upload for changes until `release`. Raises UploadInUse while another request holds it."""
        self.find(tenant, upload_id)
        held = Held(self._place(tenant, upload_id), self._room, self._publish)
        try:
            self.find(tenant, upload_id)  # the last holder may have removed it
        except BaseException:
            held.release()
            raise
        return held

    def unfinished(self, tenant: str) -> list[State]:
        """Those that can still be finished or ended: an expired one only waits for the sweep."""
        states = []
        for place in _folders(self._folder / keys.segment(tenant)):
            with suppress(NotStored):
                states.append(_state(place))
        return [each for each in states if each.announced.kept_as is None and not each.is_expired]

    def forget(self, before: datetime) -> int:
        """Removes uploads whose last byte came before `before` and that no request holds; returns how many."""
        removed = 0
        for tenant in _folders(self._folder):
            for place in _folders(tenant):
                if _last_change(place) >= before.timestamp():
                    continue
                with suppress(UploadInUse, NotStored), Held(place, self._room, self._publish) as held:
                    if _last_change(place) < before.timestamp():  # the last holder may have written meanwhile
                        held.discard()
                        removed += 1
        return removed

    def _place(self, tenant: str, upload_id: UUID) -> Path:
        return self._folder / keys.segment(tenant) / str(upload_id)


class Held:
    """An upload that is locked for this request, against other threads and processes. The kernel releases the lock of a
    process that dies."""

    def __init__(self, place: Path, room: Room, publish: Callable[[Path, str], None]) -> None:
        self._place = place
        self._room = room
        self._publish = publish
        self._next_check = self._most = 0
        self._file: int | None = None
        try:
            self._lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise NotStored(place.name) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise UploadInUse(place.name) from error

    @property
    def state(self) -> State:
        return _state(self._place)

    def append(self, data: bytes) -> int:
        """Appends bytes and returns the new offset. After any failure the file holds the beginning of what was sent."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._place / _BYTES, flags)
            self._most = _about(self._place).length
        size = os.fstat(self._file).st_size
        if size + len(data) > self._most:
            raise UploadTooLarge(self._most)
        if size >= self._next_check:
            self._room.require()
            self._next_check = size + CHECK_EVERY
        left = memoryview(data)
        with full_disk_as_no_room():
            while left:
                left = left[os.write(self._file, left) :]
        return size + len(data)

    def beginning(self, length: int) -> bytes:
        with (self._place / _BYTES).open("rb") as file:
            return file.read(length)

    def finish(self, key: str) -> Received:
        """Stores the complete upload under the key. After a crash in between it can be called again."""
        file, about = self._place / _BYTES, _about(self._place)
        if file.exists():
            self._sync()
            about = replace(about, sha256=_sha256(file))
            _note(self._place, about)
            os.utime(file)  # the sweep counts from now on: the row that names the object may come later
            self._publish(file, key)
        if about.sha256 is None:
            raise NotStored(self._place.name)
        return Received(key, about.length, about.sha256)

    def kept_as(self, name: str) -> None:
        """Notes the id of the video that the upload became, for a client that missed the last answer."""
        _note(self._place, replace(_about(self._place), kept_as=name))

    def discard(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)

    def release(self) -> None:
        try:
            self._sync()
        finally:
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _sync(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                with full_disk_as_no_room():
                    os.fsync(file)
            finally:
                os.close(file)


def _state(place: Path) -> State:
    about = _about(place)
    expires = datetime.fromtimestamp(_last_change(place), UTC) + LASTS
    if about.sha256 is not None:
        return State(about, about.length, expires)
    try:
        size = (place / _BYTES).stat().st_size
    except FileNotFoundError as error:
        raise NotStored(place.name) from error
    return State(about, size, expires)


def _about(place: Path) -> Announced:
    try:
        return Announced(**json.loads((place / _ABOUT).read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError) as error:  # a power cut during `begin`
        raise NotStored(place.name) from error


def _note(place: Path, about: Announced) -> None:
    """Writes what is known whole or not at all."""
    replacement = place / f"{_ABOUT}.new"
    with full_disk_as_no_room(), replacement.open("w") as file:
        file.write(json.dumps(asdict(about)))
        file.flush()
        os.fsync(file.fileno())
    replacement.replace(place / _ABOUT)


def _last_change(place: Path) -> float:
    times = [0.0]
    for file in (place, place / _BYTES, place / _ABOUT):  # the folder counts too, while its files are created
        with suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times)


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
