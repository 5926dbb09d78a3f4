"""What a camera has taken: grain, light and movement, which no picture that a test paints has."""

from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageStat

from tests import ROOT
from tests.media.material import decoded_whole
from tests.media.test_extract import extracted, picture

FOOTAGE = ROOT / "tests" / "media" / "footage"


def difference(one: Image.Image, other: Image.Image) -> float:
    """Of two pictures, 0 to 255."""
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


@pytest.mark.parametrize(("name", "codec"), [("city.mp4", "h264"), ("city.webm", "vp9")])
def test_a_moment_of_real_footage_is_frames_and_a_clip(tmp_path: Path, name: str, codec: str) -> None:
    """S35."""
    made = extracted(FOOTAGE / name, tmp_path, 0.5, duration_seconds=0.6, fps=5, clip_seconds=1.0)
    assert (made.probe.codec_name, made.probe.source_fps, made.probe.duration_seconds) == (codec, 25.0, 2.0)
    assert [frame.timestamp_seconds for frame in made.frames] == pytest.approx([0.48, 0.68, 0.88])
    for frame in made.frames:
        assert picture(tmp_path, frame.file_name).size == (480, 270)
        quality = frame.quality
        assert (quality.black, quality.frozen, quality.blurred) == (False, False, False)
    assert [frame.is_best for frame in made.frames].count(True) == 1
    clip = decoded_whole(tmp_path / made.snapshot_video.file_name)
    assert len(clip) == made.snapshot_video.frame_count >= 25


def test_both_files_show_the_same_at_the_same_moment(tmp_path: Path) -> None:
    """S35: and something else a second later."""
    shown = {}
    for name in ("city.mp4", "city.webm"):
        for moment in (0.2, 1.2):
            folder = tmp_path / f"{name} {moment}"
            folder.mkdir()
            made = extracted(FOOTAGE / name, folder, moment, duration_seconds=0.1, fps=5)
            shown[name, moment] = picture(folder, made.frames[0].file_name)
    assert difference(shown["city.mp4", 0.2], shown["city.webm", 0.2]) < 10
    assert difference(shown["city.mp4", 0.2], shown["city.mp4", 1.2]) > 15
