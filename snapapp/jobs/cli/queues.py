"""`queues …` and `workers …`: list them, pause and resume queues."""

from argparse import Namespace
from collections.abc import Collection
from difflib import get_close_matches

from snapapp.jobs.amounts import about, ago, local
from snapapp.jobs.cli.audited import noted, person
from snapapp.jobs.cli.shown import answer, say, show_json, show_list
from snapapp.jobs.cli.tables import show_table
from snapapp.jobs.cli.typed import Add, Db, text
from snapapp.jobs.rows.people import overviews


def add_commands(add: Add) -> None:
    add("list", list_queues, "list the queues that have work in them, and the paused ones")
    pausing = add("pause", pause_queue, "let no worker claim from a queue")
    pausing.add_argument("queue", type=text, metavar="QUEUE")
    pausing.add_argument("--reason", type=text, help="for whoever wonders")
    resuming = add("resume", resume_queue, "let workers claim from a queue again")
    resuming.add_argument("queue", type=text, metavar="QUEUE")


def add_worker_commands(add: Add) -> None:
    add("list", list_workers, "list the workers, as of their last heartbeat")


def list_queues(db: Db, arguments: Namespace) -> int:
    queues = count_queues(db)
    show_json(queues) if arguments.json else show_queues(queues)
    return 0


def count_queues(db: Db, cap: int = overviews.CAP) -> list[overviews.QueueSummary]:
    with db.transaction():
        return overviews.queues(db, cap)


def show_queues(queues: list[overviews.QueueSummary]) -> None:
    if not queues:
        say("Every queue is empty, and none is paused.")
        return
    running, failed = sum(each.running for each in queues), sum(each.failed for each in queues)
    rows = [_queue_line(each, running, failed) for each in queues]
    headers = ["queue", "pending", "retry", "due", "running", "failed", "oldest due", "paused"]
    show_table(headers, rows, numbers={1, 2, 3, 4, 5, 6}, wraps=True)


def _queue_line(each: overviews.QueueSummary, running: int, failed: int) -> list[str]:
    waiting = [counted(count, each.waiting) for count in (each.pending, each.retry_wait, each.due)]
    counts = [*waiting, counted(each.running, running), counted(each.failed, failed)]
    oldest = about(each.oldest_due) if each.oldest_due is not None else ""
    paused = f"since {local(each.paused_at)} {each.paused_reason or ''}" if each.paused_at else ""
    return [each.queue, *counts, oldest, paused.rstrip()]


def counted(jobs: int, of: int, cap: int = overviews.CAP) -> str:
    """A count for people. `of` is how many were counted in all: above the cap counting stopped, so the count gets a
    +."""
    return f"{min(jobs, cap):,}+" if of > cap else str(jobs)


def pause_queue(db: Db, arguments: Namespace) -> int:
    sentence = pause(db, arguments.queue, arguments.reason)
    return answer(arguments, {"queue": arguments.queue, "paused": True}, sentence)


def pause(db: Db, queue: str, reason: str | None) -> str:
    with db.transaction():
        known = overviews.known(db)
    with noted(db, "queue.pause", f"queue {queue}", detail={"reason": reason}):
        overviews.pause(db, queue, reason, by=person())
    return f"The queue {queue} is paused; what runs goes on." + ("" if queue in known else _unheard_of(queue, known))


def _unheard_of(queue: str, known: Collection[str]) -> str:
    near = get_close_matches(queue, known, 1)
    return f" No job and no worker has named it before{f'; did you mean {near[0]}?' if near else '.'}"


def resume_queue(db: Db, arguments: Namespace) -> int:
    sentence = resume(db, arguments.queue)
    return answer(arguments, {"queue": arguments.queue, "paused": False}, sentence)


def resume(db: Db, queue: str) -> str:
    with noted(db, "queue.resume", f"queue {queue}"):
        overviews.resume(db, queue)
    return f"The queue {queue} is open."


def list_workers(db: Db, arguments: Namespace) -> int:
    workers = overviews.workers(db)
    has_pools = any(each.pool for each in workers)
    headers = ["id", "status", "busy", "done", "failed", "beat", *(["pool"] if has_pools else []), "name"]

    def line(its: overviews.WorkerSummary) -> list[str]:
        *cells, name = worker_line(its)
        return [*cells, *([its.pool or ""] if has_pools else []), name]

    empty = "No worker is on the roster."
    return show_list(arguments, workers, headers, line, numbers={2, 3, 4}, whole={5}, empty=empty)


def worker_line(each: overviews.WorkerSummary) -> list[str]:
    queues = f"({','.join(each.queues)})" if each.queues else ""
    name = " ".join(filter(None, [each.name, queues, each.note]))
    counts = [f"{len(each.current_jobs)}/{each.slots}", str(each.jobs_completed), str(each.jobs_failed)]
    return [each.id, each.status, *counts, ago(each.last_beat), name]
