"""The state of each part of the process. The answer never waits for a broken part."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import psycopg

from snapapp.jobs.rows.database import Database, connect
from snapapp.process.monolith import Monolith
from snapapp.storage import room_of

_ANSWER_WITHIN = 2.0  # seconds
_IS_READ_ONLY = "SELECT current_setting('transaction_read_only') = 'on', pg_is_in_recovery()"
_GIVES_UP_AFTER = 10.0  # seconds; a server that was frozen and replaced never answers, and never hangs up
_FRESH_FOR = 0.5  # seconds; many requests at once cost one query


@dataclass(frozen=True, slots=True)
class Part:
    """One part: whether it is up, with facts that say why. A database that takes no writes is not, and can be read."""

    name: str
    is_up: bool
    facts: dict[str, Any] = field(default_factory=dict)
    can_be_read: bool = False


class Health:
    """The health of this process. It asks the database on a thread, so that a database without answer delays nobody."""

    def __init__(self, monolith: Monolith) -> None:
        self._monolith = monolith
        self._database = Database(self._connect)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="health")
        # The event loop's thread writes these two.
        self._question: Future[Part] | None = None
        self._asked_at = 0.0

    async def parts(self) -> list[Part]:
        return [await self.database(), *self._worker(), self._disk()]

    async def database(self) -> Part:
        if self._monolith.waits_for:
            return _no_database(self._monolith.waits_for)
        done, _ = await asyncio.wait([asyncio.wrap_future(self._ask())], timeout=_ANSWER_WITHIN)
        return done.pop().result() if done else _no_database(f"no answer within {_ANSWER_WITHIN:g} s")

    def _worker(self) -> list[Part]:
        worker = self._monolith.worker
        if worker is None:
            why = "off" if not self._monolith.settings.worker_enabled else "waiting for the database"
            return [Part("worker", is_up=True, facts={"state": why})]
        vitals = worker.vitals()
        state = "leaving" if self._monolith.is_leaving else "working"
        facts = {"id": worker.id, "state": state, "held": vitals.held, "note": vitals.note}
        is_well = vitals.beats and vitals.claims and vitals.settles and not vitals.wants_restart
        return [
            Part("worker", is_up=is_well, facts=facts | {"lastBeatMs": vitals.last_beat_ms}),
            Part("listener", is_up=True, facts={"state": "listening" if vitals.listens else "polling"}),
        ]

    def _disk(self) -> Part:
        room = room_of(self._monolith.settings)
        try:
            free = room.free_mb()
        except OSError as error:  # this process may not enter the folder
            return Part("disk", is_up=False, facts={"error": str(error), "floorMb": room.floor_mb})
        return Part("disk", is_up=free >= room.floor_mb, facts={"freeMb": free, "floorMb": room.floor_mb})

    def is_worth_a_restart(self) -> str | None:
        """Why only a new process would help; None: this one can recover by itself."""
        worker = self._monolith.worker
        if worker is None or self._monolith.is_leaving:
            return None
        vitals = worker.vitals()
        return vitals.wants_restart if vitals.claims else "the worker's claiming thread has ended"

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._database.close()

    def _ask(self) -> Future[Part]:
        if self._question and (not self._question.done() or monotonic() - self._asked_at < _FRESH_FOR):
            if self._database.used_for > _GIVES_UP_AFTER:
                self._database.cut()
            return self._question
        self._asked_at = monotonic()
        self._question = self._thread.submit(self._look)
        return self._question

    def _look(self) -> Part:
        """How long the database took to answer, or what is wrong with it. The time is measured here, so that neither
        connecting nor a busy event loop counts as slowness of the database."""
        try:
            with self._database.connection() as db:
                began = monotonic()
                [(is_read_only, is_standby)] = db.execute(_IS_READ_ONLY).fetchall()
                took = monotonic() - began
        except psycopg.Error as error:
            self._database.reset()
            return _no_database(" ".join(str(error).split()) or type(error).__name__)
        if not is_read_only:
            return Part("database", is_up=True, facts={"answeredInMs": round(took * 1000, 1)}, can_be_read=True)
        self._database.reset()  # such a session stays read-only
        why = "it is a standby" if is_standby else "default_transaction_read_only is on"
        return Part("database", is_up=False, facts={"error": f"it accepts no writes: {why}"}, can_be_read=True)

    def _connect(self) -> psycopg.Connection[Any]:
        return connect(self._monolith.url, name="snapapp health", prepared_statements=False)


def _no_database(error: str) -> Part:
    return Part("database", is_up=False, facts={"error": error})
