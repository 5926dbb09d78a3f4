"""/v2/videos: uploads as they arrive, bytes in ranges, stills and previews that jobs make."""

import hashlib
import http.client
import json
import resource
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.videos import remote_playback
from snapapp.domain import videos
from snapapp.jobs import Job, Permanent, processor, registry
from snapapp.storage import keys
from tests.api.conftest import served
from tests.api.examples import NOBODY, OTHER, SNAPS, add_tenant, as_tenant, complete, count, house, mark
from tests.api.http.test_contract import served as served_on_a_socket
from tests.factory import Db, scalar
from tests.jobs.working import until

VIDEOS = "/v2/videos"
FILM = b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(range(256)) * 64


def upload(client: TestClient, content: bytes = FILM, name: str = "") -> dict[str, Any]:
    answer = client.post(VIDEOS, content=content, headers={"X-File-Name": name})
    assert answer.status_code in (200, 201), answer.text
    made: dict[str, Any] = answer.json()
    return made


def stored(client: TestClient) -> list[str]:
    return [each.key for each in house(client).storage.listed()]


def nothing_left(client: TestClient) -> bool:
    """Neither an object nor the beginning of one."""
    return not [path for path in house(client).settings.data_dir.joinpath("media").rglob("*") if path.is_file()]


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
    with served_on_a_socket(url, tmp_path, **quota) as where, ThreadPoolExecutor() as threads:

        def send(last: bytes) -> int:
            with closing(http.client.HTTPConnection(urlsplit(where).netloc, timeout=30)) as connection:
                connection.request("POST", VIDEOS, pieces(FILM + bytes(600_000) + last), encode_chunked=True)
                return connection.getresponse().status

        assert sorted(threads.map(send, [b"1", b"2"])) == [201, 507]
        files = [path for path in (tmp_path / "var" / "media").rglob("*") if path.is_file()]
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
        b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\nx\r\n' * 30 + b"--b--\r\n",
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


@pytest.mark.parametrize(("kind", "content"), MALFORMED)
def test_a_form_that_makes_no_sense_leaves_nothing(client: TestClient, db: Db, kind: str, content: bytes) -> None:
    answer = client.post(VIDEOS, content=content, headers={"Content-Type": kind})
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"timestamp", "status", "error", "message", "details"}
    assert (nothing_left(client), count(db, "video")) == (True, 0)


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
    ],
)
def test_a_file_name_is_for_people_and_nothing_else(client: TestClient, sent: str, kept: str | None) -> None:
    answer = client.post(VIDEOS, content=FILM, headers={"X-File-Name": sent.encode()})
    assert answer.status_code == 201, answer.text
    if sent.isascii():
        assert answer.json()["fileName"] == kept


def test_a_client_that_goes_away_leaves_nothing(url: str, tmp_path: Path, db: Db) -> None:
    """A real socket, cut in the middle of the body."""
    with served_on_a_socket(url, tmp_path, SNAPAPP_WORKER_ENABLED="false") as at:
        place = urlsplit(at)
        head = f"POST {VIDEOS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
        folder = tmp_path / "var" / "media"
        with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
            connection.sendall(head.encode() + FILM * 60)
            until(lambda: [path for path in folder.rglob("*") if path.is_file()])
        until(lambda: not [path for path in folder.rglob("*") if path.is_file()])
        with closing(http.client.HTTPConnection(str(place.netloc), timeout=20)) as connection:
            connection.request("GET", VIDEOS)
            assert json.loads(connection.getresponse().read())["items"] == []
    assert "A request failed" not in (tmp_path / "serve.log").read_text()


def test_a_database_that_refuses_costs_no_orphan(client: TestClient, db: Db) -> None:
    """FE4: the bytes were there before the row could be."""
    db.execute("CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$")
    db.execute("CREATE TRIGGER meddle BEFORE INSERT ON snap_processing_job FOR EACH ROW EXECUTE FUNCTION meddle()")
    assert client.post(VIDEOS, content=FILM).status_code == 500
    assert (nothing_left(client), count(db, "video")) == (True, 0)


def test_bytes_stay_where_nobody_heard_whether_their_row_was_committed(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect = house(client).web.dialect
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
    house(client).storage.delete(key)
    with as_tenant(engine) as connection:
        videos.set_probe(connection, "default", UUID(first["videoId"]), {"compatible": False, "reason": "it is gone"})
    db.execute("DELETE FROM snap_processing_job")
    assert upload(client)["videoId"] == first["videoId"]
    assert stored(client) == [key]
    assert client.get(first["contentPath"]).content == FILM
    assert scalar(db, "SELECT kind FROM snap_processing_job") == "video.probe"


# --- bytes ------------------------------------------------------------------------------------------------------


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


class Remote(BaseHTTPRequestHandler):
    """Somebody else's server: it knows one film, and ranges."""

    protocol_version = "HTTP/1.1"
    modified = "Sun, 01 Mar 2026 08:15:00 GMT"

    def do_GET(self) -> None:
        if self.path == "/page.html":
            self.send_response(200)
            self.send_header("Content-Length", "20")
            self.end_headers()
            self.wfile.write(b"<!doctype html><p>No")
            return
        if self.path != "/film.mp4":
            self.send_error(404)
            return
        start, end = 0, len(FILM)
        if asked := self.headers.get("Range"):
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, end = int(first), min(int(last or len(FILM)) + 1, len(FILM))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(FILM)}")
        else:
            self.send_response(200)
        self.send_header("ETag", '"v1"')
        self.send_header("Last-Modified", self.modified)
        self.send_header("Content-Length", str(end - start))
        self.end_headers()
        self.wfile.write(FILM[start:end])

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def remote() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Remote) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


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


def name(client: TestClient, video_url: object) -> Any:
    return client.post(f"{VIDEOS}/remote", json={"videoUrl": video_url})


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
    monkeypatch.setattr(sys.modules[__name__], "FILM", FILM + bytes(2**20))
    with remote() as at, served(url, tmp_path, worker_enabled=False, fetch_allowed_hosts=(at,)) as client:
        content = f"{VIDEOS}/{mark(client, videoUrl=f'http://{at}/film.mp4')['videoId']}/content"
        with files_end_at(1000):
            at_once = client.get(content)
        assert client.get(content, headers={"Range": "bytes=0-3"}).status_code == 206
        with files_end_at(300_000):
            later = client.get(content, headers={"Range": "bytes=900000-900003"})
        for answer in (at_once, later):
            assert (answer.status_code, "no room on our disk" in answer.json()["message"]) == (507, True), answer.text
        assert client.get(content).content == FILM


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


# --- what jobs make ---------------------------------------------------------------------------------------------


@contextmanager
def known(kind: str, do: Any) -> Iterator[None]:
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
        house(places[0]).storage.put(job.payload["key"], b"a picture")

    with known("video.still", still), working(url, tmp_path, db, "video.still") as client:
        places.append(client)
        video = upload(client)["videoId"]
        for at in ("12.48", "12.4801"):
            answer = client.get(f"{VIDEOS}/{video}/frame", params={"at": at})
            assert (answer.status_code, answer.content) == (200, b"a picture"), answer.text
            assert answer.headers["Content-Type"] == "image/jpeg"
    assert [(each["video_id"], each["at"]) for each in made] == [(video, 12.48)]


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
        house(client).storage.put(keys.of_video("default", video) + "preview.mp4", b"the copy")
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
    reason = "Video cannot be deleted, 1 snaps are of it, delete them first"
    assert refused.json()["message"] == f"{reason}: {snap['videoId']}"
    assert client.delete(its).json()["removal"] == "DELETED"
    assert client.delete(video).status_code == 204


def test_a_video_of_which_a_snap_was_shared_stays_for_good(client: TestClient, db: Db) -> None:
    snap = mark(client)
    token = client.post(f"{SNAPS}/{snap['snapId']}/share").json()["publicShareToken"]
    assert client.delete(f"{SNAPS}/{snap['snapId']}").json()["removal"] == "HIDDEN"
    refused = client.delete(f"{VIDEOS}/{snap['videoId']}")
    assert refused.status_code == 409
    assert "1 snaps of it were shared, and their links go on" in refused.json()["message"]
    assert client.get(f"/public/snaps/{token}").status_code == 200


def test_another_tenants_video_cannot_be_deleted(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """With the words of one that never existed."""
    add_tenant(engine)
    video = upload(client)["videoId"]
    answer = client.delete(f"{VIDEOS}/{video}", headers=OTHER)
    assert (answer.status_code, answer.json()["message"]) == (404, f"Video not found: {video}")
    assert client.get(f"{VIDEOS}/{video}").status_code == 200
    assert count(db, "snap_processing_job WHERE kind = 'media.forget'") == 0


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
