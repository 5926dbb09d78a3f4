"""The protocol between a decoder and its child: messages of JSON or bytes, each after its kind and its length."""

import json
import os
import struct
from typing import Any

CAP = 4 * 1024 * 1024  # bytes of one message
PIECE = 1024 * 1024  # bytes of the video that are sent at once
FORK, KILL = b"f", b"k"  # commands to the fork server: fork a decoder with these files; kill the present one
ENDED = struct.Struct(">i")  # its answer: the wait status of the decoder, as of waitpid
_HEAD = struct.Struct(">cI")
_JSON, _BYTES = b"j", b"b"


class Garbled(Exception):
    """A message does not follow this protocol."""


def send_message(connection: int, message: dict[str, Any]) -> None:
    _send(connection, _JSON, json.dumps(message, allow_nan=False).encode())


def send_bytes(connection: int, data: bytes) -> None:
    _send(connection, _BYTES, data)


def receive_message(connection: int) -> dict[str, Any] | None:
    """The next message, which is JSON; None when the other side is gone."""
    body = _receive(connection, _JSON)
    if body is None:
        return None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Garbled(f"a message is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise Garbled(f"a message is an object, not {type(message).__name__}")
    return message


def receive_bytes(connection: int) -> bytes | None:
    return _receive(connection, _BYTES)


def _send(connection: int, kind: bytes, body: bytes) -> None:
    if len(body) > CAP:
        raise Garbled(f"a message of {len(body)} bytes")
    data = memoryview(_HEAD.pack(kind, len(body)) + body)
    while data:
        data = data[os.write(connection, data) :]


def _receive(connection: int, wanted: bytes) -> bytes | None:
    head = _exactly(connection, _HEAD.size)
    if head is None:
        return None
    kind, length = _HEAD.unpack(head)
    if kind != wanted or length > CAP:
        raise Garbled(f"a message of the kind {kind!r} and {length} bytes")
    return _exactly(connection, length)


def _exactly(connection: int, length: int) -> bytes | None:
    parts = []
    while length:
        part = os.read(connection, min(length, PIECE))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)
