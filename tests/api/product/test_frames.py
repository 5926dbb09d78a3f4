"""/v1/video-frames: up to ten moments in one request, each well or badly on its own."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy
from PIL import Image
from starlette.testclient import TestClient

from snapapp.api.product import frames, job_waiting
from snapapp.jobs.rows.people import views
from tests.api.conftest import served
from tests.api.examples import PROBE, add_tenant, body, count
from tests.factory import Db, move, statuses
from tests.jobs.working import until
from tests.media import material
from tests.running import Served
from tests.sources.server import Film, Server, Visit, serving

PROCESS = "/v1/video-frames/process"
ALIAS = "/v1/video-frames/mvp/process"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Server]:
    with serving(Server()) as server:
        film = material.make(material.GOOD["plain"], tmp_path / "brete.mp4").read_bytes()
        server.acts["/brete.mp4"] = Film(film)
        server.acts["/page.mp4"] = Film(b"<html>not a video</html>" * 100)
        yield server


@contextmanager
def working(url: str, folder: Path, source: Server, **settings: str) -> Iterator[httpx.Client]:
    """`snapapp serve`, worker and all, as people start it; it is told to leave while the client is there."""
    allowed = {"SNAPAPP_FETCH_ALLOWED_HOSTS": f"127.0.0.1:{source.port}"}
    process = Served(folder, SNAPAPP_DATABASE_URL=url, **allowed, **settings)
    with httpx.Client(base_url=f"http://localhost:{process.port}", timeout=60) as client, process.up():
        yield client
    assert process.end() == 0


def silent(visit: Visit) -> None:
    visit.server.is_closing.wait(30)


def item(source: Server, path: str = "/brete.mp4", **changes: Any) -> dict[str, Any]:
    """As the first clients send it: nobody is named."""
    return body(**{"videoUrl": source.url(path), "startSeconds": 1, "nickname": ..., "email": ...} | changes)


def asked(client: httpx.Client | TestClient, items: Any, path: str = PROCESS) -> dict[str, Any]:
    answer = client.post(path, json=items)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def picture(client: httpx.Client, path: str) -> tuple[int, int]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    with Image.open(BytesIO(answer.content)) as image:
        image.load()
        return image.size


def test_ten_moments_come_back_in_one_answer_and_a_bad_one_fails_alone(
    url: str, tmp_path: Path, source: Server, db: Db
) -> None:
    items = [
        item(source),
        item(source, startSeconds=600),
        item(source, "/page.mp4"),
        item(source, "/absent.mp4"),
        item(source, subject={"attributes": []}),
        item(source, startSeconds=None, startFrame=10, format="png", durationSeconds=0.4),
        {"videoUrl": "file:///etc/passwd"},
        "not even an object",
        item(source, overlay={"enabled": True, "mode": "BOTH"}, snapshotDurationSeconds=1.5),
        item(source, videoUrl="http://localhost:5432/x"),
    ]
    with working(url, tmp_path, source) as client:
        batch = asked(client, items)
        assert batch["status"] == "PARTIAL"
        assert [one["itemIndex"] for one in batch["filmagens"]] == list(range(10))
        good = {0, 5, 8}
        for place, one in enumerate(batch["filmagens"]):
            assert one["status"] == ("SUCCEEDED" if place in good else "FAILED"), one
            assert (one["error"] is None) == (place in good), one
            assert one["frameCount"] == len(one["frames"])
            assert one["outputDir"].startswith(f"{batch['requestDir']}{place}/")

        first = batch["filmagens"][0]
        assert (first["frameCount"], first["resolvedStartSeconds"], first["startSeconds"]) == (5, 1.0, 1.0)
        assert first["subject"]["id"] == "BR-1042"
        assert first["videoUrl"] == source.url("/brete.mp4")
        assert first["videoProbe"]["codecName"] == "h264"
        assert datetime.fromisoformat(first["dataFilmagem"]) == datetime.fromisoformat("2026-03-01T08:15:00-03:00")
        assert first["frames"][0]["fileName"] == "frame_00001.jpg"
        assert [picture(client, frame["path"]) for frame in first["frames"]] == [(320, 180)] * 5
        clip = client.get(first["snapshotVideo"]["path"], headers={"Range": "bytes=0-99"})
        assert (clip.status_code, clip.headers["content-type"], len(clip.content)) == (206, "video/mp4", 100)
        png = batch["filmagens"][5]
        assert [frame["fileName"] for frame in png["frames"]] == ["frame_00001.png", "frame_00002.png"]
        drawn = batch["filmagens"][8]["frames"][0]
        assert picture(client, drawn["path"]) == picture(client, drawn["cleanPath"])

        errors = [one["error"] for one in batch["filmagens"]]
        assert "600" in errors[1]
        assert "mp4" in errors[2].lower()
        assert "subject.id: Field required" in errors[4]
        assert "videoUrl" in errors[6]
        assert "address" in errors[9]

        again = asked(client, items[:1], ALIAS)
        assert (again["status"], len(again["filmagens"])) == ("COMPLETED", 1)
        assert again["requestId"] != batch["requestId"]

    assert not any(str(tmp_path) in json.dumps(each) for each in (batch, again))
    assert batch["requestDir"] == f"{batch['tmpBaseDir']}{batch['requestId']}/"
    assert first["outputDir"].startswith(batch["requestDir"])
    assert (count(db, "snap"), count(db, "video")) == (0, 0)


@pytest.mark.at_length  # processing/test_processors asks a busy server again in every run
def test_a_server_that_answers_at_the_second_try_costs_a_second(url: str, tmp_path: Path, source: Server) -> None:
    """D8."""
    film = source.acts["/brete.mp4"]

    def moody(visit: Visit) -> None:
        source.acts["/moody.mp4"] = film
        visit.say(503)

    source.acts["/moody.mp4"] = moody
    source.acts["/busy.mp4"] = lambda visit: visit.say(503)
    with working(url, tmp_path, source) as client:
        batch = asked(client, [item(source, "/moody.mp4"), item(source, "/busy.mp4")])
    assert [one["status"] for one in batch["filmagens"]] == ["SUCCEEDED", "FAILED"]
    assert "503" in batch["filmagens"][1]["error"]


@pytest.mark.at_length  # without a worker every item fails with a plain reason, in every run
def test_what_is_not_finished_in_time_is_cancelled_and_says_so(
    url: str, tmp_path: Path, source: Server, db: Db
) -> None:
    """One that waits is over at once; one that runs is told to stop, and does."""
    source.acts["/slow.mp4"] = silent
    with working(url, tmp_path, source, SNAPAPP_SYNC_WAIT_MS="2000") as client:
        batch = asked(client, [item(source, "/slow.mp4") for _ in range(10)])
        assert batch["status"] == "FAILED"
        assert all("had not ended within 2 s" in one["error"] for one in batch["filmagens"])
        until(lambda: set(statuses(db).values()) == {"CANCELLED"}, within=20)


def test_whoever_waits_when_the_server_leaves_is_answered(url: str, tmp_path: Path, source: Server, db: Db) -> None:
    source.acts["/slow.mp4"] = silent
    with ThreadPoolExecutor() as others, working(url, tmp_path, source) as client:
        answer = others.submit(asked, client, [item(source, "/slow.mp4")])
        until(lambda: [*statuses(db).values()] == ["RUNNING"])
    [one] = answer.result()["filmagens"]
    assert (one["status"], one["error"]) == ("FAILED", "The server is being restarted: ask again")


def test_an_item_that_fails_keeps_what_it_said_of_itself(client: TestClient, source: Server) -> None:
    """The old service's clients know their items by that."""
    items = [
        item(source),
        item(source, fps=99),
        item(source, videoUrl="ftp://a/b", subject={"id": 7}, dataFilmagem="x"),
    ]
    first, second, third = asked(client, items)["filmagens"]
    assert [each["status"] for each in (first, second, third)] == ["FAILED"] * 3
    for each in (first, second):
        assert (each["subject"]["id"], each["videoUrl"]) == ("BR-1042", source.url("/brete.mp4"))
        assert datetime.fromisoformat(each["dataFilmagem"]) == datetime.fromisoformat("2026-03-01T08:15:00-03:00")
    assert (third["subject"]["id"], third["videoUrl"], third["dataFilmagem"]) == ("7", "ftp://a/b", None)
    assert [each["outputDir"].rsplit("/", 2)[1] for each in (first, second, third)] == ["0", "1", "2"]


def test_a_url_that_nobody_can_read_costs_its_own_item(client: TestClient, source: Server) -> None:
    good, bad = asked(client, [item(source), item(source, videoUrl="http://[:::]/a.mp4")])["filmagens"]
    assert "videoUrl" not in good["error"]
    assert bad["error"] == "videoUrl: The host of the URL cannot be read."


def test_without_a_worker_every_item_fails_with_a_plain_reason(client: TestClient, db: Db, source: Server) -> None:
    batch = asked(client, [item(source), {}])
    assert batch["status"] == "FAILED"
    first, second = batch["filmagens"]
    assert first["error"] == "There is no worker that takes frames at the moment: ask again later"
    assert first["subject"]["id"] == "BR-1042"
    assert "videoUrl: Field required" in second["error"]
    assert count(db, "snap_processing_job") == 0


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"[]", "Validation failed"),
        (b"{}", "Validation failed"),
        (b"null", "Validation failed"),
        (json.dumps([{}] * 11).encode(), "Validation failed"),
        (b"[{]", "Malformed JSON request"),
        (b'[{"a": 1, "a": 2}]', "Malformed JSON request"),
        (b'[{"startSeconds": NaN}]', "Malformed JSON request"),
        (b"", "Validation failed"),
    ],
)
def test_a_list_that_is_none_is_refused_as_a_whole(client: TestClient, db: Db, sent: bytes, message: str) -> None:
    for path in (PROCESS, ALIAS):
        answer = client.post(path, content=sent, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["message"]) == (400, message), answer.text
    assert count(db, "snap_processing_job") == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"startSeconds": None}, "Provide at least one of startSeconds or startFrame"),
        ({"subject": {"id": "  "}}, "subject.id: Field required"),
        ({"subject": {"id": None}}, "subject.id: Field required"),
        ({"videoUrl": None, "videoId": "00000000-0000-4000-8000-000000000000"}, "videoUrl: Field required"),
        ({"fps": 11}, "fps: "),
        ({"durationSeconds": 5.01}, "durationSeconds: "),
        ({"startSeconds": 1e400}, "startSeconds: "),
        ({"quality": 3, "format": "png"}, "quality: png has no quality"),
        ({"dataFilmagem": "yesterday"}, "dataFilmagem: "),
        ({"subject": {"id": "\ud800"}}, "subject.id: "),
        ({"subject": {"id": "1\0"}}, "subject.id: "),
        ({"videoUrl": "http://ana:secret@videos.example/x.mp4"}, "videoUrl: "),
    ],
)
def test_what_is_wrong_with_an_item_is_said_in_its_error(
    client: TestClient, source: Server, changes: dict[str, Any], reason: str
) -> None:
    sent = json.dumps([item(source, **changes)]).replace("Infinity", "1e400").encode()
    answer = client.post(PROCESS, content=sent, headers={"Content-Type": "application/json"})
    assert answer.status_code == 200, answer.text
    [one] = answer.json()["filmagens"]
    assert one["status"] == "FAILED"
    assert one["error"].startswith(reason), one["error"]


CODE, TOKEN = "X-Assinatura-Codigo", "X-Assinatura-Token"


def test_where_tokens_are_required_it_is_closed_to_whoever_has_none(url: str, tmp_path: Path, source: Server) -> None:
    cases: list[tuple[dict[str, str], int]] = [
        ({}, 401),
        ({CODE: "default"}, 401),
        ({TOKEN: "wrong"}, 401),
        ({TOKEN: "dev-default-token"}, 200),
    ]
    with served(url, tmp_path, worker_enabled=False, require_api_token=True) as client:
        for path in (PROCESS, ALIAS):
            for headers, status in cases:
                assert client.post(path, json=[item(source)], headers=headers).status_code == status, headers


def test_it_may_be_left_open_and_then_believes_only_a_right_token(url: str, tmp_path: Path, source: Server) -> None:
    with served(url, tmp_path, worker_enabled=False, require_api_token=True, v1_open=True) as client:
        for headers, status in (({}, 200), ({TOKEN: "wrong"}, 401), ({TOKEN: "dev-default-token"}, 200)):
            assert client.post(PROCESS, json=[item(source)], headers=headers).status_code == status, headers


def test_whose_frames_they_are_is_known_where_it_is_said(
    url: str, tmp_path: Path, source: Server, db: Db, engine: sqlalchemy.Engine
) -> None:
    add_tenant(engine)
    source.acts["/slow.mp4"] = silent
    with working(url, tmp_path, source, SNAPAPP_SYNC_WAIT_MS="1") as client:
        for headers in ({}, {CODE: "other"}):
            assert client.post(PROCESS, json=[item(source, "/slow.mp4")], headers=headers).status_code == 200
        assert client.post(PROCESS, json=[item(source)], headers={CODE: "nobody"}).status_code == 404
    assert db.execute("SELECT tenant FROM snap_processing_job ORDER BY id").fetchall() == [("",), ("other",)]


def beside(client: TestClient, address: str) -> TestClient:
    """Another client of the same application, from elsewhere."""
    other = TestClient(client.app, base_url="http://localhost", client=(address, 1))
    other.portal = client.portal
    return other


def test_one_client_waits_for_no_more_than_its_share_and_others_are_answered(
    url: str, tmp_path: Path, source: Server, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers filled all places, and then nobody's frames were waited for."""
    monkeypatch.setattr(job_waiting, "OF_ONE_MAX", 3)
    monkeypatch.setattr(frames, "is_worked", lambda *_: True)
    with served(url, tmp_path, worker_enabled=False) as client, ThreadPoolExecutor() as clients:
        first, same, other = (beside(client, each) for each in ("2001:db8::1", "2001:db8::2", "192.0.2.1"))
        waiting = [clients.submit(first.post, PROCESS, json=[item(source)] * 2)]
        until(lambda: len(statuses(db)) == 2)
        full = same.post(PROCESS, json=[item(source)] * 2)
        assert (full.status_code, full.headers["Retry-After"]) == (503, "5"), full.text
        waiting.append(clients.submit(other.post, PROCESS, json=[item(source)] * 2))
        until(lambda: len(statuses(db)) == 4)
        db.execute("SELECT cancel_job(id) FROM snap_processing_job")
        assert [each.result().status_code for each in waiting] == [200, 200]
        db.execute("DELETE FROM snap_processing_job")
        waiting = [clients.submit(same.post, PROCESS, json=[item(source)] * 3)]
        until(lambda: len(statuses(db)) == 3)  # its places are free again
        db.execute("SELECT cancel_job(id) FROM snap_processing_job")


def test_a_job_that_is_deleted_meanwhile_costs_no_other_item_its_frames(
    url: str, tmp_path: Path, source: Server, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `SNAPAPP_JOB_RETENTION_HOURS=0` deletes each job that has ended, while others of the same request run."""
    evidence = {
        "probe": PROBE,
        "resolved_start_seconds": 1.0,
        "frames": [{"index": 1, "timestamp_seconds": 1.0, "file_name": "frame_00001.jpg"}],
        "clip": {"file_name": "snapshot.mp4", "duration_seconds": 1.0},
        "extras": {},
        "media_prefix": "frames/0/1/",
    }
    read_job, is_read = views.job, threading.Event()

    def noted(connection: Any, job_id: int) -> views.JobDetail:
        found = read_job(connection, job_id)
        is_read.set()
        return found

    monkeypatch.setattr(views, "job", noted)
    monkeypatch.setattr(frames, "is_worked", lambda *_: True)
    with served(url, tmp_path, worker_enabled=False) as client, ThreadPoolExecutor() as clients:
        answer = clients.submit(asked, client, [item(source)] * 3)
        until(lambda: len(statuses(db)) == 3)
        done, unread, waiting = statuses(db)
        move(db, done, status="COMPLETED", finished_at="now", attempt_count=1, result=evidence)
        is_read.wait(10)
        db.execute("DELETE FROM snap_processing_job WHERE id = ANY (%s)", [[done, unread]])
        db.execute("SELECT cancel_job(%s)", [waiting])
        first, second, third = answer.result()["filmagens"]
    assert (first["status"], first["frameCount"], first["error"]) == ("SUCCEEDED", 1, None)
    assert (second["status"], second["error"]) == ("FAILED", "Its job was deleted before it was read: ask again")
    assert third["status"] == "FAILED"


def test_a_full_disk_refuses_the_whole_list(url: str, tmp_path: Path, source: Server, db: Db) -> None:
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**9) as client:
        assert client.post(PROCESS, json=[item(source)]).status_code == 507
    assert count(db, "snap_processing_job") == 0
