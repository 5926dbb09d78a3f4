"""The records of backups and drills: each run adds a row, and the checks judge by these rows."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from snapapp.backup import reading
from snapapp.jobs.rows.database import Db, run


class What(StrEnum):
    BACKUP = "backup"
    DRILL = "drill"


@dataclass(frozen=True, slots=True)
class State:
    """The state of the backups, or of the drills."""

    good_age: timedelta | None  # time since the last one that ended well; None: there was none
    failed: str | None  # why the last one failed, if it did


_KEPT_FOR = timedelta(days=366)

_ADD = """
INSERT INTO backup_run (what, began_at, is_good, said)
VALUES (%(what)s, now() - %(took)s::interval, %(is_good)s, %(said)s)
"""
_FORGET = "DELETE FROM backup_run WHERE ended_at < now() - %(kept_for)s::interval"

# clock_timestamp() instead of now(): in a transaction that began long ago, now() would make a backup look young.
# Runs of the future were recorded before the clock was set back: by their time, they would hide all that came since.
_STATES = """
SELECT what,
       (SELECT clock_timestamp() - ended_at FROM backup_run AS good
         WHERE good.what = each.what AND is_good AND ended_at <= clock_timestamp() ORDER BY ended_at DESC LIMIT 1),
       (SELECT CASE WHEN NOT is_good THEN said END FROM backup_run AS newest
         WHERE newest.what = each.what ORDER BY id DESC LIMIT 1)
  FROM unnest(ARRAY['backup', 'drill']) AS each (what)
"""


def add(url: str, what: What, *, took: timedelta, is_good: bool, said: str) -> None:
    with reading.connect(url) as db, db.transaction():
        db.execute(_ADD, {"what": what.value, "took": took, "is_good": is_good, "said": said[:1000]})
        db.execute(_FORGET, {"kept_for": _KEPT_FOR})


def has_good(url: str) -> bool:
    """Whether a backup has ended well, as far as the records go."""
    with reading.connect(url) as db:
        return states(db)[What.BACKUP].good_age is not None


def states(db: Db) -> dict[What, State]:
    return {What(what): State(age, failed) for what, age, failed in run(db, _STATES, {})}
