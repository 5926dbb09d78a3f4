"""Broken versions of the schedules that the lab must notice, planted in the worker processes only."""

from collections.abc import Callable
from typing import Any

from snapapp.jobs.schedules import ledger, scheduler, slots


def everybody_fires() -> None:
    """No worker sees that another was first, and the ledger keeps one row of two."""
    ours = "ON CONFLICT (schedule, slot) DO UPDATE SET worker = excluded.worker RETURNING slot"
    edits = {" AND settled_until = %(after)s": "", "RETURNING slot": ours}
    for said, instead in edits.items():
        assert said in ledger._SETTLE
        ledger._SETTLE = ledger._SETTLE.replace(said, instead)


def only_the_newest_counts() -> None:
    """Slots that were missed are passed over in silence."""
    whole = slots.decide
    _replace(scheduler, "decide", lambda *given: whole(*given)[-1:])


def hours_that_come_twice_are_two() -> None:
    """As a scheduler does that goes by the time on the wall alone."""
    whole = slots._meanings
    _replace(slots, "_meanings", lambda time, zone, _repeats: whole(time, zone, True))


def hours_that_are_left_out_are_none() -> None:
    whole = slots._meanings

    def existing(time: Any, zone: Any, repeats: bool) -> Any:
        return [each for each in whole(time, zone, repeats) if "does not exist" not in each[1]]

    _replace(slots, "_meanings", existing)


# with the seed of a week in which it shows
MUTANTS: dict[str, tuple[Callable[[], None], int]] = {
    "everybody-fires": (everybody_fires, 1),
    "only-the-newest-counts": (only_the_newest_counts, 1),
    "hours-that-come-twice-are-two": (hours_that_come_twice_are_two, 2),
    "hours-that-are-left-out-are-none": (hours_that_are_left_out_are_none, 1),
}


def _replace(module: Any, name: str, instead: Callable[..., Any]) -> None:
    setattr(module, name, instead)
