"""Runs the bundled psql, on the embedded database or on another one."""

import os
import signal
import subprocess
from collections.abc import Sequence

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from snapapp.errors import PostgresError
from snapapp.jobs.os.signals import handled
from snapapp.postgres.binaries import program

# The bundled libtinfo does not look in the folders where Debian keeps the common terminals.
_TERMINFO = "/etc/terminfo:/lib/terminfo:/usr/lib/terminfo:/usr/share/terminfo"


def psql_argv(url: str) -> list[str]:
    return [str(program("psql")), conninfo(url)]


def conninfo(url: str) -> str:
    """The connection string without the password, because every user of the machine can read the arguments of a
    process."""
    parts = _parts(url)
    parts.pop("password", None)
    return make_conninfo("", **parts)


def run_psql(url: str, arguments: Sequence[str] = ()) -> int:
    """Runs psql in this terminal and returns its exit code.

    psql runs as a child instead of by exec, because the share in the embedded server belongs to this process."""
    # psql handles Ctrl-C and the end of the terminal; this process ends after it, and then gives its share back.
    with handled(lambda _number, _frame: None, signal.SIGINT, signal.SIGHUP):
        return subprocess.run([*psql_argv(url), *arguments], env=environment(url), check=False).returncode


def environment(url: str) -> dict[str, str]:
    """The environment of this process, with the password of the URL if it has one."""
    password = _parts(url).get("password")
    secret = {} if password is None else {"PGPASSWORD": str(password)}
    return {"TERMINFO_DIRS": _TERMINFO} | os.environ | secret


def _parts(url: str) -> dict[str, str | int | None]:
    scheme, separator, rest = url.partition("://")
    try:
        return dict(conninfo_to_dict(scheme.partition("+")[0] + separator + rest))
    except ProgrammingError as error:
        raise PostgresError(f"psql cannot use the database URL: {str(error).strip()}.") from error
