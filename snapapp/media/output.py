"""The interface by which the files of a moment are written."""

from typing import BinaryIO, Protocol


class Output(Protocol):
    def write(self, name: str, data: bytes) -> None: ...

    def film(self, name: str) -> BinaryIO:
        """An empty unbuffered file, seekable, for writing and reading. The caller closes it."""
        ...
