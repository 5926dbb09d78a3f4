"""How a worker and its children speak: JSON with its length in front, over a pipe."""

import json
import os
import signal
import struct
from collections.abc import Iterator
from typing import Any

CAP = 4 * 1024 * 1024
STACKS = signal.SIGURG  # asks a child what it is doing: ignored by whoever does not expect it, unlike most signals
_HEAD = struct.Struct(">I")


class Oversized(Exception):
    """A frame is longer than anything that honest code sends."""


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > CAP:
        raise Oversized(f"a message of {len(body)} bytes")
    return _HEAD.pack(len(body)) + body


def write(pipe: int, message: dict[str, Any]) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(pipe, data) :]


def read(pipe: int) -> dict[str, Any] | None:
    """The next message; None when the other side is gone. For a child, which has nothing else to do meanwhile."""
    head = _read_exactly(pipe, _HEAD.size)
    body = _read_exactly(pipe, _length(head)) if head else None
    return _decoded(body) if body else None


class Inbox:
    """Takes what has arrived and never waits: half a message must not hold up whoever watches the clock."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._bytes = bytearray()
        self.is_closed = False  # by the other side

    def take(self) -> Iterator[dict[str, Any]]:
        try:
            part = os.read(self._pipe, 262_144)
        except BlockingIOError:
            return
        self.is_closed = not part
        self._bytes += part
        while len(self._bytes) >= _HEAD.size:
            end = _HEAD.size + _length(self._bytes[: _HEAD.size])
            if len(self._bytes) < end:
                return
            body = bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]
            yield _decoded(body)


def _length(head: bytes | bytearray) -> int:
    length: int = _HEAD.unpack(head)[0]
    if length > CAP:
        raise Oversized(f"a message of {length} bytes")
    return length


def _decoded(body: bytes) -> dict[str, Any]:
    message = json.loads(body)
    if not isinstance(message, dict):
        raise ValueError(f"a message is an object, not {type(message).__name__}")
    return message


def _read_exactly(pipe: int, length: int) -> bytes | None:
    parts = []
    while length:
        part = os.read(pipe, min(length, 65536))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
