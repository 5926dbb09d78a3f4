"""The results of the bench: samples, what they are compared with, and the stated targets; as a table and as JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from rich.table import Table
from rich.text import Text


@dataclass(frozen=True, slots=True)
class Target:
    """A bound that the product states; `of` says which number must keep it."""

    of: Literal["ours", "ratio"]
    bound: Literal["at least", "at most"]
    value: float

    def is_met_by(self, number: float) -> bool:
        return number >= self.value if self.bound == "at least" else number <= self.value

    def __str__(self) -> str:
        sign = "≥" if self.bound == "at least" else "≤"
        return f"{sign} {self.value:g}" + (" ×" if self.of == "ratio" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One line of the report. `ours[i]` and `beside[i]` were measured one right after the other, in run i."""

    name: str  # for machines, such as drain.1x500
    what: str  # for people
    unit: str
    ours: Sequence[float]
    beside: Sequence[float] = ()
    beside_is: str = ""
    target: Target | None = None
    more: dict[str, Any] = field(default_factory=dict)  # raw samples and further facts, for the JSON only

    @property
    def ratios(self) -> list[float]:
        """The ratio of each run: the machine is equally fast for the two of a pair, but not from run to run."""
        return [ours / beside for ours, beside in zip(self.ours, self.beside, strict=False) if beside]

    @property
    def ratio(self) -> float | None:
        ratios = self.ratios
        return median(ratios) if ratios else None

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None: there is no target, or nothing to compare with."""
        number = self.ratio if self.target and self.target.of == "ratio" else _median(self.ours)
        return None if self.target is None or number is None else self.target.is_met_by(number)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "ours": list(self.ours),
            "median": _median(self.ours),
            "beside": list(self.beside),
            "beside_is": self.beside_is,
            "beside_median": _median(self.beside),
            "ratios": self.ratios,
            "ratio": self.ratio,
            "target": str(self.target) if self.target else None,
            "met": self.is_met,
            **self.more,
        }


@dataclass(slots=True)
class Report:
    environment: dict[str, Any]
    measurements: list[Measurement] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # what could not be measured, and why

    def as_json(self) -> dict[str, Any]:
        return {
            "environment": self.environment,
            "measurements": [one.as_json() for one in self.measurements],
            "failures": self.failures,
        }

    def table(self) -> Table:
        table = Table(title="snapapp bench", title_justify="left", caption_justify="left", caption=self._caption())
        table.add_column("what")
        for title in ("ours [range]", "beside it", "ratio", "target"):
            table.add_column(title, justify="right")
        scenario = ""
        for one in self.measurements:
            if scenario and one.name.split(".")[0] != scenario:
                table.add_section()
            scenario = one.name.split(".")[0]
            table.add_row(*_row(one))
        return table

    def _caption(self) -> str:
        facts = self.environment
        return (
            f"PostgreSQL {facts.get('postgresql')}, fsync {facts.get('settings', {}).get('fsync')}, "
            f"{facts.get('cpus')} CPUs, Python {facts.get('python')}. "
            "Medians of the runs; a ratio is the median of the runs' own ratios."
        )


def _row(one: Measurement) -> tuple[str | Text, ...]:
    ours = _median(one.ours)
    beside = _median(one.beside)
    return (
        f"{one.what}, {one.unit}",
        "–" if ours is None else f"{_show(ours)} [{_show(min(one.ours))}–{_show(max(one.ours))}]",
        "" if beside is None else f"{_show(beside)} {one.beside_is}",
        "" if one.ratio is None else f"{one.ratio:.2f} ×",
        _verdict(one),
    )


def _verdict(one: Measurement) -> Text:
    if one.target is None:
        return Text("")
    mark, style = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("?", "yellow")}[one.is_met]
    return Text(f"{one.target} {mark}", style=style)


def _show(number: float) -> str:
    """The number with three significant digits."""
    size = abs(number)
    return f"{number:,.0f}" if size >= 100 else f"{number:.1f}" if size >= 10 else f"{number:.2f}"


def _median(samples: Sequence[float]) -> float | None:
    return median(samples) if samples else None


def percentile(samples: Iterable[float], percent: float) -> float:
    """The smallest sample that at least `percent` percent of the samples do not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
