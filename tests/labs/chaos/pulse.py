"""How late a bare statement comes at the same time: what a busy machine takes, no queue can give back."""

import threading
import time

import psycopg

from tests.labs.chaos.recorder import Recorder
from tests.labs.chaos.server import LabServer

_EVERY = 0.2  # seconds
_WORTH_A_LINE = 0.1  # seconds too late


class Pulse:
    """Writes down each stretch in which `SELECT 1` was late: not while the server is away, which others count."""

    def __init__(self, server: LabServer, recorder: Recorder) -> None:
        self._server = server
        self._recorder = recorder
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._server.url, application_name="pulse", autocommit=True) as db:
                    self._beat(db)
            except psycopg.Error:
                self._stopping.wait(_EVERY)

    def _beat(self, db: psycopg.Connection) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            self._stopping.wait(_EVERY)
            db.execute("SELECT 1")
            late = time.monotonic() - began - _EVERY
            if late > _WORTH_A_LINE:
                self._recorder.write("late", seconds=late)
