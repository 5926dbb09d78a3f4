"""What holds for both storages alike."""

import hashlib
import io
import os
import random
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from snapapp.storage import InvalidKey, NoRoom, NotStored, Storage, UploadTooLarge, s3
from snapapp.storage.s3 import _PART
from tests.storage.conftest import PAGE

KEY = "snaps/1/2/frame_00001.jpg"
MB = 2**20
ENDLESS = 10**9  # MB that no disk has


def keys(storage: Storage, prefix: str = "") -> list[str]:
    return [stored.key for stored in storage.listed(prefix)]


def leftovers(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.exists() else []


# --- one object -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(300_000)], ids=["empty", "small", "some"])
@pytest.mark.parametrize("form", ["bytes", "path", "file"])
def test_what_was_put_is_read(storage: Storage, tmp_path: Path, content: bytes, form: str) -> None:
    """S32: storage local or S3."""
    path = tmp_path / "source"
    path.write_bytes(content)
    storage.put(KEY, {"bytes": content, "path": path, "file": io.BytesIO(content)}[form])  # type: ignore[arg-type]
    with storage.open(KEY) as file:
        assert file.read() == content
    stored = storage.stat(KEY)
    assert (stored.key, stored.size) == (KEY, len(content))
    assert abs(stored.modified - datetime.now(UTC)) < timedelta(minutes=1)
    assert stored.etag.startswith('"')
    assert storage.exists(KEY)


def test_a_reader_seeks_like_any_file(storage: Storage) -> None:
    """Against the bytes themselves, 300 times, across blocks and past the end."""
    content = random.Random(1).randbytes(3 * MB + 17)
    storage.put(KEY, content)
    twin, chance = io.BytesIO(content), random.Random(2)
    with storage.open(KEY) as file:
        assert file.stored.size == len(content)
        for _ in range(300):
            if chance.random() < 0.6:
                whence = chance.choice([os.SEEK_SET, os.SEEK_END])
                offset = chance.randrange(len(content)) - (len(content) if whence == os.SEEK_END else 0)
                assert file.seek(offset, whence) == twin.seek(offset, whence)
            length = chance.choice([0, 1, 100, 70_000, 600_000])
            assert file.read(length) == twin.read(length)
            assert file.tell() == twin.tell()
        file.seek(10, os.SEEK_END)
        assert file.read(5) == b""
        with pytest.raises((ValueError, OSError)):
            file.seek(-1)


def test_a_part_is_read_and_ends_with_the_object(storage: Storage) -> None:
    storage.put(KEY, b"0123456789")
    assert storage.read(KEY, 2, 3) == b"234"
    assert storage.read(KEY, 8, 100) == b"89"
    assert storage.read(KEY, 10, 1) == b""


def test_an_object_written_again_is_the_new_one_with_another_tag(storage: Storage) -> None:
    tags = set()
    for number in range(20):  # as quickly as it goes, with the same size: a clock would not tell them apart
        storage.put(KEY, b"%03d" % number)
        tags.add(storage.stat(KEY).etag)
    assert len(tags) == 20
    assert storage.read(KEY, 0, 9) == b"019"


def test_what_is_not_there_is_said_so(storage: Storage) -> None:
    storage.put(KEY, b"x")
    for absent in ("snaps/1/2/frame_00002.jpg", "snaps/1/2", "snaps", "nothing", f"{KEY}/below"):
        assert not storage.exists(absent)
        for ask in (storage.open, storage.stat, lambda key: storage.read(key, 0, 1)):
            with pytest.raises(NotStored, match=absent):
                ask(absent)
        storage.delete(absent)
    assert keys(storage) == [KEY]


def test_a_deleted_object_is_gone(storage: Storage) -> None:
    storage.put(KEY, b"x")
    storage.delete(KEY)
    storage.delete(KEY)
    assert not storage.exists(KEY)
    assert keys(storage) == []
    storage.put(KEY, b"y")
    assert storage.read(KEY, 0, 1) == b"y"


# --- prefixes ---------------------------------------------------------------------------------------------------


def test_a_list_has_whole_segments_in_the_order_of_the_keys(storage: Storage) -> None:
    names = ["snaps/1/1/a", "snaps/1/1/b", "snaps/1/12/a", "snaps/12/1/a", "snaps/2-/a", "snaps/2/a", "top", "videos/x"]
    for name in random.Random(3).sample(names, len(names)):
        storage.put(name, name.encode())
    assert keys(storage) == sorted(names)
    assert keys(storage, "snaps/1/") == ["snaps/1/1/a", "snaps/1/1/b", "snaps/1/12/a"]
    assert keys(storage, "snaps/1/1/") == ["snaps/1/1/a", "snaps/1/1/b"]
    assert keys(storage, "none/") == keys(storage, "top/") == []
    assert [stored.size for stored in storage.listed("snaps/12/")] == [len("snaps/12/1/a")]


def test_a_list_is_longer_than_a_page_of_s3(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "_PAGE", PAGE)
    for number in range(2 * PAGE + 5):
        storage.put(f"many/{number:04}", b"")
    assert len(keys(storage, "many/")) == 2 * PAGE + 5
    assert storage.delete_prefix("many/") == 2 * PAGE + 5
    assert keys(storage) == []


def test_a_deleted_prefix_takes_nothing_else_along(storage: Storage) -> None:
    for name in ("snaps/1/1/a", "snaps/1/1/b", "snaps/1/2/a", "snaps/11/1/a"):
        storage.put(name, b"x")
    assert storage.delete_prefix("snaps/1/1/") == 2
    assert storage.delete_prefix("snaps/1/1/") == 0
    assert keys(storage) == ["snaps/1/2/a", "snaps/11/1/a"]


@pytest.mark.parametrize("prefix", ["", "/", "snaps", "snaps/1", "../", "snaps/../", ".incoming/"])
def test_a_prefix_that_might_mean_everything_is_refused(storage: Storage, prefix: str) -> None:
    storage.put(KEY, b"x")
    with pytest.raises(InvalidKey):
        storage.delete_prefix(prefix)
    assert storage.exists(KEY)


# --- uploads ----------------------------------------------------------------------------------------------------


def test_an_upload_counts_and_hashes_what_it_keeps(storage: Storage, incoming: Path) -> None:
    content = os.urandom(_PART + 5 * MB + 3)  # more than one part
    with storage.upload(KEY, max_bytes=len(content), announced=len(content)) as upload:
        for start in range(0, len(content), 65_536):
            upload.write(content[start : start + 65_536])
        assert not storage.exists(KEY)
        received = upload.finish()
    assert (received.key, received.size) == (KEY, len(content))
    assert received.sha256 == hashlib.sha256(content).hexdigest()
    with storage.open(KEY) as file:
        assert file.read() == content
    assert leftovers(incoming) == []


def test_an_upload_that_is_left_leaves_nothing(storage: Storage, incoming: Path) -> None:
    """Also when it goes wrong in the middle, and whatever is called afterwards."""
    with storage.upload(KEY) as upload:
        upload.write(b"x" * MB)
        assert len(leftovers(incoming)) == 1
    upload.abort()
    for call in (upload.finish, lambda: upload.write(b"more")):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert not storage.exists(KEY)
    assert leftovers(incoming) == []


def test_an_upload_keeps_what_was_there_until_it_is_whole(storage: Storage) -> None:
    """FE8."""
    storage.put(KEY, b"old")
    with storage.upload(KEY) as upload:
        upload.write(b"new")
        assert storage.read(KEY, 0, 9) == b"old"
    assert storage.read(KEY, 0, 9) == b"old"


def test_an_upload_above_its_limit_is_refused_at_the_first_byte_too_many(storage: Storage, incoming: Path) -> None:
    with pytest.raises(UploadTooLarge, match="larger than 10 bytes"):
        storage.upload(KEY, max_bytes=10, announced=11)
    with storage.upload(KEY, max_bytes=10, announced=3) as upload:  # it lied
        upload.write(b"0123456789")
        with pytest.raises(UploadTooLarge):
            upload.write(b"x")
        assert leftovers(incoming) == []
        with pytest.raises(ValueError, match="closed"):
            upload.finish()
    assert not storage.exists(KEY)


def test_a_disk_under_its_floor_takes_no_upload_but_what_running_work_made(
    make: Callable[[int], Storage], incoming: Path
) -> None:
    full = make(ENDLESS)
    with pytest.raises(NoRoom, match="must stay free"):
        full.upload(KEY)
    assert leftovers(incoming) == []
    full.put(KEY, b"made")
    assert full.read(KEY, 0, 9) == b"made"


def test_an_upload_that_is_announced_too_large_for_the_disk_is_refused_before_it_begins(
    make: Callable[[int], Storage], tmp_path: Path
) -> None:
    free = shutil.disk_usage(tmp_path).free
    storage = make(free // MB // 2)
    storage.upload(KEY).abort()
    with pytest.raises(NoRoom, match=r"\d+ MB are wanted"):
        storage.upload(KEY, announced=free)


def test_uploads_of_dead_processes_are_forgotten_and_living_ones_are_not(storage: Storage, incoming: Path) -> None:
    """FE4."""
    with storage.upload(KEY) as living:
        living.write(b"x")
        dead = incoming / "left-by-a-process-that-was-killed"
        dead.write_bytes(b"x" * 100)
        long_ago = (datetime.now(UTC) - timedelta(days=2)).timestamp()
        os.utime(dead, (long_ago, long_ago))
        assert storage.forget_uploads(datetime.now(UTC) - timedelta(days=1)) == 1
        assert not dead.exists()
        living.finish()
    assert storage.exists(KEY)
    assert storage.forget_uploads(datetime.now(UTC)) == 0


# --- many at once -----------------------------------------------------------------------------------------------


def test_many_who_write_one_key_leave_one_whole_content(storage: Storage) -> None:
    """FA2."""
    contents = [bytes([number]) * 200_000 for number in range(8)]
    barrier = threading.Barrier(8)

    def write(content: bytes) -> None:
        barrier.wait()
        storage.put(KEY, content)

    threads = [threading.Thread(target=write, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with storage.open(KEY) as file:
        assert file.read() in contents


def test_a_prefix_that_is_deleted_while_it_is_written_loses_nothing_written_later(storage: Storage) -> None:
    """A folder that was just found empty and removed is the one that the next object needs."""
    over = threading.Event()
    errors: list[Exception] = []

    def delete() -> None:
        while not over.is_set():
            storage.delete_prefix("snaps/1/")

    def write(name: str) -> None:
        try:
            for number in range(60):
                storage.put(f"snaps/1/{number}/{name}", b"x")
        except Exception as error:  # noqa: BLE001 - a thread's outermost edge
            errors.append(error)

    deleting = threading.Thread(target=delete)
    writing = [threading.Thread(target=write, args=[name]) for name in "ab"]
    for thread in (deleting, *writing):
        thread.start()
    for thread in writing:
        thread.join()
    over.set()
    deleting.join()
    assert errors == []
    storage.put("snaps/1/1/last", b"x")
    assert "snaps/1/1/last" in keys(storage)


# --- keys -------------------------------------------------------------------------------------------------------

HOSTILE = [
    "",
    "/",
    "/etc/passwd",
    "a//b",
    "a/",
    ".",
    "..",
    "../a",
    "a/../../b",
    "a/./b",
    ".incoming/x",
    "a/.hidden",
    "a\x00b",
    "a\nb",
    "a\n",
    "a b",
    "a\\b",
    "a%2e%2e",
    "é",
    "a/\udcff",
    "a*",
    "a?b",
    "C:x",
    "~/a",
    "x" * 201,
    "/".join(["x" * 100] * 9),
]


@pytest.mark.parametrize("key", HOSTILE)
def test_a_key_that_is_none_is_refused_by_everything(storage: Storage, key: str) -> None:
    asks: list[Callable[[], object]] = [
        lambda: storage.put(key, b"x"),
        lambda: storage.upload(key),
        lambda: storage.open(key),
        lambda: storage.read(key, 0, 1),
        lambda: storage.stat(key),
        lambda: storage.exists(key),
        lambda: storage.delete(key),
        lambda: storage.delete_prefix(f"{key}/"),
        lambda: list(storage.listed(f"{key}/")),
    ]
    for ask in asks:
        with pytest.raises(InvalidKey) as caught:
            ask()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 250
    assert keys(storage) == []


def test_the_longest_key_is_a_key(storage: Storage) -> None:
    key = "/".join(["x" * 199] * 4)
    storage.put(key, b"x")
    assert keys(storage) == [key]
