"""Texts of people, as they are stored and compared."""

import unicodedata
from itertools import groupby
from typing import Literal

_MOST_MARKS = 30  # of accents and the like on one letter, as in Unicode's stream-safe format; no language needs as many
_LIKE_MARKS = "\uff9e\uff9f"  # letters that become marks in NFKD


def composed(text: str) -> str:
    """The text with each letter and its accent as one character. The file names of a Mac, and what is copied from them,
    have two, and would be another text."""
    return normalized("NFC", text)


def normalized(form: Literal["NFC", "NFKD"], text: str) -> str:
    """The text in this form of Unicode's. One with more marks on a letter than any language needs stays as it is: to
    put them in order takes time in the square of their number, and 80 kB of them kept all threads waiting for 18 s."""
    return text if text.isascii() or _has_a_pile(text) else unicodedata.normalize(form, text)


def _has_a_pile(text: str) -> bool:
    marks = {each for each in set(text) if unicodedata.category(each).startswith("M") or each in _LIKE_MARKS}
    runs = groupby(text, marks.__contains__) if marks else ()
    return any(is_mark and sum(1 for _ in run) > _MOST_MARKS for is_mark, run in runs)
