"""What can be typed: the commands and their arguments. Only the parser of the typed command is built whole."""

from argparse import REMAINDER, ArgumentParser, ArgumentTypeError, _SubParsersAction
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from snapapp import __version__
from snapapp.cli import people
from snapapp.cli.parser import Parser, add_command, nearest

ALL = "*"  # in place of a typed command: every parser is built whole
FAMILIES = {
    "jobs": "list, show, follow, enqueue, retry, replay, cancel, discard or prune jobs",
    "queues": "list, pause or resume queues",
    "workers": "list the workers",
    "schedules": "list, preview, pause or run schedules",
    "limits": "list, set or remove limits of queues and keys",
    "retention": "list, set or remove how long finished jobs are kept",
    "fleet": "list, scale, restart, pause, resume, drain or stop pools of worker processes",
}


def parser_for(typed: Sequence[str]) -> ArgumentParser:
    parser = Parser(prog="snapapp", description="Serves, and works a job queue that is a PostgreSQL table.")
    parser.add_argument("--version", action="version", version=f"snapapp {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    serve = commands.add_parser("serve", help="start everything, in the foreground")
    serve.add_argument("--reload", action="store_true", help="start anew when a file of the code changes")
    _add_worker(commands)
    _add_supervisor(commands)
    _add_compute(commands)
    _add_migrate(commands)
    _add_psql(commands)
    _add_config(commands)
    for name, what in FAMILIES.items():
        family = add_command(commands, name, what)
        if typed[:1] in ([name], [ALL]):
            from snapapp.jobs import cli

            cli.add_arguments(name, family)
    _add_top(commands)
    people.add_commands(commands)
    commands.add_parser("demo", help="prepare the demo: a video and three snaps of it, for the page at /")
    _add_import_legacy(commands)
    _add_backups(commands)
    _add_doctor(commands, typed)
    _add_check_deploy(commands)
    _add_kinds(commands)
    _add_simulate(commands, typed)
    _add_bench(commands, typed)
    _add_completion(commands)
    commands.add_parser("version", help="say which version this is")
    return parser


def _add_worker(commands: "_SubParsersAction[Parser]") -> None:
    worker = commands.add_parser(
        "worker",
        help="work the queue in a process of its own",
        description="Works the queue until a signal: the first one lets running jobs finish, a second one does not.",
    )
    worker.add_argument("--queues", type=_as("worker_queues"), metavar="A,B", help="only these (default: all)")
    worker.add_argument("--concurrency", type=_as("worker_concurrency"), metavar="N", help="jobs in threads at once")
    worker.add_argument(
        "--processors",
        type=_as("processors"),
        metavar="A,B",
        help="only what these modules declare (default: the product's kinds, and those of SNAPAPP_PROCESSORS)",
    )
    worker.add_argument("--name", type=_as("worker_id"), help="a label for people")
    until = worker.add_mutually_exclusive_group()
    until.add_argument("--drain", action="store_true", help="stop when nothing is due any more")
    until.add_argument("--once", action="store_true", help="look at the queue once, run what was claimed, stop")


def _add_supervisor(commands: "_SubParsersAction[Parser]") -> None:
    supervisor = commands.add_parser(
        "supervisor",
        help="keep pools of worker processes running",
        description="Keeps pools of worker processes running until a signal: TERM and INT end it gracefully, USR2 "
        "restarts the pools one by one, USR1 pauses and CONT resumes them.",
    )
    supervisor.add_argument("--plan", type=_as("fleet_plan"), metavar="FILE", help="TOML (default: one pool for all)")
    supervisor.add_argument("--check", action="store_true", help="read the plan, print it, start nothing")


def _add_compute(commands: "_SubParsersAction[Parser]") -> None:
    what = "be a node of a cluster, on which workers run their children"
    compute = commands.add_parser("compute", help=what, description="Takes part in a cluster that runs children.")
    family = compute.add_subparsers(dest="act", metavar="COMMAND", required=True)
    node = family.add_parser("node", help=what, description=f"{what.capitalize()}, until a signal.")
    node.add_argument("scheduler", nargs="?", type=_as("compute"), help="dask://host:port (default: SNAPAPP_COMPUTE)")
    node.add_argument("--cores", type=_size, metavar="N", help="for jobs (default: those of the machine)")
    node.add_argument("--memory-mb", type=_size, metavar="MB", help="for jobs (default: all but 512 MB)")
    node.add_argument("--name", help="a label for people; no two nodes may have the same")


def _size(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 0:
        return int(text)
    raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to 99999999")


def _add_migrate(commands: "_SubParsersAction[Parser]") -> None:
    migrate = commands.add_parser("migrate", help="bring the database to the newest schema")
    migrate.add_argument("--check", action="store_true", help="change nothing; exit 1 if there is something to do")


def _add_top(commands: "_SubParsersAction[Parser]") -> None:
    top = commands.add_parser(
        "top",
        help="watch queues, jobs and workers live, and do something about them",
        description="Queues, jobs, workers, failures and what the doctor finds, live; ? says what the keys do. "
        "Without a terminal, or with --plain, it prints one snapshot after the other.",
    )
    views = ("queues", "jobs", "workers", "failures", "doctor")
    top.add_argument("view", nargs="?", choices=views, default="queues", help="what to begin with (default: queues)")
    top.add_argument("--every", type=_seconds, default=1.0, metavar="S", help="seconds between two looks (default: 1)")
    top.add_argument("--plain", action="store_true", help="print plain text, a snapshot after the other")
    top.add_argument("--once", action="store_true", help="print one snapshot and end")


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0.1 <= float(text) <= 3600:
            return float(text)
    raise ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")


def _add_import_legacy(commands: "_SubParsersAction[Parser]") -> None:
    importing = commands.add_parser(
        "import-legacy",
        help="bring over the old service's database",
        description="Brings over what snap-player-api kept: tenants with their tokens, templates, users, videos, snaps "
        "and links, all with the ids that they had, or nothing at all. Stop the old service first: what waits there is "
        "done here. Typed again, it brings what is new. Nothing is written to the old database.",
    )
    importing.add_argument("dsn", metavar="DSN", help="of the old database: postgresql://… or jdbc:postgresql://…")
    importing.add_argument(
        "--media", metavar="DIR|s3://BUCKET/PREFIX", help="where the old files lie (default: their URLs are kept)"
    )
    importing.add_argument("--json", action="store_true", help="for programs")


def _add_backups(commands: "_SubParsersAction[Parser]") -> None:
    shared = Parser(add_help=False)
    shared.add_argument("--json", action="store_true", help="for programs")
    which = Parser(add_help=False)
    which.add_argument("id", nargs="?", metavar="ID", help="as `snapapp backup --list` has it (default: the newest)")
    making = add_command(commands, "backup", "copy the database and the media to SNAPAPP_BACKUP_TO", parents=[shared])
    making.add_argument("--list", action="store_true", help="list the whole backups that are there, make none")
    commands.add_parser(
        "restore",
        help="bring a backup back, into an empty database and an empty storage",
        description="Brings a backup back into the database and the storage that the settings name. Both must be "
        "empty: nothing that is there is replaced. Interrupted, it goes on where it was when typed again.",
        parents=[which, shared],
    )
    commands.add_parser(
        "drill",
        help="restore the newest backup on trial, and remove it",
        description="Restores a backup into a database and a folder of its own, compares rows and hashes with what was "
        "backed up, and removes it.",
        parents=[which, shared],
    )


def _add_psql(commands: "_SubParsersAction[Parser]") -> None:
    # every argument is psql's, options too: with this prefix no typed word is an option of ours
    psql = commands.add_parser(
        "psql", help="open psql on the database in use; takes psql's arguments", prefix_chars="\0", add_help=False
    )
    psql.add_argument("arguments", nargs=REMAINDER)


def _add_doctor(commands: "_SubParsersAction[Parser]", typed: Sequence[str]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="say what is wrong with the queue and its database, and what to do",
        description="Says what is wrong with the queue and its database, why it matters and what to do. "
        "Exits with 0 if all is well, 1 if something needs a person, 2 if it cannot look.",
    )
    if typed[:1] in (["doctor"], [ALL]):
        from snapapp.jobs.doctor import CHECKS

        checks = (*CHECKS, "backups", "decoders", "data_disk", "bucket", "compute")
        names = ", ".join(checks)
        doctor.add_argument("--only", type=_among(checks), default=(), metavar="CHECK,…", help=f"among {names}")
    doctor.add_argument("--fix", action="store_true", help="do what is safe: sweep, analyze, clear away dead workers")
    doctor.add_argument("--json", action="store_true", help="for programs")


def _among(names: Collection[str]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        chosen = tuple(name.strip() for name in text.split(",") if name.strip())
        unknown = [name for name in chosen if name not in names]
        if unknown or not chosen:
            suggestion = nearest(unknown[0], names) if unknown else ""
            raise ArgumentTypeError(f"{text!r} is not among {', '.join(names)}{suggestion}")
        return chosen

    return read


def _add_check_deploy(commands: "_SubParsersAction[Parser]") -> None:
    check = commands.add_parser(
        "check-deploy",
        help="say whether this code knows all that waits",
        description="Holds the processors and schedules that this code declares against what waits in the database. "
        "Exits with 0 if it is safe to deploy, 1 if jobs or schedules would be left alone, 2 if it cannot look.",
    )
    check.add_argument("--json", action="store_true", help="for programs")


def _add_kinds(commands: "_SubParsersAction[Parser]") -> None:
    kinds = add_command(
        commands, "kinds", "show the kinds of jobs that this code declares, and what their payloads are"
    )
    kinds.add_argument("--json", action="store_true", help="for programs: with each payload's JSON schema")


def _add_simulate(commands: "_SubParsersAction[Parser]", typed: Sequence[str]) -> None:
    simulating = commands.add_parser(
        "simulate",
        help="say what jobs would wait for with other workers, limits or boxes",
        description="Lets jobs come as they came lately, or as a file describes them, to workers, limits and boxes "
        "that need not exist, and says what they would wait for. It starts nothing and changes nothing.",
    )
    if typed[:1] in (["simulate"], [ALL]):
        from snapapp.jobs.cli import simulate

        simulate.add_arguments(simulating)


def _add_bench(commands: "_SubParsersAction[Parser]", typed: Sequence[str]) -> None:
    parser = add_command(commands, "bench", "measure the queue on this machine")
    if typed[:1] in (["bench"], [ALL]):
        from snapapp import bench

        bench.add_arguments(parser)


def _add_completion(commands: "_SubParsersAction[Parser]") -> None:
    completion = add_command(commands, "completion", "print what a shell needs to complete these commands")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])


def _add_config(commands: "_SubParsersAction[Parser]") -> None:
    config = commands.add_parser("config", help="show the settings")
    config.add_argument("--explain", action="store_true", help="with where each value comes from and what it means")
    config.add_argument("--json", action="store_true", help="for programs")


def _as(setting: str) -> Callable[[str], Any]:
    """A reader that reads an option as the setting of this name is read."""

    def read(text: str) -> Any:
        from snapapp.settings.table import TABLE
        from snapapp.settings.types import UnreadableError

        if not text.strip():
            raise ArgumentTypeError("it is empty; without the option its setting or default counts")
        reader = TABLE[setting].reader
        try:
            return reader.read(text.strip())
        except UnreadableError as error:
            why = f": {error}" if str(error) else ""
            raise ArgumentTypeError(f"{text!r} is not {reader.accepts}{why}") from None

    return read
