"""Runs the bundled psql, on the embedded database or on another one."""

import os
import signal
import subprocess
from collections.abc import Sequence
from functools import cache
from tempfile import NamedTemporaryFile
from typing import IO

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from snapapp.errors import PostgresError
from snapapp.jobs.os.signals import handled
from snapapp.postgres.binaries import program

# The bundled libtinfo does not look in the folders where Debian keeps the common terminals.
_TERMINFO = "/etc/terminfo:/lib/terminfo:/usr/lib/terminfo:/usr/share/terminfo"
_SECRETS = ("sslpassword", "oauth_client_secret")  # besides the password; libpq has no variables for them


def psql_argv(url: str) -> list[str]:
    return [str(program("psql")), conninfo(url)]


def conninfo(url: str) -> str:
    """The connection string without secrets, because every user of the machine can read the arguments of a process."""
    parts = _parts(url)
    return make_conninfo("", **{name: parts[name] for name in parts if name not in ("password", *_SECRETS)})


def run_psql(url: str, arguments: Sequence[str] = ()) -> int:
    """Runs psql in this terminal and returns its exit code.

    psql runs as a child instead of by exec, because the share in the embedded server belongs to this process."""
    # psql handles Ctrl-C and the end of the terminal; this process ends after it, and then gives its share back.
    with handled(lambda _number, _frame: None, signal.SIGINT, signal.SIGHUP):
        return subprocess.run([*psql_argv(url), *arguments], env=environment(url), check=False).returncode


def environment(url: str) -> dict[str, str]:
    """The environment of this process, with the secrets of the URL if it has any."""
    parts = _parts(url)
    secret = {} if parts.get("password") is None else {"PGPASSWORD": str(parts["password"])}
    if others := "".join(f"{name}={parts[name]}\n" for name in _SECRETS if parts.get(name)):
        secret |= {"PGSERVICEFILE": _service(others).name, "PGSERVICE": "snapapp"}
    return {"TERMINFO_DIRS": _TERMINFO} | os.environ | secret


@cache
def _service(options: str) -> IO[str]:
    """A file from which libpq reads options, for its owner alone; it is gone when this process ends."""
    file = NamedTemporaryFile("w", prefix="snapapp-", suffix=".conf")  # noqa: SIM115
    file.write(f"[snapapp]\n{options}")
    file.flush()
    return file


def _parts(url: str) -> dict[str, str | int | None]:
    scheme, separator, rest = url.partition("://")
    try:
        return dict(conninfo_to_dict(scheme.partition("+")[0] + separator + rest))
    except ProgrammingError as error:
        raise PostgresError(f"psql cannot use the database URL: {str(error).strip()}.") from error
