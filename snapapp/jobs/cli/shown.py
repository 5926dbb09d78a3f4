"""How it looks: tables and sentences for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def show_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Iterable[int] = ()) -> None:
    """Columns on a terminal; whole lines without colours elsewhere. Only the last column may be cut or wrapped."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console = Console(highlight=False, markup=False, emoji=False, no_color=True, width=100_000)
    width = len(rows[0]) if rows else len(headers)
    table = Table(box=None, show_header=bool(headers), padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    for place in range(width):
        is_last, is_number = place == width - 1, place in set(numbers)
        longest = max([len(row[place]) for row in rows] + [len(headers[place]) if headers else 0])
        table.add_column(
            Text(headers[place].upper() if headers else ""),
            justify="right" if is_number else "left",
            no_wrap=not is_last,
            min_width=None if is_last else min(longest, 40),
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def show_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=plain) + "\n")


def plain(value: object) -> object:
    match value:
        case datetime():
            return value.astimezone(UTC).isoformat()
        case timedelta():
            return value.total_seconds()
    return str(value)


def say(text: str) -> None:
    sys.stdout.write(visible(text, keep="\n") + "\n")


def whisper(text: str) -> None:
    """To people, beside the output that a program may be reading."""
    sys.stderr.write(visible(text) + "\n")


def visible(text: str, keep: str = "") -> str:
    """What a job says may hold anything, and must not steer the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode()


def in_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def first_line(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= 100 else f"{line[:99]}…"


def moment_and_age(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "not yet"
    ago = now - moment
    return f"{local(moment)}, {f'{span(ago)} ago' if ago >= timedelta(0) else f'in {span(-ago)}'}"


def local(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def span(duration: timedelta) -> str:
    seconds = max(0.0, duration.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"
