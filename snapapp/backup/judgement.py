"""Judges whether the backups are as the settings want them, for the doctor and for the alerts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from snapapp.backup.records import State, What
from snapapp.settings.table import Environment, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    id: str
    saw: str
    do: str
    age: timedelta | None
    is_serious: bool = True  # False: a notice only


def troubles(states: Mapping[What, State], settings: Settings) -> Iterator[Trouble]:
    if settings.backup_to is None:
        yield Trouble(
            id="BACKUP_NOT_SET",
            saw="There is no backup: SNAPAPP_BACKUP_TO is not set.",
            do="Set it to a folder on another disk or to s3://BUCKET/PREFIX, and run `snapapp backup` every night.",
            age=states[What.BACKUP].good_age,
            is_serious=settings.env is Environment.PROD,
        )
        return
    yield from _judge(What.BACKUP, states[What.BACKUP], settings.backup_max_age)
    yield from _judge(What.DRILL, states[What.DRILL], settings.backup_drill_max_age)


def _judge(what: What, state: State, within: timedelta) -> Iterator[Trouble]:
    name = what.value
    if state.failed is not None:
        yield Trouble(
            id=f"{name.upper()}_FAILED",
            saw=f"The last {name} failed: {state.failed}",
            do=f"Mend what it says, then type `snapapp {name}`.",
            age=state.good_age,
        )
    elif state.good_age is None or state.good_age > within:
        newest = "There was none yet" if state.good_age is None else f"The newest is {hours(state.good_age)} old"
        yield Trouble(
            id=f"{name.upper()}_OLD",
            saw=f"No good {name} within {hours(within)}. {newest}.",
            do=f"Is the timer running (systemctl list-timers snapapp-{name}.timer)? Type `snapapp {name}`.",
            age=state.good_age,
        )


def hours(age: timedelta) -> str:
    return f"{age / timedelta(hours=1):.0f} h"
