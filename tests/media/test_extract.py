"""What is made of a moment: frames, clip, poster, thumbnail, and what is said of them."""

import base64
import hashlib
import io
import json
import os
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import av
import pytest
from PIL import Image, ImageChops, ImageStat
from thumbhash import thumb_hash_to_approximate_aspect_ratio

from snapapp import media
from snapapp.media import Extracted, PastTheEnd
from tests.media.conftest import Video, Whole
from tests.media.material import (
    GOOD,
    Folder,
    Recipe,
    decoded_whole,
    make,
    make_overlay,
    make_wanted,
    number_on,
    patched,
    shown_at,
)

IN_EVERY_RUN = ("b_frames", "irregular", "rotated", "edit_list", "late", "mkv_without_index", "av1", "slow", "open_gop")
# test_moments has every kind in every run
REST = ("negative", "with_sound", "fragmented", "mkv", "webm_vp9", "hevc_10_bit", "h264_444_odd", "mjpeg_odd", "fast")
KINDS = [*IN_EVERY_RUN, *(pytest.param(kind, marks=pytest.mark.at_length) for kind in REST)]


def extracted(path: Path, folder: Path, start_seconds: float | None = 1.0, **wanted: Any) -> Extracted:
    with path.open("rb") as file:
        return media.extract(file, make_wanted(start_seconds, **wanted), Folder(folder))


def picture(folder: Path, name: str) -> Image.Image:
    return Image.open(folder / name).convert("RGB")


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_those_shown_at_their_times_and_say_their_real_times(
    video: Video, whole: Whole, tmp_path: Path, kind: str
) -> None:
    """S27, S29: the originals guessed start + i / fps."""
    start = whole(kind)[0].begins + 0.31
    made = extracted(video(kind), tmp_path, start, duration_seconds=0.6, fps=10)
    assert [frame.index for frame in made.frames] == [1, 2, 3, 4, 5, 6]
    for frame in made.frames:
        wanted = shown_at(whole(kind), round(start + (frame.index - 1) / 10, 6))
        assert number_on(picture(tmp_path, frame.file_name)) == wanted.number
        assert frame.timestamp_seconds == pytest.approx(wanted.begins, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_clip_shows_at_every_time_what_the_video_shows_then(
    video: Video, whole: Whole, tmp_path: Path, kind: str
) -> None:
    """S29: so it starts at the moment, whose frame is its first; times are the video's, shifted."""
    start = round(whole(kind)[0].begins + 0.47, 6)
    made = extracted(video(kind), tmp_path, start, duration_seconds=0.1, clip_seconds=0.5)
    frames = decoded_whole(tmp_path / made.snapshot_video.file_name)
    assert frames[0].begins == 0
    assert made.snapshot_video.frame_count == len(frames)
    assert made.snapshot_video.duration_seconds == pytest.approx(0.5) == pytest.approx(frames[-1].ends, abs=0.001)
    for number, frame in enumerate(frames):
        wanted = shown_at(whole(kind), start + frame.begins + 0.0001)
        assert frame.number == wanted.number
        if number:
            assert start + frame.begins == pytest.approx(wanted.begins, abs=0.001)


@pytest.mark.parametrize(("duration", "fps", "count"), [(1, 5, 5), (1.01, 5, 6), (0.1, 5, 1), (0.3, 10, 3), (2, 1, 2)])
def test_there_are_as_many_frames_as_fit_and_at_least_one(
    video: Video, tmp_path: Path, duration: float, fps: float, count: int
) -> None:
    """S28: 0.3 × 10 is 3, whatever a computer makes of it."""
    made = extracted(video("plain"), tmp_path, 0.2, duration_seconds=duration, fps=fps)
    assert made.frame_count == len(made.frames) == count


def test_a_moment_given_by_its_frame_is_when_that_frame_begins(video: Video, whole: Whole, tmp_path: Path) -> None:
    """S27: and the frame wins over the seconds."""
    made = extracted(video("irregular"), tmp_path, 0.1, start_frame=40)
    assert made.resolved_start_seconds == pytest.approx(whole("irregular")[40].begins, abs=1e-6)
    assert number_on(picture(tmp_path, "frame_00001.jpg")) == whole("irregular")[40].number


@pytest.mark.parametrize(
    ("kind", "width", "size"),
    [
        ("plain", 1280, (320, 180)),  # never larger than it came
        ("rotated", 1280, (180, 320)),
        ("h264_444_odd", 1280, (320, 180)),  # even, for H.264
        ("wide_pixels", 1280, (426, 180)),
        ("wide_pixels", 320, (320, 134)),
    ],
)
def test_outputs_are_upright_even_and_no_larger_than_the_video(
    video: Video, tmp_path: Path, kind: str, width: int, size: tuple[int, int]
) -> None:
    """S28."""
    made = extracted(video(kind), tmp_path, max_width=width)
    assert (made.width, made.height) == size == picture(tmp_path, "frame_00001.jpg").size
    assert (made.snapshot_video.width, made.snapshot_video.height) == size
    assert (made.probe.width, made.probe.height) == GOOD[kind].size
    assert made.probe.rotation == GOOD[kind].rotation


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_a_mirrored_picture_is_shown_as_players_show_it(tmp_path: Path, rotation: int) -> None:
    """As phones write the camera on their front: the file's matrix turns the picture upside down by a mirror, and then
    rotates it."""
    path = make(Recipe(paint=_quarters, times=(0, 3600)), tmp_path / "v.mp4")
    right, down = {0: (1, 0), 90: (0, 1), 180: (-1, 0), 270: (0, -1)}[rotation]
    matrix = struct.pack(">5i", right << 16, down << 16, 0, down << 16, -right << 16)
    path.write_bytes(patched(path.read_bytes(), b"tkhd", 40, matrix))
    upside_down = _quarters(0, (320, 180)).transpose(Image.Transpose.FLIP_TOP_BOTTOM)
    expected = upside_down.rotate(-rotation, expand=True)
    made = extracted(path, tmp_path, 0.0, duration_seconds=0.04)
    seen = [picture(tmp_path, "frame_00001.jpg")]
    with av.open(str(tmp_path / made.snapshot_video.file_name)) as clip:
        seen.append(next(clip.decode(video=0)).to_image())  # type: ignore[no-untyped-call]
    for image in seen:
        assert image.size == expected.size
        assert ImageStat.Stat(ImageChops.difference(image, expected)).mean == pytest.approx([0, 0, 0], abs=6)


def _quarters(_: int, size: tuple[int, int]) -> Image.Image:
    """A picture whose corners can be told apart."""
    image = Image.new("RGB", (2, 2))
    image.putdata([(200, 40, 40), (40, 200, 40), (40, 40, 200), (200, 200, 40)])
    return image.resize(size, Image.Resampling.NEAREST)


def test_a_strip_is_made_no_taller_than_a_picture_can_be(tmp_path: Path) -> None:
    """16 × 65,000 pixels are few enough to be decoded; a JPEG has at most 65,500 lines, and nobody looks at them."""
    recipe = Recipe(".mov", "mjpeg", (16, 8000), (0, 3600, 7200), {}, pix_fmt="yuvj420p")
    made = extracted(make(recipe, tmp_path / "strip.mov"), tmp_path, 0.0, max_width=320)
    assert (made.width, made.height) == (2, 1280)


@pytest.mark.parametrize("kind", ["hevc_10_bit", "h264_444_odd", "webm_vp9", "with_sound", "rotated"])
def test_the_clip_is_what_every_browser_plays(video: Video, tmp_path: Path, kind: str) -> None:
    """S29: H.264, yuv420p, its index in front, upright without being told to turn."""
    extracted(video(kind), tmp_path)
    data = (tmp_path / "snapshot.mp4").read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")
    with av.open(str(tmp_path / "snapshot.mp4")) as file:
        assert [stream.type for stream in file.streams] == ["video"]
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert next(file.decode(stream)).rotation == 0
        assert stream.codec_context.profile in ("High", "Main", "Constrained Baseline")


# --- at the end of the video -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["b_frames", "mkv_without_index", "fragmented"])
def test_an_end_a_quarter_of_a_second_past_the_video_is_complete(video: Video, tmp_path: Path, kind: str) -> None:
    """S28: the last frame stands in."""
    made = extracted(video(kind), tmp_path, 2.24)
    assert (made.frame_count, made.missing_seconds) == (5, 0)
    assert [frame.timestamp_seconds for frame in made.frames] == [2.24, 2.44, 2.64, 2.84, 2.96]
    assert made.snapshot_video.duration_seconds == pytest.approx(0.76, abs=0.001)


def test_an_end_further_past_the_video_makes_less_and_says_so(video: Video, tmp_path: Path) -> None:
    made = extracted(video("b_frames"), tmp_path, 2.5)
    assert made.missing_seconds == pytest.approx(0.5)
    assert [frame.timestamp_seconds for frame in made.frames] == [2.48, 2.68, 2.88]
    assert made.snapshot_video.duration_seconds == pytest.approx(0.5, abs=0.001)


@pytest.mark.parametrize("kind", ["b_frames", "mkv_without_index", "late", "one_frame"])
def test_the_very_end_makes_one_frame_and_a_clip_of_it(video: Video, whole: Whole, tmp_path: Path, kind: str) -> None:
    """Where a player stands that has played to the end."""
    last = whole(kind)[-1]
    made = extracted(video(kind), tmp_path, round(last.ends, 6))
    assert [frame.timestamp_seconds for frame in made.frames] == [pytest.approx(last.begins, abs=1e-6)]
    assert made.snapshot_video.frame_count == 1
    assert made.missing_seconds == pytest.approx(1.0, abs=1e-5)
    assert [one.number for one in decoded_whole(tmp_path / "snapshot.mp4")] == [last.number]


def test_where_only_sound_is_left_there_is_one_frame_and_a_clip_of_it(tmp_path: Path) -> None:
    path = make(replace(GOOD["with_sound"], audio_until=3.15), tmp_path / "sound.mp4")
    made = extracted(path, tmp_path, 3.1)
    assert [frame.timestamp_seconds for frame in made.frames] == [pytest.approx(2.96)]
    assert made.missing_seconds == pytest.approx(1.1)
    assert [one.number for one in decoded_whole(tmp_path / "snapshot.mp4")] == [74]


@pytest.mark.parametrize(("start", "clip"), [(0.0, 0.3), (0.2, 0.1), (0.0, 0.001)])
def test_a_moment_that_ends_before_the_first_frame_has_a_clip_of_that_frame(
    video: Video, whole: Whole, tmp_path: Path, start: float, clip: float
) -> None:
    """Sound that begins before the pictures, and an operator who marks the very beginning."""
    first = whole("late")[0]
    assert first.begins > start + clip
    made = extracted(video("late"), tmp_path, start, duration_seconds=clip)
    assert all(frame.timestamp_seconds == pytest.approx(first.begins) for frame in made.frames)
    assert made.snapshot_video.duration_seconds == pytest.approx(clip, abs=1e-5)
    assert [one.number for one in decoded_whole(tmp_path / "snapshot.mp4")] == [first.number]


def test_a_moment_past_the_end_leaves_no_file(video: Video, tmp_path: Path) -> None:
    with pytest.raises(PastTheEnd):
        extracted(video("b_frames"), tmp_path, 3.5)
    assert list(tmp_path.iterdir()) == []


# --- formats, files and what is said ---------------------------------------------------------------------------


def test_png_loses_nothing_and_jpeg_follows_its_scale(video: Video, tmp_path: Path) -> None:
    """S28."""
    sizes = []
    for quality in (2, 3, 5, 8, 10):
        (folder := tmp_path / str(quality)).mkdir()
        extracted(video("b_frames"), folder, quality=quality, duration_seconds=0.1)
        sizes.append((folder / "frame_00001.jpg").stat().st_size)
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 5
    extracted(video("b_frames"), tmp_path, quality=None, duration_seconds=0.1)
    assert (tmp_path / "frame_00001.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "poster.jpg").read_bytes().startswith(b"\xff\xd8\xff")


def test_a_clean_copy_lies_beside_every_picture_with_cards(video: Video, tmp_path: Path) -> None:
    """S30: and none where there are no cards."""
    plain, signed = tmp_path / "plain", tmp_path / "signed"
    plain.mkdir()
    signed.mkdir()
    without = extracted(video("plain"), plain)
    made = extracted(video("plain"), signed, overlay=make_overlay(("1020",)))
    assert [frame.clean_file_name for frame in made.frames] == [f"clean_{n:05}.jpg" for n in range(1, 6)]
    assert {frame.clean_file_name for frame in without.frames} == {None}
    for frame, bare in zip(made.frames, without.frames, strict=True):
        assert frame.clean_file_name
        assert (signed / frame.clean_file_name).read_bytes() == (plain / bare.file_name).read_bytes()
        assert (signed / frame.file_name).read_bytes() != (plain / bare.file_name).read_bytes()
    assert [frame.quality for frame in made.frames] == [frame.quality for frame in without.frames]


def test_every_file_is_listed_with_its_length_and_hash(video: Video, tmp_path: Path) -> None:
    made = extracted(video("plain"), tmp_path, overlay=make_overlay(("1020",)))
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {one.file_name: (one.size_bytes, one.sha256) for one in made.artefacts} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in found.items()
    }
    assert {one.content_type for one in made.artefacts} == {"image/jpeg", "video/mp4"}
    assert {"poster.jpg", "thumbnail.jpg", "snapshot.mp4", "frame_00005.jpg", "clean_00001.jpg"} <= set(found)


def test_poster_thumbnail_and_placeholder_show_the_best_frame(video: Video, tmp_path: Path) -> None:
    made = extracted(video("rotated"), tmp_path, overlay=make_overlay(("1020",)))
    best = made.frames[made.best_index - 1]
    assert [frame.index for frame in made.frames if frame.is_best] == [best.index]
    assert number_on(picture(tmp_path, made.poster)) == number_on(picture(tmp_path, best.file_name))
    assert max(picture(tmp_path, made.thumbnail).size) <= 320
    placeholder = base64.b64decode(made.thumbhash)
    assert 15 <= len(placeholder) <= 30
    ratio = thumb_hash_to_approximate_aspect_ratio(list(placeholder))
    assert ratio == pytest.approx(180 / 320, abs=0.15)


def test_the_result_is_json_with_the_names_of_the_contract(video: Video, tmp_path: Path) -> None:
    """S29: in Python's way of writing them."""
    made = media.as_json(extracted(video("b_frames"), tmp_path, overlay=make_overlay(("1020",))))
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert made["frames"][0].keys() >= {"index", "timestamp_seconds", "file_name"}
    assert made["snapshot_video"].keys() >= {"file_name", "duration_seconds"}
    names = {"compatible", "container_format", "codec_name", "width", "height", "duration_seconds"}
    assert made["probe"].keys() >= names | {"source_fps", "pixel_format", "reason"}
    assert made["settings"]["overlay"]["is_top"]


# --- the work itself -------------------------------------------------------------------------------------------


def test_progress_rises_and_what_it_raises_ends_the_work(video: Video, tmp_path: Path) -> None:
    """A cancelled job stops here, and leaves no thread behind."""
    told: list[int] = []
    with video("b_frames").open("rb") as file:
        media.extract(file, make_wanted(0.5), Folder(tmp_path), lambda percent, step: told.append(percent))
    assert told == sorted(set(told))
    assert told[0] < 10
    assert told[-1] >= 90

    def cancel(percent: int, step: str) -> None:
        if percent > 30:
            raise InterruptedError("cancelled")

    with video("b_frames").open("rb") as file, pytest.raises(InterruptedError, match="cancelled"):
        media.extract(file, make_wanted(0.5), Folder(tmp_path), cancel)
    assert "pipeline" not in {thread.name for thread in threading.enumerate()}


class Unsteady(io.BytesIO):
    """Breaks off at the n-th reading or seeking, as a network does."""

    def __init__(self, data: bytes, readings: int, failure: BaseException) -> None:
        super().__init__(data)
        self.readings = readings
        self.failure = failure

    def read(self, size: int | None = -1, /) -> bytes:
        self._count()
        return super().read(size)

    def seek(self, place: int, whence: int = os.SEEK_SET, /) -> int:
        self._count()
        return super().seek(place, whence)

    def _count(self) -> None:
        self.readings -= 1
        if self.readings < 0:
            raise self.failure


@pytest.mark.parametrize("kind", ["plain", "later_alone", "mjpeg_odd"])
def test_what_the_source_raises_comes_through_as_it_is(video: Video, tmp_path: Path, kind: str) -> None:
    """A network failure is worth a retry: it must not look like a broken video. At every reading there is."""
    data = video(kind).read_bytes()
    for failure in (ConnectionResetError("gone"), KeyboardInterrupt()):
        readings = 0
        while True:
            raised = failure_of(Unsteady(data, readings, failure), tmp_path)
            if raised is None:
                break
            assert raised is failure
            readings += 1
        assert readings > 2


def failure_of(source: BinaryIO, folder: Path) -> BaseException | None:
    try:
        media.extract(source, make_wanted(1.0), Folder(folder))
    except BaseException as raised:  # noqa: BLE001 - whatever it is
        return raised
    return None


def test_a_source_that_returns_more_than_asked_for_is_stopped(video: Video) -> None:
    """PyAV would write it past the end of its buffer."""

    class Generous(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read((size or 0) + 1)

    with pytest.raises(AssertionError, match="the source returned"):
        media.probe(Generous(video("b_frames").read_bytes()))


def test_a_full_disk_is_no_fault_of_the_video(video: Video, tmp_path: Path) -> None:
    """An OSError, which is retried, and not one of ours, which is not."""
    (tmp_path / "snapshot.mp4").symlink_to("/dev/full")
    with pytest.raises(OSError, match="cannot be written") as raised:
        extracted(video("b_frames"), tmp_path)
    assert not isinstance(raised.value, media.MediaError)


def test_only_seek_read_and_tell_are_asked_of_a_source(video: Video, tmp_path: Path) -> None:
    class Bare:
        def __init__(self, data: bytes) -> None:
            self._file = io.BytesIO(data)
            self.read, self.seek, self.tell = self._file.read, self._file.seek, self._file.tell

    bare = cast(BinaryIO, Bare(video("mkv").read_bytes()))
    assert media.extract(bare, make_wanted(1.0), Folder(tmp_path)).frame_count == 5
