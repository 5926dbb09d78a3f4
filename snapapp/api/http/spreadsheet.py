"""Tables for spreadsheets: CSV that Excel opens as it was meant, and in which no text becomes a formula."""

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

BOM = "\ufeff"  # without it Excel reads UTF-8 as something else
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_CELL_MAX = 32_767  # characters; Excel cuts what is longer into the next row


def lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as CSV; the first of them may be the header."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([cell(value) for value in row] for row in rows)
    return text.getvalue()


def cell(value: Any) -> str | int | float | None:
    """Numbers stay numbers, the negative ones too; a text that a spreadsheet would run is quoted for it."""
    match value:
        case None | bool():
            return "" if value is None else str(value).lower()
        case int() | float():
            return value
        case datetime():
            return value.isoformat(timespec="milliseconds")
    text = str(value).replace("\0", "")[: _CELL_MAX - 1]
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
