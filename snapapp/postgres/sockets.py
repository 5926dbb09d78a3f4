"""The directory of the server's Unix socket: the cluster, or a short private one where that is too deep."""

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
_PLAIN = re.compile(r"[\w/.+@ -]+")  # PostgreSQL and libpq both read a comma as the start of the next directory


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
    """Anybody may have made this name before us: whoever owns the directory would own our connections."""
    try:
        folder.mkdir(mode=0o700)
        if account.switches:
            os.chown(folder, account.uid, account.gid)
    except FileExistsError:
        pass
    found = folder.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != account.uid or mode & 0o077:
        raise PostgresError(
            f"{folder} must be a directory of uid {account.uid} with mode 0700 to hold PostgreSQL's socket, "
            f"but has uid {found.st_uid} and mode {mode:04o}: somebody else may have made it. "
            f"Look at it and remove it, or set TMPDIR to a directory of your own."
        )
    return folder
