"""Whoever enqueues: writes down what it asked for and what it was told, as far as it knows."""

import random
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

import psycopg

from snapapp.jobs import enqueue
from snapapp.jobs.errors import DuplicateKey, IllegalTransition, UnknownJob
from snapapp.jobs.rows import lifecycle
from snapapp.jobs.rows.database import Row
from tests.labs.chaos import kinds
from tests.labs.chaos.recorder import Recorder
from tests.labs.chaos.server import LabServer

_POISON_EVERY = 10.0  # seconds
_LOOK_EVERY = 0.5  # seconds between two looks at how many wait
_ENOUGH_WAIT = 300  # jobs: a client that never lets the workers catch up would only measure this machine
_SEED_KINDS, _SHARES = [kind for kind, _ in kinds.MIX], [share for _, share in kinds.MIX]
_WAITING = "SELECT count(*) FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT')"
_SOME_FAILED = """
SELECT id FROM snap_processing_job WHERE status = 'FAILED' AND kind <> 'chaos.poison' ORDER BY random() LIMIT 1
"""


class Client:
    """One thread, one connection, one transaction for each job."""

    def __init__(self, server: LabServer, recorder: Recorder, rng: random.Random, rate: float) -> None:
        self._server = server
        self._recorder = recorder
        self._rng = rng
        self._pause = 1 / rate
        self._number = 0
        self._poison_at = time.monotonic() + 1.0
        self._look_at = 0.0
        self._latest: deque[int] = deque(maxlen=200)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="client", daemon=True)
        self.acknowledged = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with psycopg.connect(self._server.url, application_name="client") as db:
                    self._work(db)
            except psycopg.Error:
                self._stopping.wait(0.05)

    def _work(self, db: psycopg.Connection[Row]) -> None:
        next_at = time.monotonic()
        while not self._stopping.is_set():
            now = time.monotonic()
            if now >= self._look_at:
                self._look_at = now + _LOOK_EVERY
                self._wait_for_room(db)
            if now >= self._poison_at:
                self._poison_at = now + _POISON_EVERY
                self._enqueue(db, "chaos.poison")
            self._ask_for_something(db)
            next_at = max(next_at + self._pause, now)
            self._stopping.wait(max(0.0, next_at - time.monotonic()))

    def _wait_for_room(self, db: psycopg.Connection[Row]) -> None:
        while not self._stopping.is_set():
            waiting = db.execute(_WAITING).fetchone()
            db.rollback()
            if not waiting or waiting[0] < _ENOUGH_WAIT:
                return
            self._stopping.wait(_LOOK_EVERY)

    def _ask_for_something(self, db: psycopg.Connection[Row]) -> None:
        dice = self._rng.random()
        if dice < 0.01 and self._latest:
            self._cancel(db, self._rng.choice(self._latest))
        elif dice < 0.015:
            self._retry_one(db)
        else:
            kind = self._rng.choices(_SEED_KINDS, _SHARES)[0]
            self._enqueue(db, kind, keep=dice < 0.985)

    def _enqueue(self, db: psycopg.Connection[Row], kind: str, *, keep: bool = True) -> None:
        self._number += 1
        key = f"job-{self._number}"
        self._recorder.write("enqueue", key=key, kind=kind)
        job_id = self._insert(db, key, kind, keep=keep)
        if job_id is None:
            return
        try:
            db.commit()
        except psycopg.Error as error:
            self._recorder.write("enqueue info", key=key, error=str(error))
            raise
        self._recorder.write("enqueue ok", key=key, job=job_id)
        self._latest.append(job_id)
        self.acknowledged += 1

    def _insert(self, db: psycopg.Connection[Row], key: str, kind: str, *, keep: bool) -> int | None:
        """Without its commit; None: it was rolled back on purpose."""
        try:
            job_id = enqueue(db, kind, {"key": key}, request_id=key)
        except psycopg.Error as error:
            self._recorder.write("enqueue fail", key=key, error=str(error))
            raise
        if not keep:
            self._recorder.write("enqueue fail", key=key, error="rolled back")
            db.rollback()
            return None
        return job_id

    def _cancel(self, db: psycopg.Connection[Row], job_id: int) -> None:
        self._by_a_person(db, "cancel", job_id, lifecycle.cancel)

    def _retry_one(self, db: psycopg.Connection[Row]) -> None:
        found = db.execute(_SOME_FAILED).fetchone()
        if found:
            self._by_a_person(db, "operator retry", found[0], lifecycle.retry_by_person)
        db.rollback()

    def _by_a_person(self, db: psycopg.Connection[Row], what: str, job_id: int, does: Any) -> None:
        self._recorder.write(what, job=job_id)
        with suppress(UnknownJob, IllegalTransition, DuplicateKey):  # it went on meanwhile
            does(db, job_id)
        db.commit()
