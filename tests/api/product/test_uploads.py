"""/v2/videos: uploads as they arrive, and what they leave when they do not."""

import asyncio
import hashlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from fastapi import HTTPException, Request
from starlette.testclient import TestClient

from snapapp.api.http.files.upload_parser import Incoming
from snapapp.domain import videos
from snapapp.storage import keys
from tests.api.conftest import served
from tests.api.examples import OTHER, add_tenant, as_tenant, complete, count, mark, monolith
from tests.api.product.films import FILM, VIDEOS, nothing_left, stored, upload
from tests.factory import Db, scalar
from tests.jobs.working import until
from tests.running import Served

# --- uploads ----------------------------------------------------------------------------------------------------


def test_a_raw_upload_becomes_a_video(client: TestClient, db: Db) -> None:
    headers = {"Content-Type": "video/mp4", "X-File-Name": "brete%207.mp4"}
    answer = client.post(VIDEOS, content=FILM, headers=headers)
    video = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (201, f"{VIDEOS}/{video['videoId']}")
    assert (video["fileName"], video["sizeBytes"], video["isUpload"]) == ("brete 7.mp4", len(FILM), True)
    assert video["sha256"] == hashlib.sha256(FILM).hexdigest()
    assert (video["videoUrl"], video["videoProbe"]) == (None, None)
    assert stored(client) == [keys.of_video("default", UUID(video["videoId"])) + "source"]
    [(kind, payload)] = db.execute("SELECT kind, payload::text FROM snap_processing_job").fetchall()
    assert (kind, json.loads(payload)["video_id"]) == ("video.probe", video["videoId"])
    assert client.get(f"{VIDEOS}/{video['videoId']}").json() == video


def test_a_form_may_hold_the_file(client: TestClient) -> None:
    files = {"file": ("../../C:\\fakepath\\vaca \u00e9.mp4", FILM, "text/html")}
    answer = client.post(VIDEOS, files=files, data={"nickname": "ana", "note": "x"})
    assert (answer.status_code, answer.json()["fileName"]) == (201, "vaca \u00e9.mp4")
    assert answer.json()["sha256"] == hashlib.sha256(FILM).hexdigest()


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (b'filename="a; b.mp4"', "a; b.mp4"),
        (b"filename=a.mp4", "a.mp4"),
        (b'filename="v\xc3\xaddeo.mp4"', "v\u00eddeo.mp4"),
        (b"filename=\"a.mp4\"; filename*=idna''xn--a", "a.mp4"),
        (b'FileName="\xff.mp4"', "\ufffd.mp4"),
        (b'filename="a\\"b.mp4"', 'a"b.mp4'),
    ],
)
def test_the_name_of_a_forms_file_is_read_as_browsers_write_it(client: TestClient, told: bytes, kept: str) -> None:
    form = b"--b\r\nContent-Disposition: form-data; name=f; " + told + b"\r\n\r\n" + FILM + b"\r\n--b--\r\n"
    answer = client.post(VIDEOS, content=form, headers={"Content-Type": 'Multipart/Form-Data; boundary="b"'})
    assert (answer.status_code, answer.json()["fileName"]) == (201, kept)


def test_a_form_is_read_whatever_the_pieces_it_comes_in(client: TestClient) -> None:
    """A boundary may be cut anywhere."""
    edge = "----a-boundary"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="f"; filename="a.mp4"\r\n\r\n'.encode()
    content = FILM[:200] + f"\r\n--{edge[:-1]}".encode() + FILM[200:300]
    whole = head + content + f"\r\n--{edge}--\r\n".encode()
    for size in (1, 7, 64):
        pieces = (whole[start : start + size] for start in range(0, len(whole), size))
        headers = {"Content-Type": f"multipart/form-data; boundary={edge}"}
        answer = client.post(VIDEOS, content=pieces, headers=headers)
        assert answer.json()["sha256"] == hashlib.sha256(content).hexdigest()


def test_the_same_bytes_are_kept_once(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """FE3."""
    first = upload(client)
    again = client.post(VIDEOS, content=FILM)
    assert (again.status_code, again.json()["videoId"]) == (200, first["videoId"])
    assert (len(stored(client)), count(db, "video")) == (1, 1)
    add_tenant(engine)
    theirs = client.post(VIDEOS, content=FILM, headers=OTHER)
    assert (theirs.status_code, len(stored(client))) == (201, 2)


def test_an_uploaded_video_can_be_marked(client: TestClient) -> None:
    video = upload(client)
    snap = mark(client, videoUrl=..., videoId=video["videoId"])
    assert (snap["videoId"], snap["videoUrl"]) == (video["videoId"], f"{VIDEOS}/{video['videoId']}/content")


@pytest.mark.parametrize(
    "content",
    [b"", b"<html>", b"%PDF-1.7", b"\x89PNG\r\n\x1a\n", b"#EXTM3U\n", b"ffconcat version 1.0", b"RIFF....WAVE"],
)
def test_what_is_no_video_is_refused_by_its_first_bytes(client: TestClient, db: Db, content: bytes) -> None:
    """By what it is, not by what it says it is."""
    answer = client.post(VIDEOS, content=content, headers={"Content-Type": "video/mp4", "X-File-Name": "a.mp4"})
    assert answer.status_code == 400, answer.text
    assert (nothing_left(client), count(db, "video"), count(db, "snap_processing_job")) == (True, 0, 0)


@pytest.mark.parametrize("form", [False, True])
def test_an_upload_that_is_too_large_is_cut_and_leaves_nothing(url: str, tmp_path: Path, db: Db, form: bool) -> None:
    """Announced or not: bytes are counted as they arrive."""
    large = FILM + bytes(2**20)
    with served(url, tmp_path, worker_enabled=False, upload_max_mb=1) as client:
        if form:
            answers = [client.post(VIDEOS, files={"file": ("a.mp4", large)})]
        else:
            pieces = (large[start : start + 65536] for start in range(0, len(large), 65536))
            answers = [client.post(VIDEOS, content=large), client.post(VIDEOS, content=pieces)]
        for answer in answers:
            assert (answer.status_code, answer.headers["Connection"]) == (413, "close"), answer.text
        assert nothing_left(client)
        assert upload(client, large[: 2**20])["sizeBytes"] == 2**20
    assert count(db, "video") == 1


def test_a_full_disk_takes_no_upload(url: str, tmp_path: Path, db: Db) -> None:
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**7) as client:
        answer = client.post(VIDEOS, content=FILM)
        assert (answer.status_code, answer.json()["error"]) == (507, "Insufficient Storage")
        assert nothing_left(client)


def test_a_tenant_stores_no_more_than_it_may(url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    """Announced or not, in a form or not; what a snap's files take counts as well. Another tenant has its own."""
    add_tenant(engine)
    most = FILM + bytes(2**20 - len(FILM) - 1000)
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        upload(client, most)
        more = FILM + bytes(1000)
        pieces = (more[start : start + 4096] for start in range(0, len(more), 4096))
        refused = [client.post(VIDEOS, content=more), client.post(VIDEOS, content=pieces)]
        refused.append(client.post(VIDEOS, files={"file": ("a.mp4", more)}))
        for answer in refused:
            assert (answer.status_code, answer.json()["error"]) == (507, "Insufficient Storage")
            assert answer.json()["message"] == "The tenant's 1 MB of storage are used up: delete videos or snaps first"
        assert client.post(VIDEOS, content=more, headers=OTHER).status_code == 201
        assert len(stored(client)) == 2, "what was refused left nothing"
        use = client.get(f"{VIDEOS}/storage").json()
        assert use == {"usedBytes": len(most), "videoBytes": len(most), "snapBytes": 0, "maxBytes": 2**20}
        complete(client, engine, db, mark(client), artefact_bytes=900)
        assert client.get(f"{VIDEOS}/storage").json()["snapBytes"] == 900
        assert client.post(VIDEOS, content=FILM[:200]).status_code == 507
    assert count(db, "video WHERE tenant = 'default' AND storage_key IS NOT NULL") == 1


def test_of_uploads_that_only_fit_one_by_one_the_second_is_refused(url: str, tmp_path: Path, db: Db) -> None:
    """Each fitted when it began."""
    both_began = threading.Barrier(2, timeout=20)

    def pieces(content: bytes) -> Iterator[bytes]:
        yield content[:1000]
        both_began.wait()
        yield content[1000:]

    quota = {"SNAPAPP_WORKER_ENABLED": "false", "SNAPAPP_TENANT_STORAGE_MAX_MB": "1", "SNAPAPP_DEMO": "false"}
    with Served(tmp_path, SNAPAPP_DATABASE_URL=url, **quota).up() as process, ThreadPoolExecutor() as threads:

        def send(last: bytes) -> int:
            with closing(http.client.HTTPConnection("127.0.0.1", process.port, timeout=30)) as connection:
                connection.request("POST", VIDEOS, pieces(FILM + bytes(600_000) + last), encode_chunked=True)
                return connection.getresponse().status

        assert sorted(threads.map(send, [b"1", b"2"])) == [201, 507]
        files = [path for path in (tmp_path / "media").rglob("*") if path.is_file()]
    assert (len(files), count(db, "video")) == (1, 1)


def test_no_copy_is_made_for_a_tenant_that_has_used_up_its_storage(url: str, tmp_path: Path, db: Db) -> None:
    with served(url, tmp_path, worker_enabled=False, tenant_storage_max_mb=1) as client:
        video = upload(client, FILM + bytes(2**20 - len(FILM)))
        remote = mark(client, videoUrl="https://videos.example/a.mkv")["videoId"]
        for video_id in (video["videoId"], remote):
            answer = client.get(f"{VIDEOS}/{video_id}/content?preview=true")
            assert (answer.status_code, answer.json()["error"]) == (507, "Insufficient Storage")
    assert count(db, "snap_processing_job WHERE kind = 'video.preview'") == 0


MALFORMED = [
    ("multipart/form-data", b"x"),
    ("multipart/form-data; boundary=", b"x"),
    ("multipart/form-data; boundary=" + "b" * 300, b"x"),
    ("multipart/form-data; boundary=b", b""),
    ("multipart/form-data; boundary=b", b"no boundary at all"),
    ("multipart/form-data; boundary=b", b"--b--\r\n"),
    ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n--b--\r\n'),
    ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; filename="a"\r\n\r\n' + FILM),
    ("multipart/form-data; boundary=b", b"--b\r\n" + b"X: " + b"y" * 5000 + b"\r\n\r\nx\r\n--b--\r\n"),
    (
        "multipart/form-data; boundary=b",
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"x" * 5000 + b"\r\n--b--\r\n",
    ),
    (
        "multipart/form-data; boundary=b",
        (b'--b\r\nContent-Disposition: form-data; name="f"; filename="a"\r\n\r\n' + FILM + b"\r\n") * 2 + b"--b--\r\n",
    ),
    *(
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: " + told + b"\r\n\r\n" + FILM + b"\r\n--b--\r\n",
        )
        for told in (
            b"form-data; name=f; filename*=idna''xn--a",
            b"form-data; name=f; filename*=punycode''%ff",
            b"form-data; name=f; filename*=utf-8''a.mp4",  # RFC 7578 forbids it: a form's file has a plain name
            b"form-data; name*0*=idna''xn--a; name*1=b",
            b"form-data",
            b"\xff\xfe",
        )
    ),
    ("multipart/form-data; boundary*=idna''xn--a", b"x"),
    ("multipart/form-data; boundary*0*=idna''xn--a", b"x"),
]


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(("kind", "content"), MALFORMED)
def test_a_form_that_makes_no_sense_leaves_nothing(client: TestClient, db: Db, kind: str, content: bytes) -> None:
    answer = client.post(VIDEOS, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"timestamp", "status", "error", "message", "details"}
    assert (nothing_left(client), count(db, "video")) == (True, 0)


def test_a_form_has_few_fields_also_if_all_have_the_same_name(client: TestClient) -> None:
    """Each takes up to 10 ms of the event loop: 3 MB of them took 4 s, and an upload may have gigabytes."""
    form = b"--b\r\nContent-Disposition: form-data; name=a\r\n\r\nx\r\n" * 30 + b"--b--\r\n"
    answer = client.post(VIDEOS, content=form, headers={"Content-Type": "multipart/form-data; boundary=b"})
    assert (answer.status_code, answer.json()["message"]) == (400, "Malformed form: it has too many fields")


def test_a_file_that_is_sent_as_a_field_is_refused_before_all_of_it_has_come() -> None:
    """As curl does with a "<" where an "@" is meant."""
    part = b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\n%s\r\n"
    kind = [(b"content-type", b"multipart/form-data; boundary=b")]

    def said(*texts: bytes) -> object:
        form = b"".join(part % text for text in texts) + b"--b--\r\n"
        pieces = iter([form[start : start + 1000] for start in range(0, len(form), 1000)])

        async def receive() -> dict[str, object]:
            piece = next(pieces, b"")
            return {"type": "http.request", "body": piece, "more_body": bool(piece)}

        async def read() -> None:
            async for _ in Incoming(Request({"type": "http", "headers": kind}, receive)).pieces():
                pass

        with pytest.raises(HTTPException) as refused:
            asyncio.run(read())
        return refused.value.status_code, refused.value.detail, next(pieces, None) is None

    too_long = "Malformed form: file has no filename, and is too long for a field"
    assert said(b"x" * 9000) == (400, too_long, False)
    assert said(b"x" * 4000, b"x" * 4000) == (400, "The form holds no file", True)


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("/etc/passwd", "passwd"),
        ("..", None),
        ("", None),
        ("a%0d%0aSet-Cookie: x=y", "aSet-Cookie: x=y"),
        ("%00", None),
        ("x" * 900, "x" * 255),
        ("%ff%fe.mp4", "\ufffd\ufffd.mp4"),
        ("\u202egpj.exe", "gpj.exe"),
        ("%F0%9F%91%A9%E2%80%8D%F0%9F%8C%BE.mp4", "\U0001f469\u200d\U0001f33e.mp4"),  # one farmer
        ("%E2%80%8D%E2%80%8C", None),
        ("s\u00e3o jo\u00e3o.mp4", "s\u00e3o jo\u00e3o.mp4"),
    ],
)
def test_a_file_name_is_for_people_and_nothing_else(client: TestClient, sent: str, kept: str | None) -> None:
    answer = client.post(VIDEOS, content=FILM, headers={"X-File-Name": sent.encode()})
    assert (answer.status_code, answer.json().get("fileName")) == (201, kept), answer.text


def test_a_browser_sends_a_file_name_in_latin_1(client: TestClient) -> None:
    answer = client.post(VIDEOS, content=FILM, headers={"X-File-Name": "s\u00e3o jo\u00e3o.mp4".encode("latin-1")})
    assert (answer.status_code, answer.json().get("fileName")) == (201, "s\u00e3o jo\u00e3o.mp4"), answer.text


def test_a_client_that_goes_away_leaves_nothing(url: str, tmp_path: Path, db: Db) -> None:
    """A real socket, cut in the middle of the body."""
    with Served(tmp_path, SNAPAPP_DATABASE_URL=url, SNAPAPP_WORKER_ENABLED="false").up() as process:
        head = f"POST {VIDEOS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
        folder = tmp_path / "media"
        with socket.create_connection(("127.0.0.1", process.port), timeout=20) as connection:
            connection.sendall(head.encode() + FILM * 60)
            until(lambda: [path for path in folder.rglob("*") if path.is_file()])
        until(lambda: not [path for path in folder.rglob("*") if path.is_file()])
        assert process.ask(VIDEOS).body["items"] == []
    assert "A request failed" not in process.said()


def test_a_database_that_refuses_costs_no_orphan(client: TestClient, db: Db) -> None:
    """FE4: the bytes were there before the row could be."""
    db.execute("CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$")
    db.execute("CREATE TRIGGER meddle BEFORE INSERT ON snap_processing_job FOR EACH ROW EXECUTE FUNCTION meddle()")
    assert client.post(VIDEOS, content=FILM).status_code == 500
    assert (nothing_left(client), count(db, "video")) == (True, 0)


def test_bytes_stay_where_nobody_heard_whether_their_row_was_committed(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = monolith(client).web.dialect
    commit = dialect.do_commit

    def unheard(connection: Any) -> None:
        commit(connection)
        if count(db, "video"):
            raise psycopg.OperationalError("the line went dead")

    with monkeypatch.context() as patched:
        patched.setattr(dialect, "do_commit", unheard)
        assert client.post(VIDEOS, content=FILM).status_code in (500, 503)
    assert (len(stored(client)), count(db, "video")) == (1, 1)
    again = upload(client)
    assert client.get(again["contentPath"]).content == FILM
    assert (len(stored(client)), count(db, "video")) == (1, 1)


def test_bytes_that_were_lost_come_back_with_the_same_upload(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """Under the key that the row names; and what was found out without them is found out again."""
    first = upload(client)
    [key] = stored(client)
    monolith(client).storage.delete(key)
    with as_tenant(engine) as connection:
        videos.set_probe(connection, "default", UUID(first["videoId"]), {"compatible": False, "reason": "it is gone"})
    db.execute("DELETE FROM snap_processing_job")
    assert upload(client)["videoId"] == first["videoId"]
    assert stored(client) == [key]
    assert client.get(first["contentPath"]).content == FILM
    assert scalar(db, "SELECT kind FROM snap_processing_job") == "video.probe"


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ((b"G@\x00\x10" + bytes(184)) * 3, "ts"),
        ((b"\0\0\0\0G@\x00\x10" + bytes(184)) * 3, "m2ts"),
        (b"FLV\x01" + bytes(500), "flv"),
        (b"RIFF\0\0\0\0AVI LIST" + bytes(500), "avi"),
    ],
)
def test_what_recorders_write_is_taken_by_its_first_bytes(client: TestClient, content: bytes, kind: str) -> None:
    assert upload(client, content, f"camera.{kind}")["sizeBytes"] == len(content)
