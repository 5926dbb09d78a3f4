"""How a worker and its children speak: JSON with its length in front, over a pipe."""

import json
import os
import struct
from typing import Any

CAP = 4 * 1024 * 1024
_HEAD = struct.Struct(">I")


class Oversized(Exception):
    """A frame is longer than anything that honest code sends."""


def write(pipe: int, message: dict[str, Any]) -> None:
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > CAP:
        raise Oversized(f"a message of {len(body)} bytes")
    data = memoryview(_HEAD.pack(len(body)) + body)
    while data:
        data = data[os.write(pipe, data) :]


def read(pipe: int) -> dict[str, Any] | None:
    """The next message; None when the other side is gone."""
    head = _read_exactly(pipe, _HEAD.size)
    if head is None:
        return None
    (length,) = _HEAD.unpack(head)
    if length > CAP:
        raise Oversized(f"a message of {length} bytes")
    body = _read_exactly(pipe, length)
    if body is None:
        return None
    message: dict[str, Any] = json.loads(body)
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
