"""What can go wrong with backups, as people read it."""

from snapapp.errors import SnapError


class BackupError(SnapError):
    """A backup cannot be made, read or brought back; the message says what to do."""


class Damaged(BackupError):
    """What lies in a backup is not what its manifest says."""


class NotEmpty(BackupError):
    """What would be restored into holds something already, which must not be lost."""
