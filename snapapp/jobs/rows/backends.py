"""What the server processes of a job's connections are doing, for the late report."""

from collections.abc import Collection

from snapapp.jobs.model import clean
from snapapp.jobs.rows.database import Db, run

# coalesce: another user's backend shows neither state nor query to us, and a blocker may just have ended.
_BACKENDS = """
SELECT its.pid, its.state, round(extract(epoch FROM clock_timestamp() - its.state_change))::bigint,
       its.wait_event_type, its.wait_event, its.query,
       ARRAY(SELECT format('%%s (%%s for %%s s, %%s): %%s', blocker, coalesce(other.state, 'unknown'),
                           round(extract(epoch FROM clock_timestamp() - other.state_change)),
                           coalesce(nullif(other.application_name, ''), 'no name'), left(other.query, 300))
               FROM unnest(pg_blocking_pids(its.pid)) AS blocker
               LEFT JOIN pg_stat_activity AS other ON other.pid = blocker)
  FROM pg_stat_activity AS its
 WHERE its.pid = ANY (%(pids)s::integer[])
 ORDER BY its.pid
"""


def report(db: Db, pids: Collection[int]) -> str:
    """What these server processes do, what they wait for, and which others block them."""
    lines = []
    for pid, state, since, wait_type, wait, query, blockers in run(db, _BACKENDS, {"pids": list(pids)}):
        waits = f", waits for {wait_type}: {wait}" if wait else ""
        lines.append(f"backend {pid} is {state or 'hidden from us'} for {since or 0} s{waits}")
        lines.append(f"  its statement: {clean(query or '', 1000)}")
        lines += [f"  blocked by backend {blocker}" for blocker in blockers]
    return "\n".join(lines)
