"""Notes of jobs: progress and log lines, written only where the lease holds. No statement here waits for a row lock."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from snapapp.jobs.model import Lease
from snapapp.jobs.rows.database import Db as Db  # part of this module's signatures
from snapapp.jobs.rows.database import run as _run

# A settle raises lease_seq by one, so a note of an attempt that has been settled names its lease_seq + 1.
# Rows that another transaction has locked are skipped, and the caller tries their progress again.
_PROGRESS = """
WITH free AS MATERIALIZED (
    SELECT job.id, note.progress
      FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(notes)s::jsonb[]) AS note (id, lease_seq, progress)
      JOIN snap_processing_job AS job ON job.id = note.id AND job.lease_seq = note.lease_seq
     ORDER BY job.id FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE snap_processing_job AS job SET progress = free.progress FROM free WHERE job.id = free.id
RETURNING job.id
"""


def progress(db: Db, notes: Mapping[Lease, str]) -> set[int]:
    """Writes the last progress of each job; returns the ids of the rows written."""
    parameters = {
        "ids": [lease.id for lease in notes],
        "seqs": [lease.lease_seq for lease in notes],
        "notes": [*notes.values()],
    }
    return {row[0] for row in _run(db, _PROGRESS, parameters)}


# The job's row is read without a lock. Lines of a settled attempt (`landed`) are written whatever the lease is now: no
# other worker can claim that attempt any more.
_LOG = """
INSERT INTO job_log (job_id, attempt, level, message, at)
SELECT line.id, line.attempt, line.level, line.message, clock_timestamp() - make_interval(secs => line.age)
  FROM unnest(%(ids)s::bigint[], %(seqs)s::bigint[], %(attempts)s::integer[], %(landed)s::boolean[],
              %(levels)s::text[], %(messages)s::text[], %(ages)s::float8[])
       WITH ORDINALITY AS line (id, lease_seq, attempt, landed, level, message, age, place)
 CROSS JOIN LATERAL (
    SELECT FROM snap_processing_job AS job
     WHERE job.id = line.id AND (line.landed OR job.lease_seq = line.lease_seq) LIMIT 1) AS job
 ORDER BY place
RETURNING job_id, attempt
"""


class LogLine(NamedTuple):
    lease: Lease
    attempt: int
    level: str
    message: str
    age: float  # seconds since the job logged it
    landed: bool = False  # the attempt has been settled


def log(db: Db, lines: Sequence[LogLine]) -> set[tuple[int, int]]:
    """Writes log lines; returns the (job, attempt) pairs written. The others have lost their lease, or are just being
    settled."""
    parameters = {
        "ids": [line.lease.id for line in lines],
        "seqs": [line.lease.lease_seq for line in lines],
        "attempts": [line.attempt for line in lines],
        "landed": [line.landed for line in lines],
        "levels": [line.level for line in lines],
        "messages": [line.message for line in lines],
        "ages": [line.age for line in lines],
    }
    return {(row[0], row[1]) for row in _run(db, _LOG, parameters)}
