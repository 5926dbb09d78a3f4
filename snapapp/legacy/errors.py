"""The error of the import from the old service."""

from snapapp.errors import SnapError


class LegacyError(SnapError):
    """The old database, or a row in it, is not as expected, and so nothing was brought over."""

    def __init__(self, why: str) -> None:
        super().__init__(f"{why} Nothing was brought over.")
        self.why = why
