"""The text of a header, in whichever encoding a client sends it."""


def as_sent(header: str) -> str:
    """The text of a header, which the framework reads as Latin-1. Browsers send it so, most other clients in UTF-8; a
    text in Latin-1 is hardly ever valid UTF-8 too."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header
