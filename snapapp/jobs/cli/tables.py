"""Tables for a terminal, which fit its width, and text that cannot control it. In a file or a pipe nothing is cut."""

import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypedDict, Unpack
from unicodedata import east_asian_width

_GAP = "  "
_NARROWEST = 8  # the least width of a column of text; where that does not fit, each row becomes a block of lines
_EDGE, _EDGE_WRAPPED = 12, 20  # least widths of the first column, which names, and the last, which gives the reason
_GREEN, _RED, _YELLOW, _CYAN, _DIM, _BOLD = "32", "31", "33", "36", "2", "1"
_COLOURS = {
    **dict.fromkeys(("COMPLETED", "ACTIVE", "EXECUTED", "fired"), _GREEN),
    **dict.fromkeys(("FAILED", "LOST", "ERROR"), _RED),
    **dict.fromkeys(("RETRY_WAIT", "PAUSED", "DRAINED", "DRAINING", "STOPPING", "EXPIRED", "WARNING", "late"), _YELLOW),
    **dict.fromkeys(("RUNNING", "TAKEN"), _CYAN),
    **dict.fromkeys(("CANCELLED", "DEBUG", "skipped"), _DIM),
}


class Form(TypedDict, total=False):
    """The form of a table: the positions of columns that are treated in a special way."""

    numbers: Collection[int]  # columns aligned to the right and never cut
    whole: Collection[int]  # columns that are never cut
    spare: Sequence[int]  # columns that are left out if there is no room, in this order


def show_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: bool = False, **form: Unpack[Form]
) -> None:
    """Prints a table. On a terminal it fits the width: long text ends with …, or the last column is wrapped, and empty
    columns are left out. In a file or a pipe, every column is printed in full."""
    write_lines(table_in_lines(headers, rows, wraps=wraps, **form))


def table_in_lines(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, wraps: bool = False, **form: Unpack[Form]
) -> Iterator[str]:
    titles, cells, widths = _fit(headers, rows, _EDGE_WRAPPED if wraps else _EDGE, form)
    if widths is None:
        yield from _blocks(titles, cells)
        return
    right = [place in form.get("numbers", ()) for place in widths]
    yield painted(_line(_cells_at(widths, titles), [*widths.values()], right), _BOLD)
    for line in cells:
        yield from _row(
            _cells_at(widths, line), [*widths.values()], right, wraps=wraps and terminal_width() is not None
        )


def rows_in_lines(headers: Sequence[str], rows: Sequence[Sequence[str]], **form: Unpack[Form]) -> list[str]:
    """The table with exactly one line for the header and one for each row, however narrow the terminal is."""
    titles, cells, widths = _fit(headers, rows, _EDGE, form)
    if widths is None:
        return [cut(_GAP.join(filter(None, line)), terminal_width() or 0) for line in (titles, *cells)]
    right = [place in form.get("numbers", ()) for place in widths]
    return [_line(_cells_at(widths, line), [*widths.values()], right) for line in (titles, *cells)]


def show_pairs(pairs: Iterable[Sequence[str]]) -> None:
    """Prints rows without a header. Their last cell is long and is wrapped; its line breaks are kept."""
    write_lines(pairs_in_lines(pairs))


def pairs_in_lines(pairs: Iterable[Sequence[str]]) -> Iterator[str]:
    rows = [[*map(visible, row[:-1]), visible(row[-1], keep="\n")] for row in pairs]
    widths = [max(_width(row[place]) for row in rows) for place in range(len(rows[0]) - 1)]
    room = terminal_width()
    left = max(_NARROWEST, room - sum(widths) - len(_GAP) * len(widths)) if room is not None else None
    for row in rows:
        for number, text in enumerate(_wrapped(row[-1], left)):
            first = row[:-1] if number == 0 else [""] * len(widths)
            yield in_columns([*first, text], widths)


def text_in_lines(lines: Iterable[str]) -> Iterator[str]:
    """Wraps lines that are wider than the terminal; lines with colours have been fitted before."""
    for line in lines:
        yield from [line] if "\x1b" in line or line.isspace() else _wrapped(line, terminal_width())


def terminal_width() -> int | None:
    """The width of the terminal in columns; None: the output goes to a file or a pipe."""
    if not (os.environ.get("FORCE_COLOR") or sys.stdout.isatty()):
        return None
    return max(20, shutil.get_terminal_size().columns)


def _least(column: Iterable[str], is_whole: bool) -> int:
    """How narrow a column may become. A cell that is a number or a status is never cut."""
    return max(
        (
            _width(cell) if is_whole or cell.isdecimal() or cell in _COLOURS else min(_width(cell), _NARROWEST)
            for cell in column
        ),
        default=0,
    )


def _fit(
    headers: Sequence[str], rows: Sequence[Sequence[str]], last: int, form: Form
) -> tuple[list[str], list[list[str]], dict[int, int] | None]:
    """The titles, the cells, and the positions of the shown columns with their widths. None instead of the widths: the
    columns do not fit, however they are cut."""
    titles = [header.upper() for header in headers]
    cells = [[visible(cell) for cell in row] for row in rows]
    room, every, spare = terminal_width(), range(len(titles)), form.get("spare", ())
    whole = {*form.get("numbers", ()), *form.get("whole", ())}
    shown = [place for place in every if room is None or any(line[place] for line in cells)] or every
    for left_out in range(len(spare) + 1):
        places = [place for place in shown if place not in spare[:left_out]]
        columns = [[line[place] for line in (titles, *cells)] for place in places]
        least = [_least(column[1:], place in whole) for place, column in zip(places, columns, strict=True)]
        if widths := _fit_widths(columns, least, room, last):
            return titles, cells, dict(zip(places, widths, strict=True))
    return titles, cells, None


def _cells_at(places: Iterable[int], cells: Sequence[str]) -> list[str]:
    return [cells[place] for place in places]


def _fit_widths(columns: Sequence[Sequence[str]], least: list[int], room: int | None, last: int) -> list[int] | None:
    """The width of each column; the widest ones are made narrower first. None: they do not fit, however they are
    cut."""
    widths = [max(map(_width, column)) for column in columns]
    if room is None:
        return widths
    least[0], least[-1] = max(least[0], min(widths[0], _EDGE)), max(least[-1], min(widths[-1], last))
    widths = [min(wide, room) for wide in widths]
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - room):
        wider = [place for place, wide in enumerate(widths) if wide > max(least[place], 4)]
        if not wider:
            return None
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _row(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool], *, wraps: bool) -> Iterator[str]:
    if not wraps:
        yield _line(cells, widths, right)
        return
    for number, text in enumerate(_wrapped(cells[-1], widths[-1])):
        yield _line([*(cells[:-1] if number == 0 else [""] * (len(cells) - 1)), text], widths, right)


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return _GAP.join(map(_cell, cells, widths, right)).rstrip()


def _cell(text: str, width: int, is_right: bool) -> str:
    text = cut(text, width)
    blank = " " * (width - _width(text))
    return blank + _status(text) if is_right else _status(text) + blank


def in_columns(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of cells with these widths; the last cell has none. Text of jobs must have passed `visible` before."""
    padded = [_status(cell) + " " * (wide - _width(cell)) for cell, wide in zip(cells, widths, strict=False)]
    return _GAP.join([*padded, _status(cells[-1])]).rstrip()


def _blocks(titles: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """A table that is too wide for the terminal, as a block for each row with a line for each field that is not
    empty."""
    room, wide = terminal_width() or 0, max(map(len, titles))
    for number, line in enumerate(cells):
        if number:
            yield ""
        for title, cell in zip(titles, line, strict=True):
            for place, text in enumerate(_wrapped(cell, max(_NARROWEST, room - wide - len(_GAP))) if cell else ()):
                name = painted(title, _BOLD) if place == 0 else " " * len(title)
                yield f"{name}{' ' * (wide - len(title))}{_GAP}{_status(text)}"


def _wrapped(text: str, width: int | None) -> list[str]:
    lines = text.split("\n")
    if width is None:
        return lines
    return [part for line in lines for part in textwrap.wrap(line, width, break_on_hyphens=False) or [""]]


def _width(text: str) -> int:
    return len(text) if text.isascii() else sum(2 if east_asian_width(one) in "WF" else 1 for one in text)


def cut(text: str, width: int) -> str:
    if _width(text) <= width:
        return text
    text = text[: width - 1]
    while _width(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def _status(text: str) -> str:
    """Colours a status that is the whole text, or that stands before a comma."""
    word, comma, rest = text.partition(",")
    return painted(word, _COLOURS[word]) + comma + rest if word in _COLOURS else text


def painted(text: str, colour: str) -> str:
    is_plain = terminal_width() is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if is_plain or not text else f"\x1b[{colour}m{text}\x1b[0m"


def write_lines(lines: Iterable[str]) -> None:
    """Writes lines that have passed `visible`."""
    sys.stdout.writelines(f"{line}\n" for line in lines)


def visible(text: str, keep: str = "") -> str:
    """The text with control characters escaped: text of a job may hold any, and must not control the terminal."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else _escaped(character) for character in text
    )


def _escaped(character: str) -> str:
    return " " if character in "\n\t" else character.encode("unicode_escape").decode()
