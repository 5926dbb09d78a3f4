"""A PostgreSQL whose clock can be set, by libfaketime: the worker's rule is that only this clock decides."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from snapapp import postgres

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class Clock:
    """A number of seconds in a file, by which everybody who reads it is off. It runs on between two settings."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0.0
        self._write()

    def environment(self) -> dict[str, str]:
        """For a process that is to go by this clock. What it measures, it measures rightly."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",  # it is read again for each look at the clock
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, moment: datetime) -> None:
        self._offset = (moment - datetime.now(UTC)).total_seconds()
        self._write()

    def now(self) -> datetime:
        return datetime.fromtimestamp(datetime.now(UTC).timestamp() + self._offset, UTC)

    def _write(self) -> None:
        """Renamed into place: a process that read half a number would be anywhere in time."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(f"{self._offset:+.3f}\n")
        unfinished.rename(self._file)


@contextmanager
def server(folder: Path, clock: Clock) -> Iterator[str]:
    """Its URL. The clock is put on for the start of its processes only."""
    home = folder / "database"
    home.mkdir()
    (home / "postgres.local.conf").write_text("max_connections = 250\nfsync = off\n")
    postgres.start(home, create=True).stop()
    before = dict(os.environ)
    os.environ.update(clock.environment())
    try:
        running = postgres.start(home, create=False)
    finally:
        os.environ.clear()
        os.environ.update(before)
    with running:
        yield running.url
