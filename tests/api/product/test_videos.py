"""/v2/videos: bytes in ranges, videos at an address, and removing them."""

import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.videos import remote_playback
from tests.api.conftest import served
from tests.api.examples import OTHER, SNAPS, add_tenant, count, mark
from tests.api.product import films
from tests.api.product.films import FILM, VIDEOS, Remote, name, remote, upload
from tests.factory import Db, scalar
from tests.jobs.working import until


def test_an_upload_is_played_in_ranges(client: TestClient) -> None:
    video = upload(client, name="a.html")
    whole = client.get(video["contentPath"])
    assert (whole.status_code, whole.content) == (200, FILM)
    assert whole.headers["Content-Type"] == "video/mp4", "never what the upload says of itself"
    assert whole.headers["X-Content-Type-Options"] == "nosniff"
    part = client.get(video["contentPath"], headers={"Range": "bytes=4-7"})
    assert (part.status_code, part.content, part.headers["Content-Range"]) == (206, b"ftyp", f"bytes 4-7/{len(FILM)}")
    assert client.get(video["contentPath"], headers={"Range": "bytes=999999-"}).status_code == 416
    assert client.head(video["contentPath"]).headers["Content-Length"] == str(len(FILM))


def test_a_remote_video_is_played_through_our_guard(url: str, tmp_path: Path) -> None:
    """D12: SSRF. Only what may be fetched is."""
    with remote() as at:
        with served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
            video = mark(client, videoUrl=f"http://{at}/film.mp4")["videoId"]
            part = client.get(f"{VIDEOS}/{video}/content", headers={"Range": "bytes=4-7"})
            assert (part.status_code, part.content) == (206, b"ftyp")
            assert part.headers["Content-Range"] == f"bytes 4-7/{len(FILM)}"
            assert client.get(f"{VIDEOS}/{video}/content").content == FILM
            gone = mark(client, videoUrl=f"http://{at}/gone.mp4")["videoId"]
            assert client.get(f"{VIDEOS}/{gone}/content").status_code == 502
        with served(url, tmp_path, worker_enabled=False) as client:
            answer = client.get(f"{VIDEOS}/{video}/content")
            assert (answer.status_code, b"ftyp" in answer.content) == (502, False)


def test_a_video_is_known_by_its_address_once_somebody_has_seen_one_there(url: str, tmp_path: Path, db: Db) -> None:
    with remote() as at, served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
        first, again = name(client, f" http://{at}/film.mp4 "), name(client, f"http://{at}/film.mp4")
        assert (first.status_code, again.status_code) == (200, 200)
        video = first.json()
        assert (video["videoUrl"], video["isUpload"], video["videoProbe"]) == (f"http://{at}/film.mp4", False, None)
        assert again.json()["videoId"] == video["videoId"] == client.get(VIDEOS).json()["items"][0]["videoId"]
        jobs = "SELECT kind, unique_key, concurrency_key FROM snap_processing_job"
        assert db.execute(jobs).fetchall() == [("video.probe", video["videoId"], "host:127.0.0.1")]
        db.execute("UPDATE snap_processing_job SET status = 'COMPLETED', finished_at = now()")
        db.execute("""UPDATE video SET probe = '{"compatible": true}'""")
        assert name(client, f"http://{at}/film.mp4").json()["videoProbe"]["compatible"]
        assert scalar(db, "SELECT count(*) FROM snap_processing_job") == 1, "somebody has looked"
        db.execute("""UPDATE video SET probe = '{"compatible": false, "reason": "it was away"}'""")
        name(client, f"http://{at}/film.mp4")
        assert scalar(db, "SELECT count(*) FROM snap_processing_job") == 2, "its server may be back"


def test_a_full_disk_takes_no_address(url: str, tmp_path: Path) -> None:
    with (
        remote() as at,
        served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**7, fetch_allowed_hosts=(at,)) as client,
    ):
        assert name(client, f"http://{at}/film.mp4").status_code == 507


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("http://{at}/gone.mp4", 400, "There is nothing at http://{at}/gone.mp4"),
        ("http://{at}/page.html", 400, "no video that can be used"),
        ("http://127.0.0.1:1/film.mp4", 400, "is not one that videos are fetched from"),
        ("http://localhost/film.mp4", 400, "is not a public address"),
        ("http://169.254.169.254/latest/meta-data", 400, "is not a public address"),
        ("http://ana:secret@{at}/film.mp4", 400, "Validation failed"),
        ("file:///etc/passwd", 400, "Validation failed"),
        ("ftp://{at}/film.mp4", 400, "Validation failed"),
        ("javascript:alert(1)", 400, "Validation failed"),
        ("http://{at}/" + "x" * 5000, 400, "Validation failed"),
        ("", 400, "Validation failed"),
        (None, 400, "Validation failed"),
        (["http://{at}/film.mp4"], 400, "Validation failed"),
    ],
)
def test_an_address_that_leads_to_no_video_is_refused_with_the_reason_and_not_kept(
    url: str, tmp_path: Path, path: Any, status: int, said: str
) -> None:
    with remote() as at, served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
        answer = name(client, path.format(at=at) if isinstance(path, str) else path)
        assert (answer.status_code, said.format(at=at) in answer.json()["message"]) == (status, True), answer.text
        assert client.get(VIDEOS).json()["items"] == []


@contextmanager
def files_end_at(size: int) -> Iterator[None]:
    """The kernel takes no byte beyond that from this process, which to us is the same as a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_fills_up_under_a_remote_video_is_507_with_the_reason(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was 502, as if the other server were to blame, and with a part further on a 206 that broke off."""
    film = FILM + bytes(2**20)
    monkeypatch.setattr(films, "FILM", film)
    with remote() as at, served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
        content = f"{VIDEOS}/{mark(client, videoUrl=f'http://{at}/film.mp4')['videoId']}/content"
        with files_end_at(1000):
            at_once = client.get(content)
        assert client.get(content, headers={"Range": "bytes=0-3"}).status_code == 206
        with files_end_at(300_000):
            later = client.get(content, headers={"Range": "bytes=900000-900003"})
        for answer in (at_once, later):
            assert (answer.status_code, "no room on our disk" in answer.json()["message"]) == (507, True), answer.text
        assert client.get(content).content == film


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Sun, 01 Mar 2026 08:15:00 -0300", "Sun, 01 Mar 2026 11:15:00 GMT"),
        ("Mon, 01 Jan 99999999999 00:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -0100", None),
        ("yesterday", None),
    ],
)
def test_a_date_that_a_server_made_up_is_not_told_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, told: str | None
) -> None:
    monkeypatch.setattr(Remote, "modified", said)
    with remote() as at, served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
        video = mark(client, videoUrl=f"http://{at}/film.mp4")["videoId"]
        answer = client.get(f"{VIDEOS}/{video}/content")
        assert answer.content == FILM
        created = datetime.fromisoformat(client.get(f"{VIDEOS}/{video}").json()["createdAt"])
        assert answer.headers["Last-Modified"] == (told or format_datetime(created, usegmt=True))


class Silent:
    """A server that takes every connection and says nothing."""

    def __init__(self) -> None:
        self.came: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.at = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._take)
        self._thread.start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                self.came.append(self._listening.accept()[0])

    def close(self) -> None:
        """Whoever waits is cut off, and whoever comes is refused."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._listening, *self.came):
            each.close()


def test_who_plays_from_a_silent_server_keeps_nobody_else_waiting(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine
) -> None:
    """Twenty requests of one tenant for a silent server kept all remote videos from everybody for 75 s."""
    add_tenant(engine)
    silent = Silent()
    with (
        remote() as at,
        served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at, silent.at)) as client,
        ThreadPoolExecutor(20) as players,
        closing(silent),
    ):
        dumb = mark(client, videoUrl=f"http://{silent.at}/film.mp4")["videoId"]
        film = mark(client, OTHER, videoUrl=f"http://{at}/film.mp4")["videoId"]
        asked = [players.submit(client.get, f"{VIDEOS}/{dumb}/content") for _ in range(20)]
        until(lambda: len(silent.came) == remote_playback.THREADS_OF_ONE)
        theirs = client.get(f"{VIDEOS}/{film}/content", headers=OTHER)
        assert theirs.status_code == 200, theirs.text
        assert len(silent.came) == remote_playback.THREADS_OF_ONE, "the deadline of the first ones has passed"
        silent.close()
        answers = [each.result() for each in asked]
    assert {each.status_code for each in answers} <= {502, 503}


def test_who_waits_too_long_for_a_turn_is_told_to_come_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_playback, "BEGIN_WITHIN", 0.01)
    monkeypatch.setattr(remote_playback, "THREADS_OF_ONE", 1)
    silent = Silent()
    with (
        served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(silent.at,)) as client,
        ThreadPoolExecutor(1) as players,
        closing(silent),
    ):
        video = mark(client, videoUrl=f"http://{silent.at}/film.mp4")["videoId"]
        first = players.submit(client.get, f"{VIDEOS}/{video}/content")
        until(lambda: silent.came)
        second = client.get(f"{VIDEOS}/{video}/content")
        assert (second.status_code, second.headers["Retry-After"]) == (503, "5")
        silent.close()
        assert first.result().status_code == 502


# --- removing ---------------------------------------------------------------------------------------------------


def test_a_video_without_snaps_is_deleted_and_a_job_removes_its_files(client: TestClient, db: Db) -> None:
    video = upload(client)["videoId"]
    assert client.delete(f"{VIDEOS}/{video}").status_code == 204
    assert client.get(f"{VIDEOS}/{video}").status_code == 404
    assert client.delete(f"{VIDEOS}/{video}").status_code == 404
    forget = "SELECT (tenant, payload->>'videoId')::text FROM snap_processing_job WHERE kind = 'media.forget'"
    assert scalar(db, forget) == f"(default,{video})"
    assert upload(client)["videoId"] != video, "the same bytes are another video"


def test_a_video_stays_while_there_are_snaps_of_it(client: TestClient, db: Db) -> None:
    snap = mark(client)
    video, its = f"{VIDEOS}/{snap['videoId']}", f"{SNAPS}/{snap['snapId']}"
    refused = client.delete(video)
    assert (refused.status_code, refused.json()["error"]) == (409, "Conflict")
    reason = "Video cannot be deleted, 1 snap is of it, delete it first"
    assert refused.json()["message"] == f"{reason}: {snap['videoId']}"
    assert client.delete(its).json()["removal"] == "DELETED"
    assert client.delete(video).status_code == 204


def test_a_video_of_which_a_snap_was_shared_stays_for_good(client: TestClient, db: Db) -> None:
    snap = mark(client)
    token = client.post(f"{SNAPS}/{snap['snapId']}/share").json()["publicShareToken"]
    assert client.delete(f"{SNAPS}/{snap['snapId']}").json()["removal"] == "HIDDEN"
    refused = client.delete(f"{VIDEOS}/{snap['videoId']}")
    assert refused.status_code == 409
    assert "1 snap of it was shared, and its link goes on" in refused.json()["message"]
    assert client.get(f"/public/snaps/{token}").status_code == 200


def test_another_tenants_video_cannot_be_deleted(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """With the words of one that never existed."""
    add_tenant(engine)
    video = upload(client)["videoId"]
    answer = client.delete(f"{VIDEOS}/{video}", headers=OTHER)
    assert (answer.status_code, answer.json()["message"]) == (404, f"Video not found: {video}")
    assert client.get(f"{VIDEOS}/{video}").status_code == 200
    assert count(db, "snap_processing_job WHERE kind = 'media.forget'") == 0
