"""Where the files of a moment go."""

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol


class Output(Protocol):
    def write(self, name: str, data: bytes) -> None: ...

    def film(self, name: str) -> BinaryIO:
        """Empty and without a buffer, to be written and read anywhere; closed by whoever asked for it."""
        ...


@dataclass(frozen=True, slots=True)
class Folder:
    path: Path

    def write(self, name: str, data: bytes) -> None:
        (self.path / name).write_bytes(data)

    def film(self, name: str) -> BinaryIO:
        return (self.path / name).open("w+b", buffering=0)
