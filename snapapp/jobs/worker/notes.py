"""Notes: the progress and log lines of jobs, kept in memory until a thread with its own connection has written them. So
neither jobs nor settles ever wait for notes."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from snapapp.jobs import events
from snapapp.jobs.events import Events
from snapapp.jobs.model import Job, Lease, describe
from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows import notes
from snapapp.jobs.rows.database import Database, row_by_row

_AT_MOST = 20_000  # log lines kept; more are dropped, because memory matters more while the database is away
_PATIENCE = 0.05  # seconds to wait after the first note, so that one statement writes many
_AGAIN = 1.0  # seconds until notes that could not be written are tried again


@dataclass(slots=True, eq=False)
class LogEntry:
    """One line of a job's log."""

    level: str
    message: str
    at: float


@dataclass(slots=True, eq=False)
class Unwritten:
    """The notes of one attempt that are not in the database yet."""

    lines: list[LogEntry] = field(default_factory=list)
    progress: str | None = None
    landed: bool | None = None  # True: the job is settled. False: its lease was lost. None: not settled yet


class _Note(NamedTuple):
    """One log line of an attempt or, when `line` is None, its latest progress."""

    job: Job
    landed: bool
    line: LogEntry | None
    progress: str = ""


class Notes:
    """Jobs add notes, settling threads mark attempts as ended, the writer takes and forgets notes, each on its thread.
    No SQL runs under the lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_job: dict[Job, Unwritten] = {}
        self._lines = 0
        self.news = threading.Event()

    def progress(self, job: Job, value: str) -> None:
        with self._lock:
            if unwritten := self._open(job):
                unwritten.progress = value
        self.news.set()

    def log(self, job: Job, level: str, message: str) -> None:
        with self._lock:
            if self._lines < _AT_MOST and (unwritten := self._open(job)):
                self._lines += 1
                unwritten.lines.append(LogEntry(level, message, monotonic()))
        self.news.set()

    def _open(self, job: Job) -> Unwritten | None:
        """None: the attempt has ended, and only its earlier notes are still to be written."""
        unwritten = self._by_job.setdefault(job, Unwritten())
        return unwritten if unwritten.landed is None else None

    def ended(self, jobs: Iterable[Job], *, landed: bool) -> None:
        """Called just before the jobs leave HeldJobs. Nearly always they have no notes waiting."""
        if not self._by_job:
            return
        with self._lock:
            for job in jobs:
                if unwritten := self._by_job.get(job):
                    unwritten.landed = landed
        self.news.set()

    def take(self) -> list[_Note]:
        """Returns all notes to write now, each attempt's in order. They stay here until `forget`. Left out are notes of
        attempts that lost their lease: another attempt owns the job."""
        with self._lock:
            notes = []
            for job, unwritten in self._by_job.items():
                if unwritten.landed is not False:
                    landed = bool(unwritten.landed)
                    notes += [_Note(job, landed, line) for line in unwritten.lines]
                    if unwritten.progress is not None:
                        notes.append(_Note(job, landed, None, unwritten.progress))
            return notes

    def forget(self, done: Sequence[_Note], is_held: Callable[[Job], bool]) -> bool:
        """Drops the notes in `done`, those of attempts that lost their lease, and those of a thread that goes on after
        its attempt was settled. False: some notes still wait."""
        lines = {note.line for note in done if note.line}
        progress = {note.job: note.progress for note in done if note.line is None}
        with self._lock:
            for job, unwritten in [*self._by_job.items()]:
                unwritten.lines = [line for line in unwritten.lines if line not in lines]
                if unwritten.progress == progress.get(job):
                    unwritten.progress = None
                is_over = unwritten.landed is False or (unwritten.landed is None and not is_held(job))
                if is_over or not (unwritten.lines or unwritten.progress):
                    del self._by_job[job]
            self._lines = sum(len(unwritten.lines) for unwritten in self._by_job.values())
            return not self._by_job


class NotesWriter:
    """A test may call `write` without the thread."""

    def __init__(
        self, worker: str, notes: Notes, database: Database, events: Events, is_held: Callable[[Job], bool]
    ) -> None:
        self._worker = worker
        self._notes = notes
        self._database = database
        self._events = events
        self._is_held = is_held
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="notes_writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Returns when all notes are written, or after `timeout` seconds."""
        self._stopping.set()
        self._notes.news.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        failures, all_is_written = 0, True
        is_last = False
        while not is_last:
            self._notes.news.wait(None if all_is_written else _AGAIN)
            is_last = self._stopping.wait(_PATIENCE)
            self._notes.news.clear()
            try:
                all_is_written = self.write()
                failures = 0
            except Exception as error:  # noqa: BLE001 - a note that cannot be written never fails its job
                failures += 1
                self._events.complain(self._worker, "write notes", error)
                self._stopping.wait(pause_after(failures))
                self._notes.news.set()

    def write(self) -> bool:
        """False: some notes must wait, because their row is locked, or their attempt is just being settled."""
        pending = self._notes.take()
        lines, progress = [note for note in pending if note.line], [note for note in pending if note.line is None]
        done: list[_Note] = []

        def write(part: Sequence[_Note]) -> Sequence[_Note]:
            written = _write_lines(db, part) if part[0].line else _write_progress(db, part)
            done.extend(written)
            return written

        def give_up(note: _Note, error: Exception) -> None:
            self._report_dropped(note.job, error)
            done.append(note)

        try:
            if pending:
                with self._database.connection() as db:
                    row_by_row(write, lines, give_up, can_wait=True)
                    row_by_row(write, progress, give_up, can_wait=True)
        finally:
            all_is_written = self._notes.forget(done, self._is_held)
        return all_is_written

    def _report_dropped(self, job: Job, error: Exception) -> None:
        about = {"worker_id": self._worker, "job_id": job.id, "kind": job.kind}
        self._events.emit(events.NOTE_DROPPED, logging.WARNING, **about, error=describe(error))


def _write_lines(db: notes.Db, part: Sequence[_Note]) -> list[_Note]:
    now = monotonic()
    written_attempts = notes.log(
        db,
        [
            notes.LogLine(note.job.lease, note.job.attempt, entry.level, entry.message, now - entry.at, note.landed)
            for note in part
            if (entry := note.line)
        ],
    )
    return [note for note in part if (note.job.id, note.job.attempt) in written_attempts]


def _write_progress(db: notes.Db, part: Sequence[_Note]) -> list[_Note]:
    written_ids = notes.progress(db, {_lease_of(note): note.progress for note in part})
    # progress of a settled attempt is tried only once: no reader waits for it any more
    return [note for note in part if note.job.id in written_ids or note.landed]


def _lease_of(note: _Note) -> Lease:
    job_id, lease_seq = note.job.lease
    return Lease(job_id, lease_seq + 1 if note.landed else lease_seq)  # the settle has raised lease_seq by one
