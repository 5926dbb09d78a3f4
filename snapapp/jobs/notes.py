"""What running jobs say (progress, log lines), kept until it is written: in batches, under each job's fence."""

import threading
from collections.abc import Callable
from time import monotonic

from snapapp.jobs import queue
from snapapp.jobs.model import Job, Lease

_AT_MOST = 20_000  # log lines waiting: with the database away, memory matters more than the oldest of them


class Notes:
    """Written by the jobs' threads, taken by whoever settles or by the scribe; one lock because they all meet here."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # held from taking notes until they are written: a settle must not overtake them
        self._progress: dict[Lease, str] = {}
        self._lines: list[tuple[Lease, str, str, float]] = []
        self._on_news = on_news

    def __bool__(self) -> bool:
        """Is there anything that a settle should wait for? The order matters: what was taken is still being written."""
        return bool(self._progress or self._lines) or self._turn.locked()

    def progress(self, job: Job, value: str) -> None:
        with self._lock:
            self._progress[job.lease] = value
        self._on_news()

    def log(self, job: Job, level: str, message: str) -> None:
        with self._lock:
            if len(self._lines) < _AT_MOST:
                self._lines.append((job.lease, level, message, monotonic()))
        self._on_news()

    def write(self, db: queue.Db, only: Lease | None = None) -> None:
        """Writes all notes, or those of one job. What could not be written stays for the next time."""
        with self._turn:
            self._write(db, only)

    def _write(self, db: queue.Db, only: Lease | None) -> None:
        progress, lines = self._take(only)
        try:
            if progress:
                queue.progress(db, progress)
            if lines:
                now = monotonic()
                queue.log(db, [queue.LogLine(lease, level, said, now - at) for lease, level, said, at in lines])
        except BaseException:
            with self._lock:
                self._progress = progress | self._progress
                self._lines[:0] = lines[: _AT_MOST - len(self._lines)]
            raise

    def _take(self, only: Lease | None) -> tuple[dict[Lease, str], list[tuple[Lease, str, str, float]]]:
        with self._lock:
            if only is None:
                progress, self._progress = self._progress, {}
                lines, self._lines = self._lines, []
            else:
                progress = {only: self._progress.pop(only)} if only in self._progress else {}
                lines = [line for line in self._lines if line[0] == only]
                self._lines = [line for line in self._lines if line[0] != only]
        return progress, lines
