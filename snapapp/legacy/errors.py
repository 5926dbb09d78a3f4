"""What can go wrong while moving in."""

from snapapp.errors import SnapError


class LegacyError(SnapError):
    """The old database, or a row in it, is not what it should be. Nothing was brought over."""
