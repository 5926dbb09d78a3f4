"""What the nightly sweep takes, and what it leaves."""

import os
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
import sqlalchemy

from snapapp.domain import sharing, snaps, storage_use, tenants, videos
from snapapp.domain.snaps import Evidence
from snapapp.jobs import enqueue
from snapapp.jobs.testing import run_due
from snapapp.processing import sweep
from snapapp.storage import Local, StorageAway, keys
from snapapp.storage.sweep import Published
from tests.domain.making import EVIDENCE, acting, an_upload, begun, make_snap

TENANT = "default"


@pytest.fixture
def swept(engine: sqlalchemy.Engine, at_home: Path) -> "Sweep":
    return Sweep(engine, at_home)


class Sweep:
    def __init__(self, engine: sqlalchemy.Engine, home: Path) -> None:
        self.engine = engine
        self.home = home

    def __call__(self, **payload: bool) -> dict[str, int]:
        found: dict[str, int] = self._run("COMPLETED", "result", payload)
        return found

    def refused(self) -> str:
        return str(self._run("FAILED", "last_error", {}))

    def _run(self, status: str, column: str, payload: dict[str, bool]) -> Any:
        with self.engine.begin() as connection:
            job_id = enqueue(connection, "storage.sweep", payload)
            assert f"storage.sweep: {status}" in run_due(connection)
            rows = connection.exec_driver_sql(f"SELECT {column} FROM snap_processing_job WHERE id = %s", (job_id,))
            return rows.scalar_one()

    def age(self, key: str, days: float = 2) -> None:
        then = (datetime.now(UTC) - timedelta(days=days)).timestamp()
        os.utime(self.home / "media" / key, (then, then))

    def published(self, store: Local, *, days: float = 0, tenant: str = TENANT) -> tuple[UUID, str]:
        """A snap with a file, processed so many days ago."""
        snap_id = uuid4()
        prefix = keys.of_attempt(snap_id, 1)
        artefacts = [{"file_name": "frame_00001.jpg", "sha256": "0" * 64, "size_bytes": 1}]
        evidence = {name: getattr(EVIDENCE, name) for name in EVIDENCE.__slots__}
        with acting(self.engine, tenant) as own:
            make_snap(own, tenant, id=snap_id)
            extras = {"poster": "poster.jpg", "artefacts": artefacts}
            snaps.complete(own, tenant, snap_id, Evidence(**evidence | {"media_prefix": prefix, "extras": extras}))
            own.connection().exec_driver_sql(
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


def test_a_copy_of_the_database_takes_nothing_from_the_storage_that_it_shares(swept: Sweep, store: Local) -> None:
    """Such as a backup that was brought back for a trial: it knows none of the rows since."""
    swept()
    store.put(keys.OWNER, b"7711828701410701200/5")  # as the one that is in use has written it
    new = f"{keys.of_attempt(uuid4(), 1)}frame_00001.jpg"
    store.put(new, b"x")
    swept.age(new)
    assert "the storage is that of the database 7711828701410701200/5" in swept.refused()
    with swept.engine.begin() as connection:
        enqueue(connection, "media.forget", {"snapId": new.split("/")[1]}, tenant=TENANT)
        assert run_due(connection) == ["media.forget: FAILED"]
    assert store.exists(new)
    assert swept(anyway=True)["deleted"] == 1  # a person says that the other one is used no more
    store.put(new, b"x")
    swept.age(new)
    assert swept()["deleted"] == 1


def test_the_files_of_a_snap_that_was_deleted_go_and_no_others(swept: "Sweep", store: Local) -> None:
    gone, stays = uuid4(), uuid4()
    for snap_id in (gone, stays):
        for attempt in (1, 2):
            store.put(f"{keys.of_attempt(snap_id, attempt)}frame_00001.jpg", b"x")
    with swept.engine.begin() as connection:
        job_id = enqueue(connection, "media.forget", {"snapId": str(gone)}, tenant=TENANT)
        assert run_due(connection) == ["media.forget: COMPLETED"]
    assert job_id
    assert [stored.key.split("/")[1] for stored in store.listed("snaps/")] == [str(stays)] * 2


def test_the_files_of_what_was_deleted_go_also_if_the_storage_is_away_for_a_while(
    swept: "Sweep", store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job failed for good within a minute, and nobody deleted the files."""
    gone = uuid4()
    store.put(f"{keys.of_attempt(gone, 1)}frame_00001.jpg", b"x")
    with swept.engine.begin() as connection:
        enqueue(connection, "media.forget", {"snapId": str(gone)}, tenant=TENANT)
        with monkeypatch.context() as patch:
            patch.setattr(Local, "delete_prefix", Mock(side_effect=StorageAway("snaps/", "503 Slow Down")))
            for _ in range(10):
                assert run_due(connection) == ["media.forget: RETRY_WAIT"]
                connection.exec_driver_sql("UPDATE snap_processing_job SET next_retry_at = now()")
        assert run_due(connection) == ["media.forget: COMPLETED"]
    assert not [*store.listed("snaps/")]


def test_the_files_of_a_video_that_was_deleted_go_and_no_others(swept: "Sweep", store: Local) -> None:
    gone, stays = uuid4(), uuid4()
    for video_id, tenant in ((gone, TENANT), (stays, TENANT), (gone, "other")):
        for name in ("source", "preview.mp4", "still_0000001000.jpg"):
            store.put(f"{keys.of_video(tenant, video_id)}{name}", b"x")
    with swept.engine.begin() as connection:
        enqueue(connection, "media.forget", {"videoId": str(gone)}, tenant=TENANT)
        assert run_due(connection) == ["media.forget: COMPLETED"]
    left = [keys.of_video(TENANT, stays)] * 3 + [keys.of_video("other", gone)] * 3
    assert [f"{stored.key.rpartition('/')[0]}/" for stored in store.listed("videos/")] == left


def test_an_upload_and_what_was_made_of_it_stay(swept: Sweep, store: Local) -> None:
    upload = an_upload(storage_key="videos/default/v/source")
    with acting(swept.engine, TENANT) as own:
        videos.add_upload(own, TENANT, upload)
        remote = videos.at_url(own, TENANT, "https://example.org/a.mp4")
    still = f"{keys.of_video(TENANT, remote.id)}still_0000000500.jpg"
    for key in (upload.storage_key, "videos/default/v/preview.mp4", still):
        store.put(key, b"x")
        swept.age(key)
    assert swept() == {"deleted": 0, "missing": 0, "uploads": 0}


def test_stills_and_previews_go_after_a_month_because_they_can_be_made_again(swept: Sweep, store: Local) -> None:
    with acting(swept.engine, TENANT) as own:
        upload = an_upload(storage_key=f"{keys.of_video(TENANT, uuid4())}source")
        video = videos.add_upload(own, TENANT, upload)
    preview, still = keys.of_preview(TENANT, video.id), keys.of_still(TENANT, video.id, 500)
    for key, days in ((upload.storage_key, 31), (preview, 31), (still, 29)):
        store.put(key, b"x")
        swept.age(key, days)
    assert swept() == {"deleted": 1, "missing": 0, "uploads": 0}
    assert [store.exists(key) for key in (upload.storage_key, preview, still)] == [True, False, True]


def test_what_is_not_in_our_folders_is_anybodys(swept: Sweep, store: Local) -> None:
    for key in ("backups/2026.dump", "frames.txt"):
        store.put(key, b"x")
        swept.age(key)
    assert swept() == {"deleted": 0, "missing": 0, "uploads": 0}


def test_many_objects_that_no_row_names_stop_it_until_somebody_insists(swept: Sweep, store: Local) -> None:
    """Another database's, or a restore's that is not done."""
    swept.published(store)
    theirs = [f"{keys.of_attempt(uuid4(), 1)}frame_00001.jpg" for _ in range(201)]
    for key in theirs:
        store.put(key, b"x")
        swept.age(key)
    refusal = swept.refused()
    assert "no row names 201 of the 202 objects" in refusal
    assert refusal.endswith("""snapapp jobs enqueue storage.sweep '{"anyway": true}'""")
    assert all(map(store.exists, theirs))
    assert swept(anyway=True)["deleted"] == 201


def test_where_no_row_names_anything_not_even_a_few_go(swept: Sweep, store: Local) -> None:
    theirs = [f"{keys.of_attempt(uuid4(), 1)}frame_00001.jpg" for _ in range(201)]
    for key in theirs:
        store.put(key, b"x")
    swept.age(theirs[0])
    assert "no row names 1 of the 201 objects" in swept.refused()
    assert store.exists(theirs[0])


def test_what_retention_parts_with_is_no_reason_to_stop(
    swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_MEDIA_RETENTION_DAYS", "30")
    _, prefix = swept.published(store, days=31)
    for number in range(2, 210):
        store.put(f"{prefix}frame_{number:05}.jpg", b"x")
        swept.age(f"{prefix}frame_{number:05}.jpg")
    assert swept()["deleted"] == 209


def test_what_a_killed_sweep_has_left_of_our_snaps_is_deleted_by_the_next_however_much_it_is(
    swept: Sweep, store: Local
) -> None:
    """Killed after the commit that took the files from the rows, and before the files were deleted."""
    _, prefix = swept.published(store, days=31)
    for number in range(2, 210):
        store.put(f"{prefix}frame_{number:05}.jpg", b"x")
        swept.age(f"{prefix}frame_{number:05}.jpg")
    with acting(swept.engine, TENANT) as own:
        assert snaps.expire(own, TENANT, datetime.now(UTC) - timedelta(days=30), 50) == [prefix]
    assert swept() == {"deleted": 209, "missing": 0, "uploads": 0}


def test_many_snaps_of_many_tenants_are_told_from_what_is_nobodys(
    swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_PAGE", 2)
    with begun(swept.engine) as session:
        tenants.add(session, "other", "Other")
    kept = [swept.published(store, tenant=tenant)[1] for tenant in (TENANT, "other") * 3]
    strays = [f"{keys.of_attempt(uuid4(), 1)}frame_00001.jpg" for _ in range(5)]
    for key in strays:
        store.put(key, b"x")
        swept.age(key)
    assert swept() == {"deleted": 5, "missing": 0, "uploads": 0}
    assert all(store.exists(f"{prefix}frame_00001.jpg") for prefix in kept)


def test_a_row_is_asked_again_before_its_files_go(swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read, and then its prefix was published."""
    _, prefix = swept.published(store)
    monkeypatch.setattr(sweep, "_published", lambda *_: iter([Published("snaps/earlier/1/")]))
    assert swept()["deleted"] == 0
    assert store.exists(f"{prefix}frame_00001.jpg")


def test_what_a_row_names_and_is_not_there_is_said(swept: Sweep, store: Local) -> None:
    _, prefix = swept.published(store)
    store.delete(f"{prefix}frame_00001.jpg")
    assert swept() == {"deleted": 0, "missing": 1, "uploads": 0}


def test_files_are_kept_as_long_as_they_are_to_be_and_shared_ones_for_ever(
    swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_MEDIA_RETENTION_DAYS", "30")
    old, shared, young = (swept.published(store, days=days) for days in (31, 31, 29))
    with acting(swept.engine, TENANT) as own:
        sharing.share(own, TENANT, shared[0])
    swept()
    assert [store.exists(f"{prefix}frame_00001.jpg") for _, prefix in (old, shared, young)] == [False, True, True]
    with acting(swept.engine, TENANT) as own:
        record = snaps.read(own, TENANT, old[0])
        assert storage_use.of(own, TENANT).snap_bytes == 2, "what is gone no longer counts"
    assert (record.media_prefix, record.frames, record.frame_count) == (None, [], 0)
    assert record.extras["artefacts"], "what the files were can still be proven"


class YearsAhead(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> "YearsAhead":
        return super().now(tz) + timedelta(days=1000)


def test_a_host_whose_clock_is_ahead_takes_nothing_too_early(
    swept: Sweep, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FB1: the rows are dated by the database, and its clock says how old they are."""
    monkeypatch.setenv("SNAPAPP_MEDIA_RETENTION_DAYS", "30")
    _, prefix = swept.published(store, days=20)
    in_the_making = f"{keys.of_attempt(uuid4(), 1)}frame_00001.jpg"
    store.put(in_the_making, b"x")
    monkeypatch.setattr(sweep, "datetime", YearsAhead)
    assert swept()["deleted"] == 0
    assert store.exists(f"{prefix}frame_00001.jpg")
    assert store.exists(in_the_making)
