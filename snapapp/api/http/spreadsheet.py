"""CSV for spreadsheets, which Excel reads correctly and in which no text becomes a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

BOM = "\ufeff"  # without it Excel does not read the file as UTF-8
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_CELL_MAX = 32_767  # characters; Excel continues a longer cell in the next row


def lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; the first row may be the header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def cell(value: Any) -> str | int | float | None:
    """A value as a cell. Numbers stay numbers, negative ones too; a text that a spreadsheet would run as a formula gets
    a quote before it."""
    match value:
        case None | bool():
            return "" if value is None else str(value).lower()
        case int() | float():
            return value
        case datetime():
            return value.isoformat(timespec="milliseconds")
    text = str(value).replace("\0", "")[: _CELL_MAX - 1]
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
