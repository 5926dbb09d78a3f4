"""The error of the import from the old service."""

from snapapp.errors import SnapError


class LegacyError(SnapError):
    """The old database, or a row in it, is not as expected. Nothing was brought over."""
