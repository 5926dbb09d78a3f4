"""The limit: a bare psycopg loop that sends the worker's own claim and complete, and does nothing else."""

from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg

from snapapp.jobs.bench.plan import KIND
from snapapp.jobs.bench.roles import stage
from snapapp.jobs.database import Row, connect
from snapapp.jobs.queue import _CLAIM, _CLAIM_ON, _COMPLETE
from snapapp.jobs.wakeup import JOB_CHANNEL

_ANNOUNCED_WITHIN = 60.0  # or nobody enqueues any more
_WALK_EVERY = 1.0  # seconds between two looks at all lanes, as the claimer has it

Rows = list[tuple[Any, ...]]


class Loop:
    """Claims from where the last full batch ended, as the worker does, and completes the batch as it came."""

    def __init__(self, db: psycopg.Connection[Row], batch: int) -> None:
        self._execute = db.execute
        self._asked: dict[str, Any] = {
            "worker": "bare",
            "lease_for": timedelta(minutes=1),
            "queues": None,
            "kinds": [KIND],
            "limit": batch,
        }
        self._batch = batch
        self._after: dict[str, Any] | None = None
        self._walked_at = 0.0

    def claim(self) -> Rows:
        after, self._after = self._after, None
        if after and monotonic() - self._walked_at < _WALK_EVERY:
            rows = self._execute(_CLAIM_ON, self._asked | after).fetchall()
            if not rows:
                rows = self._walk()
        else:
            rows = self._walk()
        if len(rows) == self._batch:
            lane, next_retry_at, job_id = max((row[14], row[13], row[0]) for row in rows)
            head = {"queue": rows[0][2], "kind": rows[0][1], "priority": rows[0][4]}
            self._after = head | {"lane": lane, "next_retry_at": next_retry_at, "id": job_id}
        return rows

    def _walk(self) -> Rows:
        self._walked_at = monotonic()
        return self._execute(_CLAIM, self._asked).fetchall()

    def complete(self, rows: Rows) -> None:
        done = sorted((row[0], row[9]) for row in rows)
        parameters = {
            "ids": "{" + ",".join([str(one[0]) for one in done]) + "}",
            "seqs": "{" + ",".join([str(one[1]) for one in done]) + "}",
            "results": [None] * len(done),
            "ran_for": "{" + ",".join(["0"] * len(done)) + "}",
        }
        self._execute(_COMPLETE, parameters).fetchall()

    def prepare(self) -> None:
        """Each statement often enough to be prepared; there is nothing of this kind to claim."""
        asked = self._asked | {"kinds": ["bench.none"], "kind": "bench.none"}
        nowhere = {"queue": "bench.none", "priority": 0, "lane": "", "next_retry_at": None, "id": 0}
        for _ in range(5):
            self._execute(_CLAIM, asked)
            self._execute(_CLAIM_ON, asked | nowhere)
            self.complete([])


def drain(loop: Loop) -> None:
    while rows := loop.claim():
        loop.complete(rows)


def listen(db: psycopg.Connection[Row], loop: Loop, count: int) -> list[tuple[int, float]]:
    """Picks up jobs one by one as they are announced; their payload says which they are."""
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
    told = stage.told()
    with connect(told["url"], name="snapapp bench") as db:
        loop = Loop(db, told["batch"])
        loop.prepare()
        if "pickups" in told:
            db.execute(f"LISTEN {JOB_CHANNEL}")
        stage.say(memory=stage.memory())
        spent = stage.Spent()
        if "pickups" in told:
            stage.say(picked=listen(db, loop, told["pickups"]))
        else:
            stage.told()
            drain(loop)
            stage.say(cpu=spent.cpu(), memory=stage.memory())
            stage.stay()


if __name__ == "__main__":
    main()
