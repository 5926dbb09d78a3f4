"""What a child makes of a payload: real videos, from storage and over HTTP, without the child."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import UUID, uuid4

import pytest
from PIL import Image

from snapapp.api.product import snap_schema
from snapapp.domain.rules import snaps as snap_rules
from snapapp.errors import Invalid
from snapapp.jobs import Job, Permanent
from snapapp.media import Overlay, Unusable, probe
from snapapp.processing import media_work
from snapapp.processing.decoder.work import wanted_of
from snapapp.processing.media_work import MediaWork
from snapapp.sources import Limits, SourceUnavailable
from snapapp.storage import Local, keys
from tests.media import material
from tests.sources.server import Film, Server

SNAP = UUID("0f8fad5b-d9cb-469f-a165-70867728950e")
WANTED: dict[str, Any] = {
    "start_seconds": 1.0,
    "start_frame": None,
    "duration_seconds": 1.0,
    "clip_seconds": 1.0,
    "fps": 5,
    "max_width": 1280,
    "format": "jpg",
    "quality": 3,
}
OVERLAY = {
    "mode": "SUBJECT_AND_FRAME",
    "position": "TOP_RIGHT",
    "font_size": 18,
    "box_color": "black@0.7",
    "font_color": "white",
    "margin": 20,
    "padding": 10,
}


@pytest.fixture
def room(tmp_path: Path, store: Local) -> MediaWork:
    return MediaWork(store, Limits(), tmp_path / "scratch")


def job(payload: dict[str, Any], lease_seq: int = 1) -> Job:
    return Job(1, "k", "media", "default", 0, json.dumps(payload).encode(), SNAP, 1, 3, lease_seq, None, None)


def order(store: Local, recipe: str = "plain", **changes: Any) -> dict[str, Any]:
    """For a video that somebody uploaded."""
    key = f"{keys.of_video('default', uuid4())}source"
    with NamedTemporaryFile(suffix=material.GOOD[recipe].suffix) as file:
        store.put(key, material.make(material.GOOD[recipe], Path(file.name)))
    return {"video": {"key": key}, "wanted": WANTED, "overlay": None, "subject_id": "BR-1", "values": []} | changes


def names(store: Local, prefix: str) -> set[str]:
    return {stored.key.removeprefix(prefix) for stored in store.listed(prefix)}


def test_evidence_lies_below_the_attempts_own_prefix_with_the_hash_of_each_file(room: MediaWork, store: Local) -> None:
    """S29, S32, FA2: what is told is what is there, and a second attempt touches nothing of the first."""
    payload = order(store)
    first, second = (room.snap(job(payload, lease_seq=seq)) for seq in (1, 3))
    assert [made["media_prefix"] for made in (first, second)] == [f"snaps/{SNAP}/1/", f"snaps/{SNAP}/3/"]
    for made in (first, second):
        artefacts = made["extras"]["artefacts"]
        assert names(store, made["media_prefix"]) == {each["file_name"] for each in artefacts}
        for each in artefacts:
            content = store.read(made["media_prefix"] + each["file_name"], 0, 10**9)
            assert (hashlib.sha256(content).hexdigest(), len(content)) == (each["sha256"], each["size_bytes"])
    assert [frame["file_name"] for frame in first["frames"]] == [f"frame_{n:05}.jpg" for n in range(1, 6)]
    assert json.loads(json.dumps(first)) == first  # a result travels as JSON


def test_frames_of_no_snap_lie_below_the_folder_that_was_ordered(room: MediaWork, store: Local) -> None:
    payload = order(store, folder="frames/r/0/")
    made = room.frames(job(payload, lease_seq=3))
    assert made["media_prefix"] == "frames/r/0/3/"
    assert names(store, "frames/r/0/3/") == {each["file_name"] for each in made["extras"]["artefacts"]}


def test_an_overlay_leaves_a_clean_copy_beside_each_frame(room: MediaWork, store: Local) -> None:
    """S30: one card per value, the id when there is none."""
    made = room.snap(job(order(store, overlay=OVERLAY, values=["BR-1042", 412.5, None])))
    assert {"clean_00001.jpg", "frame_00001.jpg"} <= names(store, made["media_prefix"])
    assert made["extras"]["settings"]["overlay"]["cards"] == ["BR-1042", "412.5"]
    assert room.snap(job(order(store, overlay=OVERLAY), 2))["extras"]["settings"]["overlay"]["cards"] == ["BR-1"]


def drawn(**overlay: Any) -> Overlay:
    taken = snap_schema.Overlay.model_validate({"enabled": True} | overlay).as_drawn()
    made = wanted_of({"wanted": WANTED, "overlay": taken, "subject_id": "BR-1", "values": []}).overlay
    assert made
    return made


@pytest.mark.parametrize(
    ("mode", "shows_frame", "shows_time"),
    [
        ("SUBJECT", False, False),
        ("SUBJECT_AND_FRAME", True, False),
        ("SUBJECT_AND_TIMESTAMP", False, True),
        ("SUBJECT_AND_BOTH", True, True),
        ("FRAME_NUMBER", True, False),
        ("TIMESTAMP", False, True),
        ("BOTH", True, True),
    ],
)
def test_a_mode_by_any_of_its_names_is_what_is_drawn(mode: str, shows_frame: bool, shows_time: bool) -> None:
    """S30, D12: the original took the other names and drew nothing."""
    assert (drawn(mode=mode).shows_frame, drawn(mode=mode).shows_time) == (shows_frame, shows_time)


@pytest.mark.parametrize("position", snap_rules.Position)
def test_a_position_is_the_corner_that_it_names(position: snap_rules.Position) -> None:
    """S30."""
    corner = drawn(position=position)
    assert (corner.is_top, corner.is_left) == ("TOP" in position, "LEFT" in position)


NO_MOMENTS: list[tuple[dict[str, Any], str]] = [
    ({"start_seconds": None}, "startSeconds or startFrame"),
    ({"start_seconds": -0.1}, "startSeconds: must be from 0"),
    ({"start_seconds": float("nan")}, "startSeconds: must be a finite number"),
    ({"start_frame": -1}, "startFrame: must be from 0"),
    ({"start_frame": 10**9 + 1}, "startFrame: must be from 0"),
    ({"duration_seconds": 5.1}, "durationSeconds: must be from 0.001 to 5"),
    ({"duration_seconds": 0}, "durationSeconds: must"),
    ({"clip_seconds": 6}, "snapshotDurationSeconds: must"),
    ({"fps": 11}, "fps: must be from 1 to 10"),
    ({"max_width": 319}, "maxWidth: must be from 320 to 1280"),
    ({"quality": 1}, "quality: must be from 2 to 10"),
    ({"format": "png", "quality": 3}, "quality: is not for png"),
    ({"format": "gif"}, "format: must be one of jpg, png"),
]


@pytest.mark.parametrize(("changes", "words"), NO_MOMENTS)
def test_a_moment_out_of_bounds_is_refused_whoever_wrote_the_job(changes: dict[str, Any], words: str) -> None:
    """S28."""
    with pytest.raises(Invalid, match=words):
        wanted_of({"wanted": WANTED | changes, "overlay": None, "subject_id": "BR-1", "values": []})


@pytest.mark.parametrize(
    "changes",
    [
        *({"font_size": 7}, {"font_size": 201}, {"margin": 501}, {"margin": -1}, {"padding": 201}, {"mode": "ALL"}),
        *({"position": "MIDDLE"}, {"box_color": "blackish"}),
    ],
)
def test_an_overlay_out_of_bounds_is_refused_whoever_wrote_the_job(changes: dict[str, Any]) -> None:
    """S30."""
    with pytest.raises((Invalid, Unusable)):
        wanted_of({"wanted": WANTED, "overlay": OVERLAY | changes, "subject_id": "BR-1", "values": []})


@pytest.mark.parametrize("color", ["black", "lightgoldenrodyellow", "#ffcc00"])
def test_whatever_colour_the_api_takes_is_known(color: str) -> None:
    """The API knows the names that the drawing has, and writes both as the drawing reads them."""
    assert snap_rules.COLOR.fullmatch(color)
    assert drawn(boxColor=f"{color}@0.5", fontColor=color).font_color == color


def test_a_remote_video_is_read_where_it_is(room: MediaWork, store: Local, remote: Server, tmp_path: Path) -> None:
    film = Film(material.make(material.GOOD["faststart"], tmp_path / "film.mp4").read_bytes())
    remote.acts["/film.mp4"] = film
    nearby = replace(room, fetching=Limits(allowed_hosts=frozenset({f"127.0.0.1:{remote.port}"})))
    made = nearby.snap(job(order(store, video={"url": remote.url("/film.mp4")})))
    assert made["probe"]["compatible"]
    with pytest.raises(Permanent, match="address"):
        room.snap(job(order(store, video={"url": remote.url("/film.mp4")})))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"wanted": WANTED | {"start_seconds": 100.0}}, r"3(\.0+)? s"),
        ({"wanted": WANTED | {"fps": 11}}, "fps: must be from 1 to 10"),
        ({"video": {"key": "videos/default/absent/source"}}, "no longer there"),
        ({"video": {"url": "http://localhost:5432/x"}}, "address"),
        ({"video": {"url": "file:///etc/passwd"}}, "http"),
    ],
)
def test_what_no_attempt_can_mend_is_permanent_and_says_what_a_person_can_do(
    room: MediaWork, store: Local, changes: dict[str, Any], reason: str
) -> None:
    """D8, S16."""
    with pytest.raises(Permanent, match=reason):
        room.snap(job(order(store, **changes)))
    assert names(store, "snaps/") == set()
    assert not room.scratch.exists() or not list(room.scratch.iterdir())


def test_a_server_that_is_busy_is_worth_another_attempt(room: MediaWork, store: Local, remote: Server) -> None:
    """D8."""
    remote.acts["/busy.mp4"] = lambda visit: visit.say(503)
    nearby = replace(room, fetching=Limits(allowed_hosts=frozenset({f"127.0.0.1:{remote.port}"})))
    with pytest.raises(SourceUnavailable):
        nearby.snap(job(order(store, video={"url": remote.url("/busy.mp4")})))


def test_a_video_keeps_its_newest_stills_and_all_else(
    room: MediaWork, store: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one tenant can fill the disk with a still of each millisecond."""
    monkeypatch.setattr(media_work, "STILLS_MAX", 3)
    payload, video = order(store), uuid4()
    store.put(keys.of_preview("default", video), b"a copy")
    for at in (900, 100, 500, 300, 700):
        room.still(job(payload | {"key": keys.of_still("default", video, at * 1000), "at": at / 1000}))
    kept = {f"still_{at * 1000:013}.jpg" for at in (500, 300, 700)}
    assert names(store, keys.of_video("default", video)) == kept | {"preview.mp4"}


def test_a_probe_a_preview_and_a_still(room: MediaWork, store: Local) -> None:
    payload = order(store, "mkv")
    assert room.probe(job(payload))["container_format"] == "matroska,webm"
    room.preview(job(payload | {"key": "videos/default/v/preview.mp4"}))
    room.still(job(payload | {"key": "videos/default/v/still.jpg", "at": 0.5}))
    with store.open("videos/default/v/preview.mp4") as copy:
        assert probe(copy).plays_in_browsers
    with store.open("videos/default/v/still.jpg") as picture, Image.open(picture) as image:
        assert image.size == (320, 180)
