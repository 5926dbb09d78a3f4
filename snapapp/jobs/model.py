"""The values of the queue: a job as a processor sees it, its lease, and the ways an attempt can end."""

import json
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, cast
from uuid import UUID

from typing_extensions import TypeVar

from snapapp.jobs.errors import (
    InvalidJob,
    JobCancelled,
    JobInterrupted,
    JobsError,
    LeaseLost,
    NoConnection,
    Permanent,
    Snooze,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection

JSON_CAP = 1024 * 1024
PROGRESS_CAP = 64 * 1024
TEXT_CAP = 4000
TRACEBACK_CAP = 2000
_SHOWN_OF_A_GROUP = 3  # errors

# jsonb cannot hold NUL. The text \\u0000 with two backslashes is no NUL, hence the even number of backslashes before
# it.
_NUL_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Status(StrEnum):
    PENDING = "PENDING"
    RUNNING = "RUNNING"
    RETRY_WAIT = "RETRY_WAIT"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"


FINAL = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class Lease(NamedTuple):
    """The right to write for a job: every write names both numbers, and changes nothing once the row has other ones."""

    id: int
    lease_seq: int


class Channel(Protocol):
    """The connection of a running job to its worker: within one process, or over a pipe from a child."""

    def progress(self, job: "Job", value: str) -> None: ...

    def log(self, job: "Job", level: str, message: str) -> None: ...

    def check(self, job: "Job") -> None:
        """Raises JobCancelled, LeaseLost or JobTimeout when the attempt should stop."""
        ...

    def connection(self, job: "Job") -> "AbstractContextManager[Connection]": ...


class Parent(NamedTuple):
    """A job that another one has waited for."""

    id: int
    kind: str
    status: Status
    result: Any
    left_out: bool  # its result is left out, because the results of all parents together exceed 1 MiB


P = TypeVar("P", default=Any)
R = TypeVar("R", default=Any)


@dataclass(slots=True, eq=False)
class Job(Generic[P, R]):
    """A claimed job. `Job[Mail, Receipt]` gives the types of its payload and of its processor's result. The fields
    stand in the order of the claim's RETURNING, so that a row becomes a job without conversion."""

    id: int
    kind: str
    queue: str
    tenant: str
    priority: int
    payload_json: bytes | None  # None: larger than 64 KiB, or the job has parents; then the attempt fetches it first
    snap_id: UUID | None
    attempt: int
    max_attempts: int
    lease_seq: int
    timeout_ms: int | None
    request_id: str | None
    traceparent: str | None = field(default=None, repr=False)  # of the span that enqueued it, later of its attempt's
    memory_mb: int | None = field(default=None, repr=False)  # the job's own limit, after an attempt ran short of memory
    due_at: datetime | None = field(default=None, repr=False)  # by the database's clock
    parents_json: bytes | None = field(default=None, repr=False)  # fetched with the payload
    channel: Channel | None = field(default=None, repr=False)
    claimed_at: float = field(default=0.0, repr=False)  # monotonic, when the claim was sent
    leased_at: float = field(default=0.0, repr=False)  # monotonic, when the claim or the last confirmed beat was sent
    started_at: float | None = field(default=None, repr=False)  # monotonic; written by the slot that runs it
    deadline: float | None = field(default=None, repr=False)  # monotonic; written by the slot that runs it
    stop: JobsError | None = field(default=None, repr=False)  # why it should end; written by the beat
    lines_left: int = field(default=1000, repr=False)  # a flood of log lines must not fill the disk
    has_end: bool = field(default=False, repr=False)  # somebody has said how this attempt ends; written by the settler
    # The slot that runs the job writes these three when it has ended.
    cpu: float | None = field(default=None, repr=False)  # seconds
    peak: int | None = field(default=None, repr=False)  # bytes of memory; None in a thread or on an event loop
    is_measured: bool = field(default=True, repr=False)  # False: of a quick kind only some attempts are measured
    backends: tuple[int, ...] = field(default=(), repr=False)  # server processes that run its statements
    data: P = field(default=cast(Any, None), repr=False, init=False)  # the typed payload; None: the kind has no type
    _payload: Any = field(default=None, repr=False, init=False)  # the payload decoded, from its first use on

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.lease_seq)

    @property
    def exhausted(self) -> bool:
        """Its attempts were used up elsewhere: settle it as FAILED, do not run it."""
        return self.attempt > self.max_attempts

    @property
    def payload(self) -> dict[str, Any]:
        """The payload as it was enqueued, decoded once for each attempt: the hooks of this attempt see what its
        processor changes in it, a later attempt does not."""
        if self._payload is None:
            self._payload = json.loads(self.payload_json or b"{}")
        decoded: dict[str, Any] = self._payload
        return decoded

    @property
    def parents(self) -> list[Parent]:
        """The jobs that this one has waited for, with their results, in the order in which they were added. Parents
        that were pruned are missing."""
        parents = json.loads(self.parents_json or b"[]")
        return [Parent(**parent | {"status": Status(parent["status"])}) for parent in parents]

    def update_progress(self, percent: float | Mapping[str, Any], note: str | None = None) -> None:
        """Writes progress to the job's row at once: a number from 0 to 100 with a note, or any JSON object."""
        value = dict(percent) if isinstance(percent, Mapping) else {"percent": percent, "note": note}
        if self.channel is None:
            return
        try:
            self.channel.progress(self, to_json(value, cap=PROGRESS_CAP, what="progress"))
        except InvalidJob as error:  # progress that cannot be stored must not fail the job
            self.log(str(error), level="WARNING")

    def log(self, message: str, level: str = "INFO") -> None:
        """Adds a line to the job's log (table job_log)."""
        if level not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ValueError(f"unknown log level {level!r}")
        self.lines_left -= 1
        if self.channel and self.lines_left > 0:
            self.channel.log(self, level, clean(str(message), TEXT_CAP))
        elif self.channel and self.lines_left == 0:
            self.channel.log(self, "WARNING", "too many log lines: the rest of this attempt's are dropped")

    def raise_if_cancelled(self) -> None:
        """Raises if somebody cancelled the job or its lease is lost. Call it where the job can stop safely."""
        if self.channel:
            self.channel.check(self)

    def connection(self) -> "AbstractContextManager[Connection]":
        """`with job.connection() as db:` is a transaction, committed at the end of the block, rolled back by an error.

        When the job is cancelled, times out, loses its lease or its worker stops, a running statement ends at once with
        that reason. Only for functions on threads. Borrow one connection at a time: two jobs that each hold one and
        wait for a second would wait for ever. What must be written exactly once belongs in the commit hook, because a
        retry runs this block again."""
        if self.channel is None:
            raise NoConnection(f"{self.kind} job {self.id} does not run")
        return self.channel.connection(self)


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of an attempt, as text that PostgreSQL can keep."""

    error: str
    trace: str = ""
    lacked_memory: bool = False  # a MemoryError is the error or somewhere in its chain of causes

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        return cls.from_text(describe(error), _trace(error), lacked_memory=_lacked_memory(error))

    @classmethod
    def from_text(cls, error: str, trace: str, *, lacked_memory: bool = False) -> "Failure":
        """A failure as a child process or a program describes it."""
        return cls(clean(error, TEXT_CAP), clean(trace, TRACEBACK_CAP, keep="end"), lacked_memory)


@dataclass(frozen=True, slots=True)
class Succeeded:
    result: str | None  # JSON text


@dataclass(frozen=True, slots=True)
class Retried:
    failure: Failure
    delay: timedelta
    memory_mb: int | None = None  # after it ran short of memory: run it alone next time, with this limit
    ran: bool = True  # False: no node of the cluster is large enough for it


@dataclass(frozen=True, slots=True)
class Buried:
    """The attempts are used up, or the processor raised Permanent: the job becomes a dead letter."""

    failure: Failure
    ran: bool = True  # False: other workers used up its attempts, and the row counts them already


@dataclass(frozen=True, slots=True)
class Snoozed:
    delay: timedelta
    ran: bool = True  # False: there was no place for it, on the cluster or on this machine


@dataclass(frozen=True, slots=True)
class Stopped:
    """The attempt ended because somebody cancelled the job."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The attempt ended because this worker stops: the job waits again, and the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The lease is lost: the result of the attempt must not be written."""


Outcome = Succeeded | Retried | Buried | Snoozed | Stopped | Interrupted | Dropped


class Finished(NamedTuple):
    """A job, how its attempt ended, and how long it ran (None: it never started)."""

    job: Job
    outcome: Outcome
    ran_for: float | None  # seconds; a bare float because the hot path makes one for every job


encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode  # making one takes 2 µs


def to_json(value: Any, *, cap: int = JSON_CAP, what: str = "payload") -> str:
    """JSON text that jsonb accepts, or InvalidJob with the reason."""
    try:
        text = encode(value)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
        raise InvalidJob(f"the {what} is not JSON that PostgreSQL can keep: {describe(error)}") from error
    if size > cap:
        raise InvalidJob(f"the {what} has {size} bytes as JSON, more than the {cap} allowed")
    if "\\u0000" in text and _NUL_ESCAPE.search(text):  # the search alone would cost more than all the rest
        raise InvalidJob(f"the {what} holds a NUL character, which PostgreSQL cannot keep")
    return text


def clean(text: str, limit: int, *, keep: str = "start") -> str:
    """Text that PostgreSQL can keep: no NUL, no lone surrogates, cut to the limit."""
    if len(text) > limit:
        text = text[: limit - 1] + "…" if keep == "start" else "…" + text[1 - limit :]
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:limit]


def describe(error: BaseException) -> str:
    """`ValueError: what it says`, even where asking the error for its text raises. A group also says what it holds."""
    try:
        text = str(error)
        if isinstance(error, BaseExceptionGroup):
            text += ": " + "; ".join(map(describe, islice(_held(error), _SHOWN_OF_A_GROUP)))
    except BaseException as broken:  # noqa: BLE001 - a hostile __str__ may raise anything
        text = f"(its text cannot be read: {_name(broken)})"
    return clean(f"{_name(error)}: {text}" if text else _name(error), TEXT_CAP)


def deciding(error: BaseException) -> BaseException:
    """Of a group, as an asyncio.TaskGroup raises it, the error in it that says what becomes of the job. Any other error
    comes before a snooze, because a snooze costs no attempt."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    held = [*_held(error)]
    says = (JobCancelled, JobInterrupted, LeaseLost, Permanent, InvalidJob)
    decided = next((one for kind in says for one in held if isinstance(one, kind)), error)
    return held[0] if all(isinstance(one, Snooze) for one in held) else decided


def _held(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group and in the groups within it; an error that is no group is the only one."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _held(one)
    else:
        yield error


def _name(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # noqa: BLE001 - a hostile metaclass may raise anything
        return "an error without a name"


def _lacked_memory(error: BaseException) -> bool:
    cause: BaseException | None = error
    try:
        for _ in range(10):  # a chain of causes can be circular
            if cause is None or isinstance(cause, MemoryError):
                return cause is not None
            cause = cause.__cause__
    except BaseException:  # noqa: BLE001 - a hostile __cause__ may raise anything
        return False
    return False


def _trace(error: BaseException) -> str:
    """Of a group also where its first error was raised: the group's own traceback ends in asyncio."""
    try:
        first = next(_held(error))
        cause = error.__cause__ or first.__cause__
        lines = traceback.format_tb(error.__traceback__, limit=-20)
        if first is not error:
            lines += ["the first of them:\n", *traceback.format_tb(first.__traceback__, limit=-20)]
        return "".join(lines) + (f"caused by {describe(cause)}\n" if cause else "")
    except BaseException:  # noqa: BLE001 - a hostile __cause__ or __traceback__ may raise anything
        return "its traceback cannot be read\n"
