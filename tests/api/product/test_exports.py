"""/v2/snaps/export: a table that Excel opens as it was meant, JSON, and an archive with the evidence in it."""

import asyncio
import csv
import io
import json
import logging
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from starlette.testclient import TestClient
from starlette.types import Message

from snapapp.api.http import spreadsheet
from snapapp.api.product import exports
from snapapp.domain.finding import search
from snapapp.storage import StorageError
from tests.api.examples import FILES, SNAPS, body, complete, fail, mark, monolith, number, text
from tests.factory import Db

EXPORT = f"{SNAPS}/export"


def rows(client: TestClient, **query: Any) -> list[dict[str, str]]:
    answer = client.get(EXPORT, params=query)
    assert answer.status_code == 200, answer.text
    return [*csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"), newline=""))]


def test_a_table_has_a_row_for_each_snap_and_a_column_for_each_attribute(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    done = mark(client, subject={"id": "BR-1", "attributes": [text("raça", "Nelore"), number("peso", -4.5)]})
    failed = mark(client, subject={"id": "BR-2", "attributes": [text("lote", 'a;b,"c"\nd')]})
    complete(client, engine, db, done)
    fail(db, failed)
    first, second = rows(client)
    assert (first["snapId"], first["status"], first["subjectId"]) == (done["snapId"], "COMPLETED", "BR-1")
    assert (first["raça"], first["peso"], first["lote"], first["frameCount"]) == ("Nelore", "-4.5", "", "1")
    assert (second["status"], second["error"], second["lote"]) == ("FAILED", "The video ends at 3.2 s.", 'a;b,"c"\nd')


def test_a_long_one_waits_on_our_disk_and_not_where_everybodys_temporary_files_are(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small box those are in memory."""
    monkeypatch.setattr(exports, "_IN_MEMORY", 10)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    snap = mark(client)
    assert [row["snapId"] for row in rows(client)] == [snap["snapId"]]


def test_a_full_disk_is_said_before_the_first_byte(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by half a table, or as an error of ours."""
    full = Path("/dev/full")
    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda *_, **__: full.open("w+b"))
    mark(client)
    for form in ("csv", "json", "zip"):
        answer = client.get(EXPORT, params={"format": form})
        why = "The disk of SNAPAPP_DATA_DIR is full: No space left on device"
        assert (answer.status_code, answer.json()["message"]) == (507, why)


def test_a_client_that_takes_nothing_is_cut(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exports, "SEND_WITHIN", 0.3)
    caplog.set_level(logging.INFO, "snapapp")
    mark(client)
    scope = {"type": "http", "method": "GET", "path": EXPORT, "query_string": b"", "client": ("127.0.0.1", 1)}
    scope |= {"http_version": "1.1", "scheme": "http", "root_path": "", "headers": [(b"host", b"localhost")]}

    async def receive() -> Message:
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(3600)

    async def asked() -> None:
        await asyncio.wait_for(client.app(scope, receive, send), 20)

    asyncio.run(asked())
    assert "An export was cut" in caplog.text


def test_excel_opens_it_as_it_was_meant(client: TestClient) -> None:
    mark(client)
    answer = client.get(EXPORT)
    assert answer.content.startswith(b"\xef\xbb\xbf"), "else Excel reads UTF-8 as something else"
    assert b"\r\n" in answer.content
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"].startswith('attachment; filename="snaps-')
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "evil", ['=HYPERLINK("http://evil")', "+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1", "\n=1"]
)
def test_no_text_becomes_a_formula_wherever_it_stands(client: TestClient, evil: str) -> None:
    key = evil.strip()
    mark(client, nickname=f"x{evil}", subject={"id": evil, "attributes": [text(key, evil), text("ok", evil)]})
    answer = client.get(EXPORT).content.decode("utf-8-sig")
    for row in csv.reader(io.StringIO(answer, newline="")):
        for each in row:
            assert not each.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "\n", "＝")), each


def test_a_number_stays_a_number() -> None:
    assert spreadsheet.lines([[-1, 2.5, None, True, "-1", "a"]]) == "-1,2.5,,true,'-1,a\r\n"


def test_json_holds_what_a_list_would(client: TestClient) -> None:
    made = [mark(client), mark(client, subject={"attributes": [text("a", "\u2028</script>")]})]
    answer = client.get(EXPORT, params={"format": "json"})
    items = answer.json()["items"]
    assert [item["snapId"] for item in items] == [snap["snapId"] for snap in made], "oldest first"
    assert items[0] == made[0] | {"job": None}


def test_an_archive_holds_both_and_the_evidence(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    done, pending = mark(client), mark(client)
    complete(client, engine, db, done)
    answer = client.get(EXPORT, params={"format": "zip"})
    assert answer.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        its = {f"{done['snapId']}/{name}" for name in FILES if not name.startswith("clean")}
        assert {*archive.namelist()} == {"snaps.csv", "snaps.json"} | its
        assert archive.read(f"{done['snapId']}/snapshot.mp4") == b"the bytes of snapshot.mp4"
        assert len(json.loads(archive.read("snaps.json"))["items"]) == 2
        assert pending["snapId"].encode() in archive.read("snaps.csv")


def test_a_lost_file_costs_no_other(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    snap = mark(client)
    complete(client, engine, db, snap)
    [lost] = [each.key for each in monolith(client).storage.listed() if each.key.endswith("poster.jpg")]
    monolith(client).storage.delete(lost)
    with zipfile.ZipFile(io.BytesIO(client.get(EXPORT, params={"format": "zip"}).content)) as archive:
        assert archive.read("missing.txt").decode() == f"{snap['snapId']}/poster.jpg\n"
        assert f"{snap['snapId']}/snapshot.mp4" in archive.namelist()


def test_a_file_that_breaks_off_breaks_the_archive_off(
    client: TestClient, engine: sqlalchemy.Engine, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a picture in a whole archive would pass for evidence: its checksum would be right."""
    complete(client, engine, db, mark(client))
    storage = monolith(client).storage

    class Breaking(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise StorageError("the bucket has gone away")
            return super().read(10)

    monkeypatch.setattr(storage, "open", lambda key: Breaking(b"the bytes of a picture"))
    got = client.get(EXPORT, params={"format": "zip"}).content
    assert got.startswith(b"PK")
    with pytest.raises(zipfile.BadZipFile):
        zipfile.ZipFile(io.BytesIO(got))


def test_an_export_is_narrowed_as_a_search_is(client: TestClient, db: Db) -> None:
    cow = mark(client, subject={"id": "BR-1", "attributes": [number("peso", 400)]}, nickname="bia", email="b@f")
    ox = mark(client, videoUrl="https://videos.example/b.mp4", subject={"id": "BR-2"})
    fail(db, ox)
    cases: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({"subjectId": "BR-1"}, [cow]),
        ({"attrKey": "peso", "attrMin": 1}, [cow]),
        ({"q": "br"}, [cow, ox]),
        ({"videoId": ox["videoId"]}, [ox]),
        ({"nickname": "BIA"}, [cow]),
        ({"videoId": cow["videoId"], "nickname": "ana"}, []),
        ({"nickname": "bia", "status": "FAILED"}, []),
        ({"nickname": "ana", "subjectId": "BR-2", "videoId": ox["videoId"]}, [ox]),
        ({"videoId": cow["videoId"], "attrKey": "peso", "attrMin": 401}, []),
        ({"status": "FAILED"}, [ox]),
        ({"to": "2020-01-01T00:00:00Z"}, []),
        ({}, [cow, ox]),
    ]
    for query, wanted in cases:
        assert [row["snapId"] for row in rows(client, **query)] == [snap["snapId"] for snap in wanted], query


@pytest.mark.parametrize(
    "query",
    [
        {"format": "xlsx"},
        {"videoId": "x"},
        {"attrKey": "peso"},
        {"from": "now"},
    ],
)
def test_an_export_of_nothing_sensible_is_refused(client: TestClient, query: dict[str, str]) -> None:
    assert client.get(EXPORT, params=query).status_code == 400


def test_more_than_can_be_is_refused_and_not_cut(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table that silently lacks rows is worse than none."""
    for _ in range(3):
        mark(client)
    monkeypatch.setattr(exports, "ROWS_MAX", 2)
    monkeypatch.setattr(exports, "ARCHIVED_MAX", 2)
    for form in ("csv", "json", "zip"):
        answer = client.get(EXPORT, params={"format": form})
        assert answer.status_code == 400
        assert answer.json()["message"].startswith("More than 2 snaps match: narrow the search")


def test_a_long_export_pages_through_all_of_them(client: TestClient, db: Db) -> None:
    first = client.post(SNAPS, json=body()).json()
    db.execute("SELECT set_config('snapapp.tenant', 'default', false)")
    columns = "tenant, video_id, operator_id, template_id, nickname, email, kind, start_seconds, duration_seconds, "
    columns += "clip_seconds, fps, max_width, format, quality, subject_id, subject"
    db.execute(f"INSERT INTO snap ({columns}) SELECT {columns} FROM snap, generate_series(1, 250)")
    found = rows(client)
    assert (len(found), found[0]["snapId"]) == (251, first["snapId"])
    assert len({row["snapId"] for row in found}) == 251


def test_a_snap_that_is_deleted_meanwhile_costs_no_other(
    client: TestClient, db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page by page by offset the next one moved up, and was never told."""
    made = [mark(client)["snapId"] for _ in range(3)]
    found = search.recent

    def meanwhile(*arguments: Any, **named: Any) -> Any:
        page = found(*arguments, **named)
        db.execute("DELETE FROM snap WHERE id = %s", [made[0]])
        return page

    monkeypatch.setattr(exports, "LONGEST", 1)
    monkeypatch.setattr(search, "recent", meanwhile)
    told = client.get(f"{SNAPS}/export", params={"format": "json"}).json()
    assert [item["snapId"] for item in told["items"]] == made
