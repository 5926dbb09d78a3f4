"""pg_dump and pg_restore: which ones suit a server, and how they are called. Not the wheel's alone: what pg_dump 18
writes sets a parameter that an older server does not know."""

import re
import shutil
import subprocess
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.postgres import binaries
from snapapp.postgres.psql import conninfo, environment

_OF_THE_SYSTEM = Path("/usr/lib/postgresql")  # Debian's place: a folder for each major version
# What belongs to other roles or to the server, which a role that owns no more than its database may not make: what is
# granted on tables of the future, and the comments of extensions (extensions that are there already are fine).
_LEFT_OUT = re.compile(r"[0-9]+; [0-9]+ [0-9]+ (DEFAULT ACL|COMMENT - EXTENSION) ")
_EXTENSION = re.compile(r"[0-9]+; [0-9]+ [0-9]+ EXTENSION - (\S+)")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")


def pg_dump(url: str, server: int, *options: str) -> tuple[list[str], dict[str, str]]:
    """What to run, and in which environment: a password in the arguments could be read by every user."""
    return [str(_suiting("pg_dump", server)), *options, "--dbname", conninfo(url)], environment(url)


def pg_restore(url: str, server: int, dump: Path, *, extensions: Container[str] | None = None) -> None:
    """All of it in one transaction, or nothing. What belongs to whom is not restored: all becomes the caller's. With
    `extensions` those alone are added that are among them."""
    program = str(_suiting("pg_restore", server))
    listed = _done([program, "--list", str(dump)], url).splitlines(keepends=True)
    wanted = dump.with_suffix(".list")
    wanted.write_text("".join(line for line in listed if not _LEFT_OUT.match(line) and _fits(line, extensions)))
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--use-list", str(wanted)]
    _done([program, *options, "--dbname", conninfo(url), str(dump)], url)


def _fits(line: str, extensions: Container[str] | None) -> bool:
    found = _EXTENSION.match(line)
    return found is None or extensions is None or found[1] in extensions


def _done(argv: list[str], url: str) -> str:
    done = subprocess.run(argv, env=environment(url), capture_output=True, text=True, check=False)
    if done.returncode:
        raise PostgresError(f"pg_restore failed, and nothing was restored: {' '.join(done.stderr.split())[-600:]}")
    return done.stdout


def _suiting(name: str, server: int) -> Path:
    """The one of the server's own version, else the next newer: an older one refuses."""
    found = {_major(path): path for path in _programs(name)}
    newer = sorted(major for major in found if major >= server)
    if not newer:
        raise PostgresError(f"There is no {name} for PostgreSQL {server}: type `apt install postgresql-client`.")
    return found[newer[0]]


def _programs(name: str) -> Iterator[Path]:
    """The best comes last: of one version, Debian's own."""
    with suppress(PostgresError):
        yield binaries.program(name)
    if on_path := shutil.which(name):
        yield Path(on_path)
    yield from _OF_THE_SYSTEM.glob(f"*/bin/{name}")


def _major(path: Path) -> int:
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    found = _VERSION.search(said)
    return int(found[1]) if found else 0
