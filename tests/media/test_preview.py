"""A copy for the browser whose times are those of the original."""

import io
import os
from dataclasses import replace
from pathlib import Path

import av
import pytest

from snapapp import media
from snapapp.media import Limits
from tests.media.conftest import Video, Whole
from tests.media.material import GOOD, VP8, Recipe, decoded_whole, make

IN_EVERY_RUN = ("edit_list", "hevc_10_bit", "mkv_without_index", "later_alone", "rotated", "irregular")
REST = ("fragmented", "mkv", "late", "mpeg4", "prores")  # test_moments has them in every run
KINDS = [*IN_EVERY_RUN, *(pytest.param(kind, marks=pytest.mark.at_length) for kind in REST)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_moment_marked_on_the_copy_is_that_moment_of_the_original(
    video: Video, whole: Whole, tmp_path: Path, kind: str
) -> None:
    """Every frame, at its time, within a millisecond."""
    target = tmp_path / "preview.mp4"
    with video(kind).open("rb") as file, target.open("w+b", buffering=0) as film:
        made = media.preview(file, film)
    copied = decoded_whole_from_zero(target)
    assert [number for number, _ in copied] == [one.number for one in whole(kind)]
    later = [one.begins for one in whole(kind)[1:]]
    assert [begins for _, begins in copied] == pytest.approx([0, *later], abs=0.001)
    assert made.frame_count == len(copied)
    assert made.duration_seconds == pytest.approx(whole(kind)[-1].ends, abs=0.05)
    with target.open("rb") as file:
        found = media.probe(file)
    assert (found.compatible, found.codec_name, found.pixel_format, found.has_audio) == (True, "h264", "yuv420p", False)
    data = target.read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def decoded_whole_from_zero(path: Path) -> list[tuple[int, float]]:
    """A player counts from 0, whenever the first frame comes."""
    with av.open(str(path)) as file:
        start = (file.start_time or 0) / 1e6
    return [(one.number, one.begins + start) for one in decoded_whole(path)]


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_the_copy_of_a_video_that_begins_after_its_sound_is_as_long_as_the_original(
    tmp_path: Path, suffix: str
) -> None:
    """A film that began later, too, would say that it lasts so much less, and a browser would not go further."""
    path = make(replace(GOOD["late"], suffix=suffix), tmp_path / f"late{suffix}")
    with path.open("rb") as file, (tmp_path / "preview.mp4").open("w+b", buffering=0) as film:
        made = media.preview(file, film)
    with av.open(str(tmp_path / "preview.mp4")) as copy:
        assert copy.start_time == 0
        assert (copy.duration or 0) / 1e6 == pytest.approx(made.duration_seconds, abs=0.001)
    original, copied = decoded_whole(path), decoded_whole(tmp_path / "preview.mp4")
    assert [one.number for one in copied] == [one.number for one in original]
    assert [one.begins for one in copied[1:]] == pytest.approx([one.begins for one in original[1:]], abs=0.001)


@pytest.mark.parametrize("kind", ["mkv", "fragmented"])
def test_h264_that_lies_in_a_matroska_file_or_begins_late_is_moved_and_not_coded_again(
    video: Video, tmp_path: Path, kind: str
) -> None:
    with video(kind).open("rb") as file, (tmp_path / "preview.mp4").open("w+b", buffering=0) as film:
        media.preview(file, film)
    assert packets_of(tmp_path / "preview.mp4") == packets_of(video(kind))


def packets_of(path: Path) -> list[bytes]:
    with av.open(str(path)) as file:
        return [bytes(packet) for packet in file.demux(file.streams.video[0]) if packet.size]


def test_of_two_frames_of_one_time_the_copy_has_the_later_as_a_player_shows_it(tmp_path: Path) -> None:
    """Matroska counts milliseconds, which fast cameras outrun."""
    times = [number * 3600 for number in range(20)]
    times[10] = times[9] + 30
    path = make(Recipe(".mkv", "libvpx", times=times, options=VP8), tmp_path / "fast.mkv")
    with path.open("rb") as file, (tmp_path / "preview.mp4").open("w+b", buffering=0) as film:
        media.preview(file, film)
    assert [one.number for one in decoded_whole(tmp_path / "preview.mp4")] == [*range(9), *range(10, 20)]


def test_a_copy_that_failed_leaves_nothing(video: Video, tmp_path: Path) -> None:
    with (tmp_path / "preview.mp4").open("w+b", buffering=0) as film:
        with pytest.raises(media.TooLarge):
            media.preview(io.BytesIO(video("hevc").read_bytes()), film, limits=Limits(max_preview_pixels=10**6))
        data = video("fragmented").read_bytes()
        with pytest.raises(media.Unreadable):
            media.preview(io.BytesIO(data[: data.index(b"moof") - 4]), film)
        assert film.seek(0, os.SEEK_END) == 0


def test_progress_is_told_by_the_percent(video: Video, tmp_path: Path) -> None:
    told: list[int] = []
    with video("hevc").open("rb") as file, (tmp_path / "preview.mp4").open("w+b", buffering=0) as film:
        media.preview(file, film, lambda percent, step: told.append(percent))
    assert told == sorted(set(told))
    assert told[-1] > 90
