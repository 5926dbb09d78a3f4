"""Calls pg_dump and pg_restore in a version that suits the server: where there is one, in the server's own. Else in a
newer one, such as the bundled 18; what that restores begins with a parameter that servers before 17 do not know."""

import re
import shutil
import subprocess
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from snapapp.errors import PostgresError
from snapapp.jobs.os.parentage import ends_with_us
from snapapp.postgres import binaries
from snapapp.postgres.psql import conninfo, environment, psql_argv

_OF_THE_SYSTEM = Path("/usr/lib/postgresql")  # Debian's place: a folder for each major version
_WRAPPER = "pg_wrapper"  # what Debian has on the path: Perl, of 50 ms, that runs a program of one of those folders
# Entries of a dump that a role which owns only its database may not restore: default privileges, and the comments of
# extensions. (Extensions that exist already do no harm.)
_LEFT_OUT = re.compile(r"[0-9]+; [0-9]+ [0-9]+ (DEFAULT ACL|COMMENT - EXTENSION) ")
_EXTENSION = re.compile(r"[0-9]+; [0-9]+ [0-9]+ EXTENSION - (\S+)")
_VERSION = re.compile(r"\(PostgreSQL\) (\d+)")
_KNOWS_THE_PARAMETER = 17  # the first version, of servers and programs
_PARAMETER = b"SET transaction_timeout = 0;\n"


def pg_dump(url: str, server: int, *options: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of pg_dump. Secrets are in the environment, because every user of the
    machine can read the arguments of a process."""
    return [str(_program_for("pg_dump", server)), *options, "--dbname", conninfo(url)], environment(url)


def pg_restore(url: str, server: int, dump: Path, *, extensions: Container[str] | None = None) -> None:
    """Restores a dump in one transaction. Owners are not restored: everything belongs to the caller. With `extensions`,
    other extensions are left out."""
    path = _program_for("pg_restore", server)
    program = str(path)
    listed = _run([program, "--list", str(dump)], url).splitlines(keepends=True)
    wanted = dump.with_suffix(".list")
    wanted.write_text("".join(line for line in listed if not _LEFT_OUT.match(line) and _fits(line, extensions)))
    options = ["--single-transaction", "--exit-on-error", "--no-owner", "--use-list", str(wanted)]
    if server < _KNOWS_THE_PARAMETER <= _major(path):
        _run_script([program, *options, "--file=-", str(dump)], url)
    else:
        _run([program, *options, "--dbname", conninfo(url), str(dump)], url)


def _run_script(argv: list[str], url: str) -> None:
    """Has psql run what pg_restore would, without the parameter that the server does not know. It is one transaction,
    whose COMMIT pg_restore writes last: a script that breaks off changes nothing."""
    psql = [*psql_argv(url), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    with (
        TemporaryFile() as errors,
        subprocess.Popen(
            psql,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment(url),
            preexec_fn=ends_with_us(),
        ) as reader,
    ):
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, preexec_fn=ends_with_us()) as writer:
            assert writer.stdout
            assert reader.stdin
            with suppress(BrokenPipeError), reader.stdin:  # psql has ended early, and said why
                for line in writer.stdout:
                    if line == _PARAMETER:
                        break
                    reader.stdin.write(line)
                shutil.copyfileobj(writer.stdout, reader.stdin)
        if reader.wait() or writer.returncode:
            errors.seek(0)
            raise PostgresError(_failed(errors.read().decode(errors="replace")))


def _failed(errors: str) -> str:
    why, _, _ = errors.partition("Command was: ")  # the statement, which may be a function of many lines
    return f"pg_restore failed, and nothing was restored: {' '.join(why.split())[-600:]}"


def _fits(line: str, extensions: Container[str] | None) -> bool:
    extension = _EXTENSION.match(line)
    return extension is None or extensions is None or extension[1] in extensions


def _run(argv: list[str], url: str) -> str:
    done = subprocess.run(
        argv, env=environment(url), capture_output=True, text=True, check=False, preexec_fn=ends_with_us()
    )
    if done.returncode:
        raise PostgresError(_failed(done.stderr))
    return done.stdout


def _program_for(name: str, server: int) -> Path:
    """The program of the server's version, or of the next newer one: an older one refuses to work."""
    by_version = {_major(path): path for path in _programs(name)}
    newer = sorted(major for major in by_version if major >= server)
    if not newer:
        raise PostgresError(f"There is no {name} for PostgreSQL {server}: type `apt install postgresql-client`.")
    return by_version[newer[0]]


def _programs(name: str) -> Iterator[Path]:
    """The installed programs; of one version the last is preferred, which is Debian's own."""
    with suppress(PostgresError):
        yield binaries.program(name)
    if (on_path := shutil.which(name)) and Path(on_path).resolve().name != _WRAPPER:
        yield Path(on_path)
    yield from _OF_THE_SYSTEM.glob(f"*/bin/{name}")


def _major(path: Path) -> int:
    output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    version = _VERSION.search(output)
    return int(version[1]) if version else 0
