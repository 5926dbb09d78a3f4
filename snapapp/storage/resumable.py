"""Uploads that come in parts, over lines that break: each is a folder on the local disk, whose bytes are the truth of
how far it is. So nothing has to agree with anything else after a kill -9, and no row is written a hundred times."""

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
from snapapp.storage.room import MB, Room, told_when_full
from snapapp.storage.uploads import Received

LASTS = timedelta(days=1)  # after its last byte
_BYTES, _ABOUT, _UNPROVEN = "bytes", "about", "unproven"  # files in the folder of one
_LOOK_EVERY = 16 * MB  # bytes between two looks at the disk's floor
_READ = 4 * MB


@dataclass(frozen=True, slots=True)
class Announced:
    """What is known of one beside its bytes."""

    length: int
    file_name: str | None = None
    metadata: str = ""  # as the client sent it, who may ask for it again
    sha256: str | None = None  # in hex, once all of it is there
    kept_as: str | None = None  # the id of what it became


@dataclass(frozen=True, slots=True)
class State:
    """Of one, as it is seen without holding it."""

    announced: Announced
    offset: int
    expires: datetime

    @property
    def is_whole(self) -> bool:
        return self.offset == self.announced.length


class ResumableUploads:
    """All of a storage. Who asks for another tenant's finds nothing, because it looks in its own folder."""

    def __init__(self, folder: Path, room: Room, publish: Callable[[Path, str], None]) -> None:
        self._folder = folder
        self._room = room
        self._publish = publish

    def begin(self, tenant: str, upload_id: UUID, announced: Announced) -> State:
        self._room.require(announced.length)
        with told_when_full():
            place = self._place(tenant, upload_id)
            place.mkdir(mode=0o700, parents=True)
            (place / _BYTES).touch(mode=0o600)
            _note(place, announced)
        return _state(place)

    def find(self, tenant: str, upload_id: UUID) -> State:
        """Raises NotStored, and UploadExpired until the sweep has been there."""
        state = _state(self._place(tenant, upload_id))
        if state.expires < datetime.now(UTC):
            raise UploadExpired(upload_id)
        return state

    def hold(self, tenant: str, upload_id: UUID) -> "Held":
        """To change it: nobody else may until it is released. Raises UploadInUse where somebody does."""
        self.find(tenant, upload_id)
        held = Held(self._place(tenant, upload_id), self._room, self._publish)
        try:
            self.find(tenant, upload_id)  # whoever held it may have removed it
            held.recover()
        except BaseException:
            held.release()
            raise
        return held

    def unfinished(self, tenant: str) -> list[State]:
        found = []
        for place in _folders(self._folder / keys.segment(tenant)):
            with suppress(NotStored):
                found.append(_state(place))
        return [each for each in found if each.announced.kept_as is None]

    def forget(self, before: datetime) -> int:
        """Removes those whose last byte came before then, and that nobody holds."""
        removed = 0
        for tenant in _folders(self._folder):
            for place in _folders(tenant):
                with suppress(UploadInUse, NotStored):
                    if _touched(place) < before.timestamp():
                        with Held(place, self._room, self._publish) as held:
                            held.discard()
                        removed += 1
        return removed

    def _place(self, tenant: str, upload_id: UUID) -> Path:
        return self._folder / keys.segment(tenant) / str(upload_id)


class Held:
    """One that nobody else changes meanwhile, in this process or in another: the kernel forgets the dead."""

    def __init__(self, place: Path, room: Room, publish: Callable[[Path, str], None]) -> None:
        self._place = place
        self._room = room
        self._publish = publish
        self._looks_at = self._most = 0
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

    @property
    def is_full(self) -> bool:
        """Whether as many bytes came as were announced, be they proven or not."""
        return (self._place / _BYTES).stat().st_size == _about(self._place).length

    def recover(self) -> None:
        """What a client wanted to prove with a checksum, and did not, counts as not sent."""
        if (self._place / _UNPROVEN).exists():
            os.truncate(self._place / _BYTES, self.state.offset)
            (self._place / _UNPROVEN).unlink()

    def append(self, data: bytes) -> int:
        """The offset after it. Whatever fails, what is on disk is the beginning of what was sent."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(self._place / _BYTES, flags)
            self._most = _about(self._place).length
        size = os.fstat(self._file).st_size
        if size + len(data) > self._most:
            raise UploadTooLarge(self._most)
        if size >= self._looks_at:
            self._room.require()
            self._looks_at = size + _LOOK_EVERY
        left = memoryview(data)
        with told_when_full():
            while left:
                left = left[os.write(self._file, left) :]
        return size + len(data)

    def beginning(self, length: int) -> bytes:
        with (self._place / _BYTES).open("rb") as file:
            return file.read(length)

    def doubt(self) -> None:
        """From here on nothing counts until `trust`."""
        _write(self._place / _UNPROVEN, str(self.state.offset))

    def trust(self) -> None:
        self._sync()
        (self._place / _UNPROVEN).unlink()

    def finish(self, key: str) -> Received:
        """All of it is stored under the key when this returns. After a crash in between it is called again."""
        file, about = self._place / _BYTES, _about(self._place)
        if file.exists():
            self._sync()
            about = replace(about, sha256=_sha256(file))
            _note(self._place, about)
            os.utime(file)  # the sweep counts from when it is stored: its row may come later
            self._publish(file, key)
        if about.sha256 is None:
            raise NotStored(self._place.name)
        return Received(key, about.length, about.sha256)

    def kept_as(self, name: str) -> None:
        """It is remembered what became of it, for a client that did not hear the last answer."""
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
                with told_when_full():
                    os.fsync(file)
            finally:
                os.close(file)


def _state(place: Path) -> State:
    about = _about(place)
    expires = datetime.fromtimestamp(_touched(place), UTC) + LASTS
    if about.sha256 is not None:
        return State(about, about.length, expires)
    try:
        size = (place / _BYTES).stat().st_size
    except FileNotFoundError as error:
        raise NotStored(place.name) from error
    with suppress(FileNotFoundError, ValueError):
        size = min(size, int((place / _UNPROVEN).read_text()))
    return State(about, size, expires)


def _about(place: Path) -> Announced:
    try:
        return Announced(**json.loads((place / _ABOUT).read_text()))
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError) as error:  # a power cut came in between
        raise NotStored(place.name) from error


def _note(place: Path, about: Announced) -> None:
    _write(place / _ABOUT, json.dumps(asdict(about)))


def _write(file: Path, text: str) -> None:
    """Whole or not at all."""
    new = file.with_suffix(".new")
    with told_when_full(), new.open("w") as written:
        written.write(text)
        written.flush()
        os.fsync(written.fileno())
    new.replace(file)


def _touched(place: Path) -> float:
    times = [0.0]
    for file in (place, place / _BYTES, place / _ABOUT):  # the folder itself: it may be in the making
        with suppress(FileNotFoundError):
            times.append(file.stat().st_mtime)
    return max(times)


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(_READ):
            digest.update(piece)
    return digest.hexdigest()
