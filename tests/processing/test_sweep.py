"""What the nightly sweep takes, and what it leaves."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import sqlalchemy

import snapapp.processing.sweep  # noqa: F401 - declares it
from snapapp import sharing, snaps, videos
from snapapp.jobs import enqueue
from snapapp.jobs.testing import run_due
from snapapp.snaps import Evidence
from snapapp.storage import Local, keys
from tests.domain.making import EVIDENCE, acting, an_upload, make_snap

TENANT = "default"


@pytest.fixture
def swept(engine: sqlalchemy.Engine, at_home: Path) -> "Sweep":
    return Sweep(engine, at_home)


class Sweep:
    def __init__(self, engine: sqlalchemy.Engine, home: Path) -> None:
        self.engine = engine
        self.home = home

    def __call__(self) -> dict[str, int]:
        with self.engine.begin() as connection:
            job_id = enqueue(connection, "storage.sweep")
            assert "storage.sweep: COMPLETED" in run_due(connection)
            rows = connection.exec_driver_sql("SELECT result FROM snap_processing_job WHERE id = %s", (job_id,))
            found: dict[str, int] = rows.scalar_one()
            return found

    def age(self, key: str, days: float = 2) -> None:
        then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        os.utime(self.home / "media" / key, (then, then))

    def published(self, store: Local, *, days: float = 0) -> tuple[UUID, str]:
        """A snap with a file, processed so many days ago."""
        snap_id = uuid4()
        prefix = keys.of_attempt(snap_id, 1)
        artefacts = [{"file_name": "frame_00001.jpg", "sha256": "0" * 64}]
        evidence = {name: getattr(EVIDENCE, name) for name in EVIDENCE.__slots__}
        with acting(self.engine, TENANT) as connection:
            make_snap(connection, TENANT, id=snap_id)
            extras = {"poster": "poster.jpg", "artefacts": artefacts}
            snaps.complete(
                connection, TENANT, snap_id, Evidence(**evidence | {"media_prefix": prefix, "extras": extras})
            )
            connection.exec_driver_sql(
                "UPDATE snap SET processed_at = now() - %s * interval '1 day' WHERE id = %s", (days, snap_id)
            )
        store.put(f"{prefix}frame_00001.jpg", b"x")
        self.age(f"{prefix}frame_00001.jpg")
        return snap_id, prefix


def test_what_no_row_names_goes_when_it_is_a_day_old(swept: Sweep, store: Local) -> None:
    _, prefix = swept.published(store)
    loser, young = (f"{keys.of_attempt(uuid4(), 3)}frame_00001.jpg" for _ in range(2))
    old, fresh = (f"{keys.of_request(uuid4())}0/1/frame_00001.jpg" for _ in range(2))
    for key in (loser, young, old, fresh):
        store.put(key, b"x")
    swept.age(loser)
    swept.age(old)
    assert swept() == {"deleted": 2, "missing": 0, "uploads": 0}
    assert [store.exists(key) for key in (loser, young, old, fresh)] == [False, True, False, True]
    assert store.exists(f"{prefix}frame_00001.jpg")


def test_an_upload_and_what_was_made_of_it_stay(swept: Sweep, store: Local) -> None:
    upload = an_upload(storage_key="videos/default/v/source")
    with acting(swept.engine, TENANT) as connection:
        videos.add_upload(connection, TENANT, upload)
        remote = videos.at_url(connection, TENANT, "https://example.org/a.mp4")
    still = f"{keys.of_video(TENANT, remote.id)}still_0000000500.jpg"
    for key in (upload.storage_key, "videos/default/v/preview.mp4", still):
        store.put(key, b"x")
        swept.age(key)
    assert swept() == {"deleted": 0, "missing": 0, "uploads": 0}


def test_what_a_row_names_and_is_not_there_is_said(swept: Sweep, store: Local) -> None:
    _, prefix = swept.published(store)
    store.delete(f"{prefix}frame_00001.jpg")
    assert swept() == {"deleted": 0, "missing": 1, "uploads": 0}


def test_files_are_kept_as_long_as_they_are_to_be_and_shared_ones_for_ever(
    swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_MEDIA_RETENTION_DAYS", "30")
    old, shared, young = (swept.published(store, days=days) for days in (31, 31, 29))
    with acting(swept.engine, TENANT) as connection:
        sharing.share(connection, TENANT, shared[0])
    swept()
    assert [store.exists(f"{prefix}frame_00001.jpg") for _, prefix in (old, shared, young)] == [False, True, True]
    with acting(swept.engine, TENANT) as connection:
        record = snaps.read(connection, TENANT, old[0])
    assert (record.media_prefix, record.frames, record.frame_count) == (None, [], 0)
    assert record.extras["artefacts"], "what the files were can still be proven"
