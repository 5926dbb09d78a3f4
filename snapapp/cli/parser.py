"""What argparse does, and what was meant by what was mistyped."""

from argparse import Action, ArgumentError, ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Any


class Parser(ArgumentParser):
    """Its subcommands are parsers of this kind too, and each complains of what it does not know itself."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        read, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [each for each in unknown if each.startswith("-")]
            meant = nearest(options[0], self._option_string_actions) if options else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return read, unknown

    def _check_value(self, action: Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            meant = nearest(str(value), names) or f" (choose from {', '.join(names)})"
            raise ArgumentError(action, f"invalid choice: {value!r}{meant}")


def nearest(typed: str, names: Iterable[str]) -> str:
    """What to add to a complaint; empty where nothing is near."""
    from difflib import get_close_matches  # only whoever mistyped something waits for it

    known = {name.lower(): name for name in names}
    found = get_close_matches(typed.lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {known[found[0]]}?" if found else ""
