"""An installation that has worked for a month: ten million jobs that are over, a million that are ready, and fifty
workers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.labs.console.stage import Db

_CHUNK = 500_000
_SHAPE = {"kinds": 20, "queues": 8, "tenants": 50, "errors": 40, "workers": 50, "running": 200}


def fill(db: Db, finished: int, ready: int, say: Callable[[str], None]) -> None:
    """Without triggers, and swept and analysed in the end, as an installation is that has worked for so long."""
    over, due, *others = Path(__file__).with_suffix(".sql").read_text().split(";\n")
    db.execute("SET synchronous_commit = off")
    db.execute("SET session_replication_role = replica")
    db.execute("ALTER TABLE snap_processing_job SET (autovacuum_enabled = false)")
    for statement, count in ((over, finished), (due, ready)):
        for first, last in _chunks(count):
            db.execute(_with(statement, first=first, last=last, all=count))
            say(f"{last:,} of {count:,} rows")
    for statement in filter(str.strip, others):
        db.execute(_with(statement))
    db.execute("ALTER TABLE snap_processing_job RESET (autovacuum_enabled)")
    say("vacuum")
    db.execute("VACUUM (ANALYZE)")
    db.execute("SET session_replication_role = origin")
    db.execute("CHECKPOINT")


def _with(statement: str, **numbers: int) -> bytes:
    """`:kinds` is a number, `::jsonb` is not."""
    known = _SHAPE | numbers
    return re.sub(r"(?<!:):([a-z]+)", lambda found: str(known.get(found[1], found[0])), statement).encode()


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    for first in range(1, count + 1, _CHUNK):
        yield first, min(count, first + _CHUNK - 1)
