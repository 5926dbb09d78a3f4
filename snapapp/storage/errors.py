"""The errors of the storage; their messages are for people."""

from snapapp.errors import SnapError


class StorageError(SnapError):
    """The root of this package's errors."""


class InvalidKey(StorageError):
    """A text that cannot be a key: its path would lead out of the storage, or a file system or S3 could not hold it."""

    def __init__(self, key: object, reason: str) -> None:
        shown = repr(key)
        super().__init__(f"{shown if len(shown) <= 80 else shown[:80] + '…'} is no key: {reason}")


class NotStored(StorageError):
    """There is nothing under this key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Nothing is stored as {key}")


class Changed(StorageError):
    """The object was replaced while it was being read; the bytes read so far belong to the old object."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was replaced while it was read")


class UploadTooLarge(StorageError):
    """The client sent, or announced, more bytes than an upload may have."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The upload is larger than {max_bytes} bytes")


class NoRoom(StorageError):
    """The disk has less free space than its floor, or would have; new bytes are refused until there is space again."""


class StorageAway(StorageError):
    """The storage failed for a reason that may pass: the network, permissions, a broken disk."""

    def __init__(self, key: str, reason: object) -> None:
        self.reason = " ".join(str(reason).split())[:500]
        super().__init__(self._said(key or "its list"))

    def _said(self, key: str) -> str:
        return f"The storage cannot be used for {key}: {self.reason}"


class ObjectRefused(StorageAway):
    """The storage can be used, but refuses to give this one object. The message is for whoever marked a moment of it,
    the reason for whoever runs the server."""

    def _said(self, key: str) -> str:
        return f"The storage refuses to give the file {key} alone: it is in an archive, or its rights were changed"


class UploadInUse(StorageError):
    """Another request is sending bytes of the same upload at this moment."""

    def __init__(self, upload_id: object) -> None:
        super().__init__(f"Somebody else is sending this upload: {upload_id}")


class UploadExpired(StorageError):
    """No byte of the upload came for a day."""

    def __init__(self, upload_id: object) -> None:
        super().__init__(f"No byte of this upload came for a day, begin anew: {upload_id}")
