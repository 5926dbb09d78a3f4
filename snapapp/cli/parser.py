"""argparse's parser, with suggestions for mistyped options and choices."""

from argparse import Action, ArgumentError, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterable, Sequence
from typing import Any


class Parser(ArgumentParser):
    """A parser that suggests the nearest name. Its subcommands are parsers of this class too, and each reports the
    arguments that are unknown to it itself."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        read, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [each for each in unknown if each.startswith("-")]
            suggestion = nearest(options[0], self._option_string_actions) if options else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}")
        return read, unknown

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            suggestion = nearest(str(value), names) or f" (choose from {', '.join(names)})"
            raise ArgumentError(action, f"invalid choice: {value!r}{suggestion}")


def add_command(commands: "_SubParsersAction[Parser]", name: str, what: str, **more: Any) -> Parser:
    """Adds a command whose own help text is the same as its line in the list of commands."""
    return commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.", **more)


def nearest(typed: str, names: Iterable[str]) -> str:
    """The suggestion to add to an error message; empty where no name is near."""
    from difflib import get_close_matches  # imported here: only a mistyped command needs it

    by_lower_case = {name.lower(): name for name in names}
    matches = get_close_matches(typed.lower(), by_lower_case, n=1, cutoff=0.6)
    return f"; did you mean {by_lower_case[matches[0]]}?" if matches else ""
