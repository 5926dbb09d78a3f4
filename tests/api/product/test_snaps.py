"""/v2/snaps through HTTP, on the real database: what is asked, what is answered, and the rows that come of it."""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product.snap_schema import Overlay, SnapRequest
from snapapp.api.product.snaps import _hash as hash_of
from snapapp.domain import videos
from snapapp.jobs import Job, processor, registry
from tests.api.conftest import served
from tests.api.examples import (
    NOBODY,
    OTHER,
    SNAPS,
    VIDEO_URL,
    add_tenant,
    as_tenant,
    body,
    complete,
    count,
    fail,
    job_of,
    mark,
    monolith,
    number,
    shown,
    text,
)
from tests.factory import Db, at_once, hence, move, row, scalar
from tests.jobs.working import until

CONTRACT = {  # http.md's Response, word for word
    *("snapId", "videoId", "status", "tipoSnap", "nickname", "email", "subjectTemplateId", "dataFilmagem", "subject"),
    *("videoUrl", "startSeconds", "startFrame", "resolvedStartSeconds", "durationSeconds", "snapshotDurationSeconds"),
    *("fps", "maxWidth", "format", "quality", "videoProbe", "snapshotVideo", "frameCount", "frames", "error", "job"),
    *("createdAt", "processedAt"),
}
JOB = {"jobId", "status", "attempts", "maxAttempts", "nextRunAt", "startedAt", "finishedAt", "lastError"}


# --- marking ----------------------------------------------------------------------------------------------------


def test_a_marked_moment_is_accepted_at_once_with_its_job(client: TestClient, db: Db) -> None:
    """S17, S18, S27, S31."""
    answer = client.post(SNAPS, json=body(), headers={"X-Request-Id": "from-the-field"})
    assert answer.status_code == 202
    snap = answer.json()
    assert answer.headers["Location"] == f"{SNAPS}/{snap['snapId']}"
    assert snap.keys() >= CONTRACT
    assert snap["job"].keys() >= JOB
    assert (snap["status"], snap["tipoSnap"], snap["error"]) == ("PENDING", "INSTANT", None)
    assert (snap["fps"], snap["maxWidth"], snap["format"], snap["quality"]) == (5, 1280, "jpg", 3)
    assert (snap["startSeconds"], snap["startFrame"], snap["snapshotDurationSeconds"]) == (12.48, None, 1.0)
    assert (snap["frames"], snap["frameCount"], snap["snapshotVideo"], snap["videoProbe"]) == ([], 0, None, None)
    assert datetime.fromisoformat(snap["dataFilmagem"]) == datetime.fromisoformat("2026-03-01T08:15:00-03:00")
    assert (snap["job"]["status"], snap["job"]["attempts"], snap["job"]["maxAttempts"]) == ("PENDING", 0, 3)
    job = row(db, job_of(snap))
    assert (job.kind, job.tenant, job.snap_id) == ("snap.process", "default", UUID(snap["snapId"]))
    assert (job.request_id, job.payload["video"]) == ("from-the-field", {"url": snap["videoUrl"]})


def test_a_marked_moment_is_answered_as_it_is_read_later(client: TestClient) -> None:
    """The answer is not read as later ones are: its row is what the INSERT returned. The time is in another zone, and
    the numbers have more digits than are meant."""
    asked = body(
        dataFilmagem="2026-03-01T08:15:30.120-03:00",
        startSeconds=0.1 + 0.2,
        durationSeconds=2.5,
        overlay={"enabled": True},
        subject={"attributes": [number("peso_referencia", 412.50), text("raca", "Nelore")]},
    )
    marked, again = [client.post(SNAPS, json=asked, headers={"Idempotency-Key": "key"}) for _ in range(2)]
    assert (marked.status_code, again.headers["Idempotent-Replayed"]) == (202, "true")
    for read in (again, client.get(marked.headers["Location"])):
        assert (read.json(), read.headers["ETag"]) == (marked.json(), marked.headers["ETag"])


def test_a_video_whose_url_nobody_can_read_fails_in_its_job(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """Rows from before such a URL was refused."""
    with as_tenant(engine) as connection:
        video = videos.at_url(connection, "default", "http://[:::]/a.mp4")
    snap = mark(client, videoUrl=..., videoId=str(video.id))
    assert row(db, job_of(snap)).concurrency_key is None


def test_what_was_answered_is_committed(client: TestClient, url: str) -> None:
    """FE6: the snap and its job were there before the answer was."""
    snap = mark(client)
    with psycopg.connect(url) as other:
        found = other.execute("SELECT snap_id FROM snap_processing_job WHERE id = %s", [job_of(snap)]).fetchall()
    assert found == [(UUID(snap["snapId"]),)]


def test_a_snap_without_its_job_never_was(client: TestClient, db: Db) -> None:
    """FE6: one transaction for both."""
    db.execute("CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no jobs today'; END $$")
    db.execute("CREATE TRIGGER meddle BEFORE INSERT ON snap_processing_job FOR EACH ROW EXECUTE FUNCTION meddle()")
    answer = client.post(SNAPS, json=body())
    assert (answer.status_code, answer.json()["message"]) == (500, "Internal server error")
    assert [count(db, table) for table in ("snap", "video", "operator", "subject_attribute")] == [0, 0, 0, 0]


def test_the_subject_is_answered_as_it_was_sent(client: TestClient) -> None:
    """S27, S31."""
    attributes = [text("raca", "Nelore"), number("peso_referencia", 412.5), text("observacoes", "é mansa; <b>não</b>")]
    snap = mark(client, subject={"id": " BR-1 ", "attributes": attributes})
    assert snap["subject"]["id"] == "BR-1"
    told = [
        {name: value for name, value in each.items() if value is not None} for each in snap["subject"]["attributes"]
    ]
    assert told == attributes
    nameless = mark(client, subject={"attributes": []})
    assert nameless["subject"]["id"] == nameless["snapId"], "S31: it takes the snap's"


def test_a_longer_moment_is_an_interval(client: TestClient) -> None:
    """S31: the longest of the two durations says."""
    assert mark(client, durationSeconds=1.0, snapshotDurationSeconds=1.0)["tipoSnap"] == "INSTANT"
    assert mark(client, durationSeconds=0.5, snapshotDurationSeconds=1.5)["tipoSnap"] == "INTERVAL"
    assert mark(client, durationSeconds=5)["tipoSnap"] == "INTERVAL"


def test_one_video_for_each_url_and_one_person_for_each_email(client: TestClient, db: Db) -> None:
    """S31."""
    first = mark(client, nickname="ana")
    second = mark(client, nickname="ana b", email="ANA@fazenda.example")
    third = mark(client, videoUrl=..., videoId=first["videoId"])
    assert first["videoId"] == second["videoId"] == third["videoId"]
    assert third["videoUrl"] == VIDEO_URL
    assert (count(db, "video"), count(db, "operator")) == (1, 2 - 1)
    assert shown(client, first)["nickname"] == "ana", "a snap keeps the name it was marked with"


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ("2026-03-01T08:15:30.5-03:00", "2026-03-01T11:15:30.5Z"),
        ("2026-03-01T08:15:30.120-03:00", "2026-03-01T11:15:30.12Z"),
        ("2020-03-10T00:00:00Z", "2020-03-10T00:00:00Z"),
        (1583798400, "2020-03-10T00:00:00Z"),
    ],
)
def test_the_filming_time_has_its_seconds_as_they_were_given(client: TestClient, sent: Any, told: str) -> None:
    snap = mark(client, dataFilmagem=sent, email="Ana@Fazenda.example")
    assert (snap["dataFilmagem"], snap["email"]) == (told, "ana@fazenda.example")
    assert shown(client, snap) == snap


def test_a_job_says_when_it_runs_and_no_error_once_all_is_well(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """As the old service: next time never null, begun while it runs, and what went wrong before is forgotten."""
    snap = mark(client)
    assert snap["job"]["nextRunAt"]
    move(
        db,
        job_of(snap),
        status="RUNNING",
        attempt_count=1,
        claimed_by="somebody",
        locked_at="now",
        lock_expires_at=hence(hours=1),
        last_error="SourceUnavailable: busy",
    )
    job = shown(client, snap)["job"]
    assert (job["status"], job["lastError"]) == ("RUNNING", "busy")
    assert job["startedAt"]
    assert job["nextRunAt"]
    move(db, job_of(snap), claimed_by=None, locked_at=None, lock_expires_at=None, status="PENDING")
    complete(client, engine, db, snap)
    job = shown(client, snap)["job"]
    assert (job["status"], job["lastError"]) == ("COMPLETED", None)
    assert job["nextRunAt"]


def test_the_video_of_a_failed_snap_is_not_compatible(client: TestClient, db: Db) -> None:
    snap = mark(client)
    fail(db, snap, "Unusable: The video ends at 3.2 s.")
    probe = shown(client, snap)["videoProbe"]
    assert (probe["compatible"], probe["reason"], probe["codecName"]) == (False, "The video ends at 3.2 s.", None)


def test_png_has_no_quality_in_the_answer(client: TestClient) -> None:
    """S28."""
    assert mark(client, format="png")["quality"] is None


@pytest.mark.parametrize(
    ("changes", "message", "details"),
    [
        ({"videoUrl": ...}, "Provide at least one of videoId or videoUrl", []),
        ({"startSeconds": None}, "Provide at least one of startSeconds or startFrame", []),
        ({"nickname": ...}, "Validation failed", ["nickname: Field required"]),
        ({"fps": 11}, "Validation failed", ["fps: Input should be less than or equal to 10"]),
        ({"durationSeconds": 5.1}, "Validation failed", ["durationSeconds: Input should be less than or equal to 5"]),
        ({"maxWidth": 1281}, "Validation failed", ["maxWidth: Input should be less than or equal to 1280"]),
        ({"fps": 0, "maxWidth": 1}, "Validation failed", ["fps: ", "maxWidth: "]),
        ({"format": "png", "quality": 3}, "Validation failed", ["quality: png has no quality"]),
        ({"subject": {"attributes": [text("a", "1"), text("A", "2")]}}, "Validation failed", ["subject.attributes: "]),
        ({"subject": ...}, "Validation failed", ["subject: Field required"]),
    ],
)
def test_what_cannot_be_is_refused_at_once_and_leaves_nothing(
    client: TestClient, db: Db, changes: dict[str, Any], message: str, details: list[str]
) -> None:
    """S28: limits are refused when the snap is marked, not when it runs."""
    answer = client.post(SNAPS, json=body(**changes))
    assert (answer.status_code, answer.json()["message"], answer.json()["error"]) == (400, message, "Bad Request")
    assert len(answer.json()["details"]) == len(details)
    assert all(map(str.startswith, answer.json()["details"], details))
    assert (count(db, "snap"), count(db, "snap_processing_job")) == (0, 0)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'{"startSeconds": NaN}', b'{"a": 1, "a": 2}', b'{"fps": 1e999}', b'{"fps": "\xff"}'],
)
def test_a_body_that_is_no_snap_is_a_bad_request(client: TestClient, db: Db, content: bytes) -> None:
    answer = client.post(SNAPS, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json().keys() == {"timestamp", "status", "error", "message", "details"}
    assert count(db, "snap") == 0


def test_a_named_template_is_enforced_and_the_default_asks_for_nothing(client: TestClient) -> None:
    """S35."""
    templates = {each["slug"]: each for each in client.get("/v2/templates").json()["items"]}
    cattle = templates["gado"]["id"]
    assert mark(client, subject={})["subjectTemplateId"] == templates["default"]["id"]
    refused = client.post(SNAPS, json=body(subjectTemplateId=cattle))
    assert (refused.status_code, refused.json()["details"]) == (400, ["subject.attributes.brinco: is required"])
    wrong = body(
        subjectTemplateId=cattle, subject={"attributes": [text("brinco", "7"), text("peso_referencia", "400")]}
    )
    assert client.post(SNAPS, json=wrong).json()["details"] == ["subject.attributes.peso_referencia: must be a number"]
    fine = mark(client, subjectTemplateId=cattle, subject={"attributes": [text("brinco", "7"), text("chip", "extra")]})
    assert fine["subjectTemplateId"] == cattle
    assert client.post(SNAPS, json=body(subjectTemplateId=10**6)).status_code == 404


def test_a_template_that_was_written_by_hand_is_read_as_far_as_it_can_be(client: TestClient, db: Db) -> None:
    """There is no other way to write one, and a word too many must not fail all that the tenant asks for."""
    fields = [{"key": "peso", "type": "number", "required": True, "label": "Peso"}, {"key": "cor"}, {"type": "x"}, 7]
    db.execute("UPDATE template SET fields = %s WHERE slug = 'gado' AND tenant = 'default'", [json.dumps(fields)])
    [shown] = [each for each in client.get("/v2/templates").json()["items"] if each["slug"] == "gado"]
    assert [(each["key"], each["type"], each["required"], each["order"]) for each in shown["fields"]] == [
        ("peso", "number", True, 1),
        ("cor", "string", False, 2),
    ]
    assert client.get("/snaps").status_code == 200
    refused = client.post(SNAPS, json=body(subjectTemplateId=shown["id"], subject={"id": "BR-1"}))
    assert (refused.status_code, refused.json()["details"]) == (400, ["subject.attributes.peso: is required"])


def test_a_video_that_nobody_knows_is_not_found(client: TestClient) -> None:
    answer = client.post(SNAPS, json=body(videoUrl=..., videoId=NOBODY))
    assert (answer.status_code, answer.json()["message"]) == (404, f"Video not found: {NOBODY}")


def test_a_full_disk_takes_no_new_work(url: str, tmp_path: Path, db: Db) -> None:
    with served(url, tmp_path, worker_enabled=False, disk_free_min_mb=10**7) as client:
        answer = client.post(SNAPS, json=body())
    assert (answer.status_code, answer.json()["error"]) == (507, "Insufficient Storage")
    assert count(db, "snap") == 0


# --- the same request again -------------------------------------------------------------------------------------


def test_the_same_key_makes_one_snap(client: TestClient, db: Db) -> None:
    """D12, FE3: a client that heard no answer may ask again."""
    key = {"Idempotency-Key": "a-phone-in-a-pasture"}
    first = client.post(SNAPS, json=body(), headers=key)
    again = client.post(SNAPS, json=body(unknown="field", fps=None), headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["snapId"] == again.json()["snapId"]
    assert ("Idempotent-Replayed" in first.headers, again.headers["Idempotent-Replayed"]) == (False, "true")
    assert (count(db, "snap"), count(db, "snap_processing_job")) == (1, 1)
    assert client.delete(f"{SNAPS}/{first.json()['snapId']}").json()["removal"] == "DELETED"
    assert client.post(SNAPS, json=body(), headers=key).json()["snapId"] != first.json()["snapId"], "it frees the key"


def test_the_same_key_for_something_else_is_a_conflict(client: TestClient, db: Db) -> None:
    key = {"Idempotency-Key": "k"}
    client.post(SNAPS, json=body(), headers=key)
    other = client.post(SNAPS, json=body(startSeconds=13), headers=key)
    assert (other.status_code, count(db, "snap")) == (409, 1)
    db.execute("UPDATE idempotency SET created_at = now() - interval '25 hours'")
    assert client.post(SNAPS, json=body(startSeconds=13), headers=key).status_code == 202, "a day is over"


def test_a_request_that_comes_again_after_an_update_is_the_same_one() -> None:
    """An update may add a field with a default, also within the subject or the overlay."""

    class NewerOverlay(Overlay):
        added: int = 1

    class NewerRequest(SnapRequest):
        added: bool = False
        overlay: NewerOverlay | None = None

    sent = body(overlay={"enabled": True})
    before = hash_of(SnapRequest.model_validate(sent))
    assert hash_of(NewerRequest.model_validate(sent)) == before
    assert hash_of(NewerRequest.model_validate(sent | {"added": True})) != before


def test_many_at_once_with_one_key_make_one_snap(client: TestClient, db: Db) -> None:
    """FE3, FE10."""

    def post() -> str:
        answer = client.post(SNAPS, json=body(), headers={"Idempotency-Key": "once"})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["snapId"])

    assert len({*at_once(*[post] * 12)}) == 1
    assert (count(db, "snap"), count(db, "snap_processing_job"), count(db, "video")) == (1, 1, 1)


def test_many_at_once_without_one_make_many_and_share_what_they_share(client: TestClient, db: Db) -> None:
    """S31: one video, one person, whoever comes first."""
    snaps = at_once(*[lambda: mark(client)["snapId"]] * 12)
    assert len({*snaps}) == 12
    assert [count(db, table) for table in ("snap", "snap_processing_job", "video", "operator")] == [12, 12, 1, 1]


@pytest.mark.parametrize("key", ["", "k" * 201, "a b", "\u00e7"])
def test_a_key_is_a_short_plain_word(client: TestClient, db: Db, key: str) -> None:
    answer = client.post(SNAPS, json=body(), headers={"Idempotency-Key": key.encode()})
    assert (answer.status_code, count(db, "snap")) == (400, 0)
    assert answer.json()["details"][0].startswith("Idempotency-Key: ")


# --- looking ----------------------------------------------------------------------------------------------------


def test_a_finished_snap_has_its_evidence(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """S29."""
    snap = mark(client, snapshotDurationSeconds=2)
    complete(client, engine, db, snap)
    done = shown(client, snap)
    assert done.keys() >= CONTRACT
    assert (done["status"], done["error"], done["resolvedStartSeconds"]) == ("COMPLETED", None, 12.479)
    assert done["videoProbe"].keys() >= {
        *("compatible", "containerFormat", "codecName", "width", "height", "durationSeconds", "sourceFps"),
        *("pixelFormat", "reason"),
    }
    assert (done["videoProbe"]["codecName"], done["videoProbe"]["rotation"]) == ("h264", 90)
    [frame] = done["frames"]
    assert (frame["index"], frame["timestampSeconds"], frame["fileName"]) == (1, 12.479, "frame_00001.jpg")
    assert (frame["isBest"], frame["isBlurred"], frame["isBlack"], frame["sha256"]) == (True, True, False, "ab" * 32)
    assert (done["frameCount"], done["snapshotVideo"]["durationSeconds"]) == (1, 2.0)
    assert (done["job"]["status"], done["job"]["attempts"], done["job"]["lastError"]) == ("COMPLETED", 1, None)
    assert done["job"]["nextRunAt"]
    assert done["processedAt"]


def test_no_link_to_a_file_outlives_the_tenants_token(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """Whoever had the old token had its links as well."""
    add_tenant(engine, "a:1@x")
    theirs = {"X-Assinatura-Codigo": "a:1@x"}
    for headers, code in (({}, "default"), (theirs, "a:1@x")):
        snap = client.post(SNAPS, json=body(), headers=headers).json()
        complete(client, engine, db, snap, code)
        found = client.get(f"{SNAPS}/{snap['snapId']}", headers=headers).json()
        assert client.get(found["frames"][0]["path"]).content == b"the bytes of frame_00001.jpg"
        db.execute("UPDATE tenant SET token_changed_at = now() WHERE code = %s", [code])
        assert client.get(found["frames"][0]["path"]).status_code == 410
        again = client.get(f"{SNAPS}/{snap['snapId']}", headers=headers).json()
        assert client.get(again["snapshotVideo"]["path"]).status_code == 200
        db.execute("UPDATE tenant SET status = 'INACTIVE' WHERE code = %s", [code])
        assert client.get(again["snapshotVideo"]["path"]).status_code == 410


def test_every_path_works_without_headers(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    snap = mark(client)
    complete(client, engine, db, snap)
    done = shown(client, snap)
    [frame] = done["frames"]
    paths = [
        frame["path"],
        frame["cleanPath"],
        done["snapshotVideo"]["path"],
        done["posterPath"],
        done["thumbnailPath"],
    ]
    for path in paths:
        answer = TestClient(client.app).get(path)
        assert (answer.status_code, answer.text) == (200, f"the bytes of {path.rpartition('/')[2]}")
    tampered = frame["path"].replace("/media/", "/media/A")
    assert client.get(tampered).status_code == 404


def test_a_public_address_makes_paths_whole(url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db) -> None:
    """A Flutter image takes nothing less."""
    with served(url, tmp_path, worker_enabled=False, public_base_url="https://snaps.example") as client:
        snap = mark(client)
        complete(client, engine, db, snap)
        assert shown(client, snap)["frames"][0]["path"].startswith("https://snaps.example/media/")
        shared = client.post(f"{SNAPS}/{snap['snapId']}/share").json()
        assert shared["publicUrl"] == f"https://snaps.example/public/snaps/{shared['publicShareToken']}"


def test_a_snap_that_will_be_tried_again_is_pending_and_says_why(client: TestClient, db: Db) -> None:
    """S10, S18."""
    snap = mark(client)
    why = "SourceUnavailable: The server at videos.example does not answer."
    move(db, job_of(snap), status="RETRY_WAIT", attempt_count=1, last_error=why, next_retry_at="2030-01-01T00:00Z")
    waiting = shown(client, snap)
    assert (waiting["status"], waiting["error"]) == ("PENDING", "The server at videos.example does not answer.")
    assert (waiting["job"]["status"], waiting["job"]["lastError"]) == ("RETRY_WAIT", waiting["error"])
    assert waiting["job"]["nextRunAt"].startswith("2030-01-01T00:00:00")
    assert waiting["processedAt"] is None


def test_a_failure_says_what_a_person_can_do(client: TestClient, db: Db) -> None:
    snap = mark(client)
    fail(db, snap)
    failed = shown(client, snap)
    assert (failed["status"], failed["error"], failed["job"]["status"]) == (
        "FAILED",
        "The video ends at 3.2 s.",
        "FAILED",
    )
    assert failed["processedAt"]


def test_a_snap_outlives_its_job(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    """S16: cleaning up the queue loses nothing."""
    done, failed = mark(client), mark(client)
    complete(client, engine, db, done)
    fail(db, failed)
    before = [shown(client, snap) for snap in (done, failed)]
    db.execute("DELETE FROM snap_processing_job")
    after = [shown(client, snap) for snap in (done, failed)]
    assert [snap["job"] for snap in after] == [None, None]
    told = ("status", "error", "processedAt", "frameCount")
    assert [[snap[name] for name in told] for snap in after] == [[snap[name] for name in told] for snap in before]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("FileNotFoundError: [Errno 2] No such file: '/srv/snapapp/media/x.jpg'", "No such file: '(a file)'"),
        ("OSError: /tmp/snap-7/frame_00001.jpg is full", "(a file) is full"),
        ("psycopg.OperationalError: no\nLINE 1: SELECT secret", "no"),
        ("Refused: https://videos.example/a/b/c.mp4 is no video", "https://videos.example/a/b/c.mp4 is no video"),
    ],
)
def test_an_error_gives_no_path_of_ours_away(client: TestClient, db: Db, error: str, told: str) -> None:
    """S18, S23."""
    snap = mark(client)
    fail(db, snap, error)
    seen = json.dumps(shown(client, snap))
    assert told in seen
    assert not {"/srv/snapapp", "/tmp/", "SELECT", "claimed_by", "lockOwner"} & {*seen.split("'")}
    assert "/srv/" not in seen
    assert "/tmp/" not in seen


def test_an_id_is_a_uuid_and_one_that_nobody_has_is_not_found(client: TestClient) -> None:
    answer = client.get(f"{SNAPS}/{NOBODY}")
    assert (answer.status_code, answer.json()["message"]) == (404, f"Snap not found: {NOBODY}")
    for wrong in ("7", "snap", "' OR 1=1", "%00", "x" * 5000):
        answer = client.get(f"{SNAPS}/{wrong}")
        assert (answer.status_code, answer.json()["message"]) == (400, "Validation failed"), wrong


# --- waiting for it ---------------------------------------------------------------------------------------------


@pytest.fixture
def processing() -> Iterator[dict[str, Any]]:
    """A processor of its kind; what it does is in `do`."""
    how: dict[str, Any] = {"do": lambda job: None}
    before = registry.default._processors.pop("snap.process", None)

    @processor("snap.process", queue="media", max_attempts=1)
    def process(job: Job) -> None:
        how["do"](job)

    yield how
    del registry.default._processors["snap.process"]
    if before:
        registry.default._processors["snap.process"] = before


IS_KNOWN = "SELECT count(*) FROM job_worker WHERE 'snap.process' = ANY (kinds)"
SYNC: dict[str, Any] = {"worker_enabled": True, "async_create": False}


def test_a_synchronous_answer_is_the_finished_snap(
    url: str, tmp_path: Path, engine: sqlalchemy.Engine, db: Db, processing: dict[str, Any]
) -> None:
    """S17: 201, when it went well and when it did not."""
    with served(url, tmp_path, sync_wait=timedelta(seconds=30), **SYNC) as client:
        until(lambda: scalar(db, IS_KNOWN))
        processing["do"] = lambda job: _fail("The video ends at 3.2 s.")
        answer = client.post(SNAPS, json=body())
    assert (answer.status_code, answer.json()["status"]) == (201, "FAILED")
    assert answer.json()["error"] == "The video ends at 3.2 s."


def _fail(why: str) -> None:
    raise RuntimeError(why)


def test_a_synchronous_answer_does_not_wait_for_ever(
    url: str, tmp_path: Path, db: Db, processing: dict[str, Any]
) -> None:
    """S17: 202 after all, and the snap goes on."""
    go_on = threading.Event()
    processing["do"] = lambda job: go_on.wait(30)
    with served(url, tmp_path, sync_wait=timedelta(milliseconds=300), **SYNC) as client:
        until(lambda: scalar(db, IS_KNOWN))
        answer = client.post(SNAPS, json=body())
        assert (answer.status_code, answer.json()["status"]) == (202, "PENDING")
        go_on.set()


def test_a_process_that_leaves_keeps_nobody_waiting(
    url: str, tmp_path: Path, db: Db, processing: dict[str, Any]
) -> None:
    go_on = threading.Event()
    processing["do"] = lambda job: go_on.wait(30)
    answers: list[int] = []
    with served(url, tmp_path, sync_wait=timedelta(minutes=5), **SYNC) as client:
        until(lambda: scalar(db, IS_KNOWN))
        waiting = threading.Thread(target=lambda: answers.append(client.post(SNAPS, json=body()).status_code))
        waiting.start()
        until(lambda: scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'RUNNING'"))
        monolith(client).is_leaving = True
        waiting.join(20)
        go_on.set()
    assert answers == [202]


def test_without_a_worker_nobody_waits(url: str, tmp_path: Path) -> None:
    with served(url, tmp_path, worker_enabled=False, async_create=False, sync_wait=timedelta(minutes=5)) as client:
        answer = client.post(SNAPS, json=body())
    assert (answer.status_code, answer.json()["job"]["status"]) == (202, "PENDING")


@pytest.mark.at_length  # test_frames has one client's share of the waiting, in every run
def test_however_many_wait_others_are_served(url: str, tmp_path: Path, db: Db, processing: dict[str, Any]) -> None:
    """A web process has 40 threads; 45 that wait take none of them."""
    go_on = threading.Event()

    def process(job: Job) -> None:
        go_on.wait(60)
        raise RuntimeError("as told")

    processing["do"] = process
    answers: list[int] = []
    with served(url, tmp_path, sync_wait=timedelta(seconds=60), web_connections=10, **SYNC) as client:
        until(lambda: scalar(db, IS_KNOWN))
        post = lambda: answers.append(client.post(SNAPS, json=body()).status_code)  # noqa: E731
        waiting = [threading.Thread(target=post) for _ in range(45)]
        for thread in waiting:
            thread.start()
        try:
            until(lambda: count(db, "snap") == 45, within=40)
            listed = client.get(SNAPS)
            assert (listed.status_code, answers) == (200, []), listed.text
        finally:
            go_on.set()
        for thread in waiting:
            thread.join(60)
    assert answers == [201] * 45


# --- whose it is ------------------------------------------------------------------------------------------------


def test_a_tenant_is_named_by_its_code(client: TestClient, engine: sqlalchemy.Engine) -> None:
    """S24."""
    add_tenant(engine)
    theirs = mark(client, headers=OTHER)
    assert client.get(f"{SNAPS}/{theirs['snapId']}").status_code == 404
    assert client.get(f"{SNAPS}/{theirs['snapId']}", headers=OTHER).status_code == 200
    unknown = client.get(SNAPS, headers={"X-Assinatura-Codigo": "nobody"})
    assert (unknown.status_code, unknown.json()["message"]) == (404, "Assinatura not found: nobody")
