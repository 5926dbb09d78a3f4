"""What is said of a video before anything is made of it."""

import io
from dataclasses import replace
from pathlib import Path

import av
import pytest

from snapapp import media
from snapapp.media import Probe
from tests.media.conftest import Video
from tests.media.material import GOOD, X265, Folder, Recipe, make, make_wanted, sound_only, subtitled_picture, together


def probed(path: Path) -> Probe:
    with path.open("rb") as file:
        return media.probe(file)


@pytest.mark.parametrize(
    ("kind", "container", "codec", "pixel_format", "fps", "plays"),
    [
        ("b_frames", "mp4", "h264", "yuv420p", 25, True),
        ("fragmented", "mp4", "h264", "yuv420p", 25, False),  # begins at 0.08 s, from which a browser does not count
        ("mov", "mov", "h264", "yuv420p", 25, True),
        ("mkv", "mkv", "h264", "yuv420p", None, False),
        ("webm_vp9", "webm", "vp9", "yuv420p", 25, True),
        ("webm_vp8", "webm", "vp8", "yuv420p", 25, True),
        ("hevc", "mp4", "hevc", "yuv420p", 25, False),
        ("hevc_10_bit", "mp4", "hevc", "yuv420p10le", 25, False),
        ("h264_10_bit", "mp4", "h264", "yuv420p10le", 25, False),
        ("av1", "mp4", "av1", "yuv420p", 25, True),
        ("mpeg4", "mp4", "mpeg4", "yuv420p", 25, False),
        ("prores", "mov", "prores", "yuv422p10le", 25, False),
    ],
)
def test_a_video_is_described(
    video: Video, kind: str, container: str, codec: str, pixel_format: str, fps: float | None, plays: bool
) -> None:
    """S29: videoProbe, and whether a browser needs a copy."""
    found = probed(video(kind))
    assert (found.compatible, found.reason) == (True, None)
    demuxer = "matroska,webm" if container in ("mkv", "webm") else "mov,mp4,m4a,3gp,3g2,mj2"  # its whole name
    assert (found.container_format, found.codec_name, found.pixel_format) == (demuxer, codec, pixel_format)
    assert (found.width, found.height) == GOOD[kind].size
    assert found.source_fps == pytest.approx(fps, abs=0.01) if fps else found.source_fps
    assert found.duration_seconds == pytest.approx(4.007 if kind == "mkv" else 3, abs=0.05)
    assert found.plays_in_browsers == plays
    assert not found.is_hdr


@pytest.mark.parametrize(("kind", "rotation"), [("rotated", 90), ("upside_down", 180), ("rotated_left", 270)])
def test_the_size_is_as_coded_and_the_turn_beside_it(video: Video, kind: str, rotation: int) -> None:
    found = probed(video(kind))
    assert (found.width, found.height, found.rotation) == (320, 180, rotation)


@pytest.mark.parametrize(("first", "plays"), [(0, True), (270, True), (900, False), (117_000, False)])
def test_what_begins_later_than_a_browser_counts_from_is_not_played_as_it_is(
    tmp_path: Path, first: int, plays: bool
) -> None:
    """A browser counts from 0, we from the file's start: a marked moment would be another one. Up to 5 ms it is of the
    same frame."""
    recipe = replace(GOOD["webm_vp8"], times=tuple(range(first, first + 10 * 3600, 3600)))
    assert probed(make(recipe, tmp_path / "v.webm")).plays_in_browsers == plays


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize("default", [0, 1])
def test_of_several_streams_the_one_is_shown_that_players_show(
    video: Video, tmp_path: Path, suffix: str, default: int
) -> None:
    films = video("plain"), make(replace(GOOD["plain"], size=(160, 90)), tmp_path / "small.mp4")
    path = together(tmp_path / f"two{suffix}", *films, default=default)
    assert probed(path).width == (320, 160)[default]


def test_sound_is_noticed(video: Video) -> None:
    assert probed(video("with_sound")).has_audio
    assert not probed(video("b_frames")).has_audio


def test_high_dynamic_range_is_said_to_be_there(tmp_path: Path) -> None:
    """No tone mapping is promised."""
    options = X265 | {"x265-params": X265["x265-params"] + ":transfer=smpte2084:colorprim=bt2020:colormatrix=bt2020nc"}
    recipe = Recipe(codec="libx265", options=options, pix_fmt="yuv420p10le", times=tuple(range(0, 36_000, 3600)))
    path = make(recipe, tmp_path / "hdr.mp4")
    found = probed(path)
    assert (found.compatible, found.is_hdr) == (True, True)
    with path.open("rb") as file:
        assert media.extract(file, make_wanted(0.0), Folder(tmp_path)).probe.is_hdr


def test_a_file_without_moving_pictures_says_so(tmp_path: Path) -> None:
    """S28: a cover is a picture and no video."""
    for path in (sound_only(tmp_path / "sound.mp4"), subtitled_picture(tmp_path / "cover.mp4")):
        found = probed(path)
        assert (found.compatible, found.reason) == (False, "the file has no video stream")
        assert (found.has_audio, found.codec_name) == (True, None)
        with path.open("rb") as file, pytest.raises(media.NoVideo, match=r"no video stream, only .*audio"):
            media.still(file, 0)


def test_a_codec_that_is_not_on_the_list_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.mkv"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("mpeg2video", rate=25)
        stream.width, stream.height, stream.pix_fmt = 320, 180, "yuv420p"
        for _ in range(5):
            file.mux(stream.encode(av.VideoFrame(320, 180, "yuv420p")))
        file.mux(stream.encode())
    found = probed(path)
    assert not found.compatible
    assert found.codec_name == "mpeg2video"
    assert found.reason
    assert found.reason.startswith("the video is coded as mpeg2video; we read av1, h264, hevc")
    with path.open("rb") as file, pytest.raises(media.UnsupportedCodec, match="mpeg2video"):
        media.still(file, 0)


def test_a_video_whose_every_picture_is_damaged_is_described_and_refused(video: Video) -> None:
    data = bytearray(video("faststart").read_bytes())
    begin = data.index(b"mdat") + 4
    data[begin:] = bytes(len(data) - begin)
    found = media.probe(io.BytesIO(data))
    assert (found.compatible, found.width) == (False, 320)
    assert found.reason
    assert "no picture that can be decoded" in found.reason


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"creation_time": "2026-03-01T08:15:00-03:00"}, "2026-03-01T11:15:00+00:00"),
        (
            {"creation_time": "2026-03-01T12:00:00Z", "com.apple.quicktime.creationdate": "2026-03-01T08:15:00-0300"},
            "2026-03-01T08:15:00-03:00",
        ),
        ({"creation_time": "1970-01-01T00:00:01Z"}, None),  # a camera without a clock
        ({}, None),
    ],
)
def test_when_it_was_filmed_is_what_the_camera_wrote(tmp_path: Path, said: dict[str, str], found: str | None) -> None:
    recipe = Recipe(suffix=".mov", times=(0,), movflags="+use_metadata_tags", metadata=said)
    assert probed(make(recipe, tmp_path / "camera.mov")).filmed_at == found


@pytest.mark.parametrize("kind", ["mkv", "webm_vp9", "webm_vp8", "faststart"])
def test_of_a_video_that_was_cut_off_the_duration_that_is_there_is_stated(
    video: Video, tmp_path: Path, kind: str
) -> None:
    """What its header promises cannot be marked. A moment's own probe says the same."""
    data = video(kind).read_bytes()
    whole = media.probe(io.BytesIO(data)).duration_seconds
    cut = data[: len(data) * 2 // 3]
    there = media.probe(io.BytesIO(cut)).duration_seconds
    assert whole
    assert there
    assert there < 0.8 * whole
    assert media.still(io.BytesIO(cut), there - 0.001)
    made = media.extract(io.BytesIO(cut), make_wanted(0.2, duration_seconds=0.4), Folder(tmp_path))
    assert (made.probe.duration_seconds, made.damaged_packets) == (there, 0)
    with pytest.raises(media.PastTheEnd):
        media.still(io.BytesIO(cut), there + 0.3)
