"""Lists and searches through HTTP: what is in them, in which order, and what they are wrapped in."""

import json
import unicodedata
from typing import Any, Literal

import pytest
import sqlalchemy
from starlette.testclient import TestClient

from tests.api.examples import NOBODY, SNAPS, body, complete, count, fail, mark, number, text
from tests.factory import Db


def ids(client: TestClient, path: str, **query: Any) -> list[str]:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [item["snapId"] for item in answer.json()["items"]]


def search(client: TestClient, **query: Any) -> list[str]:
    return ids(client, f"{SNAPS}/search", **query)


# --- the envelope -----------------------------------------------------------------------------------------------


def test_a_list_says_which_part_it_is_and_whether_there_is_more(client: TestClient) -> None:
    """S22: no total is counted."""
    made = [mark(client)["snapId"] for _ in range(5)]
    first = client.get(f"{SNAPS}/mine", params={"nickname": "ana", "limit": 2}).json()
    assert first.keys() == {"total", "page", "items", "nickname"}
    assert (first["total"], first["nickname"]) == (2, "ana")
    assert first["page"] == {
        "offset": 0,
        "limit": 2,
        "returned": 2,
        "hasMore": True,
        "sortBy": "createdAt",
        "sortDir": "desc",
    }
    assert [item["snapId"] for item in first["items"]] == made[:2:-1]
    last = client.get(f"{SNAPS}/mine", params={"nickname": "ana", "limit": 2, "offset": 4}).json()
    assert (last["total"], last["page"]["hasMore"], last["items"][0]["snapId"]) == (1, False, made[0])
    beyond = client.get(f"{SNAPS}/mine", params={"nickname": "ana", "offset": 1_000_000}).json()
    assert (beyond["total"], beyond["page"]["hasMore"]) == (0, False)


def test_the_items_of_a_list_have_no_job(client: TestClient) -> None:
    made = mark(client)
    [item] = client.get(SNAPS).json()["items"]
    assert item == made | {"job": None}


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("query", "message", "detail"),
    [
        ({"limit": 0}, "Validation failed", "limit: "),
        ({"limit": 101}, "Validation failed", "limit: "),
        ({"limit": "ten"}, "Validation failed", "limit: "),
        ({"offset": -1}, "Validation failed", "offset: "),
        ({"offset": "9" * 40}, "Validation failed", "offset: "),
        ({"sortDir": "up"}, "Validation failed", "sortDir: "),
        ({"sortBy": "price"}, "Unsupported sortBy: price. Allowed: ", None),
        ({"sortBy": "snap.id; DROP TABLE snap"}, "Unsupported sortBy: snap.id; DROP TABLE snap. Allowed: ", None),
        ({"status": "RUNNING"}, "Validation failed", "status: "),
        ({"from": "yesterday"}, "Validation failed", "from: "),
        ({"to": "2026-01-01T00:00:00"}, "Validation failed", "to: "),
    ],
)
def test_a_list_that_makes_no_sense_is_refused(
    client: TestClient, query: dict[str, Any], message: str, detail: str | None
) -> None:
    """S22."""
    answer = client.get(SNAPS, params=query)
    assert answer.status_code == 400, answer.text
    assert answer.json()["message"].startswith(message)
    if detail:
        assert answer.json()["details"][0].startswith(detail)


def test_what_a_list_can_be_sorted_by_is_what_it_says(client: TestClient) -> None:
    """The description and the domain know the same names."""
    described = client.get("/openapi.json").json()["paths"]
    for path in (
        SNAPS,
        f"{SNAPS}/mine",
        f"{SNAPS}/search",
        "/v2/videos",
        "/v2/videos/mine",
        "/v2/videos/{video_id}/snaps",
    ):
        parameters = {each["name"]: each for each in described[path]["get"]["parameters"]}
        needed = {"nickname": "ana", "subjectId": "x"}
        asked = path.replace("{video_id}", NOBODY)
        *names, nothing = parameters["sortBy"]["schema"]["enum"]
        answer = client.get(asked, params=needed | {"sortBy": nothing, "sortDir": ""})
        assert (nothing, answer.status_code, answer.json()["page"]["sortBy"]) == ("", 200, names[0]), path
        for name in names:
            for direction in ("asc", "DESC"):
                answer = client.get(asked, params=needed | {"sortBy": name, "sortDir": direction})
                assert (answer.status_code, answer.json()["page"]["sortBy"]) == (200, name), (path, answer.text)
        refused = client.get(asked, params=needed | {"sortBy": "x"}).json()["message"]
        assert sorted(refused.partition("Allowed: ")[2].split(", ")) == sorted(names), path


# --- of a video -------------------------------------------------------------------------------------------------


def test_the_snaps_of_a_video_come_in_the_order_of_their_moments(
    client: TestClient, engine: sqlalchemy.Engine, db: Db
) -> None:
    """S19."""
    early, late = mark(client), mark(client, nickname="Bia", email="bia@fazenda.example")
    other = mark(client, videoUrl="https://videos.example/other.mp4")
    for snap in (late, early):
        complete(client, engine, db, snap)
    with engine.begin() as connection:
        connection.exec_driver_sql("SELECT set_config('snapapp.tenant', 'default', true)")
        connection.exec_driver_sql("UPDATE snap SET resolved_start_seconds = 3 WHERE id = %s", (early["snapId"],))
    path = f"/v2/videos/{early['videoId']}/snaps"
    assert ids(client, path) == [early["snapId"], late["snapId"]]
    assert ids(client, path, sortDir="desc") == [late["snapId"], early["snapId"]]
    assert ids(client, path, nickname="BIA") == [late["snapId"]]
    answer = client.get(path).json()
    assert (answer["videoId"], answer["page"]["sortBy"], answer["page"]["sortDir"]) == (
        early["videoId"],
        "resolvedStartSeconds",
        "asc",
    )
    assert other["videoId"] != early["videoId"]


def test_a_video_that_nobody_knows_has_no_snaps(client: TestClient) -> None:
    answer = client.get(f"/v2/videos/{NOBODY}/snaps")
    assert (answer.status_code, answer.json()["items"], answer.json()["videoId"]) == (200, [], NOBODY)


# --- searches ---------------------------------------------------------------------------------------------------


def test_a_subject_is_found_by_its_id_and_its_attributes(client: TestClient) -> None:
    """S20, S36."""
    cow = mark(client, subject={"id": "BR-1", "attributes": [text("Raça", "Nelore"), number("Peso", 412.5)]})["snapId"]
    ox = mark(client, subject={"id": "BR-2", "attributes": [text("raça", "Gir"), number("peso", 300)]})["snapId"]
    assert search(client, subjectId="BR-1") == [cow]
    assert search(client, attrKey="RAÇA", attrValue="Gir") == [ox]
    assert search(client, attrKey="raça", attrValue="gir") == [], "a value is meant as it is written"
    assert search(client, attrKey="peso", attrValue="412.5") == [cow]
    assert search(client, attrKey="peso", attrValue="412.50") == [cow], "D12: a number is a number"
    assert search(client, attrKey="peso", attrMin=300, attrMax=412) == [ox]
    assert search(client, attrKey="peso", attrMin=300) == [ox, cow]
    assert search(client, attrKey="peso", attrMax=-1) == []
    assert search(client, subjectId="BR-1", attrKey="raça", attrValue="Gir") == []


def test_words_are_found_from_their_beginnings_without_accents(client: TestClient) -> None:
    made = mark(client, subject={"id": "BR-1", "attributes": [text("observacoes", "Lesão na pata dianteira")]})[
        "snapId"
    ]
    mark(client, subject={"attributes": [text("observacoes", "sem nada")]})
    for words in ("lesao", "LESÃO pata", "dian", "br 1"):
        assert search(client, q=words) == [made], words
    assert search(client, q="lesao nada") == []
    refused = client.get(f"{SNAPS}/search", params={"q": "%"})
    assert (refused.status_code, refused.json()["details"]) == (400, ["q: must hold a letter or a digit"])


def test_a_search_is_narrowed_by_state_and_time(client: TestClient, engine: sqlalchemy.Engine, db: Db) -> None:
    pending, done, failed = (mark(client, subject={"id": "x"}) for _ in range(3))
    complete(client, engine, db, done)
    fail(db, failed)
    assert search(client, subjectId="x", status="COMPLETED") == [done["snapId"]]
    assert search(client, subjectId="x", status="FAILED") == [failed["snapId"]]
    assert search(client, subjectId="x", status="PENDING") == [pending["snapId"]]
    assert search(client, subjectId="x", **{"from": "2020-01-01T00:00:00Z", "to": "2020-02-01T00:00:00Z"}) == []
    assert len(search(client, subjectId="x", **{"from": "2020-01-01T00:00:00Z"})) == 3
    assert ids(client, SNAPS, status="FAILED") == [failed["snapId"]]
    assert len(ids(client, SNAPS, **{"from": "2020-01-01T00:00:00-03:00"})) == 3


@pytest.mark.leaves_nothing
@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "Provide subjectId or attrKey+attrValue"),
        ({"status": "FAILED"}, "Provide subjectId or attrKey+attrValue"),
        ({"attrKey": "raca"}, "Provide attrKey and attrValue together"),
        ({"attrValue": "Gir"}, "Provide attrKey and attrValue together"),
        ({"attrMin": "1"}, "Validation failed"),
        ({"attrKey": "peso", "attrMin": "nan"}, "Validation failed"),
        ({"attrKey": "peso", "attrMin": "1_0"}, "Validation failed"),
        ({"attrKey": "peso", "attrMin": "1e400"}, "Validation failed"),
        ({"attrKey": "peso", "attrMax": "heavy"}, "Validation failed"),
        ({"subjectId": ""}, "Provide subjectId or attrKey+attrValue"),
        ({"attrKey": "raca", "attrValue": ""}, "Provide attrKey and attrValue together"),
        ({"subjectId": "\0"}, "Validation failed"),
        ({"subjectId": "x" * 201}, "Validation failed"),
    ],
)
def test_a_search_for_nothing_is_refused(client: TestClient, query: dict[str, str], message: str) -> None:
    """S20."""
    answer = client.get(f"{SNAPS}/search", params=query)
    assert (answer.status_code, answer.json()["message"]) == (400, message)


# --- mine -------------------------------------------------------------------------------------------------------


def test_mine_are_those_with_my_name_in_any_case(client: TestClient) -> None:
    """S21."""
    mine = mark(client, nickname="Ana Luísa")["snapId"]
    mark(client, nickname="bia", email="bia@fazenda.example")
    assert ids(client, f"{SNAPS}/mine", nickname="ana luísa") == [mine]
    assert ids(client, f"{SNAPS}/mine", nickname="ANA LUÍSA") == [mine]
    missing = client.get(f"{SNAPS}/mine")
    assert (missing.status_code, missing.json()["message"]) == (400, "Missing required parameter: nickname")


@pytest.mark.parametrize("sent", ["NFC", "NFD"])
@pytest.mark.parametrize("asked", ["NFC", "NFD"])
def test_a_name_is_the_same_however_its_accents_are_composed(
    client: TestClient, db: Db, sent: Literal["NFC", "NFD"], asked: Literal["NFC", "NFD"]
) -> None:
    """What is copied from a file name of a Mac has them as characters of their own."""

    def found(path: str, **query: str) -> int:
        query = {name: unicodedata.normalize(asked, value) for name, value in query.items()}
        return int(client.get(path, params=query).json()["total"])

    for form in (sent, "NFC"):
        given = body(
            nickname="joão", email="joão@fazenda.example", subject={"id": "maçã", "attributes": [text("raça", "são")]}
        )
        mark(client, **json.loads(unicodedata.normalize(form, json.dumps(given, ensure_ascii=False))))
    assert count(db, "operator") == 1
    assert found("/v2/snaps/mine", nickname="João") == 2
    assert found("/v2/videos/mine", nickname="joão") == 1
    assert found("/v2/snaps/search", subjectId="maçã") == 2
    assert found("/v2/snaps/search", attrKey="raça", attrValue="são") == 2


def test_a_list_and_a_search_are_narrowed_to_who_marked(client: TestClient) -> None:
    anas = mark(client, nickname="Ana", subject={"id": "BR-1"})["snapId"]
    mark(client, nickname="bia", subject={"id": "BR-1"})
    assert ids(client, SNAPS, nickname="ANA") == [anas]
    assert ids(client, f"{SNAPS}/search", subjectId="BR-1", nickname="ana") == [anas]


def test_my_videos_tell_how_many_snaps_and_which_was_last(client: TestClient) -> None:
    """S21."""
    first, second = mark(client), mark(client)
    other = mark(client, videoUrl="https://videos.example/b.mp4")
    mark(client, nickname="bia", email="bia@fazenda.example")
    answer = client.get("/v2/videos/mine", params={"nickname": "ANA"}).json()
    assert [item["videoId"] for item in answer["items"]] == [other["videoId"], first["videoId"]]
    told = answer["items"][1]
    assert told.keys() == {"videoId", "videoUrl", "snapCount", "latestSnapId", "latestSnapCreatedAt"}
    assert (told["snapCount"], told["latestSnapId"]) == (2, second["snapId"])
    assert answer["page"]["sortBy"] == "latestSnapCreatedAt"
    by_count = client.get("/v2/videos/mine", params={"nickname": "ana", "sortBy": "snapCount"}).json()
    assert [item["snapCount"] for item in by_count["items"]] == [2, 1]


def test_an_empty_value_of_a_query_counts_as_not_given_as_in_the_old_service(client: TestClient) -> None:
    snap = mark(client)
    empty = "&sortBy=&sortDir=&limit=&offset=&status=&from="
    by_video = f"/v2/videos/{snap['videoId']}/snaps?nickname="
    for path in (
        f"{SNAPS}?x=",
        f"{SNAPS}/search?subjectId=BR-1042&q=&attrKey=&attrValue=",
        f"{SNAPS}/mine?nickname=ana",
        by_video,
    ):
        answer = client.get(path + empty)
        assert answer.status_code == 200, answer.text
        assert [each["snapId"] for each in answer.json()["items"]] == [snap["snapId"]], path
        assert answer.json()["page"]["limit"] == 50
    exported = client.get(f"{SNAPS}/export?format=&nickname=&videoId=&status=")
    assert (exported.status_code, snap["snapId"] in exported.text) == (200, True)
    assert client.get(f"{SNAPS}/mine?nickname=").json()["message"] == "Missing required parameter: nickname"


def test_blanks_around_a_value_of_a_query_do_not_count(client: TestClient) -> None:
    mark(client)
    for path in (f"{SNAPS}/search?subjectId=%20BR-1042+", f"{SNAPS}/mine?nickname=%20Ana%20&limit=%2010"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["total"]) == (200, 1), answer.text


@pytest.mark.parametrize("path", [f"{SNAPS}/mine", f"/v2/videos/{NOBODY}/snaps", "/v2/videos/mine", f"{SNAPS}/export"])
def test_a_nickname_of_blanks_is_refused(client: TestClient, path: str) -> None:
    answer = client.get(path, params={"nickname": "  "})
    assert (answer.status_code, answer.json()["details"]) == (400, ["nickname: must not be empty"])
