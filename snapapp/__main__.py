"""The `snapapp` command. The code of a command is imported when it runs, so that `--help` answers at once."""

import gc
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from io import TextIOWrapper
from types import ModuleType

from snapapp import __version__
from snapapp.cli.arguments import ALL, FAMILIES, parser_for

_PLACES = {  # the function in snapapp.cli of each command
    "serve": "processes.service.run",
    "serve --reload": "processes.reload.run",  # only looks at files: to import the application takes two seconds
    "tenants": "product.tenant_command",
    "operators": "operators.run",
    "demo": "product.prepare_demo",
    "import-legacy": "product.import_legacy",
    "psql": "commands.psql",
    "migrate": "commands.migrate",
    "config": "commands.config",
    "doctor": "commands.diagnose",
    "check-deploy": "commands.check_deploy",
    "kinds": "commands.show_kinds",
    **dict.fromkeys(("backup", "restore", "drill"), "backups.run"),
    **dict.fromkeys(FAMILIES, "queue.run"),
    **{name: f"processes.{name}.run" for name in ("worker", "supervisor", "compute")},
    **{name: f"{name}.run" for name in ("bench", "top", "simulate")},
}
_LOGS = ("serve", "worker", "supervisor", "compute", "top")  # they begin the log, and hear signals themselves
_THAT_LOOK = ("doctor", "check-deploy")  # exit with 2 where they cannot, so that a script can tell "ill" from "unknown"


def main(arguments: Sequence[str] | None = None) -> int:
    words = _with_list(list(sys.argv[1:] if arguments is None else arguments))
    if arguments is None and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever began us ignores it: how children end would be lost
    _open_closed_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        # a command must not fail because the terminal lacks a character
        sys.stdout.reconfigure(errors="backslashreplace")
    code = 0
    try:
        code = _run(_parse(words))
        sys.stdout.flush()  # flushed here, where a reader that has gone away is caught below
        if arguments is None and words[:1] not in (["version"], ["completion"]):  # these import next to nothing
            from snapapp.jobs.os import exits

            exits.leave(code)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_stdout()
        return code
    except OSError as error:  # stdout is a file on a full disk; what a command finds wrong, `_run` has said
        _discard_stdout()
        sys.stderr.write(f"snapapp: {error.strerror or error}\n")
        return 1


def _open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that is closed, as in `snapapp backup >&-`. Python has no stream for it,
    and the next file or socket that is opened would get its number, and whatever a child prints."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so mostly the stream's own
            os.dup2(descriptor, number)
            if descriptor != number:
                os.close(descriptor)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _parse(typed: list[str]) -> Namespace:
    if not typed:
        parser_for(typed).print_help(sys.stderr)
        raise SystemExit(2)
    try:
        return parser_for(typed).parse_args(typed)
    except SystemExit:
        sys.stdout.flush()  # the help text; after this nothing would catch a reader that has gone away
        raise


def _with_list(typed: list[str]) -> list[str]:
    """The arguments with `list` added where a family is typed alone, or with options only: `snapapp jobs` lists
    jobs."""
    is_family = typed[:1] == ["tenants"] or typed[:1] in ([name] for name in FAMILIES)
    is_bare = len(typed) == 1 or (typed[1:2] and typed[1].startswith("-") and typed[1] not in ("-h", "--help"))
    return [typed[0], "list", *typed[1:]] if is_family and is_bare else typed


def _run(arguments: Namespace) -> int:
    if arguments.command == "version":
        sys.stdout.write(f"snapapp {__version__}\n")
        return 0
    if arguments.command == "completion":
        from snapapp.cli import completion

        sys.stdout.write(completion.script(arguments.shell, parser_for([ALL])))
        return 0
    from snapapp import logs
    from snapapp.cli.explanation import explanation
    from snapapp.jobs.os.signals import handled
    from snapapp.settings.loading import from_environment
    from snapapp.settings.table import LogLevel

    level = LogLevel.INFO
    try:
        settings = from_environment()
        level = settings.log_level
        if arguments.command not in _LOGS:
            logs.begin(settings, at_least=LogLevel.WARNING)
        is_reload = arguments.command == "serve" and arguments.reload
        module, _, run = _PLACES["serve --reload" if is_reload else arguments.command].rpartition(".")
        # ends as by Ctrl-C: an embedded server stops where nobody else uses it, and no file is left half made
        interrupted = handled(signal.default_int_handler, signal.SIGTERM, signal.SIGHUP)
        with nullcontext() if arguments.command in _LOGS else interrupted:
            code: int = getattr(_imported(f"snapapp.cli.{module}"), run)(arguments, settings)
        return code
    except BrokenPipeError:
        raise
    except Exception as error:
        message = explanation(error)
        if message is None:
            raise
        if level is LogLevel.DEBUG:
            sys.excepthook(type(error), error, error.__traceback__)
        else:
            sys.stderr.write(f"snapapp: {message}\n")
        return 2 if arguments.command in _THAT_LOOK else 1


def _imported(name: str) -> ModuleType:
    """What is imported stays, so to look through it for garbage is in vain: it would take a sixth of the time that
    `serve` needs to import, and later each full collection would stop all threads for longer."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _discard_stdout() -> None:
    """Points stdout to /dev/null: Python flushes stdout once more when it exits, and would report the broken pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
