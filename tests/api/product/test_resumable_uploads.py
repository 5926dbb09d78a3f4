"""/v2/uploads: the tus protocol. Lines are cut by closing sockets, servers are killed with -9, and no byte is sent
twice that the server has."""

import base64
import fcntl
import hashlib
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import httpx
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.videos import resumable_uploads
from snapapp.storage import keys
from tests.api.conftest import served
from tests.api.examples import NOBODY, OTHER, add_tenant, count, mark, monolith
from tests.api.product.films import FILM, VIDEOS, nothing_left, stored
from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.running import Served

UPLOADS = "/v2/uploads"
TUS = {"Tus-Resumable": "1.0.0"}
BYTES = {"Content-Type": "application/offset+octet-stream"}
Headers = Mapping[str, str]
LARGE = FILM * 64  # 1 MB


def begun(client: TestClient, size: int = len(FILM), headers: Headers = TUS) -> str:
    answer = client.post(UPLOADS, headers={**TUS, "Upload-Length": str(size), **headers})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["Location"])


def sent(client: TestClient, at: str, content: bytes, offset: int = 0, headers: Headers = TUS) -> Any:
    return client.patch(at, content=content, headers={**TUS, **BYTES, "Upload-Offset": str(offset), **headers})


def offset_of(client: TestClient, at: str) -> int:
    answer = client.head(at, headers=TUS)
    assert (answer.status_code, answer.headers["Cache-Control"]) == (200, "no-store")
    return int(answer.headers["Upload-Offset"])


def test_what_the_server_speaks_is_said_to_whoever_asks(client: TestClient) -> None:
    said = client.options(UPLOADS).headers
    assert (said["Tus-Version"], said["Tus-Resumable"]) == ("1.0.0", "1.0.0")
    assert said["Tus-Extension"] == "creation,termination,expiration"
    assert int(said["Tus-Max-Size"]) == monolith(client).settings.upload_max_mb * 2**20


def test_a_file_in_parts_becomes_the_video_that_it_would_be_in_one(client: TestClient, db: Db) -> None:
    name = "filename " + base64.b64encode("vaca é.mp4".encode()).decode() + ",filetype dmlkZW8vbXA0"
    at = begun(client, headers={"Upload-Metadata": name})
    for start, end in [(0, 3), (3, 11), (11, 40), (40, len(FILM))]:
        assert offset_of(client, at) == start
        answer = sent(client, at, FILM[start:end], start)
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(end))
        assert "GMT" in answer.headers["Upload-Expires"]
    video = client.get(answer.headers["Content-Location"]).json()
    assert (video["fileName"], video["sizeBytes"]) == ("vaca é.mp4", len(FILM))
    assert video["sha256"] == hashlib.sha256(FILM).hexdigest()
    assert client.get(video["contentPath"]).content == FILM
    assert scalar(db, "SELECT kind FROM snap_processing_job") == "video.probe"
    assert stored(client) == [keys.of_video("default", UUID(video["videoId"])) + "source"]
    again = client.head(at, headers=TUS).headers  # for whoever did not hear the last answer
    assert (again["Upload-Offset"], again["Upload-Length"]) == (str(len(FILM)), str(len(FILM)))
    assert (again["Upload-Metadata"], again["Content-Location"]) == (name, f"{VIDEOS}/{video['videoId']}")
    assert sent(client, at, b"", len(FILM)).status_code == 204
    assert count(db, "video") == 1


def test_the_same_bytes_in_parts_are_the_video_that_is_there(client: TestClient, db: Db) -> None:
    there = client.post(VIDEOS, content=FILM).json()
    answer = sent(client, begun(client), FILM)
    assert answer.headers["Content-Location"] == f"{VIDEOS}/{there['videoId']}"
    assert (count(db, "video"), len(stored(client))) == (1, 1)


@pytest.mark.parametrize("offset", ["7", "9", "0", "99999999"])
def test_an_offset_that_is_not_true_changes_nothing(client: TestClient, offset: str) -> None:
    at = begun(client)
    sent(client, at, FILM[:8])
    answer = sent(client, at, FILM[8:], int(offset))
    assert (answer.status_code, answer.headers["Tus-Resumable"]) == (409, "1.0.0")
    assert offset_of(client, at) == 8


def refusals() -> Iterator[tuple[str, str, dict[str, str], int]]:
    yield "POST", "", {"Upload-Length": "5"}, 400  # no version
    yield "POST", "", TUS | {"Tus-Resumable": "0.2.2", "Upload-Length": "5"}, 412
    yield "POST", "", TUS, 400
    yield "POST", "", TUS | {"Upload-Length": "0"}, 400
    yield "POST", "", TUS | {"Upload-Length": "-1"}, 400
    yield "POST", "", TUS | {"Upload-Defer-Length": "1"}, 400
    yield "POST", "", TUS | {"Upload-Length": "5", "Upload-Concat": "partial"}, 400  # each part would be a video
    yield "POST", "", TUS | {"Upload-Length": "2000000"}, 413
    yield "POST", "", TUS | {"Upload-Length": "5", "Upload-Metadata": "filename =="}, 400
    yield "POST", "", TUS | {"Upload-Length": "5", "Upload-Metadata": "filename YQ== YQ=="}, 400
    yield "POST", "", TUS | {"Upload-Length": "5", "Upload-Metadata": "a ," * 1000}, 400  # in no more time than others
    yield "PATCH", f"/{NOBODY}", TUS | BYTES | {"Upload-Offset": "0"}, 404
    yield "PATCH", f"/{NOBODY}", TUS | {"Upload-Offset": "0"}, 415
    yield "PATCH", f"/{NOBODY}", TUS | BYTES, 400
    yield "HEAD", f"/{NOBODY}", TUS, 404
    yield "HEAD", f"/{NOBODY}", {"Tus-Resumable": "2.0.0"}, 412
    yield "DELETE", f"/{NOBODY}", TUS, 404
    yield "DELETE", f"/{NOBODY}", {}, 400
    yield "POST", f"/{NOBODY}", TUS, 400  # no method to stand in for


def test_what_makes_no_sense_is_refused_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, upload_max_mb=1) as client:
        for method, path, headers, status in refusals():
            sent_as = {name.encode(): value.encode() for name, value in headers.items()}
            answer = client.request(method, UPLOADS + path, headers=sent_as)
            assert answer.status_code == status, (method, headers, answer.text)
            assert answer.headers["Tus-Resumable"] == "1.0.0", (method, headers)
            assert (answer.headers.get("Tus-Version") == "1.0.0") == (status == 412)
        assert nothing_left(client)


@pytest.mark.parametrize("content", [b"<html>      ", b"RIFF....WAVE", b"x" * 4])
def test_what_is_no_video_is_refused_by_its_first_bytes(client: TestClient, content: bytes) -> None:
    """Not before there are as many as it takes: a line may break after any."""
    at = begun(client, len(content))
    assert sent(client, at, content[:3]).status_code == 204
    assert sent(client, at, content[3:], 3).status_code == 400
    assert client.head(at, headers=TUS).status_code == 404
    assert nothing_left(client)


def test_no_more_comes_than_was_announced(client: TestClient) -> None:
    at = begun(client, 100)
    assert sent(client, at, FILM).status_code == 413
    pieces = (FILM[start : start + 60] for start in range(0, 600, 60))  # whose length nobody says
    assert sent(client, at, pieces).status_code == 413  # type: ignore[arg-type]
    assert offset_of(client, at) <= 100
    assert stored(client) == []


def test_to_another_tenant_an_upload_is_not_there(client: TestClient, engine: sqlalchemy.Engine) -> None:
    add_tenant(engine)
    at = begun(client)
    for answer in (
        client.head(at, headers=TUS | OTHER),
        sent(client, at, FILM, headers=OTHER),
        client.delete(at, headers=TUS | OTHER),
    ):
        assert answer.status_code == 404
    assert offset_of(client, at) == 0


def test_of_two_clients_at_one_upload_the_second_is_told_to_wait(client: TestClient) -> None:
    at = begun(client)
    upload_id = UUID(at.rpartition("/")[2])
    with monolith(client).storage.resumable.hold("default", upload_id):
        for answer in (sent(client, at, FILM), client.delete(at, headers=TUS)):
            assert (answer.status_code, answer.headers["Retry-After"]) == (423, "2")
        assert offset_of(client, at) == 0
    assert sent(client, at, FILM).status_code == 204


def test_an_upload_that_was_ended_is_gone(client: TestClient) -> None:
    at = begun(client)
    sent(client, at, FILM[:50])
    assert client.delete(at, headers=TUS).status_code == 204
    assert sent(client, at, FILM[50:], 50).status_code == 404
    assert nothing_left(client)


def let_expire(client: TestClient, at: str) -> None:
    everything = monolith(client).settings.data_dir.joinpath("media", ".resumable")
    place = next(everything.glob(f"*/{at.rpartition('/')[2]}"))
    for file in (*place.iterdir(), place):
        os.utime(file, (file.stat().st_mtime - 90_000,) * 2)


def test_what_nobody_goes_on_with_for_a_day_is_gone_and_swept(client: TestClient) -> None:
    old, young = begun(client), begun(client)
    sent(client, old, FILM[:50])
    let_expire(client, old)
    assert client.head(old, headers=TUS).status_code == 410
    assert sent(client, old, FILM[50:], 50).status_code == 410
    a_day_ago = datetime.now(UTC) - timedelta(days=1)
    with monolith(client).storage.resumable.hold("default", UUID(young.rpartition("/")[2])):
        assert monolith(client).storage.forget_uploads(a_day_ago) == 1
        assert monolith(client).storage.forget_uploads(datetime.now(UTC)) == 0  # somebody holds the other one
    assert client.head(old, headers=TUS).status_code == 404
    assert offset_of(client, young) == 0


def test_what_somebody_went_on_with_while_the_sweep_looked_is_not_swept(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = begun(client)
    sent(client, at, FILM[:50])
    let_expire(client, at)
    bytes_of_it = next(monolith(client).settings.data_dir.glob("media/.resumable/*/*/bytes"))

    def lock_after_a_part(file: int, how: int) -> None:
        os.utime(bytes_of_it)  # by a request that held it from before it expired
        flock(file, how)

    flock = fcntl.flock
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", lock_after_a_part)
        assert monolith(client).storage.forget_uploads(datetime.now(UTC) - timedelta(days=1)) == 0
    assert offset_of(client, at) == 50


def test_post_stands_in_where_a_network_has_neither_patch_nor_delete(client: TestClient) -> None:
    one, other = begun(client), begun(client)
    headers = TUS | BYTES | {"Upload-Offset": "0", "X-HTTP-Method-Override": "PATCH"}
    assert client.post(one, content=FILM, headers=headers).headers["Upload-Offset"] == str(len(FILM))
    assert client.post(other, headers=TUS | {"X-HTTP-Method-Override": "DELETE"}).status_code == 204
    assert client.head(other, headers=TUS).status_code == 404


# --- room -------------------------------------------------------------------------------------------------------


def test_what_is_unfinished_counts_as_storage_that_is_used(url: str, tmp_path: Path) -> None:
    """Else a tenant could announce the disk full, in any number of parts."""
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        first = begun(client, 600_000)
        refused = client.post(UPLOADS, headers=TUS | {"Upload-Length": "600000"})
        assert (refused.status_code, "used up" in refused.text) == (507, True)
        client.delete(first, headers=TUS)
        begun(client, 600_000)


def test_of_two_that_fit_one_by_one_and_begin_at_once_one_is_refused(url: str, tmp_path: Path, db: Db) -> None:
    """Each had listed what is unfinished before it waited for the other."""
    turn = "(hashtext('tenant storage'), hashtext('default'))"
    with (
        served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client,
        ThreadPoolExecutor() as threads,
    ):

        def begin(_: int) -> int:
            return int(client.post(UPLOADS, headers=TUS | {"Upload-Length": "600000"}).status_code)

        db.execute(f"SELECT pg_advisory_lock{turn}")
        answers = threads.map(begin, range(2))
        until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") == 2)
        db.execute(f"SELECT pg_advisory_unlock{turn}")
        assert sorted(answers) == [201, 507]


def test_bytes_that_no_longer_fit_when_all_are_there_are_deleted(url: str, tmp_path: Path, db: Db) -> None:
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        at = begun(client, 600_000)
        assert client.post(VIDEOS, content=LARGE[:900_000]).status_code == 201  # in one piece, meanwhile
        whole = (FILM * 40)[:600_000]
        assert sent(client, at, whole).status_code == 507
        assert client.head(at, headers=TUS).status_code == 404
        assert (count(db, "video"), len(stored(client))) == (1, 1)


def test_a_full_disk_takes_no_part_and_keeps_what_it_has(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False) as client:
        at = begun(client)
        sent(client, at, FILM[:50])
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=2**40) as full:
        assert full.post(UPLOADS, headers=TUS | {"Upload-Length": "5"}).status_code == 507
        assert sent(full, at, FILM[50:], 50).status_code == 507
        assert offset_of(full, at) == 50


def test_a_tenant_leaves_only_so_many_unfinished(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resumable_uploads, "_UNFINISHED_MAX", 2)
    begun(client)
    begun(client)
    assert client.post(UPLOADS, headers=TUS | {"Upload-Length": "5"}).status_code == 429


def test_an_expired_one_is_in_nobodys_way_until_it_is_swept(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be neither finished nor ended, so whoever begins anew would be told to do what is refused."""
    monkeypatch.setattr(resumable_uploads, "_UNFINISHED_MAX", 1)
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        old = begun(client, 600_000)
        let_expire(client, old)
        assert client.delete(old, headers=TUS).status_code == 410
        begun(client, 600_000)
        assert client.post(UPLOADS, headers=TUS | {"Upload-Length": "5"}).status_code == 429


# --- what breaks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_before", [True, False], ids=["before-its-row", "after-its-row"])
def test_a_crash_between_the_last_byte_and_its_row_costs_nothing(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch, is_before: bool
) -> None:
    """Whoever asks next finishes it."""
    at = begun(client)
    with monkeypatch.context() as patched:
        where = "api.product.videos.uploads.keep_stored" if is_before else "storage.resumable.Held.kept_as"
        patched.setattr(f"snapapp.{where}", lambda *_: 1 / 0)
        assert sent(client, at, FILM).status_code == 500
    assert count(db, "video") == (not is_before)
    video = client.get(client.head(at, headers=TUS).headers["Content-Location"]).json()
    assert client.get(video["contentPath"]).content == FILM
    assert (count(db, "video"), len(stored(client))) == (1, 1)


def test_a_video_whose_upload_is_finished_once_more_keeps_its_bytes_whatever_else_was_stored_meanwhile(
    url: str, tmp_path: Path, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash between its row and its end the tenant's limit was applied again, and the video lost its file."""
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        at = begun(client)
        with monkeypatch.context() as patched:
            patched.setattr("snapapp.storage.resumable.Held.kept_as", lambda *_: 1 / 0)
            assert sent(client, at, FILM).status_code == 500
        mark(client, videoUrl="https://videos.example/a.mkv")
        db.execute("UPDATE snap SET media_bytes = 2^20")
        assert client.get(at, headers=TUS).status_code == 200
        video_id = client.get(at, headers=TUS).json()["videoId"]
        assert client.get(f"{VIDEOS}/{video_id}/content").content == FILM


def head(at: str, offset: int, length: int, **more: str) -> bytes:
    """Of a part, as it goes over a line."""
    lines = [f"PATCH {at} HTTP/1.1", "Host: localhost", f"Content-Length: {length}", f"Upload-Offset: {offset}"]
    lines += [f"{name}: {value}" for name, value in (TUS | BYTES | more).items()]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_line_that_breaks_and_a_server_that_dies_cost_no_byte_that_was_there(url: str, tmp_path: Path) -> None:
    """Twice the line breaks in the middle of a part, then the server is killed with -9: what is sent is each time
    only what is not there, and the bytes of the video are those of the file."""
    settings = {"SNAPAPP_DATABASE_URL": url, "SNAPAPP_WORKER_ENABLED": "false"}
    server = Served(tmp_path, **settings).until_up()

    def reached(at: str) -> int:
        return int(server.ask(at).body["offset"])

    def is_free(at: str) -> bool:
        """The bytes are there a moment before the request that brought them has let go."""
        return server.ask(at, "PATCH", **TUS, **BYTES, **{"Upload-Offset": str(reached(at))}).status == 204

    try:
        at = server.ask(UPLOADS, "POST", **TUS, **{"Upload-Length": str(len(LARGE))}).headers["location"]
        offset = 0
        for upto in (100_001, 400_003, 700_005):
            with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
                line.sendall(head(at, offset, len(LARGE) - offset) + LARGE[offset:upto])
                if upto == 700_005:
                    until(lambda: reached(at) >= 500_000)
                    second = {**TUS, **BYTES, "Upload-Offset": str(reached(at))}
                    assert server.ask(at, "PATCH", **second).status == 423  # the line is still there
                    server.process.kill()
                    server.end()
            if upto == 700_005:
                server = Served(tmp_path, **settings).until_up()
                assert 500_000 <= reached(at) <= upto
            else:
                until(lambda: reached(at) == upto)  # noqa: B023 - it is asked within the turn
                until(lambda: is_free(at))
            offset = reached(at)
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
            line.sendall(head(at, offset, len(LARGE) - offset) + LARGE[offset:])
            assert b" 204 " in line.recv(100)
        video = server.ask(server.ask(at).headers["content-location"]).body
        assert (video["sizeBytes"], video["sha256"]) == (len(LARGE), hashlib.sha256(LARGE).hexdigest())
    finally:
        server.process.kill()
        server.end()


def test_what_is_sent_while_its_sender_is_revoked_becomes_no_video_of_another_tenant(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db
) -> None:
    """Where no tokens are required, a request without a session is one of the default tenant, whose video it became."""
    theirs = OTHER | {"X-Assinatura-Token": add_tenant(engine, "other")}
    server = Served(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false").until_up()
    try:
        ana = {"nickname": "ana", "email": "ana@fazenda.example", "role": "operator"}
        added = server.ask("/v2/operators", "POST", ana, **theirs).body
        signed_in = server.ask(urlsplit(added["link"]).path, "POST")
        cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
        at = server.ask(UPLOADS, "POST", **TUS, **cookie, **{"Upload-Length": str(len(LARGE))}).headers["location"]
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
            line.sendall(head(at, 0, len(LARGE), **cookie) + LARGE[:500_000])
            until(lambda: server.ask(at, **theirs).body["offset"] > 0)
            httpx.delete(
                f"http://127.0.0.1:{server.port}/v2/operators/{added['id']}", headers=theirs
            ).raise_for_status()
            line.sendall(LARGE[500_000:])
            assert b" 401 " in line.recv(100)
        assert count(db, "video") == 0
        assert server.ask(at, **theirs).body["videoId"]  # whoever still may goes on with it
        assert scalar(db, "SELECT tenant FROM video") == "other"
    finally:
        server.process.kill()
        server.end()
