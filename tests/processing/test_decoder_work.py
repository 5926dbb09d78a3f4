"""What a decoder makes in its sandbox is what the same code makes without any."""

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snapapp import media
from snapapp.media import as_json
from snapapp.processing.decoder.client import WORK, Decoders, Refused
from snapapp.processing.decoder.work import result_as_json, wanted_of
from tests.media import material
from tests.media.conftest import *  # noqa: F403 - its fixture of videos
from tests.media.conftest import Video
from tests.media.material import Folder
from tests.processing.test_media_work import OVERLAY, WANTED

ORDER: dict[str, Any] = {"wanted": WANTED, "overlay": OVERLAY, "subject_id": "São João", "values": ["Ñandú", 412.5]}
# Each wall and each way to hand a file over; media/ has every kind of video, without the sandbox, in every run.
IN_EVERY_RUN = ("faststart", "rotated", "mkv", "webm_vp9", "hevc", "ts", "avi_mjpeg", "one_frame")
OTHERS = [pytest.param(kind, marks=pytest.mark.at_length) for kind in material.GOOD if kind not in IN_EVERY_RUN]
PNG = ORDER | {"wanted": WANTED | {"start_seconds": 0.0, "format": "png", "quality": None}}


@pytest.fixture(scope="module")
def decoders() -> Iterator[Decoders]:
    made = Decoders(WORK)
    yield made
    made.stop()


def unheard(percent: int, step: str) -> None:
    """Progress."""


@pytest.mark.parametrize("kind", [*IN_EVERY_RUN, *OTHERS])
def test_every_kind_of_video_is_decoded_behind_the_walls_as_without(
    decoders: Decoders, video: Video, tmp_path: Path, kind: str
) -> None:
    order = PNG if kind in ("rotated", "hevc_10_bit", "one_frame") else ORDER
    with video(kind).open("rb") as file:
        found = as_json(media.probe(file))
        made = media.extract(file, wanted_of(order), Folder(tmp_path))
    for source in (video(kind).open("rb"), io.BytesIO(video(kind).read_bytes())):  # handed over, and read for it
        with source:
            with decoders.run(f"{WORK}:probe", order, source, tmp_path / "scratch", unheard) as behind:
                assert behind.told == json.loads(json.dumps(found))
            with decoders.run(f"{WORK}:extract", order, source, tmp_path / "scratch", unheard) as behind:
                assert behind.told == json.loads(json.dumps(result_as_json(made)))
                assert {*behind.names} == {artefact.file_name for artefact in made.artefacts}
                for name in behind.names:
                    content = behind.content(name)
                    data = content if isinstance(content, bytes) else content.read()
                    assert data == (tmp_path / name).read_bytes()


@pytest.mark.parametrize("kind", ["mkv", "hevc", "webm_vp9"])
def test_a_copy_and_a_still_are_made_behind_the_walls(
    decoders: Decoders, video: Video, tmp_path: Path, kind: str
) -> None:
    with video(kind).open("rb") as file, decoders.run(f"{WORK}:preview", {}, file, tmp_path, unheard) as made:
        copy = made.content("preview.mp4")
        assert not isinstance(copy, bytes)
        assert media.probe(copy).plays_in_browsers
    with video(kind).open("rb") as file, decoders.run(f"{WORK}:still", {"at": 0.5}, file, tmp_path, unheard) as made:
        assert made.content("still.jpg") == media.still(file, 0.5)


@pytest.mark.parametrize("content", [b"", b"#EXTM3U\nfile:///etc/passwd", b"\0" * 10_000])
def test_what_is_no_video_is_refused_in_words(decoders: Decoders, tmp_path: Path, content: bytes) -> None:
    with (
        pytest.raises(Refused, match=r"we read MP4|is empty"),
        decoders.run(f"{WORK}:probe", {}, io.BytesIO(content), tmp_path, unheard),
    ):
        pass
