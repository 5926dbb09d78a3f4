"""How commands are declared, and how their options are read."""

import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg

Db = psycopg.Connection[Any]
Act = Callable[[Db, Namespace], int]  # does what was typed, and returns the exit code
Add = Callable[..., ArgumentParser]


def whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        # int() alone would accept "1_000" and any number of digits.
        if not re.fullmatch(r"[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


job_number = whole(1, 2**63 - 1)


def text(text: str) -> str:
    if not text.isascii() and text.encode(errors="replace").decode() != text:  # bytes that are no text in this locale
        raise ArgumentTypeError(f"{text!r} is not text that PostgreSQL can keep")
    return text


def hexadecimal(text: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{6,64}", text):
        raise ArgumentTypeError(f"{text!r} is not the beginning of a hash: 6 to 64 of the digits 0-9 and a-f")
    return text


_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def duration(text: str) -> timedelta:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h|d)", text)
    if not match:
        raise ArgumentTypeError(f"{text!r} is not a duration: write 250ms, 10s, 5m, 2h or 1d")
    return timedelta(**{_UNITS[match[2]]: float(match[1])})


_LONGEST_AGE = timedelta(days=365_000)  # PostgreSQL's times do not begin much earlier


def age(text: str) -> timedelta:
    value = duration(text)
    if value > _LONGEST_AGE:
        raise ArgumentTypeError(f"{text!r} is longer than {_LONGEST_AGE.days}d, and nothing is so old")
    return value


def moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a time in ISO 8601, such as 2030-01-31T08:00:00Z") from None
    if moment.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} has no time zone: add Z for UTC, or an offset such as -03:00")
    return moment
