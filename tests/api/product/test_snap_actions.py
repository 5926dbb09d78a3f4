"""What may still be done to a snap that is marked: correct, share, revoke, hide, cancel, try again."""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
from starlette.testclient import TestClient

from snapapp.api.product import snaps
from snapapp.api.product.pages import gallery, people, public_page
from snapapp.api.product.pages.language import NAMES
from snapapp.domain.tables import OperatorRole
from tests.api.conftest import served
from tests.api.examples import (
    NOBODY,
    OTHER,
    SNAPS,
    add_tenant,
    body,
    complete,
    count,
    fail,
    job_of,
    mark,
    number,
    shown,
    text,
)
from tests.factory import Db, move, row, scalar
from tests.jobs.working import until

BY = {"nickname": "bia"}


def at(snap: dict[str, Any], verb: str = "") -> str:
    return f"{SNAPS}/{snap['snapId']}{verb}"


def share(client: TestClient, snap: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    answer = client.post(at(snap, "/share"), json=wanted or None)
    assert answer.status_code == 200, answer.text
    shared: dict[str, Any] = answer.json()
    return shared


# --- corrections ------------------------------------------------------------------------------------------------


def test_a_typing_error_is_mended_and_remembered(client: TestClient) -> None:
    """S33: and it is found by what it is now."""
    snap = mark(client, subject={"id": "BR-1", "attributes": [text("raca", "Nelroe")]})
    mended = client.patch(at(snap, "/subject"), json=BY | {"attributes": [text("raca", "Nelore")]}).json()
    assert (mended["subject"]["id"], mended["subject"]["attributes"][0]["stringValue"]) == ("BR-1", "Nelore")
    moved = client.patch(at(snap, "/subject"), json=BY | {"id": "BR-2"}).json()
    assert moved["subject"]["attributes"] == mended["subject"]["attributes"], "what is left out stays"
    corrections = client.get(at(snap, "/corrections")).json()["items"]
    assert [(each["by"], each["before"]["id"], each["after"]["id"]) for each in corrections] == [
        ("bia", "BR-1", "BR-1"),
        ("bia", "BR-1", "BR-2"),
    ]
    found = [client.get(f"{SNAPS}/search", params={"subjectId": name}).json()["total"] for name in ("BR-1", "BR-2")]
    assert found == [0, 1]


def test_two_corrections_at_once_do_not_undo_each_other(client: TestClient, url: str, db: Db) -> None:
    snap = mark(client, subject={"id": "BR-1", "attributes": [text("raca", "Nelroe")]})
    wanted: list[dict[str, Any]] = [{"id": "BR-2"}, {"attributes": [text("raca", "Nelore")]}]
    with psycopg.connect(url) as first, ThreadPoolExecutor() as threads:
        first.execute("SELECT FROM snap FOR UPDATE")
        answers = [threads.submit(client.patch, at(snap, "/subject"), json=BY | change) for change in wanted]
        until_so_many_wait(db, 2)
        first.commit()
        assert [answer.result().status_code for answer in answers] == [200, 200]
    subject = shown(client, snap)["subject"]
    assert (subject["id"], subject["attributes"][0]["stringValue"]) == ("BR-2", "Nelore")


def until_so_many_wait(db: Db, wanted: int) -> None:
    until(lambda: scalar(db, "SELECT count(*) FROM pg_locks WHERE NOT granted") == wanted)


def test_a_correction_of_what_was_not_seen_is_refused_and_nothing_is_lost(client: TestClient) -> None:
    snap = mark(client, subject={"id": "BR-1", "attributes": [text("raca", "Nelroe")]})
    seen = client.get(at(snap)).headers["ETag"]
    both = [text("raca", "Nelore"), number("peso", 412)]
    quicker = client.patch(at(snap, "/subject"), json=BY | {"attributes": both}, headers={"If-Match": seen})
    assert (quicker.status_code, quicker.headers["ETag"] == seen) == (200, False)
    late = BY | {"attributes": [text("raca", "Nelore")]}
    for stale in (seen, f"W/{seen}", "nonsense"):
        refused = client.patch(at(snap, "/subject"), json=late, headers={"If-Match": stale})
        assert (refused.status_code, refused.json()["error"]) == (412, "Precondition Failed")
    assert [each["key"] for each in shown(client, snap)["subject"]["attributes"]] == ["raca", "peso"]
    now = client.get(at(snap)).headers["ETag"]
    assert now == quicker.headers["ETag"]
    for fresh in (now, "*"):
        assert client.patch(at(snap, "/subject"), json=late, headers={"If-Match": fresh}).status_code == 200


@pytest.mark.parametrize(
    "meant",
    [
        {"id": "BR-2"},
        {"attributes": [text("raca", " Nelore"), number("peso", 412.0)]},
        {"dataFilmagem": "2026-02-28T08:15:30-03:00"},
        {"id": "BR-2", "attributes": [], "dataFilmagem": "2026-02-28T08:15:30-03:00"},
    ],
)
def test_a_correction_whose_answer_was_lost_is_answered_when_it_comes_again(
    client: TestClient, meant: dict[str, Any]
) -> None:
    """It was refused: by the words of the refusal somebody else had said what this person said."""
    snap = mark(client)
    seen = {"If-Match": client.get(at(snap)).headers["ETag"]}
    first, again = (client.patch(at(snap, "/subject"), json=BY | meant, headers=seen) for _ in range(2))
    assert (again.status_code, again.json(), again.headers["ETag"]) == (200, first.json(), first.headers["ETag"])
    assert len(client.get(at(snap, "/corrections")).json()["items"]) == 1
    assert client.patch(at(snap, "/subject"), json=BY | meant | {"id": "BR-3"}, headers=seen).status_code == 412


def test_a_draft_that_is_described_as_it_was_is_a_draft_no_more(client: TestClient) -> None:
    draft = mark(client, isDraft=True)
    seen = {"If-Match": client.get(at(draft)).headers["ETag"]}
    client.patch(at(draft, "/subject"), json=BY | {"dataFilmagem": "2026-02-28T08:15:30-03:00"})
    same = BY | {"id": draft["subject"]["id"]}
    assert client.patch(at(draft, "/subject"), json=same, headers=seen).status_code == 412


@pytest.mark.parametrize("sent", ['W/"{}"', '"{}-gzip"', '"other", W/"{}"'])
def test_a_version_is_known_again_as_a_proxy_that_compresses_has_named_it(client: TestClient, sent: str) -> None:
    """nginx makes such an ETag weak, Apache adds how it is compressed: each correction was refused behind them."""
    snap = mark(client)
    version = client.get(at(snap)).headers["ETag"].strip('"')
    headers = {"If-Match": sent.format(version)}
    assert client.patch(at(snap, "/subject"), json=BY | {"id": "BR-2"}, headers=headers).status_code == 200
    assert client.patch(at(snap, "/subject"), json=BY | {"id": "BR-3"}, headers=headers).status_code == 412


def test_the_filming_date_is_corrected_and_remembered(client: TestClient) -> None:
    """What it was stands in the history; who has seen the older one is refused; and a draft stays one."""
    draft = mark(client, isDraft=True, subject=..., dataFilmagem="2026-03-01T08:15:00-03:00")
    seen = client.get(at(draft)).headers["ETag"]
    meant = BY | {"dataFilmagem": "2026-02-28T08:15:30.5-03:00"}
    mended = client.patch(at(draft, "/subject"), json=meant, headers={"If-Match": seen})
    assert (mended.status_code, mended.json()["dataFilmagem"]) == (200, "2026-02-28T11:15:30.5Z")
    assert (mended.json()["isDraft"], mended.json()["subject"]) == (True, draft["subject"])
    assert mended.headers["ETag"] == client.get(at(draft)).headers["ETag"] != seen
    other = meant | {"dataFilmagem": "2026-02-27T08:15:30-03:00"}
    assert client.patch(at(draft, "/subject"), json=other, headers={"If-Match": seen}).status_code == 412
    [told] = client.get(at(draft, "/corrections")).json()["items"]
    dates = [told[when]["dataFilmagem"] for when in ("before", "after")]
    assert (told["by"], dates) == ("bia", ["2026-03-01T11:15:00+00:00", "2026-02-28T11:15:30.500000+00:00"])
    client.patch(at(draft, "/subject"), json=BY | {"id": "BR-9"})
    assert "dataFilmagem" not in client.get(at(draft, "/corrections")).json()["items"][1]["after"]


@pytest.mark.parametrize("wrong", ["yesterday", "0001-01-01T00:00:00Z", "2026-02-30T00:00:00Z", {}, True])
def test_a_filming_date_that_is_none_is_refused(client: TestClient, wrong: Any) -> None:
    snap = mark(client)
    refused = client.patch(at(snap, "/subject"), json=BY | {"dataFilmagem": wrong})
    assert (refused.status_code, refused.json()["details"][0].partition(":")[0]) == (400, "dataFilmagem")
    assert shown(client, snap)["dataFilmagem"] == snap["dataFilmagem"]
    share(client, snap)
    late = client.patch(at(snap, "/subject"), json=BY | {"dataFilmagem": "2026-01-01T00:00:00Z"})
    assert late.status_code == 409, "what others have seen is not changed"


def test_a_key_that_comes_again_finds_its_snap_though_it_is_hidden(client: TestClient) -> None:
    """The same request has the same answer; that the snap is hidden is nothing a retry should fail of."""
    key = {"Idempotency-Key": "once"}
    first = client.post(SNAPS, json=body(), headers=key)
    share(client, first.json())
    assert client.delete(at(first.json())).json()["removal"] == "HIDDEN"
    again = client.post(SNAPS, json=body(), headers=key)
    assert (again.status_code, again.json()["snapId"]) == (202, first.json()["snapId"])
    assert client.get(at(first.json())).status_code == 404, "to the tenant it is gone"


def test_it_is_found_also_where_the_answer_waits_for_its_end(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snaps, "is_worked", lambda *_: True)
    waits_briefly: dict[str, Any] = {"async_create": False, "sync_wait": timedelta(milliseconds=50)}
    with served(url, tmp_path, worker_enabled=False, **waits_briefly) as client:
        key = {"Idempotency-Key": "k"}
        snap = client.post(SNAPS, json=body(), headers=key).json()
        share(client, snap)
        assert client.delete(at(snap)).json()["removal"] == "HIDDEN"
        again = client.post(SNAPS, json=body(), headers=key)
        assert (again.status_code, again.json().get("snapId")) == (202, snap["snapId"])


def test_a_draft_is_described_later(client: TestClient) -> None:
    draft = mark(client, isDraft=True, subject=...)
    assert (draft["isDraft"], draft["subject"]["id"]) == (True, draft["snapId"])
    described = client.patch(at(draft, "/subject"), json=BY | {"id": "BR-9", "attributes": [number("peso", 4)]}).json()
    assert (described["isDraft"], described["subject"]["id"]) == (False, "BR-9")


def test_a_template_holds_for_corrections_and_for_drafts_that_are_described(client: TestClient) -> None:
    """S35."""
    [cattle] = [each["id"] for each in client.get("/v2/templates").json()["items"] if each["slug"] == "gado"]
    draft = mark(client, isDraft=True, subject=..., subjectTemplateId=cattle)
    refused = client.patch(at(draft, "/subject"), json=BY | {"id": "BR-9"})
    assert (refused.status_code, refused.json()["details"]) == (400, ["subject.attributes.brinco: is required"])
    assert client.get(at(draft, "/corrections")).json()["items"] == []


def test_what_was_shared_is_not_changed_any_more(client: TestClient) -> None:
    """S33."""
    snap = mark(client)
    share(client, snap)
    client.post(at(snap, "/revoke"))
    refused = client.patch(at(snap, "/subject"), json=BY | {"id": "BR-2"})
    assert (refused.status_code, refused.json()["error"]) == (409, "Conflict")
    assert shown(client, snap)["subject"]["id"] == "BR-1042"


@pytest.mark.parametrize("wrong", [{}, {"id": "x"}, {"id": "x" * 201} | BY, {"attributes": [{}]} | BY, [], None])
def test_a_correction_that_cannot_be_meant_is_refused(client: TestClient, wrong: Any) -> None:
    assert client.patch(at(mark(client), "/subject"), json=wrong).status_code == 400


@pytest.mark.parametrize("nothing", [{}, {"id": None, "dataFilmagem": None}, {"id": " ", "attributes": None}])
def test_a_correction_that_says_nothing_is_refused_and_not_written_down(client: TestClient, nothing: Any) -> None:
    snap = mark(client)
    refused = client.patch(at(snap, "/subject"), json=BY | nothing)
    assert (refused.status_code, refused.json()["message"]) == (
        400,
        "Provide at least one of id, attributes or dataFilmagem",
    )
    assert client.get(at(snap, "/corrections")).json()["items"] == []


# --- links ------------------------------------------------------------------------------------------------------

PUBLIC = {  # http.md's, word for word
    *("snapId", "publicShareToken", "status", "tipoSnap", "nickname", "dataFilmagem", "subject"),
    *("resolvedStartSeconds", "durationSeconds", "snapshotDurationSeconds", "frameCount", "videoProbe"),
    *("snapshotVideo", "frames", "createdAt", "processedAt"),
}


def test_a_snap_is_shared_once_however_often(client: TestClient) -> None:
    """S23."""
    snap = mark(client)
    first, again = share(client, snap), share(client, snap)
    assert first == again
    assert first.keys() >= {"snapId", "isPublic", "publicShareToken", "publicUrl"}
    assert (first["isPublic"], len(first["publicShareToken"])) == (True, 32)
    assert int(first["publicShareToken"], 16)
    assert first["publicUrl"] == f"/public/snaps/{first['publicShareToken']}", "a Host header is anybody's word"
    assert client.get(at(snap, "/share")).json() == first


def test_a_link_shows_the_evidence_and_nothing_of_the_house(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """S23: no headers, no e-mail, no errors, no paths of ours."""
    snap = mark(client)
    token = share(client, snap)["publicShareToken"]
    stranger = TestClient(client.app, base_url="http://snaps.example", client=("192.0.2.7", 4711))
    pending = stranger.get(f"/public/snaps/{token}").json()
    assert (pending.keys(), pending["status"]) == (PUBLIC, "PENDING")
    complete(client, engine, db, snap)
    answer = stranger.get(f"/public/snaps/{token}", headers={"X-Assinatura-Codigo": "nobody"})
    seen = answer.json()
    assert (seen.keys(), seen["status"], seen["publicShareToken"]) == (PUBLIC, "COMPLETED", token)
    assert "ana@fazenda.example" not in answer.text
    files = [seen["frames"][0]["path"], seen["snapshotVideo"]["path"]]
    assert files[0] == f"/public/snaps/{token}/media/frame_00001.jpg"
    assert seen["frames"][0]["cleanPath"] is None, "no link serves it"
    assert [stranger.get(path).text for path in files] == [f"the bytes of {path.split('/')[-1]}" for path in files]
    assert stranger.get(files[1], headers={"Range": "bytes=4-8"}).text == "bytes"


BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"
HOSTILE = "<script>alert(1)</script>\"' onerror=x"


@pytest.mark.parametrize(
    ("headers", "is_page"),
    [
        ({"Accept": BROWSER}, True),
        ({"Accept": "*/*"}, False),
        ({"Accept": "application/json, text/html;q=0.5"}, False),
        ({"Accept": "*/*", "User-Agent": "WhatsApp/2.23.20.0"}, True),
        ({"Accept": "application/json", "User-Agent": "WhatsApp/2.23.20.0"}, False),
    ],
)
def test_a_link_is_a_page_for_people_and_json_for_programs(
    client: TestClient, engine: sqlalchemy.Engine, db: Db, headers: dict[str, str], is_page: bool
) -> None:
    """S23: the page as well says nothing of the monolith, has no script, and what was typed is text in it."""
    snap = mark(client, subject={"id": HOSTILE, "attributes": [text(HOSTILE, HOSTILE)]}, nickname=HOSTILE)
    complete(client, engine, db, snap)
    link = f"/public/snaps/{share(client, snap)['publicShareToken']}"
    answer = client.get(link, headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"].startswith("text/html")) == (200, is_page)
    assert "Accept" in answer.headers["Vary"]
    assert "ana@fazenda.example" not in answer.text
    assert client.head(link, headers=headers).status_code == 200
    if is_page:
        assert "<script" not in answer.text.lower()
        assert "\"' onerror" not in answer.text
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert f'<meta property="og:image" content="{link}/media/frame_00001.jpg">' in answer.text
        assert scalar(db, "SELECT extras -> 'artefacts' -> 0 ->> 'sha256' FROM snap") in answer.text


def test_a_dead_link_says_so_to_people_in_their_language(client: TestClient) -> None:
    said = [
        client.get("/public/snaps/gone", headers={"Accept": BROWSER, "Accept-Language": languages})
        for languages in ("pt-BR,pt;q=0.9,en;q=0.8", "de,en;q=0.7,pt;q=0.2", "*", "en;q=x")
    ]
    assert [answer.status_code for answer in said] == [404] * 4
    assert ["Peça um novo" in answer.text for answer in said] == [True, False, False, False]
    assert "Peça" in client.get("/public/snaps/gone?lang=pt", headers={"Accept": BROWSER}).text


OF_THE_RULES = {  # reasons that they have for refusing a field or a person
    *("must be from {} to {}", "must have at most {} characters", "must hold a letter or a digit"),
    *("must not be empty", "holds a character that cannot be stored", "must be an e-mail address"),
    *("This person can sign in already", "There are {} operators already, revoke one first", "Operator not found"),
    "Only an admin may see and change this",
    "Everybody knows this tenant's token: `snapapp tenants rotate-token CODE` makes another one",
}


def test_every_text_of_the_pages_that_the_server_makes_is_there_in_portuguese() -> None:
    folder = Path(public_page.__file__).parent
    words = json.loads((folder / "portuguese.json").read_text())
    code = "".join(file.read_text() for file in folder.glob("*.*") if file.suffix in (".py", ".html"))
    said = set(re.findall(r"\bt\(['\"](.*?)['\"]\)", code))
    said |= {*NAMES.values(), *gallery._LABELS.values(), *gallery._STATES.values()}
    said |= {*people._LABELS.values(), *OperatorRole}
    said |= set(re.findall(r'Invalid\(f?"[^:"]+: ([^"]+)"\)', (folder / "gallery.py").read_text()))
    assert said | OF_THE_RULES == set(words)


def test_a_failure_is_not_told_to_strangers(client: TestClient, db: Db) -> None:
    """S23."""
    snap = mark(client)
    token = share(client, snap)["publicShareToken"]
    fail(db, snap)
    seen = client.get(f"/public/snaps/{token}")
    assert (seen.json()["status"], "3.2 s" in seen.text) == ("FAILED", False)


def test_a_dead_link_is_dead_with_every_file_below_it(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    snap = mark(client)
    complete(client, engine, db, snap)
    old = share(client, snap)["publicShareToken"]
    file = f"/public/snaps/{old}/media/frame_00001.jpg"
    assert client.get(file).status_code == 200
    revoked = client.post(at(snap, "/revoke")).json()
    assert (revoked["isPublic"], revoked["publicShareToken"], revoked["publicUrl"]) == (False, None, None)
    for path in (f"/public/snaps/{old}", file):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["message"]) == (404, f"Public snap not found: {old}")
    new = share(client, snap)["publicShareToken"]
    assert new != old
    assert client.get(f"/public/snaps/{old}").status_code == 404
    assert client.get(f"/public/snaps/{new}").status_code == 200


def test_a_link_may_end_by_itself(client: TestClient, db: Db) -> None:
    snap = mark(client)
    shared = share(client, snap, expiresAt="2090-01-01T00:00:00Z")
    assert shared["expiresAt"].startswith("2090-01-01")
    db.execute("UPDATE share SET expires_at = now() - interval '1 second'")
    assert client.get(f"/public/snaps/{shared['publicShareToken']}").status_code == 404
    assert share(client, snap)["publicShareToken"] != shared["publicShareToken"]


@pytest.mark.parametrize("name", ["source", "frame_00002.jpg", "%2e%2e%2fsource", "clean_00001.jpg", ""])
def test_a_link_opens_what_was_published_and_nothing_beside_it(
    client: TestClient, engine: sqlalchemy.Engine, db: Db, name: str
) -> None:
    snap = mark(client)
    complete(client, engine, db, snap)
    token = share(client, snap)["publicShareToken"]
    assert client.get(f"/public/snaps/{token}/media/{name}").status_code == 404


@pytest.mark.parametrize("token", ["0" * 32, "x", "' OR 1=1 --", "%00", "a" * 200, "\u00e7"])
def test_a_token_that_nobody_made_is_not_found(client: TestClient, token: str) -> None:
    answer = client.get(f"/public/snaps/{token}")
    assert answer.status_code == 404
    assert answer.json()["message"].startswith("Public snap not found: ")


# --- removing ---------------------------------------------------------------------------------------------------


def test_a_snap_is_deleted_with_all_that_is_its_own(client: TestClient, db: Db) -> None:
    snap = mark(client)
    assert client.delete(at(snap)).json() == {"snapId": snap["snapId"], "removal": "DELETED"}
    assert client.get(at(snap)).status_code == 404
    assert [count(db, table) for table in ("snap", "subject_attribute", "subject_word")] == [0, 0, 0]
    assert row(db, job_of(snap)).status == "CANCELLED", "nobody works for it any more"
    assert row(db, scalar(db, "SELECT id FROM snap_processing_job WHERE kind = 'media.forget'")).payload == {
        "snapId": snap["snapId"]
    }


def test_a_shared_snap_is_only_hidden(client: TestClient, db: Db) -> None:
    """S33: the link goes on."""
    snap = mark(client)
    token = share(client, snap)["publicShareToken"]
    assert client.delete(at(snap)).json()["removal"] == "HIDDEN"
    assert client.get(at(snap)).status_code == 404
    assert client.get(SNAPS).json()["items"] == []
    assert count(db, "snap_processing_job WHERE kind = 'media.forget'") == 0
    assert client.get(f"/public/snaps/{token}").status_code == 200


def test_the_link_of_a_removed_snap_can_still_be_ended(client: TestClient, engine: sqlalchemy.Engine) -> None:
    """No list shows the snap any more, and its link must not be public for ever."""
    add_tenant(engine)
    snap = mark(client)
    link = share(client, snap)["publicUrl"]
    assert client.delete(at(snap)).json()["removal"] == "HIDDEN"
    assert client.post(at(snap, "/revoke"), headers=OTHER).status_code == 404
    assert client.get(link).status_code == 200
    assert client.post(at(snap, "/revoke")).status_code == 200
    assert client.get(link).status_code == 404


def test_a_snap_whose_job_ends_at_that_moment_is_deleted_all_the_same(client: TestClient, url: str, db: Db) -> None:
    snap = mark(client)
    with psycopg.connect(url) as first, ThreadPoolExecutor() as thread:
        fail(first, snap)
        answer = thread.submit(client.delete, at(snap))
        until_so_many_wait(db, 1)
        first.commit()
        assert answer.result().json()["removal"] == "DELETED"


# --- its job ----------------------------------------------------------------------------------------------------


def test_a_snap_that_waits_is_cancelled_at_once_and_says_by_whom(client: TestClient) -> None:
    snap = mark(client)
    cancelled = client.post(at(snap, "/cancel"), json=BY)
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "FAILED")
    assert (cancelled.json()["error"], cancelled.json()["job"]["status"]) == ("Cancelled by bia", "CANCELLED")
    assert client.post(at(snap, "/cancel")).json()["error"] == "Cancelled by bia", "the first one counts"


@pytest.mark.parametrize("verb", ["/cancel", ""])
def test_whoever_waits_for_a_job_that_is_settled_holds_nothing_that_it_needs(
    client: TestClient, url: str, db: Db, verb: str
) -> None:
    """Else the two would wait for each other."""
    snap = mark(client)
    with psycopg.connect(url) as first, ThreadPoolExecutor() as thread:
        first.execute("SELECT FROM snap_processing_job FOR UPDATE")
        answer = thread.submit(client.request, "POST" if verb else "DELETE", at(snap, verb))
        until_so_many_wait(db, 1)
        first.execute("SELECT FROM snap FOR UPDATE NOWAIT")
        first.commit()
        assert answer.result().status_code == 200


def test_a_finished_snap_is_not_cancelled(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    snap = mark(client)
    complete(client, engine, db, snap)
    assert client.post(at(snap, "/cancel")).status_code == 409
    assert shown(client, snap)["status"] == "COMPLETED"


def test_a_snap_that_runs_is_asked_to_stop(client: TestClient, db: Db) -> None:
    snap = mark(client)
    move(
        db,
        job_of(snap),
        status="RUNNING",
        claimed_by="w",
        locked_at="now",
        lock_expires_at="2090-01-01Z",
        lease_seq=1,
        attempt_count=1,
    )
    answer = client.post(at(snap, "/cancel"))
    assert (answer.status_code, answer.json()["status"], answer.json()["job"]["status"]) == (202, "PENDING", "RUNNING")
    assert row(db, job_of(snap)).cancel_requested_at


def test_a_failed_snap_is_tried_again(client: TestClient, db: Db) -> None:
    snap = mark(client)
    refused = client.post(at(snap, "/retry"))
    assert refused.status_code == 409, "it has not failed"
    fail(db, snap)
    answer = client.post(at(snap, "/retry"))
    assert (answer.status_code, answer.json()["status"], answer.json()["processedAt"]) == (202, "PENDING", None)
    assert answer.json()["error"] == "The video ends at 3.2 s.", "the last failure, until something newer is known"
    assert (answer.json()["job"]["status"], answer.json()["job"]["attempts"]) == ("PENDING", 0)


def test_what_has_no_job_any_more_is_not_tried_again(client: TestClient, db: Db) -> None:
    snap = mark(client)
    fail(db, snap)
    db.execute("DELETE FROM snap_processing_job")
    for verb in ("/retry", "/cancel"):
        answer = client.post(at(snap, verb))
        assert (answer.status_code, answer.json()["message"]) == (409, f"Snap has no job any more: {snap['snapId']}")


def test_nothing_can_be_done_to_a_snap_that_is_not_there(client: TestClient) -> None:
    for verb in ("/share", "/revoke", "/cancel", "/retry"):
        answer = client.post(f"{SNAPS}/{NOBODY}{verb}")
        assert (answer.status_code, answer.json()["message"]) == (404, f"Snap not found: {NOBODY}"), verb
