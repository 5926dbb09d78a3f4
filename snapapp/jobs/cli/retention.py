"""`retention …`: list, set and remove how long finished jobs are kept, by kind and how they ended."""

from argparse import ArgumentParser, Namespace
from datetime import timedelta

from snapapp.jobs.amounts import number, span
from snapapp.jobs.cli.audited import noted
from snapapp.jobs.cli.shown import answer, show_list
from snapapp.jobs.cli.typed import Add, Db, age, text, whole
from snapapp.jobs.errors import JobsError
from snapapp.jobs.model import FINAL, Status
from snapapp.jobs.rows import retention
from snapapp.jobs.rows.retention import Rule


def add_commands(add: Add) -> None:
    add("list", list_rules, "list the rules; what has none is kept for SNAPAPP_JOB_RETENTION_HOURS")
    setting = add("set", set_rule, "set how long, or how many, finished jobs of a kind and status are kept")
    _add_place(setting)
    how_long = setting.add_mutually_exclusive_group()
    how_long.add_argument("--keep", type=age, metavar="AGE", help="since they ended: 12h, 30d; 0s keeps none")
    how_long.add_argument("--for-ever", action="store_true", help="their age is no reason to delete them")
    setting.add_argument("--newest", type=whole(0, 2**31 - 1), metavar="N", help="and no more than so many of a kind")
    _add_place(add("remove", remove_rule, "remove a rule"))


def _add_place(parser: ArgumentParser) -> None:
    parser.add_argument("status", type=str.upper, choices=[status.value for status in FINAL], metavar="STATUS")
    parser.add_argument("--kind", type=text, default="", help="else every kind that has no rule of its own")


def list_rules(db: Db, arguments: Namespace) -> int:
    headers = ["kind", "status", "kept for", "newest"]
    empty = "There is no rule: all that is over is kept for SNAPAPP_JOB_RETENTION_HOURS."
    return show_list(arguments, retention.rules(db), headers, _line, numbers={3}, empty=empty)


def _line(rule: Rule) -> list[str]:
    kept = "ever" if rule.keep is None else span(rule.keep)
    return [rule.kind or "(every other)", rule.status, kept, number(rule.newest)]


def set_rule(db: Db, arguments: Namespace) -> int:
    if arguments.keep is None and not arguments.for_ever:
        arguments.error("say how long: --keep AGE or --for-ever")
    rule = Rule(arguments.kind, Status(arguments.status), arguments.keep, arguments.newest)
    keep_ms = None if rule.keep is None else rule.keep // timedelta(milliseconds=1)
    with noted(db, "retention.set", _subject(arguments), detail={"keepMs": keep_ms, "newest": rule.newest}):
        retention.set_rule(db, rule)
    sentence = "The rule holds; what it no longer keeps goes within minutes, what is too many within an hour."
    return answer(arguments, {"kind": arguments.kind, "status": arguments.status}, sentence)


def remove_rule(db: Db, arguments: Namespace) -> int:
    with noted(db, "retention.remove", _subject(arguments)):
        if not retention.remove_rule(db, arguments.kind, Status(arguments.status)):
            raise JobsError(f"there is no rule for {arguments.status} jobs of {arguments.kind or 'every kind'}")
    return answer(arguments, {"kind": arguments.kind, "status": arguments.status}, "The rule is gone.")


def _subject(arguments: Namespace) -> str:
    return f"retention {arguments.status} {arguments.kind}".rstrip()
