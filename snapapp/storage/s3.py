"""Objects in a bucket of any server that speaks S3. Objects are read in ranges; each range is of the same content, or
its read raises Changed."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, PreconditionError
from obstore.store import S3Store

from snapapp.storage import keys
from snapapp.storage.errors import Changed, NotStored, ObjectRefused, StorageAway
from snapapp.storage.model import Reader, Source, Storage, Stored
from snapapp.storage.room import MB, Room

_BLOCK = MB // 2  # bytes of one ranged read; each request is a round trip, and costs money
_PART = 8 * MB  # of a multipart upload; S3's 10,000 parts are 78 GB
_PARTS_AT_ONCE = 2  # so much of a large object is in memory
_PAGE = 1000  # what S3 lists and deletes with one request
_ANSWER_WITHIN = timedelta(seconds=30)
_TRY_FOR = timedelta(seconds=20)
_RETRIES = 4


class S3(Storage):
    """`spool` is a local folder in which uploads stay until they are complete."""

    def __init__(
        self,
        *,
        bucket: str,
        endpoint: str | None,
        region: str,
        access_key_id: str,
        secret_access_key: str,
        prefix: str,
        spool: Path,
        room: Room,
    ) -> None:
        super().__init__(spool, spool.with_name("resumable"), room)
        endpoint_option: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        self._store = S3Store(
            bucket,
            prefix=prefix or None,
            region=region,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            client_options={
                "allow_http": bool(endpoint and endpoint.startswith("http://")),
                "connect_timeout": timedelta(seconds=5),
                "timeout": _ANSWER_WITHIN,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": _TRY_FOR},
            **endpoint_option,
        )

    def put(self, key: str, source: Source) -> None:
        keys.checked(key)
        if isinstance(source, Path):
            with source.open("rb") as file:
                self.put(key, file)
            return
        try:
            with self._errors_as_ours(key):
                obstore.put(self._store, key, source, chunk_size=_PART, max_concurrency=_PARTS_AT_ONCE)
        except NotStored as error:  # somebody, or a rule of the bucket, has ended the upload in parts
            raise StorageAway(key, error.__cause__) from error

    def open(self, key: str) -> Reader:
        stored = self.stat(key)
        return Reader(_Ranges(self._store, stored), stored, block=_BLOCK)

    def stat(self, key: str) -> Stored:
        with self._errors_as_ours(keys.checked(key)), _own_refusal(self._store, key):
            return _stored(obstore.head(self._store, key))

    def listed(self, prefix: str = "") -> Iterator[Stored]:
        if prefix:
            keys.checked_prefix(prefix)
        with self._errors_as_ours(prefix):
            for page in obstore.list(self._store, prefix or None, chunk_size=_PAGE):
                yield from map(_stored, page)

    def delete(self, key: str) -> None:
        with self._errors_as_ours(keys.checked(key)):
            obstore.delete(self._store, key)

    def delete_prefix(self, prefix: str) -> int:
        below = [stored.key for stored in self.listed(keys.checked_prefix(prefix))]
        with self._errors_as_ours(prefix):
            for start in range(0, len(below), _PAGE):
                obstore.delete(self._store, below[start : start + _PAGE])
        return len(below)

    def _publish(self, whole_file: Path, key: str) -> None:
        self.put(key, whole_file)
        whole_file.unlink()

    def _errors_as_ours(self, key: str) -> AbstractContextManager[None]:
        return _errors_as_ours(self._store, key)


class _Ranges(io.RawIOBase):
    """An object as an unbuffered file; `Reader` is the buffer around it."""

    def __init__(self, store: S3Store, stored: Stored) -> None:
        self._store = store
        self._stored = stored
        self._at = 0

    def readinto(self, target: Any) -> int:
        stop = min(self._at + len(target), self._stored.size)
        if stop <= self._at:
            return 0
        with _errors_as_ours(self._store, self._stored.key), _own_refusal(self._store, self._stored.key):
            content = obstore.get(
                self._store,
                self._stored.key,
                options={"range": (self._at, stop), "if_match": self._stored.etag},
            ).bytes()
        target[: len(content)] = content
        self._at += len(content)
        return len(content)

    def readall(self) -> bytes:
        """In one request, where the base class asks for 8 KiB at a time."""
        return self.read(max(0, self._stored.size - self._at)) or b""

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stored.size}[whence]
        if base + offset < 0:
            raise ValueError(f"There is nothing before the first byte: {base + offset}")
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


@contextmanager
def _errors_as_ours(store: S3Store, key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        _require_bucket(store, key)
        raise NotStored(key) from error
    except PreconditionError as error:
        raise Changed(key) from error
    except (BaseError, OSError) as error:
        raise StorageAway(key, error) from error


@contextmanager
def _own_refusal(store: S3Store, key: str) -> Iterator[None]:
    """Raises ObjectRefused where the refusal is of this object alone. The bucket is asked for another one, which need
    not be there: a key that may read nothing is refused for that, too."""
    try:
        yield
    except PermissionDeniedError as error:
        with suppress(FileNotFoundError):
            obstore.head(store, keys.OWNER)
        raise ObjectRefused(key, error) from error


def _require_bucket(store: S3Store, key: str) -> None:
    """Raises StorageAway where the bucket is gone: it answers for an object as if only that were missing, and a list
    alone tells."""
    try:
        next(iter(obstore.list(store, key or None, chunk_size=1)), None)
    except (BaseError, OSError) as error:
        raise StorageAway(key, error) from error


def _stored(meta: Any) -> Stored:
    return Stored(meta["path"], meta["size"], meta["e_tag"], meta["last_modified"])
