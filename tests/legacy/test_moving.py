"""`snapapp import-legacy`: what the old service kept is here afterwards, with its ids and links, or nothing is."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import sqlalchemy

from snapapp import storage
from snapapp.domain import sharing, snaps, templates, tenants, videos
from snapapp.domain.finding import search
from snapapp.domain.finding.search import Criteria
from snapapp.domain.rules.snaps import DEFAULT_OVERLAY
from snapapp.domain.tables import Field, SnapStatus
from snapapp.errors import TokenWrong
from snapapp.jobs import enqueue
from snapapp.jobs.testing import run_due
from snapapp.legacy import LegacyError, move
from snapapp.legacy.files import archive_of
from snapapp.legacy.old import opened
from snapapp.postgres.database import scope
from snapapp.processing import child_settings, processors
from snapapp.settings.loading import from_environment
from tests.api.conftest import served
from tests.commands import Call
from tests.databases import Postgres
from tests.domain.making import acting, begun, make_snap
from tests.factory import Db, scalar
from tests.storage.conftest import Bucket, bucket, s3_endpoint

__all__ = ["bucket", "processors", "s3_endpoint"]  # the fixtures, and the kinds

SHAPE = (Path(__file__).parent / "old_schema.sql").read_text()
OLD_LINK = "0f8fad5bd9cb469fa16570867728950e"
PROBE = {"compatible": True, "containerFormat": "mp4", "codecName": "h264", "width": 320, "height": 180}
VIDEO_URL = "https://videos.example/brete-7.mp4"
REST = pytest.mark.at_length  # others are refused, or mended, in the same place in every run


class Old:
    """The old service's database, filled by hand."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.db = psycopg.connect(url, autocommit=True)
        self.db.execute(SHAPE)

    def add(self, table: str, **values: Any) -> Any:
        names, marks = ", ".join(values), ", ".join(["%s"] * len(values))
        found = self.db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks}) RETURNING id", [*values.values()])
        [(made,)] = found.fetchall()
        return made

    def tenant(self, code: str, token: str | None = None, **changes: Any) -> int:
        given = {"nome": code.title(), "api_token": token, "status": "ACTIVE", "created_at": "2025-02-01Z"}
        made: int = self.add("assinatura", codigo=code, **given | changes)
        return made

    def person(self, email: str = "ana@fazenda.example", nickname: str = "ana") -> int:
        made: int = self.add("usuario", email=email, nickname=nickname, status="ACTIVE", created_at="2025-02-01Z")
        return made

    def template(self, tenant: int, slug: str, **changes: Any) -> int:
        fields = [{"key": "brinco", "type": "string", "required": True}, {"key": "peso", "type": "number"}]
        given = {"nome": slug.title(), "ativo": True, "schema_json": json.dumps({"fields": fields})}
        given |= {"is_default": False, "created_at": "2025-02-01Z", "updated_at": "2025-02-01Z"}
        made: int = self.add("subject_template", assinatura_id=tenant, slug=slug, **given | changes)
        return made

    def video(self, tenant: int, person: int, url: str = VIDEO_URL) -> UUID:
        made: UUID = self.add(
            "video",
            id=uuid4(),
            assinatura_id=tenant,
            original_url=url,
            url_hash=uuid4().hex,
            video_probe_json=json.dumps(PROBE),
            created_by_usuario_id=person,
            created_at="2025-03-01Z",
        )
        return made

    def snap(self, tenant: int, video: UUID, person: int, **changes: Any) -> UUID:
        snap_id = uuid4()
        subject = {
            "id": "BR-1042",
            "attributes": [
                {"key": "raca", "type": "string", "stringValue": "Nelore"},
                {"key": "peso", "type": "number", "numberValue": 412.5},
            ],
        }
        frames = [
            {
                "index": place,
                "timestampSeconds": 11 + place,
                "fileName": f"frame_0000{place}.jpg",
                "path": f"https://old.example/media/frames/{snap_id}/frame_0000{place}.jpg",
            }
            for place in (1, 2)
        ]
        clip = {"fileName": "snapshot.mp4", "path": f"/srv/snap/snapshots/{snap_id}/snapshot.mp4", "durationSeconds": 2}
        given: dict[str, Any] = {
            "subject_template_id": None,
            "nickname_snapshot": "ana",
            "email_snapshot": "ana@fazenda.example",
            "tipo_snap": "INSTANT",
            "status": "COMPLETED",
            "public_share_token": None,
            "is_public": False,
            "data_filmagem": "2025-03-01T08:15:00-03:00",
            "video_url": VIDEO_URL,
            "start_seconds": 12.48,
            "start_frame": None,
            "resolved_start_seconds": 12.5,
            "duration_seconds": 1.0,
            "snapshot_duration_seconds": 2.0,
            "fps": 5,
            "max_width": 1280,
            "format": "jpg",
            "quality": 3,
            "subject_id": "BR-1042",
            "subject_json": json.dumps(subject),
            "overlay_json": json.dumps({"enabled": True, "mode": "BOTH", "fontSize": 24}),
            "video_probe_json": json.dumps(PROBE),
            "snapshot_video_json": json.dumps(clip),
            "frames_json": json.dumps(frames),
            "frame_count": 2,
            "output_dir": f"/srv/snap/frames/{snap_id}",
            "error_message": None,
            "created_at": "2025-03-01T12:00Z",
            "updated_at": "2025-03-01T12:01Z",
            "processed_at": "2025-03-01T12:01Z",
        }
        whose = {"assinatura_id": tenant, "video_id": video, "created_by_usuario_id": person}
        made: UUID = self.add("snap", id=snap_id, **whose, **given | changes)
        return made


@pytest.fixture
def old(server: Postgres) -> Iterator[Old]:
    with server.database("template0") as url:
        it = Old(url)
        yield it
        it.db.close()


@pytest.fixture
def lived_in(old: Old) -> "Lived":
    return Lived(old)


NOTHING: dict[str, Any] = {"frames_json": None, "frame_count": 0, "snapshot_video_json": None}


class Lived:
    """Two tenants, with snaps in every state."""

    def __init__(self, old: Old) -> None:
        self.old = old
        self.ana, self.bia = old.person(), old.person("bia@fazenda.example", "bia")
        self.north = old.tenant("north", "north-secret")
        self.cattle = old.template(self.north, "cattle", is_default=True)
        self.video, self.norths = old.video(1, self.ana), old.video(self.north, self.bia)
        self.done = old.snap(1, self.video, self.ana, public_share_token=OLD_LINK, is_public=True)
        self.failed = old.snap(1, self.video, self.ana, status="FAILED", error_message="no such video", **NOTHING)
        self.waiting = old.snap(1, self.video, self.bia, status="PENDING", processed_at=None, **NOTHING)
        self.of_north = old.snap(
            self.north, self.norths, self.bia, subject_template_id=self.cattle, format="png", quality=None
        )


def test_everything_is_here_with_the_ids_that_it_had(
    call: Call, lived_in: Lived, engine: sqlalchemy.Engine, db: Db
) -> None:
    """S23, S24, S27, S29."""
    moved = call("import-legacy", lived_in.old.url, "--json").json
    kinds = ("tenants", "templates", "users", "videos", "snaps", "waiting", "links")
    assert [moved[kind] for kind in kinds] == [1, 2, 3, 2, 4, 1, 1]
    with begun(engine) as session:
        assert tenants.by_token(session, "north-secret").code == "north"
        with scope(session, "default"):
            snap = snaps.read(session, "default", lived_in.done)
            assert (snap.status, snap.video_id, snap.frame_count) == (SnapStatus.COMPLETED, lived_in.video, 2)
            assert (snap.start_seconds, snap.resolved_start_seconds, snap.clip_seconds) == (12.48, 12.5, 2.0)
            assert [(each.key, each.value) for each in snap.subject.attributes] == [("raca", "Nelore"), ("peso", 412.5)]
            assert snap.overlay is not None
            assert (snap.overlay["mode"], snap.overlay["font_size"], snap.overlay["margin"]) == (
                "SUBJECT_AND_BOTH",
                24,
                20,
            )
            assert snap.probe is not None
            assert snap.probe["codec_name"] == "h264"
            assert snap.created_at.isoformat() == "2025-03-01T12:00:00+00:00"
            failed = snaps.read(session, "default", lived_in.failed)
            assert (failed.status, failed.error) == (SnapStatus.FAILED, "no such video")
            waiting = snaps.read(session, "default", lived_in.waiting)
            assert (waiting.status, waiting.job and waiting.job.status) == (SnapStatus.PENDING, "PENDING")
            for which in (
                Criteria(subject_id="BR-1042"),
                Criteria(attr_key="PESO", attr_min=400),
                Criteria(q="nelore"),
            ):
                found = search.by_subject(session, "default", which)
                assert {each.id for each in found.items} == {lived_in.done, lived_in.failed, lived_in.waiting}
            assert videos.resolve(session, "default", video_id=None, video_url=VIDEO_URL).id == lived_in.video
        with scope(session, "north"):
            theirs = snaps.read(session, "north", lived_in.of_north)
            assert (theirs.template_id, theirs.format, theirs.quality) == (lived_in.cattle, "png", None)
            default = templates.resolve(session, "north", None)
            assert (default.id, default.slug) == (lived_in.cattle, "cattle")
            assert default.fields[0] == Field("brinco", "string", required=True, order=1, default=None)
        assert sharing.read_public(session, OLD_LINK).id == lived_in.done
    assert scalar(db, "SELECT payload #>> '{video,url}' FROM snap_processing_job") == VIDEO_URL


def test_a_second_time_brings_what_is_new_and_changes_nothing(
    call: Call, lived_in: Lived, engine: sqlalchemy.Engine, db: Db
) -> None:
    call("import-legacy", lived_in.old.url)
    before = db.execute("SELECT snap::text FROM snap ORDER BY id").fetchall()
    again = call("import-legacy", lived_in.old.url, "--json").json
    assert (again.pop("remarks"), set(again.values())) == ([], {0})
    assert db.execute("SELECT snap::text FROM snap ORDER BY id").fetchall() == before
    lived_in.old.snap(1, lived_in.video, lived_in.ana)
    assert call("import-legacy", lived_in.old.url, "--json").json["snaps"] == 1


def test_templates_keep_their_ids_whoever_had_them_here(
    call: Call, old: Old, engine: sqlalchemy.Engine, server: Postgres
) -> None:
    """Those that every tenant begins with here give way, also where an old one has the name of one of them."""
    north, south = old.tenant("north"), old.tenant("south")
    ids = {tenant: [old.template(tenant, slug) for slug in ("gado", "lab")] for tenant in (north, 1, south)}
    call("import-legacy", old.url)
    with begun(engine) as session:
        for tenant, code in ((north, "north"), (1, "default"), (south, "south")):
            with scope(session, code):
                found = {each.slug: each.id for each in templates.every(session, code)}
                assert [found["gado"], found["lab"]] == ids[tenant]
                assert templates.resolve(session, code, None).slug == "default"
        tenants.add(session, "west", "West")  # whose templates get numbers that are free


def test_a_template_that_snaps_name_here_gives_way_to_nobody(
    call: Call, old: Old, engine: sqlalchemy.Engine, db: Db
) -> None:
    with acting(engine, "default") as session:
        make_snap(session, "default")
    old.db.execute("UPDATE subject_template SET id = 7")
    answer = call("import-legacy", old.url)
    assert answer.code == 1
    assert "The template default of default has the id 1 here" in answer.err


# --- tokens -----------------------------------------------------------------------------------------------------


def test_a_token_that_everybody_knows_gives_way_and_one_that_was_made_here_does_not(
    call: Call, old: Old, engine: sqlalchemy.Engine
) -> None:
    """S24."""
    old.db.execute("UPDATE assinatura SET api_token = 'olds-own'")
    old.tenant("north", "norths-old")
    token = call("tenants", "add", "north", "--json").json["token"]
    said = call("import-legacy", old.url).out
    assert "north has another token here, which was kept" in said
    with begun(engine) as session:
        assert tenants.by_token(session, "olds-own").code == "default"
        assert tenants.by_token(session, token).code == "north"
        for dead in ("dev-default-token", "norths-old"):
            with pytest.raises(TokenWrong):
                tenants.by_token(session, dead)
    assert "olds-own" not in said


def test_no_token_of_the_old_service_is_kept_as_it_was(call: Call, lived_in: Lived, db: Db) -> None:
    call("import-legacy", lived_in.old.url)
    assert "north-secret" not in scalar(db, "SELECT string_agg(tenant::text, ' ') FROM tenant")


# --- files ------------------------------------------------------------------------------------------------------


def test_without_media_urls_go_on_and_what_has_none_is_counted(
    call: Call, lived_in: Lived, url: str, tmp_path: Path
) -> None:
    answer = call("import-legacy", lived_in.old.url)
    assert "2 files have no URL and were not found" in answer.out
    with served(url, tmp_path, worker_enabled=False) as client:
        shown = client.get(f"/v2/snaps/{lived_in.done}").json()
        assert shown["frames"][0]["path"].startswith("https://old.example/media/frames/")
        assert (shown["frameCount"], shown["frames"][1]["timestampSeconds"]) == (2, 13)
        assert client.get(f"/public/snaps/{OLD_LINK}").json()["frames"] == shown["frames"]
        assert client.get(f"/v2/videos/{lived_in.video}/snaps").json()["total"] == 3


def test_files_are_brought_along_now_or_later(
    call: Call, lived_in: Lived, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By path or by the end of a URL; only those in a folder of the snap's own."""
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path / "var"))
    archive, done = tmp_path / "archive", lived_in.done
    for name, content in ((f"frames/{done}/frame_00001.jpg", b"one"), (f"snapshots/{done}/snapshot.mp4", b"clip")):
        (archive / name).parent.mkdir(parents=True)
        (archive / name).write_bytes(content)
    (archive / "frame_00002.jpg").write_bytes(b"of another")
    call("import-legacy", lived_in.old.url)
    assert call("import-legacy", lived_in.old.url, "--media", str(archive), "--json").json["files"] == 2
    assert storage.from_settings(from_environment()).exists(f"snaps/{done}/0/frame_00001.jpg")
    with served(url, tmp_path / "var", worker_enabled=False) as client:
        shown = client.get(f"/v2/snaps/{done}").json()
        assert client.get(shown["frames"][0]["path"]).content == b"one"
        assert shown["frames"][1]["path"].startswith("https://old.example/")
        public = client.get(f"/public/snaps/{OLD_LINK}").json()
        assert client.get(public["snapshotVideo"]["path"]).content == b"clip"
        assert client.get("/v2/videos/storage").json()["snapBytes"] == len(b"one") + len(b"clip")
    assert call("import-legacy", lived_in.old.url, "--media", str(archive)).code == 0


def test_files_that_were_parted_with_here_do_not_come_back(
    call: Call, lived_in: Lived, engine: sqlalchemy.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path / "var"))
    picture = tmp_path / "archive" / f"frames/{lived_in.done}/frame_00001.jpg"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"one")
    arguments = ("import-legacy", lived_in.old.url, "--media", str(tmp_path / "archive"))
    call(*arguments)
    with begun(engine) as session:
        session.connection().exec_driver_sql("DELETE FROM share")
    with acting(engine, "default") as session:
        assert snaps.expire(session, "default", datetime.now(UTC), 100) == [f"snaps/{lived_in.done}/0/"]
    call(*arguments)
    with acting(engine, "default") as session:
        record = snaps.read(session, "default", lived_in.done)
    assert (record.media_prefix, record.frames) == (None, [])


@pytest.fixture
def pictured(lived_in: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The folder of the old service's media, which has a frame of the snap `of_north`."""
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path / "var"))
    monkeypatch.setattr(child_settings, "settings", from_environment)
    picture = tmp_path / "archive" / f"frames/{lived_in.of_north}/frame_00001.jpg"
    picture.parent.mkdir(parents=True)
    picture.write_bytes(b"one")
    return str(tmp_path / "archive")


def test_a_snap_that_was_deleted_here_and_is_brought_again_keeps_its_files(
    call: Call,
    lived_in: Lived,
    engine: sqlalchemy.Engine,
    url: str,
    pictured: str,
    tmp_path: Path,
) -> None:
    """Its files are deleted by a job a minute later, which then finds the snap there."""
    snap_id = lived_in.of_north
    arguments = ("import-legacy", lived_in.old.url, "--media", pictured)
    call(*arguments)
    with served(url, tmp_path / "var", worker_enabled=False) as client:
        removed = client.delete(f"/v2/snaps/{snap_id}", headers={"X-Assinatura-Codigo": "north"})
        assert removed.json()["removal"] == "DELETED"
        call(*arguments)
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM snap_processing_job WHERE kind <> 'media.forget'")
            connection.exec_driver_sql("UPDATE snap_processing_job SET next_retry_at = now()")
            assert run_due(connection) == ["media.forget: COMPLETED"]
        shown = client.get(f"/v2/snaps/{snap_id}", headers={"X-Assinatura-Codigo": "north"}).json()
        assert client.get(shown["frames"][0]["path"]).content == b"one"


def test_a_snap_that_is_deleted_here_while_the_import_copies_comes_with_its_files(
    call: Call,
    lived_in: Lived,
    engine: sqlalchemy.Engine,
    url: str,
    pictured: str,
    tmp_path: Path,
) -> None:
    """Its files are deleted after the import found them there, and before the import brings its row again."""
    snap_id = lived_in.of_north
    call("import-legacy", lived_in.old.url, "--media", pictured)
    archive = archive_of(pictured, from_environment())
    steps = iter(range(1, 1000))

    def step() -> None:
        if next(steps) != 4:  # all four snaps are copied
            return
        with engine.begin() as connection:
            with scope(connection, "north") as north:
                snaps.remove(north, "north", snap_id)
            connection.exec_driver_sql("DELETE FROM snap_processing_job")
            enqueue(connection, "media.forget", {"snapId": str(snap_id)}, tenant="north")
            assert run_due(connection) == ["media.forget: COMPLETED"]

    with opened(lived_in.old.url) as old_database:
        assert move(old_database, url, archive, step).snaps == 1
    assert archive.ours.read(f"snaps/{snap_id}/0/frame_00001.jpg", 0, 10) == b"one"


def test_files_are_brought_along_from_a_bucket(
    call: Call, lived_in: Lived, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"DATA_DIR": str(tmp_path / "var"), "S3_ENDPOINT": bucket.endpoint, "S3_REGION": "us-east-1"}
    named |= {"S3_ACCESS_KEY_ID": "somebody", "S3_SECRET_ACCESS_KEY": "who-has-a-secret"}
    for name, value in named.items():
        monkeypatch.setenv(f"SNAPAPP_{name}", value)
    theirs = bucket.storage(tmp_path / "spool", prefix="old/player")
    theirs.put(f"snapshots/{lived_in.done}/snapshot.mp4", b"clip")
    media = f"s3://{bucket.name}/old/player/"
    assert call("import-legacy", lived_in.old.url, "--media", media, "--json").json["files"] == 1
    ours = storage.from_settings(from_environment())
    assert ours.read(f"snaps/{lived_in.done}/0/snapshot.mp4", 0, 10) == b"clip"


@pytest.mark.parametrize("media", ["/nowhere/at/all", "s3://", "s3://bucket/prefix"])
def test_media_that_cannot_be_looked_at_are_refused_before_anything_happens(
    call: Call, lived_in: Lived, db: Db, media: str
) -> None:
    answer = call("import-legacy", lived_in.old.url, "--media", media)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert answer.err.startswith("snapapp: --media ")
    assert scalar(db, "SELECT count(*) FROM tenant") == 1


# --- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("postgresql://nobody@127.0.0.1:1/nothing", "The old database cannot be reached: "),
        ("jdbc:postgresql://nobody:secret@127.0.0.1:1/nothing", "The old database cannot be reached: "),
        ("no such thing", "The old database cannot be reached: "),
    ],
)
def test_a_database_that_is_not_there_is_one_line(call: Call, db: Db, dsn: str, said: str) -> None:
    answer = call("import-legacy", dsn)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert answer.err.startswith(f"snapapp: {said}")
    assert "secret" not in answer.err


def test_a_database_of_another_kind_is_named_by_what_it_lacks(call: Call, old: Old, url: str) -> None:
    assert "it has no table assinatura, " in call("import-legacy", url).err
    old.db.execute("ALTER TABLE snap DROP COLUMN frames_json")
    assert "snap.frames_json is missing" in call("import-legacy", old.url).err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frames_json": "[{"}, "The JSON of snap {id} cannot be read: "),
        pytest.param({"frames_json": "[NaN]"}, "The JSON of snap {id} cannot be read: NaN is not JSON", marks=REST),
        ({"subject_json": '{"attributes": [{"type": "number"}, 5]}'}, "The subject of snap {id} cannot be read: "),
        pytest.param({"duration_seconds": 3600.0}, "The old snap {id} cannot be kept: ", marks=REST),
        ({"frames_json": '[{"fileName": 5}]'}, "A file of snap {id} cannot be read: file_name must be text."),
        pytest.param(
            {"frames_json": '[{"fileName": ["a"]}]'},
            "A file of snap {id} cannot be read: file_name must be text.",
            marks=REST,
        ),
        (
            {"frames_json": '[{"timestampSeconds": "x"}]'},
            "A file of snap {id} cannot be read: timestamp_seconds must be",
        ),
        (
            {"snapshot_video_json": '{"durationSeconds": {}}'},
            "A file of snap {id} cannot be read: duration_seconds must",
        ),
        pytest.param({"start_seconds": float("nan")}, "The old snap {id} cannot be kept: ", marks=REST),
        ({"is_public": True, "public_share_token": "a/b"}, "The old snap {id} cannot be kept: "),
        ({"video_probe_json": '{"compatible": false, "reason": "\\u0000"}'}, "The old snap {id} cannot be kept: "),
    ],
)
def test_one_row_that_cannot_be_kept_is_named_and_nothing_is_brought(
    call: Call, lived_in: Lived, db: Db, changes: dict[str, Any], said: str
) -> None:
    bad = lived_in.old.snap(lived_in.north, lived_in.norths, lived_in.bia, **changes)
    answer = call("import-legacy", lived_in.old.url)
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert answer.err.startswith(f"snapapp: {said.format(id=bad)}")
    assert answer.err.endswith("Nothing was brought over.\n")
    for table in ("snap", "video", "share", "snap_processing_job"):
        assert scalar(db, f"SELECT count(*) FROM {table}") == 0
    assert scalar(db, "SELECT count(*) FROM tenant") == 1
    lived_in.old.db.execute("DELETE FROM snap WHERE id = %s", [bad])
    assert call("import-legacy", lived_in.old.url).code == 0


def test_every_row_that_cannot_be_kept_is_named_at_once(call: Call, lived_in: Lived, db: Db, tmp_path: Path) -> None:
    """The old service took any number and let the job fail, so there may be hundreds."""
    old, north = lived_in.old, (lived_in.north, lived_in.norths, lived_in.bia)
    fast = [old.snap(*north, status="FAILED", fps=1000, **NOTHING) for _ in range(22)]
    unread = old.snap(1, lived_in.video, lived_in.ana, frames_json="{not json")
    nowhere = old.video(1, lived_in.ana, "")
    old.snap(1, nowhere, lived_in.ana)
    answer = call("import-legacy", old.url, "--media", str(tmp_path))
    *named, last = answer.err.splitlines()
    assert named[0].startswith(f"snapapp: The old video {nowhere} cannot be kept: ")
    assert named[1].startswith(f"The JSON of snap {unread} cannot be read: ")
    assert {line.partition(" cannot")[0] for line in named[2:]} < {f"The old snap {each}" for each in fast}
    assert (answer.code, len(named), last) == (1, 20, "And 4 more. Nothing was brought over.")
    assert scalar(db, "SELECT count(*) FROM snap") == 0


@pytest.mark.parametrize(
    ("sent", "drawn"),
    [
        (
            {"enabled": True, "mode": " both", "position": "top_left"},
            {"mode": "SUBJECT_AND_BOTH", "position": "TOP_LEFT"},
        ),
        ({"enabled": "TRUE", "mode": "", "position": " ", "fontSize": "24", "margin": None}, {"font_size": 24}),
        ({"enabled": True, "boxColor": "0xFF0000@0.5", "fontColor": ""}, {"box_color": "#ff0000@0.5"}),
        ({"enabled": "false", "mode": "BOTH"}, None),
        ({"enabled": None}, None),
    ],
)
def test_an_overlay_is_brought_over_as_it_was_meant(
    call: Call, lived_in: Lived, db: Db, sent: dict[str, Any], drawn: dict[str, Any] | None
) -> None:
    """It was kept as it was sent. The job of a snap that waits takes only what is exact."""
    waits = lived_in.old.snap(
        1, lived_in.video, lived_in.ana, status="PENDING", overlay_json=json.dumps(sent), **NOTHING
    )
    assert call("import-legacy", lived_in.old.url).code == 0
    kept = scalar(db, "SELECT overlay::text FROM snap WHERE id = %s", waits)
    assert (kept and json.loads(kept)) == (None if drawn is None else dict(DEFAULT_OVERLAY) | drawn)


@pytest.mark.parametrize(
    "probe",
    [
        "null",
        pytest.param("[]", marks=REST),
        pytest.param("{}", marks=REST),
        '{"compatible": null, "reason": "?"}',
        '{"compatible": true, "width": 1.5}',
        pytest.param('{"compatible": true, "sourceFps": "30/1"}', marks=REST),
        pytest.param('{"compatible": true, "reason": 5}', marks=REST),
    ],
)
def test_a_probe_that_says_nothing_breaks_no_list(
    call: Call, lived_in: Lived, url: str, tmp_path: Path, probe: str
) -> None:
    odd = lived_in.old.snap(1, lived_in.video, lived_in.ana, video_probe_json=probe)
    assert call("import-legacy", lived_in.old.url).code == 0
    with served(url, tmp_path, worker_enabled=False) as client:
        shown = {each["snapId"]: each["videoProbe"] for each in client.get("/v2/snaps").json()["items"]}
    assert (shown[str(odd)], shown[str(lived_in.done)]["compatible"]) == (None, True)


def test_a_long_error_is_cut_and_costs_nothing_else(call: Call, lived_in: Lived, db: Db) -> None:
    """The old service kept all that its decoder printed."""
    wordy = lived_in.old.snap(1, lived_in.video, lived_in.ana, status="FAILED", error_message="x" * 9000, **NOTHING)
    assert call("import-legacy", lived_in.old.url).code == 0
    assert scalar(db, "SELECT error FROM snap WHERE id = %s", wordy) == "x" * snaps.ERROR_LONGEST


def test_nothing_is_written_to_the_old_database(lived_in: Lived) -> None:
    with pytest.raises(LegacyError, match="read-only"), opened(lived_in.old.url) as old:
        old.connection.execute("DELETE FROM snap_subject_attr")


def test_a_url_that_was_known_here_before_keeps_its_id_and_gets_the_snaps(
    call: Call, lived_in: Lived, engine: sqlalchemy.Engine
) -> None:
    with acting(engine, "default") as session:
        here = videos.at_url(session, "default", VIDEO_URL).id
    answer = call("import-legacy", lived_in.old.url)
    assert f"video {lived_in.video} of default is {here} here: its URL was known before" in answer.out
    with acting(engine, "default") as session:
        assert snaps.read(session, "default", lived_in.done).video_id == here


def test_subjects_that_were_not_kept_as_they_were_sent_are_made_of_their_index(
    call: Call, lived_in: Lived, engine: sqlalchemy.Engine
) -> None:
    bare = lived_in.old.snap(1, lived_in.video, lived_in.ana, subject_json="{}", subject_id="X-1")
    for key, kind, text, number in (("lote", "STRING", "7", None), ("peso", "NUMBER", None, "412.500000")):
        lived_in.old.add(
            "snap_subject_attr",
            snap_id=bare,
            assinatura_id=1,
            video_id=lived_in.video,
            subject_id="X-1",
            attr_key=key,
            value_type=kind,
            string_value=text,
            number_value=number,
            created_at="2025-03-01Z",
        )
    call("import-legacy", lived_in.old.url)
    with acting(engine, "default") as session:
        subject = snaps.read(session, "default", bare).subject
    assert (subject.id, [(each.key, each.value) for each in subject.attributes]) == (
        "X-1",
        [("lote", "7"), ("peso", 412.5)],
    )
