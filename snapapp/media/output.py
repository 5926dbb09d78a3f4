"""The interface by which the files of a moment are written."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class Output(Protocol):
    def write(self, name: str, data: bytes) -> None: ...

    def film(self, name: str) -> BinaryIO:
        """An empty unbuffered file, seekable, for writing and reading. The caller closes it."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def film(self, name: str) -> BinaryIO:
        return (self.path / name).open("w+b", buffering=0)
