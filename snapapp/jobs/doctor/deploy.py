"""A check before a deploy: does this code know the kinds of all waiting jobs, and all schedules, in the database?"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from snapapp.jobs.doctor.waiting import CAP
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.database import Row, Rows, run
from snapapp.jobs.rows.people.overviews import bend_plans, walks

_LOOKED_AT = 10_000  # payloads of a kind whose versions are read


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingKind:
    """A kind with jobs that have not ended. `waiting` is CAP + 1 if there are more than CAP."""

    kind: str
    waiting: int
    running: int
    is_known: bool  # to this code
    versions: Mapping[str, int]  # jobs by the version in their payload, among the first 10,000; "": without a version


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    kinds: list[PendingKind]
    vanished: list[str]  # schedules of the database that this code does not declare
    changed: list[str]  # schedules that this code declares with other times
    new: list[str]

    @property
    def lost(self) -> list[PendingKind]:
        return [each for each in self.kinds if not each.is_known]

    @property
    def is_safe(self) -> bool:
        return not self.lost and not self.vanished

    def as_json(self) -> dict[str, Any]:
        kinds = [
            {
                "kind": each.kind,
                "waiting": each.waiting,
                "running": each.running,
                "known": each.is_known,
                "versions": dict(each.versions),
            }
            for each in self.kinds
        ]
        schedules = {"vanished": self.vanished, "changed": self.changed, "new": self.new}
        return {"safe": self.is_safe, "counted_up_to": CAP, "kinds": kinds, "schedules": schedules}


# All jobs of the other gates are read, because no index leads from one kind to the next there, and a kind must not be
# missed for the thousands before it.
_COUNTS = """, counted AS (
    SELECT open.queue, open.kind, its.jobs FROM open CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open'
               AND job.queue = open.queue AND job.kind = open.kind LIMIT %(cap)s + 1) AS first_ones) AS its
  UNION ALL
    SELECT held.queue, held.kind, its.jobs FROM held CROSS JOIN LATERAL (
        SELECT count(*) AS jobs FROM (
            SELECT FROM snap_processing_job AS job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held'
               AND job.queue = held.queue AND job.kind = held.kind LIMIT %(cap)s + 1) AS first_ones) AS its
  UNION ALL
    SELECT queue, kind, 1 FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'later'
  UNION ALL
    SELECT queue, kind, 1 FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'alone'
  UNION ALL
    SELECT queue, kind, 1 FROM snap_processing_job WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'after'
)
SELECT queue, kind, sum(jobs)::bigint FROM counted GROUP BY queue, kind
"""
_WAITING = walks(open=("open", "queue, kind"), held=("held", "queue, kind")) + _COUNTS

# Running jobs count too, because they wait again if the deploy interrupts them.
_RUNNING = """
SELECT kind, count(*) FROM (SELECT kind FROM snap_processing_job WHERE status = 'RUNNING' LIMIT 10000) AS running
 GROUP BY kind
"""

# A version is a number or a text under `version` or `v`; a value of another type there is not a version.
_VERSIONS = """
SELECT kind, coalesce(version, ''), count(*) FROM (
    SELECT kind, CASE WHEN jsonb_typeof(payload) = 'object' THEN
               CASE WHEN jsonb_typeof(payload -> 'version') IN ('number', 'string') THEN payload ->> 'version'
                    WHEN jsonb_typeof(payload -> 'v') IN ('number', 'string') THEN payload ->> 'v' END
           END AS version
      FROM unnest(%(kinds)s::text[], %(queues)s::text[]) AS its (its_kind, its_queue)
     CROSS JOIN LATERAL (
           (SELECT kind, payload FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'open' AND queue = its_queue AND kind = its_kind
             LIMIT %(most)s)
         UNION ALL
           (SELECT kind, payload FROM snap_processing_job
             WHERE status IN ('PENDING', 'RETRY_WAIT') AND gate = 'held' AND queue = its_queue AND kind = its_kind
             LIMIT %(most)s)) AS jobs) AS read
 GROUP BY 1, 2 ORDER BY 1, 2
"""

_SCHEDULES = "SELECT name, spec, tz FROM job_schedule ORDER BY name"


def compare(db: psycopg.Connection[Row], known: Registry) -> Deploy:
    """Compares the waiting and running jobs and the schedules in the database with the declarations of this process."""
    with db.transaction():
        bend_plans(db)
        waits = run(db, _WAITING, {"cap": CAP})
        running = dict[str, int](run(db, _RUNNING, {}))
        places = {"queues": [queue for queue, _, _ in waits], "kinds": [kind for _, kind, _ in waits]}
        versions = _by_kind(run(db, _VERSIONS, places | {"most": _LOOKED_AT}))
        standing = {name: (spec, tz) for name, spec, tz in run(db, _SCHEDULES, {})}
    count: Counter[str] = Counter()
    for _, kind, jobs in waits:
        count[kind] += jobs
    ours = {its.name: (its.spec, its.tz) for its in known.schedules()}
    return Deploy(
        kinds=[
            PendingKind(
                kind=kind,
                waiting=min(count[kind], CAP + 1),
                running=running.get(kind, 0),
                is_known=kind in known,
                versions=versions.get(kind, {}),
            )
            for kind in sorted({*count, *running})
        ],
        vanished=sorted(standing.keys() - ours.keys()),
        changed=sorted(name for name in standing.keys() & ours.keys() if standing[name] != ours[name]),
        new=sorted(ours.keys() - standing.keys()),
    )


def _by_kind(rows: Rows) -> dict[str, dict[str, int]]:
    """The counts by kind and version. A kind is left out if none of its payloads has a version."""
    by_kind: dict[str, dict[str, int]] = defaultdict(dict)
    for kind, version, jobs in rows:
        by_kind[kind][version] = jobs
    return {kind: versions for kind, versions in by_kind.items() if versions.keys() != {""}}
