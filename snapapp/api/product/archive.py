"""A zip archive of tables and the files of snaps. It is written while it is sent, so it needs no disk space."""

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
    """The archive in blocks. A file that cannot be opened is named in missing.txt. A file that breaks off in the middle
    breaks the archive off too: half a picture with a valid checksum would pass for evidence."""
    outgoing = _Outgoing()
    missing: list[str] = []
    with zipfile.ZipFile(outgoing, "w", zipfile.ZIP_STORED) as zip_file:  # pictures cannot be compressed further
        for name, content in tables.items():
            yield from _write_entry(zip_file, outgoing, name, next(content, b""), content)
        for evidence in snaps:
            for name in evidence.names:
                inside = f"{evidence.snap}/{name}"
                content = _blocks(storage, evidence.prefix + name)
                try:
                    first = next(content, b"")
                except StorageError:
                    missing.append(f"{inside}\n")
                    continue
                yield from _write_entry(zip_file, outgoing, inside, first, content)
        if missing:
            yield from _write_entry(zip_file, outgoing, "missing.txt", "".join(missing).encode(), iter(()))
    yield outgoing.take()


class _Outgoing(io.RawIOBase):
    """Collects the bytes that zipfile writes, until they are sent."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._written.append(bytes(data))
        return len(self._written[-1])

    def take(self) -> bytes:
        data, self._written = b"".join(self._written), []
        return data


def _write_entry(
    zip_file: zipfile.ZipFile, outgoing: _Outgoing, name: str, first: bytes, others: Iterator[bytes]
) -> Iterator[bytes]:
    with zip_file.open(name, "w", force_zip64=True) as entry:
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
