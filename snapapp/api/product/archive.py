"""A zip that is written as it is sent, so it needs no room: tables, and the files of snaps."""

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from snapapp.storage import Storage, StorageError

_BLOCK = 256 * 1024


class Evidence(NamedTuple):
    """The files of one snap."""

    snap: UUID
    prefix: str
    names: tuple[str, ...]


def archive(storage: Storage, tables: Mapping[str, Iterator[bytes]], snaps: Iterable[Evidence]) -> Iterator[bytes]:
    """A file that cannot be opened is named in missing.txt. One that breaks off in the middle breaks the archive off,
    too: half a picture with a good checksum would pass for evidence."""
    outgoing = _Outgoing()
    missing: list[str] = []
    with zipfile.ZipFile(outgoing, "w", zipfile.ZIP_STORED) as packed:  # packing makes no picture smaller
        for name, content in tables.items():
            yield from _packed(packed, outgoing, name, next(content, b""), content)
        for evidence in snaps:
            for name in evidence.names:
                inside = f"{evidence.snap}/{name}"
                content = _blocks(storage, evidence.prefix + name)
                try:
                    first = next(content, b"")
                except StorageError:
                    missing.append(f"{inside}\n")
                    continue
                yield from _packed(packed, outgoing, inside, first, content)
        if missing:
            yield from _packed(packed, outgoing, "missing.txt", "".join(missing).encode(), iter(()))
    yield outgoing.take()


class _Outgoing(io.RawIOBase):
    """What the archive has written and the client has not been sent yet."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._written.append(bytes(data))
        return len(self._written[-1])

    def take(self) -> bytes:
        taken, self._written = b"".join(self._written), []
        return taken


def _packed(
    packed: zipfile.ZipFile, outgoing: _Outgoing, name: str, first: bytes, others: Iterator[bytes]
) -> Iterator[bytes]:
    with packed.open(name, "w", force_zip64=True) as entry:
        entry.write(first)
        for block in others:
            entry.write(block)
            if data := outgoing.take():
                yield data
    yield outgoing.take()


def _blocks(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open(key) as file:
        while block := file.read(_BLOCK):
            yield block
