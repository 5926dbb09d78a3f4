"""Commands to supervisors: rows of job_command, which anybody may add and NOTIFY announces. A supervisor executes each
command at most once, and writes the result into its row."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from snapapp.jobs.fleet.errors import InvalidCommand, UnknownPool
from snapapp.jobs.rows.database import Db, Refusals, refusals, run, value_of

CHANNEL = "snapapp_fleet"
EXPIRES_IN = timedelta(minutes=1)
_HIGHEST = 2**63 - 1


class Action(StrEnum):
    SCALE = "scale"
    RESTART = "restart"
    PAUSE = "pause"
    RESUME = "resume"
    DRAIN = "drain"
    STOP = "stop"


class Source(StrEnum):
    SQL = "sql"
    CLI = "cli"
    API = "api"
    AUTOSCALER = "autoscaler"


class CommandStatus(StrEnum):
    PENDING = "PENDING"
    TAKEN = "TAKEN"
    EXECUTED = "EXECUTED"
    FAILED = "FAILED"
    EXPIRED = "EXPIRED"

    @property
    def is_final(self) -> bool:
        return self in (CommandStatus.EXECUTED, CommandStatus.FAILED, CommandStatus.EXPIRED)


@dataclass(frozen=True, slots=True)
class Order:
    """A command as its supervisor reads it. Anybody may write such a row, so nothing in it is trusted."""

    id: int
    action: str
    pool: str | None
    amount: int | None
    reason: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A command as people look at it."""

    id: int
    host: str
    action: str
    pool: str | None
    amount: int | None
    reason: str | None
    source: str
    status: CommandStatus
    output: str | None
    created_at: datetime
    expires_at: datetime
    taken_at: datetime | None
    finished_at: datetime | None


# --- sending ----------------------------------------------------------------------------------------------------

_SEND = """
SELECT command_fleet(%(action)s::text, %(pool)s::text, %(amount)s::integer, %(reason)s::text, %(host)s::text,
                     %(source)s::text, %(expires_in)s::interval)
"""


def send(
    db: Db,
    action: str,
    *,
    host: str | None = None,
    pool: str | None = None,
    amount: int | None = None,
    reason: str | None = None,
    source: Source = Source.SQL,
    expires_in: timedelta = EXPIRES_IN,
) -> int:
    """Adds a command, which is announced at commit, and returns its id. InvalidCommand and UnknownPool abort the
    caller's transaction. The host may be left out if there is only one. `scale` without an amount lets the pool's
    balance decide again."""
    given = {"action": action, "host": host, "pool": pool, "amount": amount, "reason": reason}
    with refusals(_REFUSALS, of_constraints=True):
        [(command,)] = run(db, _SEND, {**given, "source": str(source), "expires_in": expires_in})
    return int(command)


_REFUSALS: Refusals = {**dict.fromkeys(("22023", "22003", "23514"), InvalidCommand), "P0002": UnknownPool}


# --- reading ----------------------------------------------------------------------------------------------------

_SHOW = """
SELECT id, host, action, pool, amount, reason, source, status, output, created_at, expires_at, taken_at, finished_at
  FROM command_overview
 WHERE id < %(before)s AND (%(only)s::bigint IS NULL OR id = %(only)s)
   AND (%(people)s IS FALSE OR source <> 'autoscaler')
 ORDER BY id DESC LIMIT %(limit)s
"""


def sent(db: Db, *, before: int | None = None, limit: int = 50, by_people: bool = False) -> list[Sent]:
    """The commands, the newest first; `before` is the id of the last one seen. The output of a waiting command says if
    its host does not answer."""
    given = {"before": before or _HIGHEST, "only": None, "limit": limit, "people": by_people}
    return [_as_sent(row) for row in run(db, _SHOW, given)]


def one(db: Db, command: int) -> Sent:
    given = {"before": _HIGHEST, "only": command, "limit": 1, "people": False}
    rows = run(db, _SHOW, given)
    if not rows:
        raise UnknownPool(f"there is no command {command}")
    return _as_sent(rows[0])


def _as_sent(row: Sequence[Any]) -> Sent:
    return value_of(Sent, row, status=CommandStatus)


# --- taking and answering, by a supervisor ----------------------------------------------------------------------

# A command that an earlier supervisor of the host took and never answered is closed as FAILED: nobody knows how far it
# was carried out.
_TAKE = """
WITH expired AS (
    UPDATE job_command SET status = 'EXPIRED', finished_at = now(), output = 'nobody took it in time'
     WHERE host = %(host)s AND status = 'PENDING' AND expires_at <= now()
), abandoned AS (
    UPDATE job_command SET status = 'FAILED', finished_at = now(),
           output = 'the supervisor that took it ended before it could say what came of it'
     WHERE host = %(host)s AND status = 'TAKEN' AND master <> %(master)s
), taken AS (
    UPDATE job_command SET status = 'TAKEN', master = %(master)s, taken_at = now()
     WHERE id = ANY (ARRAY(SELECT id FROM job_command
                            WHERE host = %(host)s AND status = 'PENDING' AND expires_at > now()
                            ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))
    RETURNING id, action, pool, amount, reason, source
)
SELECT * FROM taken ORDER BY id
"""

_ANSWER = """
UPDATE job_command SET status = %(status)s, output = left(%(output)s, 4000), finished_at = now()
 WHERE id = %(id)s AND status = 'TAKEN' AND master = %(master)s
RETURNING id
"""


def take(db: Db, host: str, master: str) -> list[Order]:
    """Takes the waiting commands of this host, the oldest first; this supervisor must then answer them."""
    return [Order(*row) for row in run(db, _TAKE, {"host": host, "master": master})]


def answer(db: Db, order: int, master: str, output: str, *, failed: bool = False) -> bool:
    """Writes the result of a command. False: this supervisor no longer has it."""
    status = CommandStatus.FAILED if failed else CommandStatus.EXECUTED
    given = {"id": order, "master": master, "status": str(status), "output": output}
    return bool(run(db, _ANSWER, given))
