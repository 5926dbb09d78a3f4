"""A job queue in a PostgreSQL table, and the workers that run it. It knows nothing of the application around it.

Declare a processor, enqueue in your transaction, start a worker:

    @processor("mail.send")
    def send(job: Job) -> None: ...

    enqueue(connection, "mail.send", {"to": "ana@example.org"})

    @scheduled(cron="0 3 * * *", tz="America/Sao_Paulo")
    def clean_up(job: Job) -> None: ...

Read it in this order, the way of a job: `model` (what a job is), `intake` (how it comes in), `queue` (every statement
on it), `claimer` (how a worker takes it), `executors` and `attempt` (how it runs), `context` (whose data it may touch),
`lender` (how it gets at the database), `warden` (who minds its time), `settler` (how its end is written down),
`maintenance` (beats and recovery), `worker` (all of it together). What fires by itself: `schedule` (when),
`schedule_ledger` (what became of it), `schedule_watch` (who looks). `docs/transitions.md` has the states.
"""

from snapapp.jobs.errors import JobCancelled, JobsError, Permanent, Snooze
from snapapp.jobs.intake import enqueue, enqueue_many
from snapapp.jobs.model import Failure, Job
from snapapp.jobs.registry import processor, scheduled

__all__ = [
    "Failure",
    "Job",
    "JobCancelled",
    "JobsError",
    "Permanent",
    "Snooze",
    "enqueue",
    "enqueue_many",
    "processor",
    "scheduled",
]
