"""`limits …`: list, set and remove how many jobs of a queue, kind or key may run at once or start a second."""

import re
from argparse import ArgumentTypeError, Namespace

from snapapp.jobs.amounts import number
from snapapp.jobs.cli.audited import noted
from snapapp.jobs.cli.shown import answer, show_list
from snapapp.jobs.cli.typed import Add, Db, text, whole
from snapapp.jobs.errors import JobsError
from snapapp.jobs.rows import limits as rows
from snapapp.jobs.rows.limits import Limit

_SET = """
INSERT INTO job_limit (key_pattern, max_running, rate, burst)
VALUES (%(pattern)s, %(max_running)s, %(rate)s, %(burst)s)
ON CONFLICT (key_pattern) DO UPDATE
   SET max_running = excluded.max_running, rate = excluded.rate, burst = excluded.burst
"""


def add_commands(add: Add) -> None:
    add("list", list_limits, "list the limits and what runs under them")
    setting = add("set", set_limit, "set the limit of a queue, kind or key, or of all that begin alike")
    setting.add_argument(
        "pattern", type=pattern, metavar="PATTERN", help="queue:NAME, kind:NAME or key:KEY; a * at the end"
    )
    setting.add_argument("--max-running", type=whole(0, 2**31 - 1), metavar="N", help="at once; 0 stops it")
    setting.add_argument("--rate", type=rate, metavar="R", help="started a second, such as 5 or 0.1")
    setting.add_argument("--burst", type=whole(1, 2**31 - 1), metavar="N", help="started at once after a rest")
    removing = add("remove", remove_limit, "remove a limit")
    removing.add_argument("pattern", type=pattern, metavar="PATTERN", help="as `limits list` shows it")


def pattern(typed: str) -> str:
    if not re.fullmatch(r"(queue|kind|key):.{1,595}", text(typed), re.DOTALL):
        raise ArgumentTypeError(
            f"{typed!r} is no pattern: write queue:NAME, kind:NAME or key:KEY, with or without a * at the end"
        )
    return typed


def rate(typed: str) -> float:
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,9})?", typed) or not 0 < float(typed) <= 1_000_000:
        raise ArgumentTypeError(f"{typed!r} is not a number above 0, up to 1000000")
    return float(typed)


def list_limits(db: Db, arguments: Namespace) -> int:
    headers = ["limit", "at once", "a second", "burst", "running", "keys", "full"]
    return show_list(arguments, rows.limits(db), headers, _line, numbers={1, 2, 3, 4, 5, 6}, empty="There is no limit.")


def _line(one: Limit) -> list[str]:
    numbers = map(number, (one.max_running, one.rate, one.burst, one.running, one.keys_running, one.keys_full))
    return [one.key_pattern, *numbers]


def set_limit(db: Db, arguments: Namespace) -> int:
    if arguments.max_running is None and arguments.rate is None:
        arguments.error("say how much: --max-running, --rate or both")
    if arguments.burst is not None and arguments.rate is None:
        arguments.error("--burst belongs to a --rate")
    wanted = {name: getattr(arguments, name) for name in ("pattern", "max_running", "rate", "burst")}
    with noted(db, "limit.set", f"limit {arguments.pattern}", detail=wanted):
        db.execute(_SET, wanted)
    return answer(arguments, wanted, f"The limit {arguments.pattern} holds; what runs goes on.")


def remove_limit(db: Db, arguments: Namespace) -> int:
    with noted(db, "limit.remove", f"limit {arguments.pattern}"):
        gone = db.execute("DELETE FROM job_limit WHERE key_pattern = %s", [arguments.pattern])
        if not gone.rowcount:
            raise JobsError(f"there is no limit {arguments.pattern}")
    facts = {"pattern": arguments.pattern, "removed": True}
    return answer(arguments, facts, f"The limit {arguments.pattern} is gone.")
