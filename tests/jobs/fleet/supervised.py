"""A supervisor in a process of its own, as `snapapp supervisor` starts it, and what the roster says of its workers."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from snapapp.jobs.fleet import commands
from snapapp.jobs.os.processes import is_gone
from tests.factory import Db
from tests.jobs.working import until
from tests.running import Running

QUICK = {
    "SNAPAPP_JOB_LOCK_TTL_MS": "5000",
    "SNAPAPP_JOB_HEARTBEAT_INTERVAL_MS": "500",
    "SNAPAPP_JOB_RECOVERY_INTERVAL_MS": "1000",
    "SNAPAPP_WORKER_CONCURRENCY": "2",
    "SNAPAPP_WORKER_CHILDREN": "1",
    "SNAPAPP_WORKER_COMMANDS": "1",
    "SNAPAPP_SHUTDOWN_GRACE_MS": "3000",
    "SNAPAPP_PROCESSORS": "tests.jobs.fleet.kinds",
    "SNAPAPP_LOG_LEVEL": "INFO",
}


class Seen(NamedTuple):
    """A worker as the roster has it."""

    id: str
    pid: int
    pid_started: int
    pool: str
    status: str
    note: str | None
    master: str

    @property
    def lives(self) -> bool:
        return not is_gone(self.pid, self.pid_started)


class Supervisor(Running):
    """Ended, with all that descends from it, when the test is over."""

    def __init__(self, folder: Path, url: str, plan: str | None = None, **settings: str) -> None:
        arguments = ["supervisor"]
        if plan is not None:
            file = folder / f"plan-{len(list(folder.glob('plan-*')))}.toml"
            file.write_text(plan)
            arguments += ["--plan", str(file)]
        super().__init__(folder, *arguments, **{"SNAPAPP_DATABASE_URL": url} | QUICK | settings)

    def kill_all(self) -> None:
        for pid in [self.process.pid, *self.family()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


Start = Callable[..., Supervisor]


@contextmanager
def supervising(folder: Path, url: str) -> Iterator[Start]:
    started: list[Supervisor] = []

    def start(plan: str | None = None, **settings: str) -> Supervisor:
        started.append(Supervisor(folder, url, plan, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            each.kill_all()


def workers(db: Db, pool: str | None = None) -> list[Seen]:
    """Of living processes, oldest first."""
    statement = "SELECT id, pid, pid_started, pool, status, note, master FROM job_worker ORDER BY started_at, id"
    seen = [Seen(*row) for row in db.execute(statement).fetchall()]
    return [each for each in seen if each.lives and pool in (None, each.pool)]


def until_workers(db: Db, count: int, pool: str | None = None, *, besides: Any = (), within: float = 40) -> list[Seen]:
    """Returns when so many live, not counting those that are known."""
    known = {each.id for each in besides}

    def fresh() -> list[Seen]:
        return [each for each in workers(db, pool) if each.id not in known]

    until(lambda: len(fresh()) == count, within=within)
    return fresh()


def tell(db: Db, action: str, pool: str | None = None, **more: Any) -> str:
    """Sends a command and returns what came of it."""
    command = commands.send(db, action, pool=pool, **more)
    until(lambda: commands.one(db, command).status.is_final)
    return commands.one(db, command).output or ""


def plan(**pools: dict[str, Any]) -> str:
    """A plan for the environment dev."""
    lines = []
    for name, options in pools.items():
        lines.append(f"[environments.dev.{name}]")
        lines += [f"{key} = {_toml(value)}" for key, value in options.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)
