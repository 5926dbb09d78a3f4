"""The errors of backups, with messages for people."""

from snapapp.errors import SnapError


class BackupError(SnapError):
    """A backup cannot be made, read or restored; the message says what to do."""


class Incomplete(BackupError):
    """The backup was made, and can be restored, without files that the storage does not give."""


class Damaged(BackupError):
    """The contents of a backup differ from its manifest."""


class NotEmpty(BackupError):
    """The database or storage to restore into holds something already, which must not be overwritten."""
