"""Texts of people, as they are stored and compared."""

import unicodedata


def composed(text: str) -> str:
    """The text with each letter and its accent as one character. The file names of a Mac, and what is copied from them,
    have two, and would be another text."""
    return unicodedata.normalize("NFC", text)
