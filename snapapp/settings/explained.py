"""The settings for people: each with its value, its origin and its meaning."""

from dataclasses import dataclass

from snapapp.settings.env_file import Origin
from snapapp.settings.table import TABLE, Settings


@dataclass(frozen=True, slots=True)
class Explained:
    """A row of `snapapp config --explain`; the value is safe to show."""

    name: str
    value: str
    source: Origin
    description: str


def explain(settings: Settings) -> list[Explained]:
    given = settings.given
    return [
        Explained(
            entry.name,
            entry.shown(getattr(settings, name)),
            given[entry.name].origin if entry.name in given else Origin.DEFAULT,
            entry.description,
        )
        for name, entry in TABLE.items()
    ]
