"""The whole story on a page: a moment is marked in a video, becomes evidence, is found, and is shared."""

from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests import ROOT
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.jobs.working import until
from tests.media import material
from tests.running import Served
from tests.sources.server import Film, Server, serving

MOMENT: dict[str, Any] = {
    "nickname": "ana",
    "email": "ana@fazenda.example",
    "dataFilmagem": "2026-03-01T08:15:00-03:00",
    "startSeconds": 1.0,
    "durationSeconds": 1.0,
    "snapshotDurationSeconds": 2.0,
    "subject": {"id": "BR-1042", "attributes": [{"key": "peso", "type": "number", "numberValue": 412.5}]},
    "overlay": {"enabled": True, "mode": "SUBJECT_AND_TIMESTAMP"},
}
OTHER = MOMENT | {"subject": {"id": "BR-7"}}  # which is not looked for


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("flow")


@pytest.fixture(scope="module")
def film(folder: Path) -> bytes:
    return material.make(material.GOOD["irregular"], folder / "brete.mp4").read_bytes()


@pytest.fixture(scope="module")
def source(film: bytes) -> Iterator[Server]:
    with serving(Server()) as server:
        server.acts["/brete.mp4"] = Film(film)
        yield server


@pytest.fixture(scope="module")
def api(servers: Callable[[str], Postgres], folder: Path, source: Server) -> Iterator[httpx.Client]:
    """`snapapp serve`, worker and all, as people start it; one for all."""
    allowed = {"SNAPAPP_FETCH_ALLOWED_HOSTS": f"127.0.0.1:{source.port}"}
    with servers(EMBEDDED).database("migrated") as url:
        with (
            Served(folder, SNAPAPP_DATABASE_URL=url, **allowed).up() as served,
            httpx.Client(base_url=f"http://localhost:{served.port}", timeout=20) as client,
        ):
            yield client
        assert served.end() == 0


def settled(api: httpx.Client, snap_id: str) -> dict[str, Any]:
    def now() -> dict[str, Any]:
        found: dict[str, Any] = api.get(f"/v2/snaps/{snap_id}").json()
        return found

    until(lambda: now()["status"] != "PENDING", within=60)
    return now()


def picture(api: httpx.Client, path: str) -> Image.Image:
    answer = api.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/jpeg")
    with Image.open(BytesIO(answer.content)) as image:
        image.load()
    return image


def test_a_marked_moment_becomes_evidence_that_is_found_and_shared(api: httpx.Client, source: Server) -> None:
    """S17–S23, S27–S32."""
    marked = api.post("/v2/snaps", json={**MOMENT, "videoUrl": source.url("/brete.mp4")})
    assert (marked.status_code, marked.json()["status"], marked.json()["job"]["status"]) == (202, "PENDING", "PENDING")

    snap = settled(api, marked.json()["snapId"])
    assert (snap["status"], snap["error"], snap["frameCount"]) == ("COMPLETED", None, 5)
    for frame in snap["frames"]:
        assert picture(api, frame["path"]).size == picture(api, frame["cleanPath"]).size == (320, 180)
    clip = api.get(snap["snapshotVideo"]["path"], headers={"Range": "bytes=0-99"})
    assert (clip.status_code, clip.headers["content-type"], len(clip.content)) == (206, "video/mp4", 100)

    for question in ("subjectId=BR-1042", "attrKey=PESO&attrMin=400&attrMax=420", "q=br-10"):
        found = api.get(f"/v2/snaps/search?{question}").json()
        assert [item["snapId"] for item in found["items"]] == [snap["snapId"]], question

    link = api.post(f"/v2/snaps/{snap['snapId']}/share").json()
    shown = httpx.get(f"{api.base_url}/public/snaps/{link['publicShareToken']}", timeout=60).json()
    assert "email" not in shown
    assert picture(api, shown["frames"][0]["path"]).size == (320, 180)
    api.post(f"/v2/snaps/{snap['snapId']}/revoke")
    assert api.get(shown["frames"][0]["path"]).status_code == 404


@pytest.mark.at_length  # real footage is uploaded below, in every run
def test_an_uploaded_video_is_probed_and_its_moments_are_marked(api: httpx.Client, film: bytes) -> None:
    video = api.post("/v2/videos", content=film, headers={"Content-Type": "video/mp4"})
    assert video.status_code == 201, video.text
    at = f"/v2/videos/{video.json()['videoId']}"
    until(lambda: api.get(at).json()["videoProbe"] is not None, within=60)
    assert api.get(at).json()["videoProbe"]["codecName"] == "h264"
    assert api.get(f"{at}/content").content == film
    assert picture(api, f"{at}/frame?at=0.5").size == (320, 180)

    marked = api.post("/v2/snaps", json={**OTHER, "videoId": video.json()["videoId"], "startFrame": 10})
    assert settled(api, marked.json()["snapId"])["status"] == "COMPLETED"


def test_real_footage_is_uploaded_and_its_moment_becomes_evidence(api: httpx.Client) -> None:
    """S35: what a camera took, through the API and the worker, to its pictures."""
    footage = (ROOT / "tests/media/footage/city.mp4").read_bytes()
    video = api.post("/v2/videos", content=footage, headers={"Content-Type": "video/mp4"})
    assert video.status_code == 201, video.text
    moment = {**OTHER, "videoId": video.json()["videoId"], "snapshotDurationSeconds": 1.0}
    snap = settled(api, api.post("/v2/snaps", json=moment).json()["snapId"])
    assert (snap["status"], snap["error"], snap["frameCount"]) == ("COMPLETED", None, 5)
    assert [frame["timestampSeconds"] for frame in snap["frames"]] == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8])
    assert not any(frame["isBlack"] or frame["isFrozen"] or frame["isBlurred"] for frame in snap["frames"])
    assert picture(api, snap["frames"][0]["path"]).size == (480, 270)


def test_a_moment_past_the_end_fails_once_and_says_how_long_the_video_is(api: httpx.Client, source: Server) -> None:
    """S16, D8."""
    late = {**OTHER, "videoUrl": source.url("/brete.mp4"), "startSeconds": 600}
    snap = settled(api, api.post("/v2/snaps", json=late).json()["snapId"])
    assert (snap["status"], snap["job"]["attempts"]) == ("FAILED", 1)
    assert "600" in snap["error"]
    assert " s" in snap["error"]


def test_what_is_no_video_says_so(api: httpx.Client, source: Server) -> None:
    source.acts["/page.mp4"] = Film(b"<html>not a video</html>" * 100)
    snap = settled(api, api.post("/v2/snaps", json={**OTHER, "videoUrl": source.url("/page.mp4")}).json()["snapId"])
    assert (snap["status"], snap["job"]["attempts"]) == ("FAILED", 1)
    assert "mp4" in snap["error"].lower()
