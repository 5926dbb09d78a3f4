"""The server's process: it is found by its pid file, started, and stopped."""

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from snapapp.errors import PostgresError
from snapapp.jobs.os import processes
from snapapp.postgres import account, cluster
from snapapp.postgres.binaries import program
from snapapp.postgres.home import Home, disk_hint, open_private
from snapapp.postgres.sockets import PORT, answers, directory, path_in

STARTED_WITHIN = timedelta(minutes=2)  # after a crash the server may have 1 GB of WAL to replay
RETRIED_FOR = timedelta(seconds=10)  # children of a killed postmaster notice its death within seconds
STOPPED_WITHIN = ((signal.SIGINT, timedelta(seconds=30)), (signal.SIGQUIT, timedelta(seconds=10)))

_FALLS_SILENT_WITHIN = timedelta(seconds=2)  # a dying server closes its socket last
_LAUNCHED_WITHIN = timedelta(seconds=10)
_LOG_LIMIT = 10 * 2**20
_OURS = "cluster_name=snapapp"
_POLL = timedelta(milliseconds=20)
_BACKOFF = timedelta(milliseconds=250)

# Messages of a start that fails because processes of the last server still exist: such a start is tried again.
_PASSING = re.compile(r"is still in use|lock file .* (already exists|is empty)|Address already in use")


@dataclass(frozen=True, slots=True)
class Postmaster:
    pid: int
    socket_folder: Path = Path()
    port: int = PORT
    is_ready: bool = False


@dataclass(frozen=True, slots=True)
class _Launch:
    pid: int
    log: Path
    log_start: int

    def is_alive(self) -> bool:
        return bool(_command_line(self.pid))

    def output(self) -> str:
        with self.log.open("rb") as file:
            file.seek(self.log_start)
            return file.read().decode("utf-8", "replace").strip()


def find(folder: Path) -> Postmaster | None:
    """The running server of this cluster, if snapapp started it; a server that somebody else started is an error."""
    lines = _lines(folder / "postmaster.pid")
    if not lines or not lines[0].isdigit():
        return None
    pid = int(lines[0])
    command_line = _command_line(pid)
    if not _serves(command_line, pid, folder):
        return None
    if _OURS not in command_line:
        raise PostgresError(
            f"A PostgreSQL server that snapapp did not start runs in {folder} as pid {pid}: "
            f"stop it with `{program('pg_ctl')} stop -D {folder}`, or set SNAPAPP_DATABASE_URL to it."
        )
    if len(lines) < 8:
        return Postmaster(pid)
    return Postmaster(pid, Path(lines[4]), int(lines[3]), is_ready=lines[7].strip() == "ready")


def start(home: Home) -> Postmaster:
    """Finds the running server or starts one, and returns when it takes connections. Call it while holding the gate."""
    began = time.monotonic()
    launch: _Launch | None = None
    while _passed_since(began) < STARTED_WITHIN:
        running = find(home.cluster)
        if running is not None and running.is_ready:
            return running
        if running is None and (launch is None or not launch.is_alive()):
            if launch is not None:
                _wait_or_raise(home, launch.output(), may_retry=_passed_since(began) < RETRIED_FOR)
            launch = _launch(home)
        time.sleep(_POLL.total_seconds())
    raise PostgresError(
        f"PostgreSQL in {home.cluster} still starts after {STARTED_WITHIN}, perhaps recovering from a crash. "
        f"It goes on without us: look at {home.log} and try again."
    )


def stop(folder: Path) -> None:
    """Stops the server fast, which rolls open transactions back; if that takes too long immediately, and then the next
    start recovers."""
    server = find(folder)
    if server is None:
        return
    for request, patience in STOPPED_WITHIN:
        try:
            os.kill(server.pid, request)
        except ProcessLookupError:
            return
        if _is_gone_within(server.pid, patience):
            return
    raise PostgresError(f"PostgreSQL in {folder} does not stop: look at pid {server.pid}, then `kill -9 {server.pid}`.")


def _wait_or_raise(home: Home, output: str, *, may_retry: bool) -> None:
    if may_retry and _PASSING.search(output):
        time.sleep(_BACKOFF.total_seconds())
        return
    tail = "\n".join(f"  {line}" for line in output.splitlines()[-10:])
    raise PostgresError(
        f"PostgreSQL does not start in {home.cluster}. It said in {home.log}:\n{tail}{disk_hint(home.root)}"
    )


def _launch(home: Home) -> _Launch:
    """Starts the server through a shell that ends at once, so that the server is not a child of this process: it must
    outlive it while other processes use it."""
    who = account.choose(home)
    folder = directory(home.cluster, who)
    _must_be_silent(folder)
    cluster.configure(home)
    _drop_stale(home.cluster / "postmaster.pid")
    _drop_stale(path_in(folder).with_name(f"{path_in(folder).name}.lock"))
    _rotate(home.log)
    log = open_private(home.log, os.O_WRONLY | os.O_APPEND)
    try:
        log_start = os.fstat(log).st_size
        server = (program("postgres"), "-D", home.cluster, "-k", folder, "-p", str(PORT), "-c", _OURS)
        shell = ("/bin/sh", "-c", 'exec "$@" >&2 & echo $!', "sh")
        result = who.run(*shell, *server, folder=home.cluster, errors_to=log, within=_LAUNCHED_WITHIN)
    finally:
        os.close(log)
    return _Launch(int(result.stdout or 0), home.log, log_start)


def _must_be_silent(folder: Path) -> None:
    """Raises if a server answers on the socket although no process of it was found: two containers on one volume do not
    see each other's pids, but they see each other's sockets."""
    deadline = time.monotonic() + _FALLS_SILENT_WITHIN.total_seconds()
    while answers(folder):
        if time.monotonic() > deadline:
            raise PostgresError(
                f"A PostgreSQL server that this process cannot see, perhaps in another container, answers on "
                f"{path_in(folder)}: stop it, or set SNAPAPP_DATABASE_URL to it."
            )
        time.sleep(_POLL.total_seconds())


def _drop_stale(lock_file: Path) -> None:
    """Removes a lock file whose pid belongs to no living process, or to a process of another program. PostgreSQL would
    refuse to start: it only looks whether some process has this pid, after a reboot or as a zombie.

    Two servers on one cluster are still prevented by shared memory, whose key is the cluster's inode."""
    lines = _lines(lock_file)
    if not lines or not lines[0].isdigit() or processes.answers(int(lines[0])):
        lock_file.unlink(missing_ok=True)


def _rotate(log: Path) -> None:
    if log.exists() and log.stat().st_size > _LOG_LIMIT:
        log.replace(log.with_name(f"{log.name}.1"))


def _lines(lock_file: Path) -> list[str]:
    try:
        return lock_file.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return []


def _is_gone_within(pid: int, patience: timedelta) -> bool:
    asked = time.monotonic()
    while _command_line(pid):
        if _passed_since(asked) > patience:
            return False
        time.sleep(_POLL.total_seconds())
    return True


def _passed_since(moment: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - moment)


def _serves(command_line: str, pid: int, folder: Path) -> bool:
    if re.match(r"(.*/)?(postgres|postmaster)( |$)", command_line) is None:
        return False
    try:
        # A server's working directory is its cluster, even if that was moved or mounted elsewhere since.
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:  # another user's, or not Linux
        option = re.search(r" -D (.+?)(?= -\w |$)", command_line)
        return option is None or Path(option.group(1)) == folder


def _command_line(pid: int) -> str:
    """The command line of a process. Empty for one that has ended, even if it is a zombie: a zombie has no
    arguments."""
    if sys.platform != "linux":
        return _listed_command_line(pid)
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).replace("\0", " ").strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _listed_command_line(pid: int) -> str:
    argv = ["ps", "-ww", "-o", "stat=", "-o", "args=", "-p", str(pid)]
    listed = subprocess.run(argv, capture_output=True, text=True, check=False)
    state, _, command_line = listed.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else command_line.strip()
