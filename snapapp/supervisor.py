"""`snapapp supervisor`: keeps pools of worker processes running, until a signal."""

import logging
import platform
import sys
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path
from signal import SIGCHLD, SIGCONT, SIGUSR1, SIGUSR2

import psycopg

from snapapp import db, logs
from snapapp.commands import set_up_log
from snapapp.errors import SnapError
from snapapp.jobs import foreground
from snapapp.jobs.database import connect
from snapapp.jobs.fleet import plan as plans
from snapapp.jobs.fleet.children import Origin
from snapapp.jobs.fleet.errors import InvalidPlan
from snapapp.jobs.fleet.plan import Plan
from snapapp.jobs.fleet.supervisor import Supervisor
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.signals import Signals
from snapapp.monolith import require_schema
from snapapp.settings import Settings

_log = logging.getLogger(__name__)

_ENTRY = "snapapp.processing:runtime"


def run(arguments: Namespace, settings: Settings) -> int:
    set_up_log(settings)
    plan = _plan(arguments, settings)
    if arguments.check:
        sys.stdout.writelines(f"{line}\n" for line in plans.described(plan))
        return 0
    with Signals(SIGUSR1, SIGUSR2, SIGCONT, SIGCHLD) as signals, ExitStack() as stack:
        try:
            with signals.interrupting():
                url = stack.enter_context(db.in_use(settings))
                foreground.until_reachable(url, within=None, say=_say_unreachable)
                require_schema(url)
        except KeyboardInterrupt:
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
            origin=_origin(),
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
        return plans.load(path, settings.env)
    except InvalidPlan as error:
        raise SnapError(str(error)) from None  # all of its lines


def _origin() -> Origin:
    """`/opt/snapapp/current/.venv/bin/snapapp` was typed: what `current` is when a nursery starts, its workers are."""
    typed = Path(sys.argv[0])
    python, folder = typed.with_name("python"), typed.parent.parent.parent
    if typed.name != "snapapp" or not typed.is_absolute() or not python.exists():
        return Origin(_ENTRY)
    is_here = folder.resolve() == Path.cwd()  # which Python knows by its real name only
    return Origin(_ENTRY, str(python), folder if is_here else None)


def _say_unreachable(why: str) -> None:
    _log.warning("The database cannot be reached, trying again until it can: %s", " ".join(why.split()))


def _check_budget(plan: Plan, jobs: JobsSettings) -> None:
    """Found out at the start, not when the pools are at their largest and the web finds no connection."""
    each = [pool.adapt(jobs, pool.name, "").connections for pool in plan.pools]
    needed = 2 + (max(each) * plan.most_processes if plan.max_processes else _together(plan, each))
    with psycopg.connect(jobs.database_url, connect_timeout=5, application_name="snapapp start") as connection:
        [(allowed,)] = connection.execute(db.ALLOWED_CONNECTIONS).fetchall()
    if needed > allowed:
        raise SnapError(
            f"The pools of this plan may need {needed} connections and the server allows {allowed}: lower their "
            "max_processes or concurrency, or raise its max_connections."
        )


def _together(plan: Plan, each: list[int]) -> int:
    return sum(pool.max_processes * connections for pool, connections in zip(plan.pools, each, strict=True))
