"""The processors in the test's own process, on storage of the test's own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from snapapp.processing import child_settings, media_work, processors
from snapapp.storage import Local, Room
from tests.sources.server import Server, serving

__all__ = ["processors"]  # importing it declares the kinds: these tests must not need others to have run before


@pytest.fixture(scope="session", autouse=True)
def decoders() -> Iterator[None]:
    yield
    media_work.DECODERS.stop()


@pytest.fixture
def remote() -> Iterator[Server]:
    with serving(Server()) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Local:
    return Local(tmp_path / "media", Room(tmp_path, 0))


@pytest.fixture
def at_home(tmp_path: Path, remote: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a child reads from its environment."""
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("SNAPAPP_FETCH_ALLOWED_HOSTS", f"127.0.0.1:{remote.port}")
    kept = (media_work.here, child_settings.settings)
    for each in kept:
        each.cache_clear()
    yield tmp_path
    for each in kept:
        each.cache_clear()


@pytest.fixture
def connection(engine: sqlalchemy.Engine) -> Iterator[sqlalchemy.Connection]:
    """One transaction, rolled back."""
    with engine.connect() as connection:
        yield connection
