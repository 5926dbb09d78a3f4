"""What can go wrong with stored bytes, as people read it."""

from snapapp.errors import SnapError


class StorageError(SnapError):
    """The root of this package's errors."""


class InvalidKey(StorageError):
    """A text that cannot be a key: it would leave the storage, or no storage could keep it."""

    def __init__(self, key: object, reason: str) -> None:
        shown = repr(key)
        super().__init__(f"{shown if len(shown) <= 80 else shown[:80] + '…'} is no key: {reason}")


class NotStored(StorageError):
    """There is nothing under this key."""

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(f"Nothing is stored as {key}")


class Changed(StorageError):
    """The object was replaced while it was being read; what was read so far belongs to the one before."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key} was replaced while it was read")


class UploadTooLarge(StorageError):
    """More bytes came, or were announced, than an upload may have."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"The upload is larger than {max_bytes} bytes")


class NoRoom(StorageError):
    """The disk is under its floor, or would be; nothing new is taken until there is room again."""


class StorageAway(StorageError):
    """The storage does not do what it must, for reasons that may pass: network, permissions, a broken disk."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(f"The storage cannot be used for {key or 'its list'}: {' '.join(str(reason).split())[:300]}")


class UploadInUse(StorageError):
    """Somebody else sends bytes of it at this moment."""

    def __init__(self, upload_id: object) -> None:
        super().__init__(f"Somebody else is sending this upload: {upload_id}")


class UploadExpired(StorageError):
    """No byte of it came for a day."""

    def __init__(self, upload_id: object) -> None:
        super().__init__(f"No byte of this upload came for a day, begin anew: {upload_id}")
