"""The objects that the parts of a worker share. Each mutable one says in its own class which thread writes it."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snapapp.jobs import context as contexts
from snapapp.jobs import events as names
from snapapp.jobs.events import Events
from snapapp.jobs.model import Job
from snapapp.jobs.registry import Registry
from snapapp.jobs.rows.costs import CollectedCosts
from snapapp.jobs.rows.database import Connect, Database
from snapapp.jobs.rows.roster import Counts
from snapapp.jobs.settings import JobsSettings
from snapapp.jobs.worker.capacity.pace import Pace
from snapapp.jobs.worker.capacity.web_priority import WebPriority
from snapapp.jobs.worker.connections import JobConnections
from snapapp.jobs.worker.hooks import Transaction
from snapapp.jobs.worker.leases.held import HeldJobs
from snapapp.jobs.worker.notes import Notes

if TYPE_CHECKING:
    from sqlalchemy import Engine

_CONTEXT_EVENTS = {contexts.ENTERED: names.TENANT_CONTEXT, contexts.VALIDATED: names.TENANT_CONTEXT_VALIDATED}


@dataclass(slots=True, kw_only=True)
class WorkerParts:
    """Built by the runtime, once for each worker. No field is assigned again."""

    settings: JobsSettings
    registry: Registry
    connect: Connect
    transaction: Transaction  # in which a job is settled and its hook runs
    job_engine: "Callable[[], Engine]"  # of the connections that jobs borrow; made on first use
    events: Events
    web_priority: WebPriority
    context: contexts.Hook | None
    # new at each start: with an id that survives a restart, the new process would keep its dead predecessor's leases
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    counts: Counts = field(default_factory=Counts)
    notes: Notes = field(default_factory=Notes)
    costs: CollectedCosts = field(default_factory=CollectedCosts)
    pace: Pace = field(default_factory=Pace)
    databases: list[Database] = field(default_factory=list)  # all that the parts have, from the start
    held_jobs: HeldJobs = field(init=False)
    within: contexts.Within = field(init=False)
    connections: JobConnections = field(init=False)

    def __post_init__(self) -> None:
        self.held_jobs = HeldJobs(self.settings.lease_for, self.settings.beat_every)
        self.within = contexts.Within(self.context, self._report_context)
        self.connections = JobConnections(self.job_engine, self.settings.job_connections, self.within)

    def database(self, purpose: str) -> Database:
        database = Database(lambda: self.connect(purpose))
        self.databases.append(database)
        return database

    def complain(self, doing: str, error: BaseException) -> None:
        self.events.complain(self.id, doing, error)

    def facts(self, job: Job) -> dict[str, Any]:
        """The fields that all events of an attempt have."""
        return {
            "worker_id": self.id,
            "job_id": job.id,
            "kind": job.kind,
            "attempt": job.attempt,
            "status": "RUNNING",
            "request_id": job.request_id,
        }

    def _report_context(self, job: Job, step: str) -> None:
        self.counts.add_context(failed=step == contexts.FAILED, entered=step == contexts.VALIDATED)
        name = _CONTEXT_EVENTS.get(step)
        if name and self.events.hears(name):
            self.events.emit(name, worker_id=self.id, job_id=job.id, kind=job.kind, tenant=job.tenant)
