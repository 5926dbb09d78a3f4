"""A job queue in a PostgreSQL table, and the workers that run it. It knows nothing of the application around it.

Declare a processor, enqueue in your transaction, start a worker:

    @processor("mail.send")
    def send(job: Job) -> None: ...

    enqueue(connection, "mail.send", {"to": "ana@example.org"})

    @scheduled(cron="0 3 * * *", tz="America/Sao_Paulo")
    def clean_up(job: Job) -> None: ...

    with Worker(url): ...                    # or FastAPI(lifespan=lifespan(url)), or `snapapp worker`

Read it in this order, the way of a job: `model` (what a job is), `registry` (which kinds there are), `enqueue` and
`workflows` (how it comes in), `rows` (every statement on it), `worker/claimer` (how a worker takes it),
`worker/slots`, `executors` and `executors/attempt` (how it runs), `context` (whose data it may touch),
`worker/connections` (how it gets at the database), `worker/watchdog` (who minds its time), `worker/finish` and
`worker/settler` (how its end is written down), `worker/leases` (what keeps it ours), `worker/worker` (all of it
together). What fires by itself: `schedules/slots` (when), `schedules/ledger` (what became of it),
`schedules/scheduler` (who looks). `docs/architecture.md` goes this way file by file, `docs/transitions.md` has the
states.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from snapapp.jobs.enqueue import done_before, enqueue, enqueue_async, enqueue_many
from snapapp.jobs.errors import JobCancelled, JobsError, Permanent, Snooze
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.process_hooks import on_start, on_stop
from snapapp.jobs.registry import processor, scheduled
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.workflows import batch, chain

if TYPE_CHECKING:
    from snapapp.jobs.mapped import ProcessingJob
    from snapapp.jobs.migrations import migrate
    from snapapp.jobs.process.embedding import Worker, lifespan

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

# Imported when somebody asks for it: whoever only declares or enqueues needs no worker, and a worker maps no table.
_WHEN_ASKED_FOR = {
    "ProcessingJob": "snapapp.jobs.mapped",
    "Worker": "snapapp.jobs.process.embedding",
    "lifespan": "snapapp.jobs.process.embedding",
    "migrate": "snapapp.jobs.migrations",
}


def __getattr__(name: str) -> Any:
    if module := _WHEN_ASKED_FOR.get(name):
        return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
