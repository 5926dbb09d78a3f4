"""A job queue in a PostgreSQL table, and the workers that run its jobs. This package imports nothing of the application
around it.

Declare a processor, enqueue in your transaction, start a worker:

    @processor("mail.send")
    def send(job: Job) -> None: ...

    enqueue(connection, "mail.send", {"to": "ana@example.org"})

    @scheduled(cron="0 3 * * *", tz="America/Sao_Paulo")
    def clean_up(job: Job) -> None: ...

    with Worker(url): ...                    # or FastAPI(lifespan=lifespan(url)), or `snapapp worker`

To follow one job, read the modules in this order: `model` (what a job is), `registry` (which kinds are declared),
`adding` and `workflows` (how a job is added), `rows` (every SQL statement on jobs), `worker/claiming` (how a worker
claims a job), `worker/slots`, `executors` and `executors/attempt` (how the job runs), `context` (which tenant's data it
may touch), `worker/connections` (how it borrows a database connection), `worker/watchdog` (who enforces its timeout),
`worker/finish`, `worker/hooks` and `worker/settler` (how its outcome is written down), `worker/leases` (how a worker
keeps its lease), `worker/worker` (how these parts make a worker). For schedules: `schedules/slots` (when a schedule is
due), `schedules/ledger` (the record of each slot), `schedules/scheduler` (the thread that looks for due slots).
`docs/architecture.md` follows the same order file by file, `docs/transitions.md` describes the states.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from snapapp.jobs.errors import JobCancelled, JobsError, Permanent, Snooze
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.process_hooks import on_start, on_stop
from snapapp.jobs.registry import processor, scheduled
from snapapp.jobs.settings import JobsSettings

if TYPE_CHECKING:
    from snapapp.jobs.adding import done_before, enqueue, enqueue_async, enqueue_many
    from snapapp.jobs.mapped import ProcessingJob
    from snapapp.jobs.migrations import migrate
    from snapapp.jobs.process.embedding import Worker, lifespan
    from snapapp.jobs.workflows import batch, chain

__all__ = [
    "Failure",
    "Job",
    "JobCancelled",
    "JobsError",
    "JobsSettings",
    "Permanent",
    "ProcessingJob",
    "Snooze",
    "Worker",
    "batch",
    "chain",
    "done_before",
    "enqueue",
    "enqueue_async",
    "enqueue_many",
    "lifespan",
    "migrate",
    "on_start",
    "on_stop",
    "processor",
    "scheduled",
]

# These names are imported on first use: a program that only declares kinds, as each child of a worker does, needs no
# psycopg (24 MB), one that only enqueues needs no worker, and a worker needs no mapped class.
_IMPORTED_ON_FIRST_USE = {
    "ProcessingJob": "snapapp.jobs.mapped",
    "Worker": "snapapp.jobs.process.embedding",
    "batch": "snapapp.jobs.workflows",
    "chain": "snapapp.jobs.workflows",
    "done_before": "snapapp.jobs.adding",
    "enqueue": "snapapp.jobs.adding",
    "enqueue_async": "snapapp.jobs.adding",
    "enqueue_many": "snapapp.jobs.adding",
    "lifespan": "snapapp.jobs.process.embedding",
    "migrate": "snapapp.jobs.migrations",
}


def __getattr__(name: str) -> Any:
    if module := _IMPORTED_ON_FIRST_USE.get(name):
        found = globals()[name] = getattr(import_module(module), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__  # so that a shell completes also what is not imported yet
