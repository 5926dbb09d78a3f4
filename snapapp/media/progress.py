"""How work that takes seconds tells where it is: a percentage and a step. What it raises ends the work."""

from collections.abc import Callable

Progress = Callable[[int, str], None]


def unheard(*_: object) -> None:
    """For whoever does not want to know."""
