"""Checks of the queue's tables: what keeps vacuum from cleaning them, which sessions wait for a lock on them, how far
they and their indexes have grown, and whether their sequences give new numbers."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from snapapp.jobs.amounts import counted, size
from snapapp.jobs.doctor.finding import (
    Act,
    ExaminedDatabase,
    Finding,
    Limits,
    Remedy,
    Severity,
    ago,
    one_line,
    quoted,
    span,
)

# --- what holds the xmin horizon --------------------------------------------------------------------------------

# A backend holds the xmin horizon by its snapshot (backend_xmin) or by having written (backend_xid). Vacuum itself does
# not hold it. Only backends of this database matter, and WAL senders, which carry a standby's feedback and belong to no
# database. For a role without pg_monitor the state, the times and the statement are null.
BACKENDS = """
SELECT pid, coalesce(nullif(application_name, ''), 'no name'), coalesce(backend_type, ''), state, usename,
       greatest(coalesce(age(backend_xid), 0), coalesce(age(backend_xmin), 0)),
       extract(epoch FROM clock_timestamp() - xact_start)::float8,
       extract(epoch FROM clock_timestamp() - state_change)::float8, query
  FROM pg_stat_activity
 WHERE (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL) AND pid <> pg_backend_pid()
   AND (datname = current_database() OR datname IS NULL)
   AND coalesce(backend_type, '') <> 'autovacuum worker' AND coalesce(query, '') !~* '^\\s*vacuum'
 ORDER BY 6 DESC, xact_start LIMIT 5
"""

PREPARED = """
SELECT gid, owner, extract(epoch FROM clock_timestamp() - prepared)::float8, age(transaction)
  FROM pg_prepared_xacts WHERE database = current_database() ORDER BY prepared LIMIT 5
"""

SLOTS = """
SELECT slot_name, slot_type, active, coalesce(age(xmin), 0),
       coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
                                     ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint
  FROM pg_replication_slots ORDER BY 4 DESC, 5 DESC LIMIT 20
"""

_WHY_XMIN = (
    "Vacuum cannot remove what died since then: every claim steps over more and more dead entries, and the tables grow."
)
_FORGETS = "A program that forgets its transactions wants idle_in_transaction_session_timeout."
_TAKES_LONG = "A report that runs for long wants statement_timeout, or a replica of its own."


class Holder(NamedTuple):
    pid: int
    name: str
    type: str
    state: str | None
    role: str | None
    back: int  # transactions
    seconds: float | None  # since its transaction began
    in_state: float | None
    query: str | None

    @property
    def is_idle(self) -> bool:
        """Whether it holds a transaction open without doing anything in it."""
        return (self.state or "").startswith("idle in transaction")


def xmin(examined: ExaminedDatabase) -> Iterator[Finding]:
    holders = [*_backends(examined), *_prepared(examined), *_slots(examined)]
    yield from holders
    if not holders:
        yield Finding(id="XMIN", saw="Nothing older than a moment holds the xmin horizon.")


def _backends(examined: ExaminedDatabase) -> Iterator[Finding]:
    for row in examined.ask(BACKENDS):
        holder = Holder(*row)
        is_old = holder.seconds is None or holder.seconds >= examined.limits.xmin_noticed.total_seconds()
        if is_old or holder.is_idle:
            yield _held_by(holder, examined.limits)


def _held_by(holder: Holder, limits: Limits) -> Finding:
    numbers = {
        "pid": holder.pid,
        "application": holder.name,
        "state": holder.state,
        "transactionSeconds": holder.seconds,
        "stateSeconds": holder.in_state,
        "transactionsBack": holder.back,
    }
    if holder.type == "walsender":
        who = f"A standby ({holder.name}, pid {holder.pid}) holds back vacuum by hot_standby_feedback"
        do = "End the long statement over there, or turn hot_standby_feedback off on the standby."
    else:
        who = f"pid {holder.pid} ({holder.name}, role {holder.role or 'unknown'}) holds back vacuum"
        do = "Find out what it is, commit or roll back there, or end it from here. "
        do += _FORGETS if holder.is_idle else _TAKES_LONG
    return Finding(
        id="XMIN_HELD",
        severity=_how_bad(
            holder.seconds, holder.back, limits.xmin_idle if holder.is_idle else limits.xmin_held, limits
        ),
        saw=f"{who}: {_doing(holder)}, {counted(holder.back, 'transaction', 'transactions')} back.",
        why=_WHY_XMIN,
        do=do,
        paste=f"SELECT pg_terminate_backend({holder.pid});",
        numbers=numbers,
    )


def _how_bad(seconds: float | None, back: int, allowed: timedelta, limits: Limits) -> Severity:
    is_long = seconds is not None and seconds >= allowed.total_seconds()
    return Severity.WARNING if is_long or back >= limits.xmin_held_back else Severity.NOTICE


def _doing(holder: Holder) -> str:
    if holder.seconds is None:
        return "since when, and what it does, this role may not see (GRANT pg_monitor shows it)"
    doing = f"its transaction is {span(holder.seconds)} old, {holder.state} for {span(holder.in_state)}"
    return f"{doing} ({one_line(holder.query, 100)})" if holder.query else doing


def _prepared(examined: ExaminedDatabase) -> Iterator[Finding]:
    for gid, owner, seconds, back in examined.ask(PREPARED):
        yield Finding(
            id="XMIN_PREPARED",
            severity=_how_bad(seconds, back, examined.limits.xmin_idle, examined.limits),
            saw=f"The prepared transaction {gid} of {owner} is {span(seconds)} old, "
            f"{counted(back, 'transaction', 'transactions')} back.",
            why=f"{_WHY_XMIN} It also keeps its locks, and outlives a restart.",
            do="Its transaction manager has forgotten it, most likely: roll it back, or commit it.",
            paste=f"ROLLBACK PREPARED {quoted(gid)};",
            numbers={"gid": gid, "seconds": seconds, "transactionsBack": back},
        )


def _slots(examined: ExaminedDatabase) -> Iterator[Finding]:
    limits = examined.limits
    for name, kind, is_active, back, kept in examined.ask(SLOTS):
        keeps_wal = not is_active and kept >= limits.wal_kept
        if back < limits.xmin_held_back and not keeps_wal:
            continue
        yield Finding(
            id="XMIN_SLOT",
            severity=Severity.WARNING,
            saw=f"The {kind} replication slot {name}, {'in use' if is_active else 'which nobody reads'}, holds "
            f"{counted(back, 'transaction', 'transactions')} back and keeps {size(kept)} of WAL.",
            why=(f"{_WHY_XMIN} " if back else "") + "The WAL that it keeps fills the disk.",
            do="Bring its reader back, or drop it. max_slot_wal_keep_size puts a cap on what slots may keep.",
            paste=f"SELECT pg_drop_replication_slot({quoted(name)});",
            numbers={"slot": name, "isActive": is_active, "transactionsBack": back, "walBytes": kept},
        )


# --- waits for locks --------------------------------------------------------------------------------------------

_WAITS = """
SELECT wait.pid, extract(epoch FROM clock_timestamp() - wait.waitstart)::float8, wait.locktype, wait.mode,
       touched.names, pg_blocking_pids(wait.pid), coalesce(nullif(its.application_name, ''), 'no name'), its.query
  FROM pg_locks AS wait
  LEFT JOIN pg_stat_activity AS its ON its.pid = wait.pid
 CROSS JOIN LATERAL (
       SELECT string_agg(DISTINCT relation::regclass::text, ', ') AS names FROM pg_locks AS has
        WHERE has.pid = wait.pid AND has.relation = ANY (%(ours)s::oid[])) AS touched
 WHERE NOT wait.granted AND wait.pid <> pg_backend_pid() AND touched.names IS NOT NULL
   AND clock_timestamp() - wait.waitstart >= %(longer_than)s
 ORDER BY wait.waitstart LIMIT 10
"""

_BLOCKERS = """
SELECT pid, coalesce(nullif(application_name, ''), 'no name'), state,
       extract(epoch FROM clock_timestamp() - xact_start)::float8, query
  FROM pg_stat_activity WHERE pid = ANY (%(pids)s::int[])
"""

OURS = """
SELECT its.oid, its.relname FROM pg_class AS its
 WHERE its.relkind = 'r' AND (its.relname = 'snap_processing_job' OR starts_with(its.relname::text, 'job_'))
   AND its.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = to_regclass('snap_processing_job'))
 ORDER BY its.relname
"""


# A commit that waits for its standby has no time limit: statement_timeout ends before it.
_UNCONFIRMED = """
SELECT count(*), max(extract(epoch FROM clock_timestamp() - query_start))::float8,
       current_setting('synchronous_standby_names')
  FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND clock_timestamp() - query_start >= %(longer_than)s
"""


def locks(examined: ExaminedDatabase) -> Iterator[Finding]:
    [(commits, longest, standbys)] = examined.ask(_UNCONFIRMED, longer_than=examined.limits.lock_waited)
    if commits:
        yield Finding(
            id="COMMITS_WAIT",
            severity=Severity.CRITICAL,
            saw=f"{counted(commits, 'commit waits', 'commits wait')} for a synchronous standby ({standbys}), the "
            f"longest for {span(longest)}.",
            why="They wait without a time limit, and so does whoever needs their locks: no job starts or ends.",
            do="Bring the standby back, or do without it: then a crash of this server can lose the last commits.",
            paste="ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();",
            numbers={"commits": commits, "longestSeconds": round(longest, 1), "standbys": standbys},
        )
    ours = [oid for oid, _ in examined.ask(OURS)]
    waits = examined.ask(_WAITS, ours=ours, longer_than=examined.limits.lock_waited)
    for wait in waits:
        yield _waiting(examined, *wait)
    if not (waits or commits):
        yield Finding(id="LOCKS", saw="Nobody waits for a lock on our tables.")


def _waiting(
    examined: ExaminedDatabase,
    pid: int,
    seconds: float,
    locktype: str,
    mode: str,
    names: str,
    by: list[int],
    who: str,
    query: str,
) -> Finding:
    blockers = [_blocker(*row) for row in examined.ask(_BLOCKERS, pids=by)]
    by_whom = "; ".join(blockers) or "somebody who cannot be seen, or a prepared transaction"
    return Finding(
        id="LOCK_WAITED_FOR",
        severity=Severity.WARNING,
        saw=f"pid {pid} ({who}) has waited {span(seconds)} for a {mode} ({locktype}) at {names}, held by {by_whom}."
        + (f" It wants: {one_line(query, 100)}" if query else ""),
        why="Whoever waits holds other locks and a connection; behind a waiting ALTER TABLE everybody queues up.",
        do="Let the holder commit, or end it.",
        paste=f"SELECT pg_terminate_backend({by[0]});" if by and by[0] else "SELECT * FROM pg_prepared_xacts;",
        numbers={"pid": pid, "seconds": seconds, "blockedBy": by, "tables": names},
    )


def _blocker(pid: int, name: str, state: str | None, seconds: float | None, query: str | None) -> str:
    since = f", {state}, transaction {span(seconds)} old" if seconds is not None else ""
    return f"pid {pid} ({name}{since}{f', {one_line(query, 60)}' if query else ''})"


# --- vacuum -----------------------------------------------------------------------------------------------------

# The number of dead tuples at which autovacuum starts is from the table's own settings, or else from the server's.
TABLES = """
SELECT its.relname, seen.n_live_tup, seen.n_dead_tup, seen.n_mod_since_analyze,
       extract(epoch FROM clock_timestamp() - greatest(seen.last_vacuum, seen.last_autovacuum))::float8,
       extract(epoch FROM clock_timestamp() - greatest(seen.last_analyze, seen.last_autoanalyze))::float8,
       pg_total_relation_size(its.oid), coalesce(own.enabled::boolean, true),
       coalesce(own.threshold::float8, current_setting('autovacuum_vacuum_threshold')::float8)
           + coalesce(own.scale::float8, current_setting('autovacuum_vacuum_scale_factor')::float8)
             * greatest(its.reltuples, 0)
  FROM pg_class AS its
  JOIN pg_stat_user_tables AS seen ON seen.relid = its.oid
 CROSS JOIN LATERAL (
       SELECT max(option_value) FILTER (WHERE option_name = 'autovacuum_enabled') AS enabled,
              max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_threshold') AS threshold,
              max(option_value) FILTER (WHERE option_name = 'autovacuum_vacuum_scale_factor') AS scale
         FROM pg_options_to_table(its.reloptions)) AS own
 WHERE its.oid = ANY (%(ours)s::oid[])
 ORDER BY its.relname <> 'snap_processing_job', its.relname
"""


class Table(NamedTuple):
    name: str
    live: int
    dead: int
    changed: int  # rows changed since it was analyzed
    vacuumed: float | None  # seconds ago
    analyzed: float | None
    bytes: int
    is_swept: bool
    swept_at: float  # dead tuples at which the next autovacuum starts

    @property
    def numbers(self) -> dict[str, Any]:
        return {
            "table": self.name,
            "liveTuples": self.live,
            "deadTuples": self.dead,
            "autovacuumAt": round(self.swept_at),
            "changedSinceAnalyze": self.changed,
            "vacuumedSecondsAgo": self.vacuumed,
            "analyzedSecondsAgo": self.analyzed,
            "bytes": self.bytes,
        }


def sweeping(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(TABLES, ours=[oid for oid, _ in examined.ask(OURS)])
    for row in rows:
        yield from judged(Table(*row), examined.limits)
    if not rows:
        yield Finding(id="TABLES", saw="There is no table of ours: see the check `schema`.")


def judged(its: Table, limits: Limits) -> Iterator[Finding]:
    """The findings about a table; if nothing is wrong with it, one that tells its numbers."""
    wrong = [*_unswept(its, limits), *_unanalyzed(its, limits)]
    yield from wrong
    if not wrong:
        rows = counted(its.live, "row", "rows")
        saw = f"{its.name}: {rows}, {its.dead:,} dead ({_next(its)}), {size(its.bytes)}; vacuumed "
        yield Finding(id="TABLE", saw=f"{saw}{ago(its.vacuumed)}, analyzed {ago(its.analyzed)}.", numbers=its.numbers)


def _unswept(its: Table, limits: Limits) -> Iterator[Finding]:
    if not its.is_swept:
        yield Finding(
            id="AUTOVACUUM_OFF",
            severity=Severity.WARNING,
            saw=f"{its.name} has autovacuum turned off, and {counted(its.dead, 'dead tuple', 'dead tuples')}.",
            why="A queue's table gathers dead tuples faster than any other: every claim steps over them.",
            do="Turn it on again.",
            paste=f"ALTER TABLE {its.name} RESET (autovacuum_enabled);",
            numbers=its.numbers,
        )
    if its.dead > max(limits.dead_tuples, 3 * its.swept_at):
        yield Finding(
            id="DEAD_TUPLES",
            severity=Severity.WARNING,
            saw=f"{its.name} has {counted(its.dead, 'dead tuple', 'dead tuples')} beside "
            f"{counted(its.live, 'row', 'rows')} ({_next(its)}); vacuumed {ago(its.vacuumed)}.",
            why="Autovacuum does not keep up or is kept from it; claims and lists get slower.",
            do="See the check `xmin` first: what it names keeps vacuum from removing anything. Then sweep.",
            paste=f"VACUUM (ANALYZE, VERBOSE) {its.name};",
            numbers=its.numbers,
            remedy=Remedy(Act.VACUUM, its.name),
        )


def _next(its: Table) -> str:
    return f"the next autovacuum comes at {its.swept_at:,.0f}" if its.is_swept else "no autovacuum comes"


def _unanalyzed(its: Table, limits: Limits) -> Iterator[Finding]:
    if its.changed <= max(limits.unanalyzed, 0 if its.analyzed is None else its.live):
        return
    yield Finding(
        id="NOT_ANALYZED",
        severity=Severity.WARNING,
        saw=f"{its.name} was analyzed {ago(its.analyzed)}; {its.changed:,} rows have changed since, of {its.live:,}.",
        why="The planner guesses: a plan that reads the whole table may look cheap to it.",
        do="Analyze it; after a bulk load always.",
        paste=f"ANALYZE {its.name};",
        numbers=its.numbers,
        remedy=Remedy(Act.ANALYZE, its.name),
    )


# --- indexes ----------------------------------------------------------------------------------------------------

_INDEXES = """
SELECT index.relname, pg_relation_size(index.oid), index.reltuples::bigint, its.indisvalid, its.indisunique
  FROM pg_index AS its JOIN pg_class AS index ON index.oid = its.indexrelid
 WHERE its.indrelid = ANY (%(ours)s::oid[]) ORDER BY 2 DESC, 1
"""
_AN_ENTRY = 400  # bytes, generously: the widest entry of the queue's indexes takes about 100


def indexes(examined: ExaminedDatabase) -> Iterator[Finding]:
    rows = examined.ask(_INDEXES, ours=[oid for oid, _ in examined.ask(OURS)])
    wrong = [finding for row in rows for finding in _index(examined.limits, *row)]
    yield from wrong
    if not wrong:
        total = sum(row[1] for row in rows)
        saw = f"{len(rows)} indexes, {size(total)}; none of them is invalid or much larger than its entries."
        yield Finding(id="INDEXES", saw=saw, numbers={"indexes": len(rows), "bytes": total})


def _index(
    limits: Limits, name: str, its_bytes: int, entries: int, is_valid: bool, is_unique: bool
) -> Iterator[Finding]:
    paste = f"REINDEX INDEX CONCURRENTLY {name};"
    numbers = {"index": name, "bytes": its_bytes, "entries": entries}
    if not is_valid:
        yield Finding(
            id="INDEX_INVALID",
            severity=Severity.CRITICAL if is_unique else Severity.WARNING,
            saw=f"The index {name} is not valid: making it was interrupted.",
            why="It is written to and never read" + ("; a unique one guards nothing." if is_unique else "."),
            do="Make it anew.",
            paste=paste,
            numbers=numbers,
        )
    elif entries >= 0 and its_bytes > max(limits.index_bytes, _AN_ENTRY * entries):
        yield Finding(
            id="INDEX_BLOAT",
            severity=Severity.NOTICE,
            saw=f"The index {name} has {size(its_bytes)} for about {entries:,} entries.",
            why="What a spike left behind is not given back by vacuum; scans pass over the empty pages.",
            do="Make it anew, beside the old one.",
            paste=paste,
            numbers=numbers,
        )


# --- sequences --------------------------------------------------------------------------------------------------

_SEQUENCES = """
SELECT its.relname, own.attname, made.oid::regclass::text
  FROM pg_class AS its
  JOIN pg_depend AS link ON link.refobjid = its.oid AND link.classid = 'pg_class'::regclass
                         AND link.deptype IN ('a', 'i')
  JOIN pg_class AS made ON made.oid = link.objid AND made.relkind = 'S'
  JOIN pg_attribute AS own ON own.attrelid = its.oid AND own.attnum = link.refobjsubid
 WHERE its.oid = ANY (%(ours)s::oid[]) AND has_table_privilege(made.oid, 'SELECT')
 ORDER BY its.relname
"""


def sequences(examined: ExaminedDatabase) -> Iterator[Finding]:
    """Logical replication copies rows and no sequences, and so do some tools that move databases."""
    is_well = True
    for table, column, sequence in examined.ask(_SEQUENCES, ours=[oid for oid, _ in examined.ask(OURS)]):
        [(highest,)] = examined.ask(f"SELECT coalesce(max({column}), 0) FROM {table}")  # noqa: S608 - names of ours
        # asked second: a row that comes in between has a number that is given by now
        [(last,)] = examined.ask(
            "SELECT coalesce(pg_sequence_last_value(%(sequence)s::regclass), 0)", sequence=sequence
        )
        if highest > last:
            is_well = False
            yield Finding(
                id="SEQUENCE_BEHIND",
                severity=Severity.CRITICAL,
                saw=f"{table} has rows up to {column} {highest}, and its sequence has given numbers up to {last}.",
                why="It gives numbers that are taken: whoever adds a row is refused by the primary key.",
                do="Set it to the highest number. After a switch to a logical replica all sequences need that.",
                paste=f"SELECT setval({quoted(sequence)}, (SELECT max({column}) FROM {table}));",  # noqa: S608 - likewise
                numbers={"table": table, "highest": highest, "given": last},
            )
    if is_well:
        yield Finding(id="SEQUENCES", saw="No sequence is behind its table.")
