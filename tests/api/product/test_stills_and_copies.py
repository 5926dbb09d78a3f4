"""/v2/videos: stills and copies for browsers, which jobs make."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import sqlalchemy
from starlette.testclient import TestClient

from snapapp.domain import videos
from snapapp.jobs import Job, Permanent, processor, registry
from snapapp.storage import keys
from tests.api.conftest import served
from tests.api.examples import NOBODY, as_tenant, monolith
from tests.api.product.films import FILM, VIDEOS, upload
from tests.factory import Db, scalar
from tests.jobs.working import until


@contextmanager
def known(kind: str, do: Any) -> Iterator[None]:
    registry.load(("snapapp.processing.processors",))  # else the server declares it beside this one
    before = registry.default._processors.pop(kind, None)
    processor(kind, queue="media", max_attempts=1)(do)
    try:
        yield
    finally:
        del registry.default._processors[kind]
        if before:
            registry.default._processors[kind] = before


@contextmanager
def working(url: str, folder: Path, db: Db, kind: str, **changes: Any) -> Iterator[TestClient]:
    with served(url, folder, worker_enabled=True, **changes) as client:
        until(lambda: scalar(db, "SELECT count(*) FROM job_worker WHERE %s = ANY (kinds)", kind))
        yield client


def test_a_still_is_made_by_a_job_and_kept(url: str, tmp_path: Path, db: Db) -> None:
    made: list[dict[str, Any]] = []
    places: list[TestClient] = []

    def still(job: Job) -> None:
        made.append(job.payload)
        monolith(places[0]).storage.put(job.payload["key"], b"a picture")

    with known("video.still", still), working(url, tmp_path, db, "video.still") as client:
        places.append(client)
        video = upload(client)["videoId"]
        for at in ("12.48", "12.4800001", "12.479133"):
            answer = client.get(f"{VIDEOS}/{video}/frame", params={"at": at})
            assert (answer.status_code, answer.content) == (200, b"a picture"), answer.text
            assert answer.headers["Content-Type"] == "image/jpeg"
    assert [(each["video_id"], each["at"]) for each in made] == [(video, 12.48), (video, 12.479133)]


def test_a_still_past_the_end_says_so(url: str, tmp_path: Path, db: Db) -> None:
    def still(job: Job) -> None:
        raise Permanent("The video ends at 3.2 s.")

    with known("video.still", still), working(url, tmp_path, db, "video.still") as client:
        answer = client.get(f"{VIDEOS}/{upload(client)['videoId']}/frame", params={"at": 99})
    assert (answer.status_code, answer.json()["message"]) == (400, "The video ends at 3.2 s.")


def test_without_a_worker_a_still_is_asked_for_and_nobody_waits(client: TestClient, db: Db) -> None:
    path = f"{VIDEOS}/{upload(client)['videoId']}/frame"
    answer = client.get(path, params={"at": 1})
    assert (answer.status_code, "Retry-After" in answer.headers) == (202, True)
    assert client.get(path).json()["message"] == "Missing required parameter: at"
    for wrong in ("-1", "nan", "x", "1e9", ""):
        assert client.get(path, params={"at": wrong}).status_code == 400
    assert scalar(db, "SELECT array_agg(id) FROM snap_processing_job WHERE kind = 'video.still'") == [
        answer.json()["jobId"]
    ]


def test_a_video_that_no_browser_plays_gets_a_copy(url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    go_on = threading.Event()

    def preview(job: Job) -> None:
        go_on.wait(20)

    with known("video.preview", preview), working(url, tmp_path, db, "video.preview") as client:
        video = UUID(upload(client)["videoId"])
        with as_tenant(engine) as connection:
            videos.set_probe(connection, "default", video, {"compatible": True, "plays_in_browsers": False})
        path = f"{VIDEOS}/{video}/content"
        for _ in range(2):
            answer = client.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (202, "3")
        go_on.set()
        assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE kind = 'video.preview'") == 1
        monolith(client).storage.put(keys.of_video("default", video) + "preview.mp4", b"the copy")
        assert client.get(path).content == b"the copy"
        assert client.get(path, params={"preview": "false"}).content == FILM


def test_a_copy_that_failed_says_why_and_is_not_ordered_at_every_poll(url: str, tmp_path: Path, db: Db) -> None:
    def preview(job: Job) -> None:
        raise Permanent("The video holds no picture.")

    with known("video.preview", preview), working(url, tmp_path, db, "video.preview") as client:
        path = f"{VIDEOS}/{upload(client)['videoId']}/content?preview=true"
        assert client.get(path).status_code == 202
        until(lambda: scalar(db, "SELECT status FROM snap_processing_job WHERE kind = 'video.preview'") == "FAILED")
        for _ in range(2):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["message"]) == (400, "The video holds no picture.")
        db.execute("UPDATE snap_processing_job SET finished_at = now() - interval '61 minutes' WHERE status = 'FAILED'")
        assert client.get(path).status_code == 202, "what was away may be back"


def test_no_copy_is_ordered_of_what_is_no_usable_video(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    video = upload(client)
    with as_tenant(engine) as connection:
        videos.set_probe(connection, "default", UUID(video["videoId"]), {"compatible": False, "reason": "It is sound."})
    answer = client.get(video["contentPath"], params={"preview": "true"})
    assert (answer.status_code, answer.json()["message"]) == (400, "It is sound.")
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE kind = 'video.preview'") == 0


def test_a_full_disk_takes_neither_stills_nor_copies(client: TestClient, url: str, tmp_path: Path, db: Db) -> None:
    video = f"{VIDEOS}/{upload(client)['videoId']}"
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**7) as full:
        for path in ("/frame?at=1", "/content?preview=true"):
            assert full.get(video + path).status_code == 507
        assert full.get(f"{video}/content").content == FILM
    assert scalar(db, "SELECT count(*) FROM snap_processing_job WHERE kind <> 'video.probe'") == 0


def test_nothing_is_known_of_a_video_that_is_not_there(client: TestClient) -> None:
    for path in ("", "/content", "/frame?at=1"):
        answer = client.get(f"{VIDEOS}/{NOBODY}{path}")
        assert (answer.status_code, answer.json()["message"]) == (404, f"Video not found: {NOBODY}")
