"""What a worker tells about itself: its row on the roster, the schedules it declares, and its health."""

import os
import platform
from dataclasses import dataclass

from snapapp.jobs.os import processes
from snapapp.jobs.rows.roster import Declared, Member
from snapapp.jobs.schedules.ledger import Declaration
from snapapp.jobs.worker.capacity.admission import Admission
from snapapp.jobs.worker.parts import WorkerParts
from snapapp.jobs.worker.slots import Executors


@dataclass(frozen=True, slots=True)
class Vitals:
    """The state of a worker as far as its process knows it, without a query."""

    held: int  # claimed jobs, running or waiting for a slot
    claims: bool  # its duties, among them the claim, are scheduled
    beats: bool  # a heartbeat was confirmed within the last lease_for
    settles: bool  # no finished attempt has waited for a whole lease to be written down
    last_beat_ms: int | None
    listens: bool  # LISTEN is proven alive
    note: str | None
    stuck: int  # jobs that ignore their deadline
    wants_restart: str | None  # why the process should be replaced by a new one


def member(parts: WorkerParts, executors: Executors) -> Member:
    settings, pid = parts.settings, os.getpid()
    host = platform.node() or "localhost"
    kinds = {name: executors.kinds_of(name) for name in executors.by_name}
    slots = {name: executor.slots for name, executor in executors.by_name.items()}
    if "process" in slots:
        # the configured number: the slots of a cluster are 0 while it is away, which `note` says
        slots["process"] = settings.children
    return Member(
        id=parts.id,
        name=settings.worker_name or f"{host}-{pid}",
        host=host,
        machine=processes.machine(),
        pid=pid,
        pid_started=processes.started(pid) or 0,
        queues=settings.queues,
        kinds=parts.registry.kinds(),
        declared=[Declared(its.kind, its.queue, its.max_attempts or settings.max_attempts) for its in parts.registry],
        slots=sum(slots[name] for name in slots if kinds[name]),  # an executor without kinds runs nothing
        state_file=executors.state_file.path,
        executors={name: {"slots": slots[name], "kinds": kinds[name]} for name in slots},
        membership=settings.membership,
    )


def declarations(parts: WorkerParts) -> list[Declaration]:
    return [
        Declaration(schedule, by.queue, by.max_attempts or parts.settings.max_attempts, parts.id)
        for schedule in parts.registry.schedules()
        for by in [parts.registry.get(schedule.name)]
    ]


def note(parts: WorkerParts, executors: Executors, admission: Admission, *, listens: bool) -> str | None:
    """What a person should know about this worker now, for the roster and /actuator/health; None: nothing."""
    notes = []
    if not listens:
        notes.append("polling: LISTEN is not proven alive")
    if parts.settings.compute and (children := executors.by_name.get("process")) and not children.slots:
        notes.append(f"the cluster at {parts.settings.compute} is away or has no nodes")
    if share := parts.web_priority.share():
        notes.append(f"held back by the web: {share:.0%} of the time")
    if stuck := executors.stuck:
        named = ", ".join(f"{job.kind} {job.id}" for job in stuck[:5])
        notes.append(f"threads that ignore their deadline: {len(stuck)} ({named})")
    if held := admission.held:
        notes.append(f"memory is short, held back: {', '.join(sorted(held)[:5])}")
    if executors.is_worn_out:
        notes.append("it wants a restart")
    return "; ".join(notes) or None
