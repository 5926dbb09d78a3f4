"""`snapapp supervisor`: keeps pools of worker processes running, until a signal."""

import logging
import platform
import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from signal import SIGCHLD, SIGCONT, SIGUSR1, SIGUSR2

from snapapp import logs
from snapapp.cli.processes import start
from snapapp.errors import SnapError
from snapapp.jobs.fleet import plan as plans
from snapapp.jobs.fleet import plan_file
from snapapp.jobs.fleet.errors import InvalidPlan
from snapapp.jobs.fleet.launcher import Program
from snapapp.jobs.fleet.plan import Plan, Pool
from snapapp.jobs.fleet.supervisor import Supervisor
from snapapp.jobs.os.signals import Signals
from snapapp.jobs.rows.database import connect
from snapapp.jobs.settings import JobsSettings
from snapapp.postgres import database
from snapapp.settings.table import Settings

_log = logging.getLogger(__name__)

_ENTRY = "snapapp.processing.loading:runtime"


def run(arguments: Namespace, settings: Settings) -> int:
    logs.begin(settings)
    plan = _plan(arguments, settings)
    if arguments.check:
        sys.stdout.writelines(f"{line}\n" for line in plans.in_words(plan))
        return 0
    with Signals(SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD) as signals, ExitStack() as stack:
        url = start.reached(settings, signals, stack)
        if url is None:
            return 0
        jobs = settings.jobs(url)
        _check_budget(plan, jobs)
        events = logs.events_to_log(settings)
        host = platform.node() or "localhost"
        supervisor = Supervisor(
            plan,
            jobs,
            signals,
            host=host,
            program=_program(),
            connect=lambda name: connect(url, name=f"snapapp {name}", prepared_statements=jobs.prepared_statements),
            events=events,
        )
        _log.info("Supervising %s on the host %s.", ", ".join(supervisor.pools), host)
        why = supervisor.run()
        if why:
            _log.error("This supervisor ends: %s.", why)
        return 1 if why else 0


def _plan(arguments: Namespace, settings: Settings) -> Plan:
    path = arguments.plan or settings.fleet_plan
    if path is None:
        return plans.without_a_file(settings.worker_queues)
    try:
        return plan_file.load(path, settings.env.value)
    except InvalidPlan as error:
        raise SnapError(str(error)) from None  # a message of several lines


def _program() -> Program:
    """The program of the worker processes. Where `/opt/snapapp/current/.venv/bin/snapapp` was typed, workers use the
    code to which the link `current` points when their fork server starts."""
    command = Path(sys.argv[0])
    python, folder = command.with_name("python"), command.parent.parent.parent
    if command.name != "snapapp" or not command.is_absolute() or not python.exists():
        return Program(_ENTRY)
    is_here = folder.resolve() == Path.cwd()  # Path.cwd() has links resolved
    return Program(_ENTRY, str(python), folder if is_here else None)


def _check_budget(plan: Plan, jobs: JobsSettings) -> None:
    """Refuses a plan that may need more connections than the server allows. Otherwise the web would find no connection
    when the pools are at their largest."""
    each = [_settings_of(pool, jobs).connections for pool in plan.pools]
    together = sum(pool.max_processes * one for pool, one in zip(plan.pools, each, strict=True))
    needed = 2 + (max(each) * plan.most_processes if plan.max_processes else together)
    who, lower = "The pools of this plan", "their max_processes or concurrency"
    database.check_budget(jobs.database_url, needed, who=who, lower=lower)


def _settings_of(pool: Pool, jobs: JobsSettings) -> JobsSettings:
    try:
        return pool.adapt(jobs, pool.name, "")
    except ValueError as error:
        raise SnapError(f"The pool {pool.name} does not fit the settings: {error}.") from None
