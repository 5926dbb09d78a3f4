"""Messages between a worker and its children: JSON with its length in front, over pipes. And a job as a message has
it."""

import json
import os
import signal
import struct
from collections.abc import Iterator
from datetime import datetime
from time import monotonic
from typing import Any
from uuid import UUID

from snapapp.jobs.model import Channel, Job

CAP = 4 * 1024 * 1024  # bytes of a message
STACKS = signal.SIGURG  # asks a process to dump its stacks; programs that do not know it ignore it
_HEAD = struct.Struct(">I")
_AS_THEY_ARE = (  # fields of a job that JSON has
    *("id", "kind", "queue", "tenant", "priority", "attempt", "max_attempts", "lease_seq", "timeout_ms"),
    *("request_id", "traceparent", "memory_mb"),
)


class Oversized(Exception):
    """A message is longer than CAP, which honest code never sends."""


def pack(message: dict[str, Any]) -> bytes:
    body = json.dumps(message, allow_nan=False).encode()
    if len(body) > CAP:
        raise Oversized(f"a message of {len(body)} bytes")
    return _HEAD.pack(len(body)) + body


def write(pipe: int, message: dict[str, Any]) -> None:
    data = memoryview(pack(message))
    while data:
        data = data[os.write(pipe, data) :]


class Inbox:
    """Returns complete messages and does not wait for the rest of one, because its caller also watches a deadline."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self._bytes = bytearray()
        self.is_closed = False  # the other side has closed the pipe

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


def each(pipe: int) -> Iterator[dict[str, Any]]:
    """Waits for messages until the other side is gone. For a process that has nothing else to do."""
    inbox = Inbox(pipe)
    while not inbox.is_closed:
        yield from inbox.take()


def fields(job: Job) -> dict[str, Any]:
    """What the process that runs a job is told of it."""
    return {name: getattr(job, name) for name in _AS_THEY_ARE} | {
        "payload_json": (job.payload_json or b"{}").decode(),
        "snap_id": str(job.snap_id) if job.snap_id else None,
        "parents_json": (job.parents_json or b"[]").decode(),
        "due_at": job.due_at.isoformat() if job.due_at else None,
        "deadline": None if job.deadline is None else job.deadline - monotonic(),  # another host has another clock
    }


def job_of(fields: dict[str, Any], channel: Channel) -> Job:
    """The job of these fields, as the process that runs it sees it."""
    due_at, seconds_left = fields.get("due_at"), fields.get("deadline")
    decoded = {
        "due_at": datetime.fromisoformat(due_at) if due_at else None,
        "deadline": None if seconds_left is None else monotonic() + seconds_left,
        "payload_json": fields["payload_json"].encode(),
        "parents_json": fields["parents_json"].encode(),
        "snap_id": UUID(fields["snap_id"]) if fields["snap_id"] else None,
    }
    return Job(**fields | decoded, channel=channel)


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
