"""The limit that the worker is compared with: a bare psycopg loop that only sends the worker's claim and complete."""

from datetime import timedelta
from time import monotonic, process_time
from typing import Any

import psycopg

from snapapp.bench.plan import KIND
from snapapp.bench.roles import pipes
from snapapp.jobs.rows.claim import Bookmark, ClaimingWorker, Head, Look, Wanted, ask
from snapapp.jobs.rows.database import Row, connect
from snapapp.jobs.rows.settle import _COMPLETE
from snapapp.jobs.worker.wakeup import JOB_CHANNEL

_ANNOUNCED_WITHIN = 60.0  # seconds; without a NOTIFY for so long, the bench has stopped enqueuing
_WALK_EVERY = 1.0  # seconds between two walks over all lanes, as in the claimer

Rows = list[tuple[Any, ...]]


class Loop:
    """Claims from where the last full batch ended, as the worker does, and completes each batch at once."""

    def __init__(self, db: psycopg.Connection[Row], batch: int) -> None:
        self._db = db
        self._by = ClaimingWorker("bare", timedelta(minutes=1))
        self._wanted = [Wanted(KIND, executor=0, at_most=batch, at_once=batch)]
        self._batch = batch
        self._after: dict[Head, Bookmark] = {}
        self._walked_at = 0.0

    def claim(self) -> Rows:
        if not self._after or monotonic() - self._walked_at >= _WALK_EVERY:
            self._after, self._walked_at = {}, monotonic()
        look = Look(bookmarks=self._after, has_rules=False)
        rows = [row for row in ask(self._db, self._by, self._wanted, look) if row[0] is not None]
        was_bookmarked, self._after = bool(self._after), {}
        if len(rows) == self._batch:
            due, job_id = max((row[14], row[0]) for row in rows)
            self._after = {Head(rows[0][2], rows[0][1], rows[0][4]): Bookmark(due, job_id)}
        return self.claim() if was_bookmarked and not rows else rows

    def complete(self, rows: Rows) -> None:
        done = sorted((row[0], row[9]) for row in rows)
        parameters = {
            "ids": "{" + ",".join([str(one[0]) for one in done]) + "}",
            "seqs": "{" + ",".join([str(one[1]) for one in done]) + "}",
            "results": [None] * len(done),
            "ran_for": "{" + ",".join(["0"] * len(done)) + "}",
            "patience": "50ms",
        }
        self._db.execute(_COMPLETE, parameters).fetchall()

    def prepare(self) -> None:
        """Runs each statement often enough for psycopg to prepare it. The kind has no jobs, so nothing is claimed."""
        nothing = [Wanted("bench.none", executor=0, at_most=1, at_once=1)]
        for _ in range(5):
            ask(self._db, self._by, nothing, Look(has_rules=False))
            self.complete([])


def drain(loop: Loop) -> None:
    while rows := loop.claim():
        loop.complete(rows)


def listen(db: psycopg.Connection[Row], loop: Loop, count: int) -> list[tuple[int, float]]:
    """Claims jobs one by one as NOTIFY announces them, and notes when; the number of a job is in its payload."""
    picked: list[tuple[int, float]] = []
    while len(picked) < count:
        if not list(db.notifies(timeout=_ANNOUNCED_WITHIN, stop_after=1)):
            raise TimeoutError(f"nothing was announced for {_ANNOUNCED_WITHIN:g} s")
        while rows := loop.claim():
            at = monotonic()
            picked += [(int(bytes(row[5]).partition(b":")[2].strip(b" }")), at) for row in rows]
            loop.complete(rows)
    return picked


def main() -> None:
    options = pipes.read()
    with connect(options["url"], name="snapapp bench") as db:
        loop = Loop(db, options["batch"])
        loop.prepare()
        if "pickups" in options:
            db.execute(f"LISTEN {JOB_CHANNEL}")
        pipes.say(ready=True)
        began = process_time()
        if "pickups" in options:
            pipes.say(picked=listen(db, loop, options["pickups"]))
        else:
            pipes.read()
            drain(loop)
            pipes.say(cpu=process_time() - began)
            pipes.stay()


if __name__ == "__main__":
    main()
