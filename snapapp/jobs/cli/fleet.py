"""`fleet …`: lists the supervisors and their pools, and sends commands to them."""

from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from time import monotonic, sleep

from snapapp.jobs.amounts import ago, local
from snapapp.jobs.cli.audited import note
from snapapp.jobs.cli.shown import answer, show_list
from snapapp.jobs.cli.typed import Add, Db, text, whole
from snapapp.jobs.fleet import commands, overview
from snapapp.jobs.fleet.commands import Action, CommandStatus, Sent, Source
from snapapp.jobs.rows.database import together

_WAIT = 15.0  # seconds
_MOST = 1000


def add_commands(add: Add) -> None:
    add("list", list_pools, "list the hosts with a supervisor and their pools")
    told = add("commands", list_commands, "list what supervisors were told, and what came of it")
    told.add_argument("--limit", type=whole(1, _MOST), default=20, metavar="N", help="how many (default: 20)")
    told.add_argument("--all", action="store_true", help="the autoscaler's too")
    decided = add("decisions", list_decisions, "list why pools were scaled")
    decided.add_argument("pool", nargs="?", type=text, metavar="POOL")
    decided.add_argument("--limit", type=whole(1, _MOST), default=20, metavar="N", help="how many (default: 20)")
    scaling = add("scale", tell, "fix how many processes a pool has; without a number its balance decides again")
    scaling.add_argument("pool", type=text, metavar="POOL")
    scaling.add_argument("amount", nargs="?", type=whole(0, _MOST), metavar="N")
    for action, what in _OF_POOLS.items():
        command = add(str(action), tell, what)
        command.add_argument("pool", nargs="?", type=text, metavar="POOL", help="default: all pools of the host")
        _add_where(command, action)
    _add_where(scaling, Action.SCALE)
    stopping = add("stop", tell, "stop the supervisor of a host: workers finish within the grace")
    stopping.set_defaults(pool=None)
    _add_where(stopping, Action.STOP)


_OF_POOLS = {
    Action.RESTART: "replace the workers of a pool one by one, with new code",
    Action.PAUSE: "let the workers of a pool claim nothing; what runs goes on",
    Action.RESUME: "the opposite of pause and drain",
    Action.DRAIN: "let the workers of a pool finish what they run and leave; none takes their place",
}


def _add_where(command: ArgumentParser, action: Action) -> None:
    command.set_defaults(action=action)
    command.add_argument("--host", type=text, help="which host; needed where there are several")
    command.add_argument("--reason", type=text, help="for whoever wonders")
    command.add_argument("--no-wait", action="store_true", help="do not wait for what comes of it")


# --- commands to supervisors ------------------------------------------------------------------------------------


def tell(db: Db, arguments: Namespace) -> int:
    detail = {"pool": arguments.pool, "amount": getattr(arguments, "amount", None), "reason": arguments.reason}
    with together(db):
        command = commands.send(db, arguments.action, host=arguments.host, source=Source.CLI, **detail)
        sent = commands.one(db, command)
        note(db, f"fleet.{arguments.action}", f"host {sent.host}", detail=detail | {"command": command})
    if not arguments.no_wait:
        sent = _wait_for_answer(db, command)
    answer(arguments, sent, _in_words(sent))
    return 0 if sent.status is CommandStatus.EXECUTED or (arguments.no_wait and not sent.status.is_final) else 1


def _wait_for_answer(db: Db, command: int) -> Sent:
    """The command once its supervisor has answered, or its host is known not to answer, or the time is up."""
    deadline = monotonic() + _WAIT
    while True:
        sent = commands.one(db, command)
        if sent.status.is_final or sent.output or monotonic() > deadline:
            return sent
        sleep(0.05)


def _in_words(sent: Sent) -> str:
    match sent.status:
        case CommandStatus.EXECUTED:
            return f"{sent.host}: {sent.output}"
        case CommandStatus.FAILED | CommandStatus.EXPIRED:
            return f"{sent.host}: {sent.status.lower()}: {sent.output}"
    waits = f", {sent.output}" if sent.output else ""
    return f"{sent.host}: command {sent.id} waits until {local(sent.expires_at)}{waits}"


# --- lists ------------------------------------------------------------------------------------------------------


def list_pools(db: Db, arguments: Namespace) -> int:
    headers = ["host", "pool", "state", "now", "wanted", "most", "busy", "done", "failed", "memory", "beat", "note"]
    empty = "No supervisor has been seen; `snapapp supervisor` starts one."
    return show_list(arguments, overview.fleet(db), headers, _pool_line, numbers={3, 4, 5, 6, 7, 8, 9}, empty=empty)


def _pool_line(one: overview.PoolLine) -> list[str]:
    beat = ago(datetime.now(UTC) - one.beat_at)
    if one.pool is None:
        return [one.host, "", one.master, *[""] * 7, beat, one.note or ""]
    state = one.state or "" if one.master == "ACTIVE" else one.master
    leaving = f"+{one.leaving}" if one.leaving else ""
    fixed = "!" if one.fixed_at is not None else ""
    busy = f"{one.running}/{one.slots}"
    done = [str(one.jobs_completed), str(one.jobs_failed), f"{one.memory_mb} MB"]
    note = "; ".join(filter(None, [one.state_reason, one.note]))
    return [
        *(one.host, one.pool, state, f"{one.present}{leaving}", f"{one.wanted}{fixed}", str(one.max_processes)),
        *(busy, *done, beat, note),
    ]


def list_commands(db: Db, arguments: Namespace) -> int:
    told = commands.sent(db, limit=arguments.limit, by_people=not arguments.all)
    headers = ["id", "at", "host", "command", "by", "status", "what came of it"]
    empty = "No supervisor has been told anything yet."
    return show_list(arguments, told, headers, _command_line, numbers={0}, whole={1, 3}, empty=empty)


def _command_line(one: Sent) -> list[str]:
    what = " ".join(filter(None, [one.action, one.pool, None if one.amount is None else str(one.amount)]))
    return [str(one.id), local(one.created_at), one.host, what, one.source, one.status, one.output or ""]


def list_decisions(db: Db, arguments: Namespace) -> int:
    decided = overview.decisions(db, pool=arguments.pool, limit=arguments.limit)
    headers, empty = ["at", "host", "pool", "processes", "because"], "No pool has been scaled yet."
    return show_list(arguments, decided, headers, _decision_line, whole={0, 3}, wraps=True, empty=empty)


def _decision_line(one: overview.Decided) -> list[str]:
    return [local(one.at), one.host, one.pool, f"{one.present} -> {one.wanted}", one.reason]
