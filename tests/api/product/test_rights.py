"""Who may do what, route by route: each that changes something has its decision here, and is tried in every role."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute

from snapapp import api
from tests.api.examples import SNAPS, body, mark
from tests.api.http.test_openapi import operations
from tests.api.product.films import FILM, VIDEOS, upload
from tests.api.product.people import People, a_farm

ANYBODY = "anybody who signed in"
OWN = "an operator what they added themselves, the others whatever there is"
SETTINGS = "admins"

# /internal has a token of its own, which opens nothing of a tenant and is not opened by one.
DECIDED = {
    "POST /v2/snaps": ANYBODY,  # in their own name
    "PATCH /v2/snaps/{snap_id}/subject": OWN,
    "DELETE /v2/snaps/{snap_id}": OWN,
    "POST /v2/snaps/{snap_id}/cancel": OWN,
    "POST /v2/snaps/{snap_id}/retry": OWN,
    "POST /v2/snaps/{snap_id}/share": OWN,
    "POST /v2/snaps/{snap_id}/revoke": OWN,
    "POST /v2/videos": ANYBODY,
    "POST /v2/videos/remote": ANYBODY,
    "DELETE /v2/videos/{video_id}": OWN,
    "POST /v2/uploads": ANYBODY,
    "PATCH /v2/uploads/{upload_id}": ANYBODY,  # who knows its id, which nothing lists
    "POST /v2/uploads/{upload_id}": ANYBODY,
    "DELETE /v2/uploads/{upload_id}": ANYBODY,
    "GET /v2/webhooks": SETTINGS,
    "POST /v2/webhooks": SETTINGS,
    "GET /v2/webhooks/{webhook_id}": SETTINGS,
    "PATCH /v2/webhooks/{webhook_id}": SETTINGS,
    "DELETE /v2/webhooks/{webhook_id}": SETTINGS,
    "GET /v2/operators": SETTINGS,
    "POST /v2/operators": SETTINGS,
    "PATCH /v2/operators/{operator_id}": SETTINGS,
    "DELETE /v2/operators/{operator_id}": SETTINGS,
    "POST /v2/operators/{operator_id}/link": SETTINGS,
    "POST /operators": SETTINGS,
    "POST /operators/{operator_id}/link": SETTINGS,
    "POST /operators/{operator_id}/role": SETTINGS,
    "POST /operators/{operator_id}/revoke": SETTINGS,
    "POST /v2/session": ANYBODY,
    "DELETE /v2/session": ANYBODY,
    "POST /sign-in": ANYBODY,
    "POST /sign-in/{code}/{secret}": ANYBODY,
    "POST /sign-out": ANYBODY,
    "POST /v1/video-frames/process": ANYBODY,  # makes nothing that stays
    "POST /v1/video-frames/mvp/process": ANYBODY,
}
READS = {"GET", "HEAD", "OPTIONS"}

HOOK = {"url": "https://hooks.example/", "events": ["snap.failed"]}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v2/snaps": {"nickname": "ana"},
    "PATCH /v2/snaps/{snap_id}/subject": {"id": "BR-1043", "nickname": "ana"},
    "POST /v2/webhooks": HOOK,
    "PATCH /v2/webhooks/{webhook_id}": {"isActive": False},
    "POST /v2/operators": {"nickname": "Zoe", "email": "zoe@fazenda.example", "role": "admin"},
    "PATCH /v2/operators/{operator_id}": {"role": "admin"},
}
FORMS = {
    "POST /operators": {"nickname": "Zoe", "email": "zoe@fazenda.example", "role": "admin"},
    "POST /operators/{operator_id}/role": {"role": "admin"},
}


@pytest.fixture
def farm(url: str, tmp_path: Path) -> Iterator[People]:
    with a_farm(url, tmp_path, disk_free_min_mb=0) as people:
        yield people


def decided(decision: str) -> list[str]:
    return [route for route, its in DECIDED.items() if its == decision]


def tried(farm: People, who: str, route: str) -> tuple[int, str]:
    """What a person gets who tries a route on what ana added."""
    browser = farm.tenant if who == "tenant" else farm[who]
    method, _, path = route.partition(" ")
    places: dict[str, Callable[[], Any]] = {
        "snap_id": lambda: mark(farm["ana"])["snapId"],
        "video_id": lambda: mark(farm["ana"])["videoId"],
        "webhook_id": lambda: farm.tenant.post("/v2/webhooks", json=HOOK).json()["id"],
        "operator_id": lambda: farm.known("bia"),
        "upload_id": lambda: "00000000-0000-4000-8000-000000000000",
        "code": lambda: "default",
        "secret": lambda: "x",
    }
    place = path.format(**{name: made() for name, made in places.items() if f"{{{name}}}" in path})
    wanted = BODIES.get(route)
    if wanted and "nickname" in wanted and "operators" not in route:
        wanted = wanted | {"nickname": who}
    answer = browser.request(method, place, json=wanted, data=FORMS.get(route))
    return answer.status_code, answer.text


def test_every_route_that_changes_something_has_its_decision(farm: People) -> None:
    """S33: whoever adds a route decides here who may use it."""
    hidden = [route for noun in api._PRODUCT for route in noun.router.routes if isinstance(route, APIRoute)]
    there = {f"{method} {route.path}" for route in hidden for method in route.methods or ()}
    there |= {f"{method.upper()} {path}" for method, path, _ in operations(farm.tenant) if "/internal/" not in path}
    changing = {each for each in there if each.partition(" ")[0] not in READS}
    assert len(changing) > 20
    assert changing - DECIDED.keys() == set()
    assert DECIDED.keys() - there == set()
    read_by_admins = {each for each in there if each.startswith(("GET /v2/webhooks", "GET /v2/operators"))}
    assert read_by_admins == {each for each in decided(SETTINGS) if each.startswith("GET")}


def test_the_description_says_what_may_be_refused_to_whom(farm: People) -> None:
    described = {
        f"{method.upper()} {path}": operation["responses"] for method, path, operation in operations(farm.tenant)
    }
    pages = {route for route in DECIDED if "/v2/" not in route}  # they are for people, and not described
    for route in {*decided(OWN), *decided(SETTINGS)} - pages:
        assert "is signed in" in described[route]["403"]["description"], route


@pytest.mark.parametrize("route", decided(OWN))
def test_another_operators_is_seen_and_not_changed(farm: People, route: str) -> None:
    """S33."""
    status, text = tried(farm, "bia", route)
    assert (status, "Somebody else added this" in text) == (403, True)
    for who in ("ana", "rui", "eva", "tenant"):
        # a video that the mark named by its URL was added by nobody in particular
        if not (route.startswith("DELETE /v2/videos") and who == "ana"):
            assert tried(farm, who, route)[0] in (200, 202, 204, 409), who


@pytest.mark.parametrize("route", decided(SETTINGS))
def test_settings_are_for_admins(farm: People, route: str) -> None:
    """S33."""
    for who in ("ana", "rui"):
        status, text = tried(farm, who, route)
        assert (status, "Only an admin" in text) == (403, True), who
    assert tried(farm, "eva", route)[0] in (200, 201, 204)


@pytest.mark.parametrize("route", decided(ANYBODY))
def test_what_everybody_may_is_refused_to_no_operator(farm: People, route: str) -> None:
    assert tried(farm, "ana", route)[0] != 403


def test_all_see_what_anybody_marked(farm: People) -> None:
    """S33."""
    snap = mark(farm["ana"])
    for who in ("bia", "rui", "eva"):
        [seen] = farm[who].get(SNAPS).json()["items"]
        assert (seen["snapId"], seen["operatorId"]) == (snap["snapId"], farm.ids["ana"])
        for place in ("", "/corrections", "/share"):
            assert farm[who].get(f"{SNAPS}/{snap['snapId']}{place}").status_code == 200
        assert farm[who].get(f"{SNAPS}/export").status_code == 200


def test_a_video_says_who_added_it(farm: People) -> None:
    """So that a page offers its deletion to no operator who is then refused."""
    mine = upload(farm["ana"])
    assert mine["operatorId"] == farm.ids["ana"]
    assert upload(farm["bia"])["operatorId"] == farm.ids["ana"], "the same bytes are the same video"
    assert upload(farm.tenant, FILM + b"more")["operatorId"] is None
    assert farm["bia"].get(f"{VIDEOS}/{mine['videoId']}").json()["operatorId"] == farm.ids["ana"]


def test_nobody_marks_in_anothers_name(farm: People) -> None:
    """S33: nor under an Idempotency-Key that somebody else used."""
    key = {"Idempotency-Key": "k-1"}
    assert farm["ana"].post(SNAPS, json=body(), headers=key).status_code == 202
    for who in ("bia", "rui", "eva"):
        answer = farm[who].post(SNAPS, json=body(), headers=key)
        assert (answer.status_code, answer.json()["error"]) == (403, "Forbidden")
        assert answer.json()["message"].startswith(f"You are signed in as {who} <{who}@fazenda.example>")
    mine = body(nickname="bia", email="BIA@fazenda.example")
    assert farm["bia"].post(SNAPS, json=mine, headers=key).status_code == 409
    assert farm["bia"].post(SNAPS, json=mine).json()["operatorId"] == farm.ids["bia"]
    assert farm.tenant.post(SNAPS, json=body(nickname="Whoever")).status_code == 202, "the token may, as ever"


def test_what_the_token_marked_in_an_operators_name_is_theirs(farm: People) -> None:
    snap = mark(farm.tenant)
    assert farm["ana"].delete(f"{SNAPS}/{snap['snapId']}").status_code == 200


def test_a_correction_says_who_was_signed_in(farm: People) -> None:
    """S33."""
    place = f"{SNAPS}/{mark(farm['ana'])['snapId']}"
    for browser, name in [(farm["rui"], "rui"), (farm.tenant, "rui")]:
        assert browser.patch(f"{place}/subject", json={"id": f"of {name}", "nickname": name}).status_code == 200
    assert farm["rui"].patch(f"{place}/subject", json={"id": "x", "nickname": "ana"}).status_code == 403
    corrections = farm["bia"].get(f"{place}/corrections").json()["items"]
    assert [(each["by"], each["operatorId"]) for each in corrections] == [("rui", farm.ids["rui"]), ("rui", None)]
