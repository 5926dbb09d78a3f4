"""Checks of the database server: its settings, connections, clock, disk, transaction numbers, and how many statements
the queue costs it."""

import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psycopg
from psycopg import sql

from snapapp.jobs.amounts import counted, size
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Limits, Severity, one_line, role_of, span
from snapapp.jobs.rows.database import Row
from snapapp.jobs.schema import OLDEST, is_newer

# --- schema -----------------------------------------------------------------------------------------------------


def schema(examined: ExaminedDatabase) -> Iterator[Finding]:
    is_well = True
    for table, wanted in examined.facts.schema.items():
        [(is_there,)] = examined.ask("SELECT to_regclass(%(table)s) IS NOT NULL", table=table)
        rows = examined.ask(f"SELECT version_num FROM {table}") if is_there else []  # noqa: S608 - a name of ours
        revision = rows[0][0] if rows else None
        if revision == wanted:
            continue
        is_well = False
        newer = is_newer(revision, wanted)
        yield Finding(
            id="SCHEMA_NOT_CURRENT",
            severity=Severity.CRITICAL,
            saw=f"The schema is at revision {revision or 'none'} in {table}; this code needs {wanted}.",
            why="Workers and routes meet tables, views or functions that are not there, or not as they expect.",
            do="Bring it up to date." if not newer else "Run the release that has migrated it: this one is older.",
            paste=None if newer else "snapapp migrate",
            numbers={"revision": revision, "wanted": wanted},
        )
    if is_well:
        yield Finding(id="SCHEMA", saw="The schema is what this code needs.", numbers=dict(examined.facts.schema))


# --- settings ---------------------------------------------------------------------------------------------------

_NAMES = (
    *("fsync", "full_page_writes", "synchronous_commit", "autovacuum", "track_counts", "jit", "shared_buffers"),
    *("max_connections", "idle_in_transaction_session_timeout", "server_version", "server_version_num"),
    "default_transaction_read_only",
)


def settings(examined: ExaminedDatabase) -> Iterator[Finding]:
    examined.db.execute("SET LOCAL jit TO DEFAULT")  # the doctor's own value would hide where the others' comes from
    rows = examined.ask(_SETTINGS, names=list(_NAMES))
    known, sources = ({name: row[place] for name, *row in rows} for place in (0, 1))
    [(database,)] = examined.ask("SELECT pg_database_size(current_database())")
    wrong = [_where_it_stands(examined.db, each, sources) for each in harmful(known, database, examined.limits)]
    yield from wrong
    [(is_standby,)] = examined.ask("SELECT pg_is_in_recovery()")
    if is_standby:
        yield Finding(
            id="STANDBY",
            severity=Severity.CRITICAL,
            saw="This server is a standby: it accepts no writes.",
            why="Nothing can be enqueued here, and no worker can claim or settle a job.",
            do="Name the primary in SNAPAPP_DATABASE_URL, or all hosts with target_session_attrs=read-write.",
        )
    elif not wrong:
        yield Finding(id="SETTINGS", saw=f"PostgreSQL {known['server_version']}, and no setting of it hurts.")


# The values that a new session of this role gets; in this transaction the doctor has changed some of them.
_SETTINGS = "SELECT name, reset_val, source FROM pg_settings WHERE name = ANY (%(names)s)"

# Where a value stands over which ALTER SYSTEM has no power, by the source in pg_settings.
_STATEMENTS = {
    "database": "ALTER DATABASE {database} RESET {name};",
    "user": "ALTER ROLE {role} RESET {name};",
    "database user": "ALTER ROLE {role} IN DATABASE {database} RESET {name};",
}
_NO_STATEMENT = {
    "command line": "It stands in the command that starts the server: take it away there, and restart the server.",
    "client": "It stands in the address of the database or in PGOPTIONS: take it away there, and start anew.",
}


def _where_it_stands(db: psycopg.Connection[Row], finding: Finding, sources: Mapping[str, str]) -> Finding:
    """The finding about a setting, with a cure for the place where its value stands."""
    name = next(iter(finding.numbers))
    source = sources.get(name, "")
    if source in _NO_STATEMENT:
        return replace(finding, do=_NO_STATEMENT[source], paste=None)
    if source not in _STATEMENTS:
        return finding
    names = {"database": sql.Identifier(db.info.dbname), "role": sql.Identifier(db.info.user), "name": sql.SQL(name)}
    statement = sql.SQL(_STATEMENTS[source]).format(**names).as_string()
    if name == "default_transaction_read_only":  # it would refuse its own cure
        statement = f"BEGIN READ WRITE; {statement} COMMIT;"
    return replace(
        finding, do=f"It is set for this {source}: take it back there; new sessions follow.", paste=statement
    )


_LOSES = "What was committed can be gone, or the whole cluster unreadable, after a power cut or a crash of the machine."
_SETTINGS_THAT_LOSE = {
    "fsync": (Severity.CRITICAL, _LOSES),
    "full_page_writes": (Severity.CRITICAL, _LOSES),
    "synchronous_commit": (
        Severity.WARNING,
        "A job that was acknowledged can be gone after a crash: commits are told before they are on disk.",
    ),
    "autovacuum": (
        Severity.CRITICAL,
        "Dead tuples stay for ever: each claim gets slower, the disk fills, and transaction numbers run out.",
    ),
    "track_counts": (Severity.CRITICAL, "Autovacuum does not know what to sweep, so it sweeps nothing."),
}


def harmful(known: Mapping[str, str], database: int, limits: Limits) -> Iterator[Finding]:
    """The findings about harmful settings; `known` is from pg_settings, `database` is the database's size in bytes."""
    if int(known["server_version_num"]) < OLDEST * 10_000:
        yield Finding(
            id="SERVER_TOO_OLD",
            severity=Severity.CRITICAL,
            saw=f"PostgreSQL {known['server_version']}.",
            why="Nothing here was ever tried on a server older than 14.",
            do="Upgrade the server.",
            numbers={"serverVersion": known["server_version"]},
        )
    for name, (severity, why) in _SETTINGS_THAT_LOSE.items():
        if known.get(name) == "off":
            yield _setting(name, "off", severity, why, "on")
    if known.get("default_transaction_read_only") == "on":
        why = "Nothing can be enqueued, and no worker can claim or settle a job. Some providers set it for a full disk."
        yield _setting("default_transaction_read_only", "on", Severity.CRITICAL, why, "off")
    if known.get("jit") == "on":
        why = "Statements as short as ours can be compiled for longer than they run, whenever the planner misjudges."
        yield _setting("jit", "on", Severity.NOTICE, why, "off")
    if known.get("idle_in_transaction_session_timeout") == "0":
        why = "A client that forgets its transaction pins the xmin horizon until somebody notices. Ours set their own."
        yield _setting("idle_in_transaction_session_timeout", "0", Severity.NOTICE, why, "5min")
    buffers = int(known.get("shared_buffers", 0)) * 8192
    if database > limits.shared_buffers_for and buffers <= 128 * 2**20:
        why = f"That is what a fresh installation has; the database has grown to {size(database)}."
        yield _setting("shared_buffers", size(buffers), Severity.NOTICE, why, "512MB", and_then="restart the server")
    if int(known.get("max_connections", 0)) > 500:
        why = "Each one costs memory and makes every snapshot dearer; a pooler does more with fewer."
        yield _setting("max_connections", known["max_connections"], Severity.NOTICE, why, "100", and_then="restart it")


def _setting(name: str, value: str, severity: Severity, why: str, better: str, and_then: str = "reload") -> Finding:
    then = "SELECT pg_reload_conf();" if and_then == "reload" else f"-- then {and_then}"
    return Finding(
        id=f"SETTING_{name.upper()}",
        severity=severity,
        saw=f"{name} is {value}.",
        why=why,
        do=f"Set it to {better}, here or in postgresql.conf.",
        paste=f"ALTER SYSTEM SET {name} = '{better}'; {then}",
        numbers={name: value},
    )


# --- connections ------------------------------------------------------------------------------------------------

# backend_type is null for sessions that this role may not see.
_CONNECTIONS = """
SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
     - coalesce(current_setting('reserved_connections', true), '0')::int,
       (SELECT count(*) FROM pg_stat_activity
         WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'),
       (SELECT count(*) FROM job_worker WHERE expires_at > now()),
       ARRAY(SELECT count(*) || ' ' || coalesce(nullif(application_name, ''), 'without a name') FROM pg_stat_activity
              WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend'
              GROUP BY application_name ORDER BY count(*) DESC, application_name LIMIT 6)
"""


_NEARLY = 0.9  # of the limit: a notice, so that one connection more or less neither begins nor ends an alarm


def _how_short(used: int, allowed: int, most: float) -> Severity:
    if used <= most:
        return Severity.NOTICE
    return Severity.CRITICAL if used > allowed * 0.95 else Severity.WARNING


def connections(examined: ExaminedDatabase) -> Iterator[Finding]:
    [(allowed, used, workers, names)] = examined.ask(_CONNECTIONS)
    needed = workers * examined.facts.connections
    numbers = {"allowed": allowed, "used": used, "workers": workers, "workersNeed": needed}
    usage = f"{used} of {allowed} connections are in use ({', '.join(names)})"
    most, may_be_short = allowed * examined.limits.connections_used, needed > allowed
    are_short = used > most * _NEARLY
    if are_short:
        yield Finding(
            id="CONNECTIONS_SHORT",
            severity=_how_short(used, allowed, most),
            saw=f"{usage}.",
            why="Whoever comes next is refused: workers cannot claim, requests answer 503.",
            do="Find who holds so many, lower SNAPAPP_WEB_CONNECTIONS or SNAPAPP_WORKER_CONCURRENCY, put a pooler in "
            "between, or raise max_connections.",
            paste="SELECT application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC;",
            numbers=numbers,
        )
    if may_be_short:
        yield Finding(
            id="CONNECTION_BUDGET",
            severity=Severity.WARNING,
            saw=f"{counted(workers, 'worker', 'workers')} with settings as these may take {needed} connections; the "
            f"server allows {allowed}.",
            why="When all of them are busy the last ones are refused.",
            do="Run fewer processes, lower SNAPAPP_WEB_CONNECTIONS or SNAPAPP_WORKER_CONCURRENCY, or raise "
            "max_connections.",
            numbers=numbers,
        )
    if not (are_short or may_be_short):
        yield Finding(
            id="CONNECTIONS",
            saw=f"{usage}; {counted(workers, 'worker', 'workers')} may take {needed}.",
            numbers=numbers,
        )


# --- rights -----------------------------------------------------------------------------------------------------

# What no worker can do without, asked for the roles that workers are connected as: the doctor's own may be one that
# only reads. A right to columns counts.
_MISSING_RIGHTS = """
WITH worker AS (
    SELECT usename::text AS role, count(*) AS sessions FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'snapapp beat' GROUP BY usename
), needed AS (
    SELECT 1 AS place, word, name, name AS typed FROM (VALUES
        ('SELECT', ARRAY['snap_processing_job', 'job_worker', 'job_kind', 'job_queue', 'job_rule_change']),
        ('INSERT', ARRAY['job_worker', 'job_worker_exit', 'job_kind']),
        ('UPDATE', ARRAY['snap_processing_job', 'job_worker', 'job_kind']),
        ('DELETE', ARRAY['snap_processing_job', 'job_worker'])) AS its (word, names), unnest(names) AS name
     WHERE to_regclass(name) IS NOT NULL
    UNION ALL
    SELECT 2, 'EXECUTE', proname, oid::regprocedure::text FROM pg_proc
     WHERE proname IN ('job_has_rules', 'job_next_head', 'job_let_in', 'job_children_are_free')
       AND pg_function_is_visible(oid)
)
SELECT role, sessions, word, string_agg(name, ', ' ORDER BY name),
       CASE WHEN place = 2 THEN 'FUNCTION ' ELSE '' END || string_agg(typed, ', ' ORDER BY name)
  FROM worker CROSS JOIN needed
 WHERE NOT CASE WHEN place = 2 THEN has_function_privilege(role, typed, word)
                WHEN word = 'DELETE' THEN has_table_privilege(role, name, word)
                ELSE has_any_column_privilege(role, name, word) END
 GROUP BY role, sessions, place, word ORDER BY role, place, word
"""


def rights(examined: ExaminedDatabase) -> Iterator[Finding]:
    missing = examined.ask(_MISSING_RIGHTS)
    for role, sessions, word, names, typed in missing:
        yield Finding(
            id="RIGHTS_MISSING",
            severity=Severity.CRITICAL,
            saw=f"The role {role} may not {word} {names}; {counted(sessions, 'worker is', 'workers are')} connected "
            "as it.",
            why="Its workers cannot claim jobs or write down how they end: what has ended runs again.",
            do="Give it the right back, as the owner.",
            paste=f"GRANT {word} ON {typed} TO {sql.Identifier(role).as_string()};",
            numbers={"role": role, "right": word, "on": names, "workers": sessions},
        )
    if not missing:
        yield Finding(id="RIGHTS", saw="The roles that workers are seen connected as may do what a worker does.")


# --- the clock --------------------------------------------------------------------------------------------------


def clock(examined: ExaminedDatabase) -> Iterator[Finding]:
    readings = []
    for _ in range(3):  # the quickest answer is the most exact one
        asked = time.time()
        [(there,)] = examined.ask("SELECT extract(epoch FROM clock_timestamp())::float8")
        answered = time.time()
        readings.append((answered - asked, there - (asked + answered) / 2))
    took, ahead = min(readings)
    yield skew(ahead, took / 2, examined.limits)


def skew(ahead: float, give_or_take: float, limits: Limits) -> Finding:
    """The finding about a database's clock that is `ahead` seconds ahead of this host's."""
    numbers = {"aheadSeconds": round(ahead, 3), "giveOrTakeSeconds": round(give_or_take, 3)}
    off = abs(ahead) - give_or_take
    if off < limits.clock_noticed.total_seconds():
        return Finding(id="CLOCK", saw=f"The database's clock and this host's agree: {ahead:+.3f} s.", numbers=numbers)
    return Finding(
        id="CLOCK_SKEW",
        severity=Severity.WARNING if off >= limits.clock_wrong.total_seconds() else Severity.NOTICE,
        saw=f"The database's clock is {span(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this host's.",
        why="The queue goes by the database's clock alone, so jobs are safe; but log lines, certificates and signed "
        "URLs go by this one.",
        do="Let both hosts keep the network's time.",
        paste="timedatectl",
        numbers=numbers,
    )


# --- disk -------------------------------------------------------------------------------------------------------

_PLACE = """
SELECT pg_database_size(current_database()), inet_server_addr() IS NULL OR inet_server_addr() <<= '127.0.0.0/8'
       OR inet_server_addr() = '::1', pg_has_role('pg_read_all_settings', 'USAGE')
"""


def disk(examined: ExaminedDatabase) -> Iterator[Finding]:
    [(database, is_here, may_see)] = examined.ask(_PLACE)
    summary = f"The database has {size(database)}"
    if not is_here:
        yield Finding(
            id="DISK_ELSEWHERE",
            saw=f"{summary}; the server is on another machine, whose disk cannot be seen from here.",
            numbers={"databaseBytes": database},
        )
        return
    if not may_see:
        yield Finding(
            id="DISK_HIDDEN",
            severity=Severity.NOTICE,
            saw=f"{summary}; this role may not see where the server keeps its files.",
            why="A full disk stops the server in the middle of everything.",
            do="Let the role see what monitors see.",
            paste=f"GRANT pg_monitor TO {role_of(examined.db)};  -- as a superuser",
            numbers={"databaseBytes": database},
        )
        return
    [(folder,)] = examined.ask("SELECT current_setting('data_directory')")
    yield _judge_free_space(Path(folder), database, summary, examined.facts.disk_free_min_mb)


def _judge_free_space(folder: Path, database: int, summary: str, floor: int) -> Finding:
    try:
        usage = shutil.disk_usage(folder)
    except OSError as error:  # the server runs in another container, or this process may not read a folder above
        saw = f"{summary}; its directory {folder} cannot be seen from here: {error.strerror}."
        return Finding(id="DISK_ELSEWHERE", saw=saw, numbers={"databaseBytes": database})
    free = usage.free // 2**20
    numbers = {"freeMb": free, "floorMb": floor, "databaseBytes": database}
    if free >= floor:
        saw = f"{summary}; {size(usage.free)} of {size(usage.total)} are free at {folder}."
        return Finding(id="DISK", saw=saw, numbers=numbers)
    return Finding(
        id="DISK_LOW",
        severity=Severity.CRITICAL,
        saw=f"{size(usage.free)} are free at {folder}, less than the floor of {size(floor * 2**20)}.",
        why="A full disk stops the server in the middle of everything.",
        do="Make room: old backups, logs, media. WAL that a forgotten replication slot keeps shows under `xmin`.",
        paste=f"du -xh --max-depth=2 {folder} | sort -h | tail",
        numbers=numbers,
    )


# --- transaction numbers ----------------------------------------------------------------------------------------

_NUMBERS = """
SELECT age(datfrozenxid), mxid_age(datminmxid), current_setting('autovacuum_freeze_max_age')::bigint
  FROM pg_database WHERE datname = current_database()
"""
_ALL = 2_000_000_000


def transaction_numbers(examined: ExaminedDatabase) -> Iterator[Finding]:
    [(transactions, multixacts, freeze_at)] = examined.ask(_NUMBERS)
    numbers = {"transactionAge": transactions, "multixactAge": multixacts, "freezeMaxAge": freeze_at}
    left = _ALL - max(transactions, multixacts)
    if left > examined.limits.transactions_left:
        saw = f"{transactions:,} transactions since the last freeze; vacuum freezes by itself at {freeze_at:,}."
        yield Finding(id="TRANSACTION_NUMBERS", saw=saw, numbers=numbers)
        return
    yield Finding(
        id="TRANSACTION_NUMBERS_SHORT",
        severity=Severity.CRITICAL,
        saw=f"{left:,} transactions are left until the server refuses to write; {transactions:,} since a freeze.",
        why="Vacuum should have frozen old rows long ago: something keeps it from doing so.",
        do="See the check `xmin` for what pins the horizon, end that, then freeze. It may take hours.",
        paste="VACUUM (FREEZE, VERBOSE);",
        numbers=numbers,
    )


# --- the cost of the queue --------------------------------------------------------------------------------------

# pg_stat_statements_info came with version 1.9 of the extension; an upgrade of the server does not upgrade extensions.
_EXTENSION = """
SELECT nspname, to_regclass(format('%%I.pg_stat_statements_info', nspname)) IS NOT NULL
  FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace
 WHERE extname = 'pg_stat_statements'
"""

_COST = """
SELECT coalesce(sum(calls), 0)::float8,
       (SELECT extract(epoch FROM clock_timestamp() - stats_reset)::float8 FROM {view}),
       (SELECT count(*) FROM job_worker WHERE expires_at > now())
  FROM {statements} WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def cost(examined: ExaminedDatabase) -> Iterator[Finding]:
    """The average number of statements a minute, as an estimate of what an idle queue costs."""
    extensions = examined.ask(_EXTENSION)
    if not extensions:
        yield _uncounted("The extension pg_stat_statements is not there.")
        return
    [(where, is_dated)] = extensions
    if not is_dated:
        yield _uncounted(
            "The extension pg_stat_statements is older than 1.9.",
            "Bring the extension up to date.",
            "ALTER EXTENSION pg_stat_statements UPDATE;",
        )
        return
    statement = sql.SQL(_COST).format(
        view=sql.Identifier(where, "pg_stat_statements_info"), statements=sql.Identifier(where, "pg_stat_statements")
    )
    try:
        [(calls, seconds, workers)] = examined.db.execute(statement).fetchall()
    except psycopg.errors.ObjectNotInPrerequisiteState as error:
        yield _uncounted(one_line(str(error)))
        return
    minute = calls / max(seconds / 60, 1e-3)
    yield Finding(
        id="COST",
        saw=f"{minute:,.0f} statements a minute on average, over {span(seconds)} with "
        f"{counted(workers, 'worker', 'workers')} alive now. An idle worker takes at most 30.",
        numbers={"statementsPerMinute": round(minute, 1), "overSeconds": round(seconds), "workers": workers},
    )


def _uncounted(
    why: str,
    do: str = "Add it to shared_preload_libraries, restart the server, and create the extension.",
    paste: str = "CREATE EXTENSION pg_stat_statements;",
) -> Finding:
    return Finding(
        id="COST_UNKNOWN",
        severity=Severity.NOTICE,
        saw=f"Nobody counts statements, so the idle cost is not known. {why}",
        why="An idle worker promises at most 30 statements a minute; this would show it.",
        do=do,
        paste=paste,
    )
