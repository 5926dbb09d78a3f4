"""Durations, moments and numbers in words that a person reads."""

import itertools
from datetime import datetime, timedelta


def moment_and_age(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return ""
    return f"{local(moment)}, {ago(now - moment) if moment <= now else f'in {about(moment - now)}'}"


def local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


_UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
_BOTH_BELOW = 10  # "3 min 5 s", but "12 min"


def span(duration: timedelta) -> str:
    """A duration in words: 12 ms, 4.2 s, 3 min 5 s, 2 h."""
    seconds = max(0.0, duration.total_seconds())
    if seconds < 0.9995:
        return f"{digits(seconds * 1000)} ms"
    if seconds < 59.5:
        return f"{digits(seconds)} s"
    return _in_units(round(seconds))


def _in_units(seconds: int) -> str:
    for (unit, length), (part, shorter) in itertools.pairwise(_UNITS):
        if seconds >= length:
            many, rest = seconds // length, seconds % length // shorter
            return f"{many} {unit} {rest} {part}" if rest and many < _BOTH_BELOW else f"{many} {unit}"
    return f"{seconds} s"


def about(duration: timedelta) -> str:
    """A duration in one unit: 90 s, 3 min, 2 h, 5 d."""
    seconds = max(0.0, round(duration.total_seconds(), 3))
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    unit, length = next((each for each in _UNITS if seconds >= 2 * each[1]), _UNITS[-1])
    return f"{seconds // length:.0f} {unit}"


def ago(duration: timedelta) -> str:
    return "now" if duration < timedelta(seconds=1) else f"{about(duration)} ago"


def counted(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


def milliseconds(amount: float | None) -> str:
    return "?" if amount is None else span(timedelta(milliseconds=amount))


def digits(value: float) -> str:
    """A number with only as many decimals as a person reads (none from 10 on), and never with an exponent."""
    if value >= 9.95:
        return f"{value:.0f}"
    return f"{value:.{1 if value >= 0.095 else 3}f}".rstrip("0").rstrip(".")


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


def size(count: float) -> str:
    """A number of bytes in words, such as "1.5 GB"."""
    for unit, length in (("GB", 2**30), ("MB", 2**20)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count / 1024:.0f} kB"
