"""The files of the server: created once, recognised by a marker file, and configured anew at each start."""

import os
import shutil
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.postgres.account import Account
from snapapp.postgres.binaries import MAJOR, program
from snapapp.postgres.home import Home, disk_hint, write_durably

DATABASE = "snapapp"
MARKER = "snapapp.cluster"
CONFIGURATION = "snapapp.conf"
LOCAL_CONFIGURATION = "postgres.local.conf"

_UNFINISHED = "postgres.initdb-in-progress."
_CREATED_WITHIN = timedelta(minutes=3)
_SWEPT_WITHIN = timedelta(seconds=3)
_SWEEP_PAUSE = timedelta(milliseconds=50)

_INITDB = (
    "--username=postgres",
    "--auth-local=trust",  # the permissions of the socket's directory protect it
    "--auth-host=scram-sha-256",  # used if somebody opens a port in the local configuration
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--no-instructions",
)

_SETTINGS = f"""\
# Written by snapapp at each start, so that its next release can change it: do not edit.
# Your own values go into {LOCAL_CONFIGURATION} in the data directory: the next start includes it below.

listen_addresses = ''
unix_socket_permissions = 0700
max_connections = 60

# a box with 1 to 2 GB of memory that also runs the application
shared_buffers = 128MB
effective_cache_size = 512MB
work_mem = 4MB
maintenance_work_mem = 64MB
huge_pages = off
jit = off

# nothing that was committed is ever lost
fsync = on
full_page_writes = on
synchronous_commit = on

wal_compression = pglz
max_wal_size = 1GB
checkpoint_completion_target = 0.9
random_page_cost = 1.1

# a queue leaves many dead rows: sweep early and without long naps
autovacuum_naptime = 15s
autovacuum_vacuum_cost_delay = 1ms
autovacuum_vacuum_scale_factor = 0.05
autovacuum_vacuum_insert_scale_factor = 0.1
autovacuum_analyze_scale_factor = 0.05

idle_in_transaction_session_timeout = 60s

timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] %q%a '
log_min_duration_statement = 1s
log_lock_waits = on
log_checkpoints = off
"""


def stands(home: Home) -> bool:
    """Whether a cluster made by snapapp is there, in the version of the bundled programs. Anything else raises
    PostgresError."""
    if not home.cluster.exists():
        return False
    found = sorted(entry.name for entry in home.cluster.iterdir())
    if found and MARKER not in found:
        raise PostgresError(_not_ours(home, found))
    if found:
        _check_version(home)
    return bool(found)


def create(home: Home, account: Account) -> None:
    """Creates the cluster in another folder, and renames that when it is complete, so that its final place never holds
    half a cluster."""
    _sweep(home)
    # A new name each time, because the initdb of a killed process may still be writing into the last one.
    unfinished = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=home.root))
    try:
        if account.switches:
            os.chown(unfinished, account.uid, account.gid)
        _initialise(unfinished, account)
        unfinished.rename(home.cluster)
    finally:
        _sweep(home)


def configure(home: Home) -> None:
    """Writes the configuration, but only if it has changed: a server on a full disk must still be able to start."""
    path = home.cluster / CONFIGURATION
    text = _SETTINGS
    if (home.root / LOCAL_CONFIGURATION).exists():  # include_if_exists would log a line at each start without the file
        text += f"\ninclude = '../{LOCAL_CONFIGURATION}'\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        write_durably(path, text)


def _initialise(folder: Path, account: Account) -> None:
    _run(account, folder, program("initdb"), *_INITDB, f"--pgdata={folder}")
    with (folder / "postgresql.conf").open("a", encoding="utf-8") as file:
        file.write(f"\ninclude = '{CONFIGURATION}'\n")
    write_durably(folder / CONFIGURATION, _SETTINGS)
    alone = (program("postgres"), "--single", "-D", folder, "-c", "exit_on_error=true", "postgres")
    _run(account, folder, *alone, typed=f"CREATE DATABASE {DATABASE};\n")
    write_durably(
        folder / MARKER,
        f"A PostgreSQL {MAJOR} cluster made by snapapp, which refuses it without this file.\n",
    )


def _run(account: Account, folder: Path, *argv: str | Path, typed: str = "") -> None:
    result = account.run(*argv, typed=typed, folder=folder, within=_CREATED_WITHIN)
    if result.returncode != 0:
        last = "\n".join(f"  {line}" for line in result.stdout.strip().splitlines()[-10:])
        raise PostgresError(f"PostgreSQL's files cannot be made in {folder.parent}:\n{last}{disk_hint(folder.parent)}")


def _sweep(home: Home) -> None:
    """Removes unfinished clusters. It repeats that for a while, because the initdb of a killed process may still write
    into one; initdb ends when its files are gone."""
    deadline = time.monotonic() + _SWEPT_WITHIN.total_seconds()
    while leftovers := list(home.root.glob(f"{_UNFINISHED}*")):
        for leftover in leftovers:
            shutil.rmtree(leftover, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(_SWEEP_PAUSE.total_seconds())


def _not_ours(home: Home, found: list[str]) -> str:
    what = "a PostgreSQL cluster" if "PG_VERSION" in found else f"files ({', '.join(found[:3])})"
    return (
        f"{home.cluster} holds {what} that snapapp did not make and will not touch. Set SNAPAPP_DATA_DIR to "
        f"another directory, or start that cluster yourself and set SNAPAPP_DATABASE_URL to it."
    )


def _check_version(home: Home) -> None:
    theirs = (home.cluster / "PG_VERSION").read_text(encoding="ascii").strip()
    if theirs != str(MAJOR):
        copy = home.root / f"backup-of-{theirs}"
        raise PostgresError(
            f"{home.cluster} was made by PostgreSQL {theirs}, this snapapp brings PostgreSQL {MAJOR}. "
            f"Go back to the snapapp that made it, stop all that runs there, and type `mkdir {copy}` and "
            f"`SNAPAPP_BACKUP_TO={copy} snapapp backup`. Then, with this one, "
            f"`mv {home.cluster} {home.cluster}-{theirs}`, `SNAPAPP_BACKUP_TO={copy} snapapp restore`, and `make run`."
        )
