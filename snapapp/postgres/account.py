"""Chooses the user that the server runs as. PostgreSQL refuses to run as root; the permissions of parent directories
are never changed for it."""

import os
import pwd
import shutil
import stat
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.postgres.binaries import program
from snapapp.postgres.home import Home

_PROBE_WITHIN = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Account:
    """The user of the server's programs: how to run one, and which uid owns its files as others see it."""

    uid: int
    gid: int
    prefix: tuple[str, ...] = ()
    switches: bool = False

    def run(
        self,
        *argv: str | Path,
        within: timedelta,
        folder: Path | None = None,
        typed: str = "",
        errors_to: int = subprocess.STDOUT,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end, in a session of its own, so that Ctrl-C in the terminal does not reach the
        server."""
        try:
            return subprocess.run(
                [*self.prefix, *argv],
                input=typed,
                stdout=subprocess.PIPE,
                stderr=errors_to,
                text=True,
                cwd=folder,
                env=_environment(),
                user=self.uid if self.switches else None,
                group=self.gid if self.switches else None,
                extra_groups=[] if self.switches else None,
                start_new_session=True,
                timeout=within.total_seconds(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PostgresError(f"PostgreSQL's program {argv[0]} did not end within {within}.") from error

    def reaches(self, folder: Path) -> bool:
        """Tries whether this account can reach the programs and the folder."""
        try:
            result = self.run(
                "/bin/sh",
                "-c",
                'cd "$1" && exec "$2" --version',
                "sh",
                folder,
                program("postgres"),
                within=_PROBE_WITHIN,
            )
        except (OSError, PostgresError, subprocess.SubprocessError):
            return False
        return result.returncode == 0


def choose(home: Home) -> Account:
    """The current user. For root: the owner of the files, or an unprivileged user if root owns them."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    exists = (home.cluster / "PG_VERSION").exists()
    owner = (home.cluster if exists else home.root).stat()
    if owner.st_uid != 0:
        candidates = [Account(owner.st_uid, owner.st_gid, switches=True)]
    else:
        candidates = _in_a_namespace() + ([] if exists else [_nobody()])
    for account in candidates:
        if account.reaches(home.root):
            return account
    raise PostgresError(_refusal(home, owner.st_uid))


def _in_a_namespace() -> list[Account]:
    """Root in a user namespace: outside it is root and reaches all files, inside it is nobody, so PostgreSQL runs."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return []
    return [Account(0, 0, prefix=(unshare, "--user", f"--map-user={_nobody().uid}", "--"))]


def _nobody() -> Account:
    # initdb looks its user up by uid, so the user must have a name on this system.
    for name in ("nobody", "daemon", "bin"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, switches=True)
    raise PostgresError("PostgreSQL does not run as root and there is no user nobody here: type `useradd nobody`.")


def _refusal(home: Home, owner: int) -> str:
    tried = f"the owner of the files (uid {owner}) cannot" if owner else "neither a user namespace nor nobody can"
    return (
        f"PostgreSQL does not run as root, and {tried} reach both {home.root} and {program('postgres')}. "
        f"{_way_out(home)} Or set SNAPAPP_DATABASE_URL to a PostgreSQL server of yours."
    )


def _way_out(home: Home) -> str:
    closed = [folder for folder in (*home.root.parents, *program("postgres").parents) if not _is_open(folder)]
    if closed:
        return (
            f"Others may not enter {min(closed)}, so move the project out of it and begin anew there: "
            "`mkdir /opt/snapapp; cp -R . /opt/snapapp; cd /opt/snapapp; rm -rf .venv var; make run`."
        )
    return (
        f"Run snapapp as a normal user who owns both: `useradd -m snapapp; chown -R snapapp {home.root}; "
        f"su snapapp -c 'make run'`."
    )


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _environment() -> dict[str, str]:
    """The environment without PGDATA, PGPORT and the like, which the programs would take as settings."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
    return inherited | {"LC_ALL": "C"}
