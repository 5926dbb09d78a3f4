"""Checks of the supervisors and their pools: supervisors without heartbeat, pools that lack processes, pools that a
person paused or drained, and commands that no supervisor took."""

import shlex
from collections.abc import Iterator

from snapapp.jobs.amounts import counted
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity, ago, one_line, span, typed
from snapapp.jobs.fleet import overview
from snapapp.jobs.fleet.overview import PoolLine

_MASTERS = """
SELECT host, pid, expires_at < now(), extract(epoch FROM clock_timestamp() - beat_at)::float8,
       (SELECT count(*) FROM job_pool AS pool WHERE pool.host = its.host)
  FROM job_master AS its ORDER BY host
"""

_UNTAKEN = """
SELECT id, host, action, pool, source, extract(epoch FROM clock_timestamp() - created_at)::float8 FROM job_command
 WHERE (status = 'PENDING' AND expires_at < now())
    OR (status = 'EXPIRED' AND finished_at > now() - %(lately)s::interval)
 ORDER BY id DESC LIMIT 20
"""


def fleet(examined: ExaminedDatabase) -> Iterator[Finding]:
    masters = examined.ask(_MASTERS)
    # the numbers of a lost supervisor are old
    pools = [each for each in overview.fleet(examined.db) if each.pool is not None and each.master != "LOST"]
    for master in masters:
        yield from _silent_supervisor(*master)
    for pool in pools:
        yield from _short_pool(pool)
        yield from _held_pool(pool)
    for command in examined.ask(_UNTAKEN, lately=examined.limits.dead_lately):
        yield _untaken_command(*command)
    if not masters:
        yield Finding(id="FLEET", saw="No supervisor: what workers there are, were started by themselves.")
        return
    wanted, present = (sum(getattr(pool, name) for pool in pools) for name in ("wanted", "present"))
    yield Finding(
        id="FLEET",
        saw=f"{counted(len(masters), 'supervisor', 'supervisors')} with {counted(len(pools), 'pool', 'pools')}: "
        f"{present} of {wanted} worker processes are there.",
        numbers={"supervisors": len(masters), "pools": len(pools), "wanted": wanted, "present": present},
    )


def _silent_supervisor(host: str, pid: int, is_lost: bool, seconds: float, pools: int) -> Iterator[Finding]:
    if not is_lost:
        return
    yield Finding(
        id="SUPERVISOR_LOST",
        severity=Severity.WARNING,
        saw=f"The supervisor of {host} (pid {pid}) was last heard of {ago(seconds)}; it had "
        f"{counted(pools, 'pool', 'pools')}.",
        why="Nobody there replaces workers that die. Its workers finish what they run and leave.",
        do=f"Start it again on {host}; while that host is away, its jobs run elsewhere.",
        paste="snapapp supervisor",
        numbers={"host": host, "pid": pid, "silentSeconds": round(seconds, 1)},
    )


def _short_pool(its: PoolLine) -> Iterator[Finding]:
    """A pool has a note only if its workers died before they finished a job."""
    wanted, present = its.wanted or 0, its.present or 0
    if its.note is None or present >= wanted:
        return
    yield Finding(
        id="POOL_SHORT",
        severity=Severity.WARNING if present else Severity.CRITICAL,
        saw=f"The pool {its.pool} on {its.host} has {present} of {wanted} worker processes: {one_line(its.note)}",
        why="Workers that die before they have finished a job are started again later and later.",
        do="Read why they die, in the history and in the supervisor's log.",
        paste="SELECT exited_at, name, reason FROM job_worker_exit ORDER BY id DESC LIMIT 20;",
        numbers={"host": its.host, "pool": its.pool, "wanted": wanted, "present": present},
    )


def _held_pool(its: PoolLine) -> Iterator[Finding]:
    if its.state is None or its.state == "ACTIVE":
        return
    yield Finding(
        id="POOL_HELD",
        severity=Severity.NOTICE,
        saw=f"The pool {its.pool} on {its.host} is {its.state.lower()}"
        + (f" ({one_line(its.state_reason)})." if its.state_reason else "."),
        why="Somebody wanted it. Its workers claim nothing.",
        do="If the reason is gone, resume it.",
        paste=f"snapapp fleet resume --host={shlex.quote(its.host)} {typed(its.pool or '')}",
        numbers={"host": its.host, "pool": its.pool, "state": its.state, "reason": its.state_reason},
    )


def _untaken_command(number: int, host: str, action: str, pool: str | None, source: str, seconds: float) -> Finding:
    whom = f"the pool {pool} on {host}" if pool else host
    return Finding(
        id="COMMAND_UNTAKEN",
        severity=Severity.NOTICE,
        saw=f"The command {number}, {action} for {whom}, was sent {span(seconds)} ago by {source}, and nobody took it.",
        why="Its supervisor was away. What expired is not done later.",
        do="If it is still wanted, send it again once the host answers.",
        paste="snapapp fleet list",
        numbers={"command": number, "host": host, "action": action, "pool": pool},
    )
