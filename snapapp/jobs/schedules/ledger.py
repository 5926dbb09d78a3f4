"""Every SQL statement of a worker on schedules: it declares them, reads which slots are due, and settles each slot
once."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg

from snapapp.jobs.model import encode
from snapapp.jobs.schedules.declared import Schedule
from snapapp.jobs.schedules.slots import ONE_BY_ONE, Entry, Missed, Outcome, decide, newest

Db = psycopg.Connection[Any]

KEPT = timedelta(days=90)
KEPT_AT_MOST = 10_000  # slots of one schedule
KEPT_AT_LEAST = 10  # slots of one schedule, however old they are


@dataclass(frozen=True, slots=True)
class Declaration:
    """A schedule as a worker declares it, with the queue and the attempts that its processor declares."""

    schedule: Schedule
    queue: str
    max_attempts: int
    worker: str


class StoredSchedule(NamedTuple):
    """A schedule as it stands in the database."""

    name: str
    spec: str
    tz: str
    missed: Missed
    at_most: int
    settled_until: datetime
    is_by_us: bool
    declared_by: list[str]  # ids of the live workers that declared it
    now: datetime
    is_as_ours: bool  # does it stand as the caller declares it?


class Settled(NamedTuple):
    slot: datetime
    outcome: Outcome
    why: str | None
    job_id: int | None


# --- declaring --------------------------------------------------------------------------------------------------

_LOCKED = "SELECT spec, tz, settled_until, clock_timestamp() FROM job_schedule WHERE name = %(name)s FOR UPDATE"

# The latest declaration holds. A new spec begins now, and workers that declared the schedule otherwise no longer count
# as declaring it. max_attempts is not compared: workers of one release may differ in it by their settings.
_DECLARE = """
INSERT INTO job_schedule AS its (
    name, spec, tz, queue, payload, max_attempts, missed, at_most, overlap, declared_by)
VALUES (
    %(name)s, %(spec)s, %(tz)s, %(queue)s, %(payload_json)s::jsonb, %(max_attempts)s, %(missed)s, %(at_most)s,
    %(overlap)s, ARRAY[%(worker)s])
ON CONFLICT (name) DO UPDATE
   SET spec = excluded.spec, tz = excluded.tz, queue = excluded.queue, payload = excluded.payload,
       max_attempts = excluded.max_attempts, missed = excluded.missed, at_most = excluded.at_most,
       overlap = excluded.overlap, declared_at = now(),
       settled_until = greatest(its.settled_until, %(since)s::timestamptz),
       declared_by = excluded.declared_by || ARRAY(
           SELECT id FROM job_worker
            WHERE (its.spec, its.tz, its.queue, its.payload, its.missed, its.at_most, its.overlap)
                = (excluded.spec, excluded.tz, excluded.queue, excluded.payload, excluded.missed, excluded.at_most,
                   excluded.overlap)
              AND id = ANY (its.declared_by) AND id <> %(worker)s AND expires_at > now())
"""

_SUPERSEDE = """
INSERT INTO job_schedule_slot (schedule, slot, outcome, why, worker)
SELECT %(name)s, slot, 'skipped', %(why)s, %(worker)s FROM unnest(%(slots)s::timestamptz[]) AS slot
"""


def declare(db: Db, its: Declaration) -> bool:
    """Writes the declaration down. True: the schedule had another spec until now, and slots of that spec that were due
    and not fired are in the ledger as skipped."""
    schedule = its.schedule
    about = {"queue": its.queue, "max_attempts": its.max_attempts, "worker": its.worker, "since": None}
    parameters: dict[str, Any] = asdict(schedule) | about
    with db.transaction():
        [*known] = db.execute(_LOCKED, {"name": schedule.name}).fetchall()
        is_new_spec = any((spec, tz) != (schedule.spec, schedule.tz) for spec, tz, _, _ in known)
        if is_new_spec:
            [(spec, tz, settled_until, now)] = known
            why = f"changed: the schedule became {schedule.spec} ({schedule.tz}) before this slot was fired"
            due = newest(spec, tz, settled_until, now, ONE_BY_ONE)
            parameters |= {"slots": due, "why": why, "since": now}
            db.execute(_SUPERSEDE, parameters)
        db.execute(_DECLARE, parameters)
    return is_new_spec


# --- reading and settling -----------------------------------------------------------------------------------------

_LOOK = """
SELECT name, spec, tz, missed, at_most, settled_until, coalesce(%(worker)s = ANY (declared_by), false),
       ARRAY(SELECT id FROM job_worker WHERE id = ANY (declared_by) AND expires_at > now()),
       clock_timestamp(),
       coalesce(jsonb_build_object(
           'spec', spec, 'tz', tz, 'queue', queue, 'payload', payload, 'missed', missed, 'at_most', at_most,
           'overlap', overlap) = %(ours)s::jsonb -> name, false)
  FROM job_schedule WHERE %(names)s::text[] IS NULL OR name = ANY (%(names)s) ORDER BY name
"""

# The schedule is locked by a statement before this one, because a statement that waits goes on with what it saw before
# the wait, and would overlook a job that a person who ran the schedule has added. So one worker settles a slot: the
# UPDATE of a second one matches no row. A slot must be past by the database's clock too, so a worker whose clock is
# ahead cannot fire early. Not only the last job counts as an overlap: a person may have run the schedule, or retried an
# older job, meanwhile.
_SETTLE = """
WITH ours AS (
    UPDATE job_schedule AS its SET settled_until = %(until)s
     WHERE name = %(name)s AND spec = %(spec)s AND tz = %(tz)s AND settled_until = %(after)s
       AND %(until)s <= clock_timestamp()
    RETURNING its
), unended AS (
    SELECT job.id
      FROM ours CROSS JOIN LATERAL (
               SELECT job_id FROM job_schedule_slot WHERE schedule = (its).name AND job_id IS NOT NULL
                ORDER BY slot DESC LIMIT 100) AS last
      JOIN snap_processing_job AS job ON job.id = last.job_id
     WHERE NOT (its).overlap AND job.status IN ('PENDING', 'RUNNING', 'RETRY_WAIT')
     ORDER BY job.id LIMIT 1
), verdict AS (
    SELECT its, entry.slot, entry.outcome, entry.why,
           CASE WHEN (its).paused_at <= entry.slot OR (its).last_pause @> entry.slot
                     OR ((its).paused_at IS NOT NULL AND entry.outcome <> 'skipped')
                THEN concat_ws(': ', 'paused', (its).paused_reason)
                WHEN entry.outcome = 'skipped' THEN entry.why
                WHEN unended.id IS NOT NULL
                THEN format('overlap: job %%s of an earlier slot had not ended', unended.id)
           END AS refusal
      FROM ours CROSS JOIN unnest(%(slots)s::timestamptz[], %(outcomes)s::text[], %(whys)s::text[])
                               AS entry (slot, outcome, why)
           LEFT JOIN unended ON true
)
INSERT INTO job_schedule_slot (schedule, slot, outcome, why, worker, job_id)
SELECT %(name)s, slot, CASE WHEN refusal IS NULL THEN outcome ELSE 'skipped' END, coalesce(refusal, why), %(worker)s,
       CASE WHEN refusal IS NULL THEN enqueue_scheduled_job(its, slot) END
  FROM verdict
RETURNING slot, outcome, why, job_id
"""


def as_json(declarations: Iterable[Declaration]) -> str:
    """What these declarations say, by the names of the schedules, for `look`."""
    said = {its.schedule.name: {**asdict(its.schedule), "queue": its.queue} for its in declarations}
    for each in said.values():
        del each["name"]
        each["payload"] = json.loads(each.pop("payload_json"))
    return encode(said)


def look(db: Db, names: Sequence[str] | None, worker: str | None, ours: str = "{}") -> list[StoredSchedule]:
    """The named schedules as they stand; names=None: all of them. worker=None: the caller declares no schedule."""
    parameters = {"names": None if names is None else list(names), "worker": worker, "ours": ours}
    rows = db.execute(_LOOK, parameters).fetchall()
    return [StoredSchedule(*row)._replace(missed=Missed(row[3])) for row in rows]


def settle_due(db: Db, standing: StoredSchedule, worker: str | None) -> list[Settled]:
    """Settles the slots that are due now. worker=None: a person does it."""
    due = newest(standing.spec, standing.tz, standing.settled_until, standing.now, ONE_BY_ONE + 1)
    return settle(db, standing, decide(due, standing.now, standing.missed, standing.at_most), worker) if due else []


def settle(db: Db, standing: StoredSchedule, entries: Sequence[Entry], worker: str | None) -> list[Settled]:
    """Writes these slots to the ledger, enqueues their jobs, and moves the schedule on to the last slot. Empty: another
    worker was first, or the schedule has another spec by now."""
    parameters = {
        "name": standing.name,
        "spec": standing.spec,
        "tz": standing.tz,
        "after": standing.settled_until,
        "until": entries[-1].slot,
        "slots": [entry.slot for entry in entries],
        "outcomes": [entry.outcome.value for entry in entries],
        "whys": [entry.why for entry in entries],
        "worker": worker,
    }
    with db.transaction():
        db.execute(_LOCKED, {"name": standing.name})
        rows = db.execute(_SETTLE, parameters).fetchall()
    return [Settled(slot, Outcome(outcome), why, job_id) for slot, outcome, why, job_id in rows]


# --- pruning ----------------------------------------------------------------------------------------------------

_PRUNE = """
WITH kept AS (
    SELECT its.name,
           (SELECT slot FROM job_schedule_slot WHERE schedule = its.name
             ORDER BY slot DESC OFFSET %(at_most)s - 1 LIMIT 1) AS least,
           (SELECT slot FROM job_schedule_slot WHERE schedule = its.name
             ORDER BY slot DESC OFFSET %(at_least)s - 1 LIMIT 1) AS surely
      FROM job_schedule AS its
)
DELETE FROM job_schedule_slot AS old USING kept
 WHERE old.schedule = kept.name
   AND (old.slot < kept.least OR (old.slot < kept.surely AND old.slot < now() - %(kept)s::interval))
"""


def prune(db: Db, *, kept: timedelta = KEPT, at_most: int = KEPT_AT_MOST, at_least: int = KEPT_AT_LEAST) -> int:
    """Deletes the slots of a schedule that are older than `kept`, and all but the newest `at_most`; the newest
    `at_least` always stay."""
    return db.execute(_PRUNE, {"kept": kept, "at_most": at_most, "at_least": at_least}).rowcount
