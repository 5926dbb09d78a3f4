"""What the ends of jobs change: a snap's evidence, its failure, a video's probe, and who is told."""

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import sqlalchemy
from sqlalchemy import Connection

from snapapp.domain import kinds, marking, payloads, snaps, tenants, videos, webhooks
from snapapp.domain.rules.snaps import DEFAULT_OVERLAY
from snapapp.domain.tables import Snap, SnapStatus
from snapapp.domain.transactions import Begin, TenantTransaction
from snapapp.jobs import Job, enqueue
from snapapp.jobs.model import Failure
from snapapp.jobs.registry import Registry, default
from snapapp.jobs.rows.database import run
from snapapp.jobs.testing import enqueued, make_due, run_due
from snapapp.postgres import database
from snapapp.postgres.database import scope
from snapapp.processing import bucket_check, ends, media_work, webhook_delivery
from snapapp.processing.queue import QUEUE
from snapapp.sources import Reason, SourceUnavailable
from snapapp.storage import Local, NoRoom, ObjectRefused, StorageAway, keys
from tests.domain.making import an_upload, make_snap, subject
from tests.factory import Db, scalar
from tests.jobs.working import until, working
from tests.media import material
from tests.sources.server import Film, Server, Visit

TENANT = "default"
HOOK = "http://127.0.0.1:{port}/hook"
CRASH = 'DecoderDied: the decoder cannot open /srv/snapapp/scratch/x\nTraceback:\n  File "/opt/snapapp/decoder.py"'


@pytest.fixture
def film(remote: Server, tmp_path: Path) -> str:
    remote.acts["/film.mp4"] = Film(material.make(material.GOOD["plain"], tmp_path / "film.mp4").read_bytes())
    return remote.url("/film.mp4")


def marked(connection: Connection, url: str, **given: Any) -> Snap:
    """A snap and its job, as the API leaves them."""
    with scope(connection, TENANT) as own:
        video = videos.at_url(own, TENANT, url)
        snap = make_snap(own, TENANT, video_id=video.id, **{"start_seconds": 1.0} | given)
    enqueue(connection, kinds.SNAP, payloads.of_snap(snap, video), tenant=TENANT, snap_id=snap.id, max_attempts=2)
    return snap


def now(connection: Connection, snap: Snap) -> Snap:
    with scope(connection, TENANT) as own:
        return snaps.read(own, TENANT, snap.id)


def subscribed(connection: Connection, remote: Server, event: str) -> str:
    with scope(connection, TENANT) as own:
        return webhooks.add(own, TENANT, HOOK.format(port=remote.port), [event]).secret


def test_a_commit_publishes_the_evidence(connection: Connection, at_home: Path, film: str) -> None:
    snap = marked(connection, film)
    assert run_due(connection) == ["snap.process: COMPLETED"]
    found = now(connection, snap)
    assert (found.status, found.frame_count, found.resolved_start_seconds) == (SnapStatus.COMPLETED, 5, 1.0)
    assert re.fullmatch(rf"snaps/{snap.id}/\d+/", found.media_prefix or "")
    assert (at_home / "media" / str(found.media_prefix) / "snapshot.mp4").is_file()


def test_a_snap_that_cannot_be_made_says_why_in_plain_words(connection: Connection, at_home: Path, film: str) -> None:
    snap = marked(connection, film, start_seconds=500.0)
    assert run_due(connection) == ["snap.process: FAILED"]
    found = now(connection, snap)
    assert (found.status, found.job and found.job.attempts) == (SnapStatus.FAILED, 1)
    assert found.error
    assert "500" in found.error


def test_a_busy_server_is_asked_again(connection: Connection, at_home: Path, remote: Server, film: str) -> None:
    """D8: and meanwhile the snap waits, with the reason."""
    working = remote.acts["/film.mp4"]
    remote.acts["/film.mp4"] = lambda visit: visit.say(503)
    snap = marked(connection, film)
    assert run_due(connection) == ["snap.process: RETRY_WAIT"]
    waiting = now(connection, snap)
    assert (waiting.status, waiting.job and waiting.job.status) == (SnapStatus.PENDING, "RETRY_WAIT")
    assert waiting.error
    remote.acts["/film.mp4"] = working
    assert waiting.job
    make_due(connection, waiting.job.id)
    assert run_due(connection) == ["snap.process: COMPLETED"]
    assert now(connection, snap).error is None


@pytest.mark.parametrize(
    ("failure", "note"),
    [
        (NoRoom("The disk is full"), media_work.WAITS),
        (SourceUnavailable(Reason.NO_ROOM, "There is no room on our disk"), media_work.WAITS),
        (StorageAway("snaps/1/2/clip.mp4", "503 Slow Down"), media_work.WAITS_FOR_STORAGE),
    ],
)
def test_a_storage_that_is_full_or_away_is_waited_for_and_costs_no_attempt(
    connection: Connection, at_home: Path, film: str, monkeypatch: pytest.MonkeyPatch, failure: Exception, note: object
) -> None:
    """It was FAILED after three attempts, within a minute."""
    with monkeypatch.context() as patch:
        patch.setattr(Local, "put", Mock(side_effect=failure))
        snap = marked(connection, film)
        assert run_due(connection) == ["snap.process: PENDING"]
    waiting = now(connection, snap).job
    assert waiting
    assert (waiting.attempts, waiting.progress) == (0, note)  # which its page shows in place of "queued"
    make_due(connection, waiting.id)
    assert run_due(connection) == ["snap.process: COMPLETED"]


def test_a_bucket_that_gives_a_list_and_takes_no_file_is_told_by_the_doctor(
    connection: Connection, at_home: Path, film: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key may only read. The moments waited for days, and the doctor said that the bucket answers."""
    monkeypatch.setattr(Local, "put", Mock(side_effect=StorageAway("snaps/1/2/clip.mp4", "403 AccessDenied")))
    marked(connection, film)
    assert run_due(connection) == ["snap.process: PENDING"]
    examined: Any = Mock(ask=lambda sql, **given: run(connection, sql, given))
    assert bucket_check.waited_for(examined) is None, "it may be a hiccup"
    connection.exec_driver_sql("UPDATE job_log SET at = at - interval '3 minutes'")
    found = bucket_check.waited_for(examined)
    assert found
    assert "The storage cannot be used for snaps/1/2/clip.mp4: 403 AccessDenied." in found.saw
    connection.exec_driver_sql("UPDATE snap_processing_job SET progress = '{}'")
    assert bucket_check.waited_for(examined) is None


def test_a_moment_of_a_video_that_the_storage_refuses_alone_fails_and_says_so(
    connection: Connection, at_home: Path, film: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for ever."""
    refused = ObjectRefused("videos/default/1/source", "403 Forbidden: InvalidObjectState")
    monkeypatch.setattr(Local, "put", Mock(side_effect=refused))
    snap = marked(connection, film)
    assert run_due(connection) == ["snap.process: RETRY_WAIT"]
    job = now(connection, snap).job
    assert job
    make_due(connection, job.id)
    assert run_due(connection) == ["snap.process: FAILED"]
    assert "it is in an archive, or its rights were changed" in str(now(connection, snap).error)


def test_a_snap_that_was_deleted_meanwhile_publishes_nothing(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    subscribed(connection, remote, "snap.completed")
    snap = marked(connection, film)
    with scope(connection, TENANT) as own:
        snaps.remove(own, TENANT, snap.id)
    assert run_due(connection) == ["snap.process: COMPLETED"]
    assert enqueued(connection, "snap.webhook") == []


@pytest.fixture
def begin(connection: Connection) -> Begin:
    """A use case in the test's own transaction."""

    @contextmanager
    def begin() -> Iterator[TenantTransaction]:
        with database.session(connection) as session:
            yield TenantTransaction(session, tenants.by_code(session, TENANT))
            session.flush()

    return begin


def cards_of(snap: Snap) -> list[str]:
    cards: list[str] = snap.extras["settings"]["overlay"]["cards"]
    return cards


def test_the_card_of_a_snap_that_waits_names_the_animal_as_corrected(
    connection: Connection, at_home: Path, film: str, begin: Begin
) -> None:
    snap = marked(connection, film, subject=subject("BR-1044"), overlay=dict(DEFAULT_OVERLAY))
    marking.correct(begin, QUEUE, snap.id, "BR-1046", None, by="Ana")
    assert run_due(connection) == ["snap.process: COMPLETED"]
    assert cards_of(now(connection, snap)) == ["BR-1046"]


def test_frames_that_were_made_while_the_subject_was_corrected_are_made_again(
    connection: Connection, at_home: Path, film: str, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    snap = marked(connection, film, subject=subject("BR-1044"), overlay=dict(DEFAULT_OVERLAY))
    make = media_work.MediaWork.snap

    def corrected_meanwhile(work: media_work.MediaWork, job: Job) -> dict[str, Any]:
        marking.correct(begin, QUEUE, snap.id, "BR-1046", None, by="Ana")
        return make(work, job)

    monkeypatch.setattr(media_work.MediaWork, "snap", corrected_meanwhile)
    assert run_due(connection) == ["snap.process: PENDING"]
    waiting = now(connection, snap)
    assert (waiting.frames, waiting.job and waiting.job.attempts) == (None, 0)
    assert waiting.job
    make_due(connection, waiting.job.id)
    assert run_due(connection) == ["snap.process: COMPLETED"]
    assert cards_of(now(connection, snap)) == ["BR-1046"]


@pytest.mark.parametrize(("kind", "more"), [(kinds.PREVIEW, {}), (kinds.STILL, {"at": 1.0})])
def test_what_is_made_of_a_video_after_its_deletion_is_deleted_too(
    connection: Connection, at_home: Path, film: str, begin: Begin, kind: str, more: dict[str, Any]
) -> None:
    """The job waited, or ran, when the video's files were deleted."""
    with scope(connection, TENANT) as own:
        video = videos.at_url(own, TENANT, film)
    key = keys.of_video(TENANT, video.id) + ("preview.mp4" if kind == kinds.PREVIEW else "still_0001000000.jpg")
    job_id = enqueue(
        connection, kind, payloads.of_preview(video, key) | more, tenant=TENANT, delay=timedelta(minutes=5)
    )
    assert job_id
    videos.remove(begin, QUEUE, video.id, "r-1")
    [forget] = enqueued(connection, kinds.FORGET)
    make_due(connection, forget)
    assert run_due(connection) == ["media.forget: COMPLETED"]
    make_due(connection, job_id)
    assert run_due(connection) == [f"{kind}: COMPLETED", "media.forget: COMPLETED"]
    assert not (at_home / "media" / key).exists()


def test_what_a_killed_attempt_made_of_a_video_after_its_deletion_is_deleted_too(
    connection: Connection, at_home: Path, begin: Begin
) -> None:
    """Killed after the copy was stored, before its commit; the next attempt finds the video's file gone, and fails."""
    with scope(connection, TENANT) as own:
        video = videos.add_upload(own, TENANT, an_upload())
    key = keys.of_preview(TENANT, video.id)
    enqueue(connection, kinds.PREVIEW, payloads.of_preview(video, key), tenant=TENANT)
    videos.remove(begin, QUEUE, video.id, "r-1")
    [forget] = enqueued(connection, kinds.FORGET)
    connection.exec_driver_sql("DELETE FROM snap_processing_job WHERE id = %s", (forget,))  # it is over
    (at_home / "media" / key).parent.mkdir(parents=True)
    (at_home / "media" / key).write_bytes(b"a copy")
    assert run_due(connection) == ["video.preview: FAILED", "media.forget: COMPLETED"]
    assert not (at_home / "media" / key).exists()


def test_a_probe_is_kept_with_its_video_and_so_is_why_there_is_none(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    remote.acts["/page.mp4"] = Film(b"<html>" * 100)
    with scope(connection, TENANT) as own:
        found = [videos.at_url(own, TENANT, url) for url in (film, remote.url("/page.mp4"))]
    for video in found:
        enqueue(connection, kinds.PROBE, payloads.of_video(video), tenant=TENANT)
    assert sorted(run_due(connection)) == ["video.probe: COMPLETED", "video.probe: FAILED"]
    with scope(connection, TENANT) as own:
        good, bad = (videos.read(own, TENANT, video.id).probe for video in found)
    assert good
    assert bad
    assert (good["compatible"], good["codec_name"], bad["compatible"]) == (True, "h264", False)
    assert ":" not in bad["reason"].split()[0], "no class's name"


# --- webhooks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "event", "status"), [(1.0, "snap.completed", "COMPLETED"), (500.0, "snap.failed", "FAILED")]
)
def test_whoever_wants_to_know_is_told_with_a_signature(
    connection: Connection, at_home: Path, remote: Server, film: str, start: float, event: str, status: str
) -> None:
    heard: list[tuple[dict[str, str], bytes]] = []

    def listen(visit: Visit) -> None:
        heard.append((dict(visit.headers), visit.rfile.read(int(visit.headers["Content-Length"]))))
        visit.say(204)

    remote.acts["/hook"] = listen
    secret = subscribed(connection, remote, event)
    snap = marked(connection, film, start_seconds=start)
    assert run_due(connection) == [f"snap.process: {status}", "snap.webhook: COMPLETED"]
    [(headers, body)] = heard
    moment, _, signature = headers["X-Snapapp-Signature"].removeprefix("t=").partition(",v1=")
    assert signature == hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256).hexdigest()
    told = json.loads(body)
    assert (told["event"], told["snapId"], told["status"]) == (event, str(snap.id), status)
    assert secret not in str(headers) + body.decode()


def test_a_receiver_reads_of_a_failure_what_the_api_says(connection: Connection, at_home: Path, remote: Server) -> None:
    """Neither the name of a class, nor a traceback, nor a path on our disks."""
    heard: list[bytes] = []

    def listen(visit: Visit) -> None:
        heard.append(visit.rfile.read(int(visit.headers["Content-Length"])))
        visit.say(204)

    remote.acts["/hook"] = listen
    subscribed(connection, remote, "snap.failed")
    with scope(connection, TENANT) as own:
        snap = make_snap(own, TENANT)
        snaps.fail(own, TENANT, snap.id, CRASH)
    webhooks.announce(enqueue, connection, TENANT, snap.id, "snap.failed", None)
    assert run_due(connection) == ["snap.webhook: COMPLETED"]
    assert json.loads(heard[0])["error"] == "the decoder cannot open (a file)"


def test_the_reason_that_a_video_keeps_is_the_one_that_clients_read(connection: Connection) -> None:
    with scope(connection, TENANT) as own:
        video = videos.at_url(own, TENANT, "https://example.org/film.mp4")
    payload = json.dumps(payloads.of_video(video)).encode()
    job: Job = Job(1, kinds.PROBE, "light", TENANT, 0, payload, None, 1, 3, 1, None, None)
    ends.keep_reason(connection, job, Failure(CRASH))
    with scope(connection, TENANT) as own:
        assert videos.read(own, TENANT, video.id).probe == {
            "compatible": False,
            "reason": "the decoder cannot open (a file)",
        }


@pytest.mark.parametrize(
    ("answer", "status"), [(500, "RETRY_WAIT"), (302, "RETRY_WAIT"), (410, "FAILED"), (200, "COMPLETED")]
)
def test_what_a_receiver_answers_decides_whether_it_is_told_again(
    connection: Connection, at_home: Path, remote: Server, film: str, answer: int, status: str
) -> None:
    remote.acts["/hook"] = lambda visit: visit.say(answer, b"", {"Location": "http://127.0.0.1:1/"})
    subscribed(connection, remote, "snap.completed")
    marked(connection, film)
    assert run_due(connection)[1:] == [f"snap.webhook: {status}"]
    [says] = connection.exec_driver_sql("SELECT last_error FROM snap_processing_job WHERE kind = 'snap.webhook'").one()
    assert says is None if answer == 200 else f": 127.0.0.1 answered {answer}" in says, "whose receiver it is"


def test_a_receiver_that_is_gone_is_called_no_more(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    """Neither for what waits already, nor for what comes. One that was moved while it was asked goes on elsewhere."""
    remote.acts["/hook"] = lambda visit: visit.say(410)
    subscribed(connection, remote, "snap.completed")
    snap = marked(connection, film)
    assert run_due(connection) == ["snap.process: COMPLETED", "snap.webhook: FAILED"]
    [says] = connection.exec_driver_sql("SELECT last_error FROM snap_processing_job WHERE kind = 'snap.webhook'").one()
    assert "so the webhook is not active any more" in says
    with scope(connection, TENANT) as own:
        [hook] = webhooks.every(own, TENANT)
        assert (hook.is_active, hook.paused_because) == (False, "Its receiver answered 410.")
        webhooks.change(own, TENANT, hook.id, is_active=False)
        assert hook.paused_because == "Its receiver answered 410.", "it was paused already"
        webhooks.change(own, TENANT, hook.id, is_active=True)
        webhooks.end(own, TENANT, hook.id, "http://127.0.0.1/before")
        assert webhooks.wanting(own, TENANT, "snap.completed") == [hook]
        webhooks.end(own, TENANT, hook.id, hook.url)
    webhooks.announce(enqueue, connection, TENANT, snap.id, "snap.completed", None)
    assert run_due(connection) == []


def test_receivers_that_say_nothing_keep_no_other_job_waiting(
    engine: sqlalchemy.Engine, url: str, db: Db, at_home: Path, remote: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_delivery, "_WITHIN", timedelta(minutes=5))

    def say_nothing(_visit: Visit) -> None:
        remote.is_closing.wait()

    remote.acts |= {"/silent": say_nothing, "/hook": lambda visit: visit.say(204)}
    with engine.begin() as connection:
        with scope(connection, TENANT) as own:
            snap = make_snap(own, TENANT)
            silent = [webhooks.add(own, TENANT, remote.url("/silent"), ["snap.shared"]) for _ in range(4)]
        webhooks.announce(enqueue, connection, TENANT, snap.id, "snap.shared", None)
    registry = Registry()
    registry.add(default.get(kinds.WEBHOOK))
    registry.processor("quick", queue="light")(lambda job: None)
    with working(url, registry, queues=("light",), concurrency=2):
        until(lambda: [request.path for request in remote.requests] == ["/silent"] * len(silent))
        with engine.begin() as connection:
            with scope(connection, TENANT) as own:
                webhooks.add(own, TENANT, remote.url("/hook"), ["snap.completed"])
            webhooks.announce(enqueue, connection, TENANT, snap.id, "snap.completed", None)
            enqueue(connection, "quick", queue="light")
        until(lambda: scalar(db, "SELECT count(*) FROM snap_processing_job WHERE status = 'COMPLETED'") == 2)
        remote.is_closing.set()


def test_a_receiver_that_cannot_be_reached_is_named_without_the_secret_in_its_path(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    remote.acts["/hook/secret"] = lambda visit: visit.connection.close()
    with scope(connection, TENANT) as own:
        webhooks.add(own, TENANT, f"http://127.0.0.1:{remote.port}/hook/secret", ["snap.completed"])
    marked(connection, film)
    assert run_due(connection)[1:] == ["snap.webhook: RETRY_WAIT"]
    [says] = connection.exec_driver_sql("SELECT last_error FROM snap_processing_job WHERE kind = 'snap.webhook'").one()
    assert says.startswith("SourceUnavailable: 127.0.0.1 did not take it: ")
    assert "secret" not in says.splitlines()[0]


def test_a_receiver_that_says_yes_and_breaks_off_is_not_told_again(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    """The status is the answer, whatever becomes of a body that nobody reads."""

    def break_off(visit: Visit) -> None:
        visit.head(200, Transfer_Encoding="chunked")
        visit.close_connection = True

    remote.acts["/hook"] = break_off
    subscribed(connection, remote, "snap.completed")
    marked(connection, film)
    assert run_due(connection)[1:] == ["snap.webhook: COMPLETED"]


def test_a_webhook_into_our_own_network_is_refused_for_good(
    connection: Connection, at_home: Path, remote: Server, film: str
) -> None:
    """The guard of videos is the guard of webhooks."""
    with scope(connection, TENANT) as own:
        webhooks.add(own, TENANT, f"http://127.0.0.2:{remote.port}/hook", ["snap.completed"])
    marked(connection, film)
    asked = len(remote.requests)
    assert run_due(connection)[1:] == ["snap.webhook: FAILED"]
    assert [request.path for request in remote.requests[asked:] if "hook" in request.path] == []


@pytest.mark.parametrize("gone", ["DELETE FROM webhook", "UPDATE tenant SET status = 'INACTIVE'"])
def test_who_has_gone_meanwhile_is_not_told(
    connection: Connection, at_home: Path, remote: Server, film: str, gone: str
) -> None:
    """A webhook that was removed, or whose tenant is treated as unknown."""
    subscribed(connection, remote, "snap.completed")
    snap = marked(connection, film)
    assert run_due(connection, at_most=1) == ["snap.process: COMPLETED"]
    connection.exec_driver_sql(gone)
    assert run_due(connection) == ["snap.webhook: COMPLETED"]
    assert all(request.path != "/hook" for request in remote.requests), snap
