"""Hears NOTIFY and wakes the claim. It only saves time: without it the claim polls, and every job is still found."""

import selectors
import socket
import threading
from collections.abc import Callable
from time import monotonic

import psycopg
from psycopg import sql

from snapapp.jobs.retry import pause_after
from snapapp.jobs.rows.database import Row
from snapapp.jobs.rows.roster import channel_of
from snapapp.jobs.worker.parts import WorkerParts

JOB_CHANNEL = "snapapp_job"
CANCEL_CHANNEL = "snapapp_cancel"


class Listener:
    """A thread with a connection that LISTENs. Every beat sends a ping to our own channel: as long as pings arrive,
    LISTEN works."""

    def __init__(
        self, parts: WorkerParts, *, on_work: Callable[[str | None], None], on_cancel: Callable[[], None]
    ) -> None:
        self._parts = parts
        self._on_work = on_work
        self._on_cancel = on_cancel
        self._deaf_after = 2.5 * parts.settings.beat_every.total_seconds()
        self._heard_at: float | None = None  # monotonic; written by this thread only
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="listener", daemon=True)

    @property
    def is_alive(self) -> bool:
        """Did any notification arrive within the last two and a half beats? Our own pings count."""
        return self._heard_at is not None and monotonic() - self._heard_at < self._deaf_after

    def start(self) -> None:
        self._write_end, self._read_end = socket.socketpair()
        self._thread.start()

    def stop(self) -> None:
        if self._stopping.is_set() or not self._thread.is_alive():
            return
        self._stopping.set()
        self._write_end.send(b"!")
        self._thread.join(timeout=5)
        self._write_end.close()
        self._read_end.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                with self._parts.connect("listen") as connection:
                    connection.add_notify_handler(lambda notice: self._hear(notice.channel, notice.payload))
                    self._subscribe(connection)
                    self._on_work(None)  # notifications from before are lost: the claim must look at everything
                    self._listen(connection)
            except Exception as error:  # noqa: BLE001 - a thread's outermost edge
                # a connection that did not even deliver our own ping counts as one more failure in a row
                failures = 1 if self._heard_at else failures + 1
                self._heard_at = None
                self._parts.complain("listen", error)
                self._stopping.wait(pause_after(failures))

    def _subscribe(self, connection: psycopg.Connection[Row]) -> None:
        """What arrives while these statements run, the ping too, is read by them and told to the handler."""
        for channel in (JOB_CHANNEL, CANCEL_CHANNEL, channel_of(self._parts.id)):
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        connection.execute("SELECT pg_notify(%s, 'ping')", [channel_of(self._parts.id)])  # later pings come with beats

    def _listen(self, connection: psycopg.Connection[Row]) -> None:
        """Waits on the socket itself: without notifications this costs no statement and hardly a wake-up."""
        raw = connection.pgconn
        listening_since = monotonic()
        with selectors.DefaultSelector() as selector:  # select() cannot see a file descriptor above 1023
            for readable_end in (raw.socket, self._read_end):
                selector.register(readable_end, selectors.EVENT_READ)
            self._hear_all(raw)  # before the first wait: libpq may have read one with the last answer
            while not self._stopping.is_set():
                ready = {key.fd for key, _ in selector.select(self._deaf_after)}
                if raw.socket in ready:
                    raw.consume_input()
                    self._hear_all(raw)
                if monotonic() - max(self._heard_at or 0.0, listening_since) > self._deaf_after:
                    raise psycopg.OperationalError("LISTEN has gone silent: not even our own pings come back")

    def _hear_all(self, raw: psycopg.pq.abc.PGconn) -> None:
        while notice := raw.notifies():
            self._hear(notice.relname.decode(), notice.extra.decode())

    def _hear(self, channel: str, payload: str) -> None:
        self._heard_at = monotonic()
        if channel == JOB_CHANNEL:
            self._on_work(payload)
        elif channel == CANCEL_CHANNEL and payload == self._parts.id:
            self._on_cancel()
