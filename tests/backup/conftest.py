"""A database with rows of two tenants, media in a folder, and a place for backups."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from snapapp import backup
from snapapp.backup.making import Made
from snapapp.backup.place import Place
from snapapp.storage import Local, Room, Storage, keys
from tests.databases import Postgres
from tests.storage.conftest import bucket, s3_endpoint

__all__ = ["bucket", "s3_endpoint"]

FILES = {f"{keys.SNAPS}a/1/frame.jpg": b"a frame", f"{keys.SNAPS}a/1/clip.mp4": b"a clip" * 1000}
FILES[f"{keys.VIDEOS}default/v/source"] = b"."
WEEK = timedelta(days=7)


@pytest.fixture
def media(tmp_path: Path) -> Local:
    store = Local(tmp_path / "media", Room(tmp_path, 0))
    for key, content in FILES.items():
        store.put(key, content)
    return store


@pytest.fixture
def empty_media(tmp_path: Path) -> Local:
    (tmp_path / "restored").mkdir()
    return Local(tmp_path / "restored", Room(tmp_path, 0))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "backups").mkdir()
    return Place(Local(tmp_path / "backups", Room(tmp_path, 0)), None)


def made(url: str, media: Storage, place: Place, *, keep: int = 7, keep_for: timedelta = WEEK) -> Made:
    return backup.make(url, media, place, keep=keep, keep_for=keep_for)


def content(store: Storage) -> dict[str, bytes]:
    return {each.key: store.read(each.key, 0, each.size) for folder in keys.FOLDERS for each in store.listed(folder)}


@contextmanager
def admin(server: Postgres, database: str = "postgres") -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(server.url_of(database), autocommit=True) as db:
        yield db
