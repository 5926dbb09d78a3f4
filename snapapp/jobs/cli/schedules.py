"""`schedules …`: list, show, preview, pause, resume, fire, run."""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta

from snapapp.jobs import registry
from snapapp.jobs.amounts import about, ago, local, moment_and_age
from snapapp.jobs.cli.audited import note, noted
from snapapp.jobs.cli.shown import answer, folded_json, remark, say, show_json, show_list
from snapapp.jobs.cli.tables import show_pairs, show_table
from snapapp.jobs.cli.typed import Add, Db, moment, text, whole
from snapapp.jobs.rows.database import together
from snapapp.jobs.schedules import ledger, views
from snapapp.jobs.schedules.ledger import Settled
from snapapp.jobs.schedules.slots import InvalidSchedule, zone_of
from snapapp.jobs.schedules.views import LedgerEntry, ScheduleSummary


def add_commands(add: Add) -> None:
    add("list", list_schedules, "list the schedules, with their last slot and their next one")
    showing = add("show", show_schedule, "show all that is known of a schedule, and what became of its slots")
    showing.add_argument("name", type=text, metavar="NAME")
    showing.add_argument("--slots", type=whole(0, 10_000), default=20, help="how many slots (default: 20)")
    previewing = add("preview", preview_schedule, "show the coming slots, across changes of the clock")
    previewing.add_argument("name", type=text, metavar="NAME")
    previewing.add_argument("--count", type=whole(1, 10_000), default=20, help="how many (default: 20)")
    previewing.add_argument(
        "--from", dest="after", type=moment, metavar="TIME", help="such as 2030-03-30T00:00:00Z (default: now)"
    )
    pausing = add("pause", pause_schedule, "skip the slots of a schedule")
    pausing.add_argument("name", type=text, metavar="NAME")
    pausing.add_argument("--reason", type=text, help="for whoever wonders; it stands beside each skipped slot")
    resuming = add("resume", resume_schedule, "let a schedule fire again")
    resuming.add_argument("name", type=text, metavar="NAME")
    firing = add("fire", fire_schedules, "fire what is due now, once, as workers do; safe beside them")
    firing.set_defaults(needs_kinds=True)
    running = add("run", run_schedule, "enqueue the job of a schedule now, besides its slots")
    running.add_argument("name", type=text, metavar="NAME")


def list_schedules(db: Db, arguments: Namespace) -> int:
    headers = ["name", "when", "tz", "last slot", "became", "next slot", "note"]
    empty = "No worker has declared a schedule."
    return show_list(arguments, views.schedules(db), headers, _line, whole={1, 3, 5}, empty=empty)


def _line(its: ScheduleSummary) -> list[str]:
    last = ago(its.now - its.last_slot) if its.last_slot else "none yet"
    coming = f"in {about(its.next_slot - its.now)}" if its.next_slot else "never"
    became = its.last_outcome or ""
    return [its.name, its.spec, its.tz, last, became, coming, "; ".join(_notes(its))]


def _notes(its: ScheduleSummary) -> Iterator[str]:
    if not its.workers:
        yield "no worker alive declares it: nothing fires"
    if its.paused_at:
        yield f"paused {ago(its.now - its.paused_at)} {its.paused_reason or ''}".rstrip()
    if its.last_why:
        yield its.last_why


def show_schedule(db: Db, arguments: Namespace) -> int:
    its = views.schedule(db, arguments.name)
    ledger = views.ledger(db, its.name, limit=arguments.slots)
    if arguments.json:
        show_json(asdict(its) | {"slots": ledger})
        return 0
    show_pairs(_in_words(its))
    if ledger:
        say("\nslots, the newest first")
        slots = [_ledger_line(entry, its.tz) for entry in ledger]
        show_table(["slot", "became", "job", "by", "why"], slots, whole={0, 2})
    return 0


_MISSED = {
    "skip": "are skipped",
    "once": "the newest of them runs, late",
    "all": "the newest {} of them run, late",
}


def _in_words(its: ScheduleSummary) -> Iterator[tuple[str, str]]:
    yield "schedule", its.name
    yield "when", f"{its.spec} ({its.tz})"
    yield "next slot", moment_and_age(its.next_slot, its.now) if its.next_slot else "never"
    yield "paused", f"{moment_and_age(its.paused_at, its.now)} {its.paused_reason or ''}" if its.paused_at else "no"
    yield "declared", f"{moment_and_age(its.declared_at, its.now)}; {_declared_by(its.workers)}"
    yield "if missed", _MISSED[its.missed].format(its.at_most)
    yield "overlap", "yes" if its.overlap else "no: a slot is skipped while the job of the one before has not ended"
    yield "queue", its.queue
    yield "attempts", str(its.max_attempts)
    yield "payload", folded_json(its.payload)
    yield "last job", f"{its.last_job}, {its.last_job_status or 'forgotten'}" if its.last_job else "none yet"
    yield "created", moment_and_age(its.created_at, its.now)
    yield "settled until", moment_and_age(its.settled_until, its.now)


def _declared_by(workers: int) -> str:
    if not workers:
        return "by no worker that is alive: nothing fires"
    return "by one worker that is alive" if workers == 1 else f"by {workers} workers that are alive"


def _ledger_line(entry: LedgerEntry, tz: str) -> list[str]:
    job = f"{entry.job_id} {entry.job_status or 'forgotten'}" if entry.job_id else ""
    return [_local_time(entry.slot, tz), entry.outcome, job, (entry.worker or "a person")[:8], entry.why or ""]


def preview_schedule(db: Db, arguments: Namespace) -> int:
    its = views.schedule(db, arguments.name)
    slots = views.preview(its, after=arguments.after, count=arguments.count)
    if arguments.json:
        zone = zone_of(its.tz)
        show_json([{"at": slot.at, "local": slot.at.astimezone(zone).isoformat(), "note": slot.note} for slot in slots])
        return 0
    rows = [[_local_time(slot.at, its.tz), f"{slot.at:%Y-%m-%d %H:%M:%S}", slot.note] for slot in slots]
    show_table([f"in {its.tz}", "in utc", "note"], rows, whole={0, 1})
    if its.paused_at:
        remark(f"It is paused since {local(its.paused_at)}: until it is resumed its slots are skipped.")
    return 0


def _local_time(at: datetime, tz: str) -> str:
    there = at.astimezone(zone_of(tz))
    offset = there.utcoffset() or timedelta(0)
    return f"{there:%a %Y-%m-%d %H:%M:%S} {'-' if offset < timedelta(0) else '+'}{_clock(abs(offset))}"


def _clock(offset: timedelta) -> str:
    return f"{offset // timedelta(hours=1):02}:{offset // timedelta(minutes=1) % 60:02}"


def pause_schedule(db: Db, arguments: Namespace) -> int:
    with noted(db, "schedule.pause", f"schedule {arguments.name}", detail={"reason": arguments.reason}):
        views.pause(db, arguments.name, arguments.reason)
    facts = {"schedule": arguments.name, "paused": True}
    return answer(arguments, facts, f"The schedule {arguments.name} is paused; what runs goes on.")


def resume_schedule(db: Db, arguments: Namespace) -> int:
    with noted(db, "schedule.resume", f"schedule {arguments.name}"):
        views.resume(db, arguments.name)
    return answer(
        arguments, {"schedule": arguments.name, "paused": False}, f"The schedule {arguments.name} fires again."
    )


def run_schedule(db: Db, arguments: Namespace) -> int:
    with together(db):
        job_id = views.run(db, arguments.name)
        note(db, "schedule.run", f"schedule {arguments.name}", jobs=1, detail={"job": job_id})
    answer(arguments, {"schedule": arguments.name, "id": job_id}, f"Job {job_id}")
    if not views.schedule(db, arguments.name).workers:
        remark("No worker that is alive declares it: the job waits for one.")
    return 0


def fire_schedules(db: Db, arguments: Namespace) -> int:
    """Fires the due slots once, as a worker does. It leaves out schedules that neither a live worker nor the code here
    declares, because no processor for them may exist any more."""
    known = {(its.name, its.spec, its.tz) for its in registry.default.schedules()}
    fired: list[tuple[str, Settled]] = []
    code = 0
    for its in ledger.look(db, None, None):
        if not its.declared_by and (its.name, its.spec, its.tz) not in known:
            remark(f"{its.name}: no worker that is alive declares it, nor does the code here.")
            continue
        try:
            fired += [(its.name, each) for each in ledger.settle_due(db, its, None)]
        except InvalidSchedule as error:  # newer code declared it with a spec that this code cannot read
            remark(f"{its.name}: {error}")
            code = 1
    if arguments.json:
        show_json([{"schedule": name, **each._asdict()} for name, each in fired])
    elif fired:
        rows = [[name, local(each.slot), each.outcome, str(each.job_id or ""), each.why or ""] for name, each in fired]
        show_table(["schedule", "slot", "became", "job", "why"], rows, whole={1})
    else:
        say("Nothing is due.")
    return code
