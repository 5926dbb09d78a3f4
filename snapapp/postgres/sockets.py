"""The directory of the server's Unix socket: the cluster, or a private directory with a short path if the cluster's
path is too long."""

import hashlib
import os
import re
import socket
import stat
import tempfile
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.postgres.account import Account

PORT = 5432
_LONGEST = 103  # bytes of a socket's path: 107 on Linux, 103 on macOS
_PLAIN = re.compile(r"[\w/.+@ -]+")  # no comma: PostgreSQL and libpq take it for the start of another directory


def directory(cluster: Path, account: Account) -> Path:
    if _fits(cluster):
        return cluster
    name = "snapapp-" + hashlib.sha256(os.fsencode(cluster)).hexdigest()[:16]
    for parent in (Path(tempfile.gettempdir()), Path("/tmp")):  # noqa: S108  # verified below
        if _fits(parent / name):
            return _private(parent / name, account)
    raise PostgresError(
        f"No short enough path for PostgreSQL's socket: set TMPDIR to a path below {_LONGEST - 60} bytes."
    )


def path_in(folder: Path) -> Path:
    return folder / f".s.PGSQL.{PORT}"


def answers(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(1)
        try:
            client.connect(str(path_in(folder)))
        except OSError:
            return False
    return True


def _fits(folder: Path) -> bool:
    return len(os.fsencode(path_in(folder))) <= _LONGEST and _PLAIN.fullmatch(str(folder)) is not None


def _private(folder: Path, account: Account) -> Path:
    """Creates the directory, or checks the one that is there: another user may have created it first, and could then
    take over the connections."""
    try:
        folder.mkdir(mode=0o700)
        if account.switches:
            os.chown(folder, account.uid, account.gid)
    except FileExistsError:
        pass
    status = folder.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != account.uid or mode & 0o077:
        raise PostgresError(
            f"{folder} must be a directory of uid {account.uid} with mode 0700 to hold PostgreSQL's socket, "
            f"but has uid {status.st_uid} and mode {mode:04o}: somebody else may have made it. "
            f"Look at it and remove it, or set TMPDIR to a directory of your own."
        )
    return folder
