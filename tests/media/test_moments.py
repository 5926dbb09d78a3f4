"""The frame of a moment is the one shown then, whatever the file is like."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from snapapp import media
from snapapp.media import PastTheEnd
from snapapp.media.container import opened
from snapapp.media.errors import Unreadable, UnsupportedContainer
from snapapp.media.moments import frames_from, of_frame
from snapapp.media.options import Limits
from tests.media.conftest import Video, Whole
from tests.media.material import (
    GOOD,
    PYRAMID,
    X264,
    Interval,
    Recipe,
    decoded_whole,
    edited,
    make,
    moments,
    number_on,
    shown_at,
)


def number_at(path: Path, moment: float) -> int:
    with path.open("rb") as file:
        return number_on(Image.open(io.BytesIO(media.still(file, moment))))


def begin_of(path: Path, number: int) -> float:
    with path.open("rb") as file, opened(file, Limits()) as opened_video:
        return of_frame(opened_video, number) / 1e6


@pytest.mark.parametrize("kind", GOOD)
def test_the_frame_of_a_moment_is_the_one_shown_then(video: Video, whole: Whole, kind: str, everything: bool) -> None:
    """S27, S29: many moments, half of them exactly where a frame begins, against a decoding of the whole file."""
    frames = whole(kind)
    assert len(frames) >= min(len(GOOD[kind].times), 60) - 4
    wrong = {
        moment: (seen, wanted)
        for moment in moments(frames, 50 if everything else 6, seed=11)
        if (seen := number_at(video(kind), moment)) != (wanted := shown_at(frames, moment).number)
    }
    assert wrong == {}


@pytest.mark.parametrize("kind", GOOD)
def test_a_frame_by_number_is_that_one_in_order_of_presentation(video: Video, whole: Whole, kind: str) -> None:
    """S27: counted from 0, of those that are shown."""
    frames = whole(kind)
    numbers = sorted({*range(0, len(frames), 6), len(frames) - 1})
    found = {number: begin_of(video(kind), number) for number in numbers}
    assert found == {number: pytest.approx(frames[number].begins, abs=1e-6) for number in numbers}


@pytest.mark.parametrize("parts", [((0.5, 1.0), (1.8, 1.0)), ((0.5, 1.0), (0.5, 1.0)), ((1.5, 1.0), (0.2, 1.0))])
def test_a_video_cut_into_parts_has_the_frames_of_its_parts(
    video: Video, tmp_path: Path, parts: tuple[tuple[float, float], ...]
) -> None:
    """As an editor leaves it that changes the edit list alone: a part left out, one repeated, two exchanged."""
    path = tmp_path / "edited.mp4"
    path.write_bytes(edited(video("b_frames").read_bytes(), *parts))
    frames = decoded_whole(path)
    assert len(frames) == 50
    assert [begin_of(path, number) for number in range(50)] == pytest.approx([one.begins for one in frames], abs=1e-6)
    assert [number_at(path, one.begins) for one in frames[::7]] == [one.number for one in frames[::7]]
    with pytest.raises(PastTheEnd, match="the video has 50 frames"):
        begin_of(path, 50)


def test_the_kinds_are_what_they_are_called(video: Video, whole: Whole) -> None:
    """Else the tests above prove less than they say."""
    gaps = {round(one.ends - one.begins, 3) for one in whole("irregular")}
    assert len(gaps) > 4
    assert len(whole("edit_list")) < len(whole("plain"))  # the list hides the beginning
    assert whole("edit_list")[0].number > 0
    assert whole("late")[0].begins > 0.5
    assert b"moof" in video("fragmented").read_bytes()
    assert b"\x1c\x53\xbb\x6b" not in video("mkv_without_index").read_bytes()  # Cues
    data = {kind: video(kind).read_bytes() for kind in ("plain", "faststart")}
    assert data["plain"].index(b"moov") > data["plain"].index(b"mdat")
    assert data["faststart"].index(b"moov") < data["faststart"].index(b"mdat")
    assert len(whole("webm_vp8_hidden")) == len(whole("webm_vp8")) - 4


def test_a_moment_before_the_first_frame_shows_the_first(video: Video, whole: Whole) -> None:
    assert whole("late")[0].begins > 0.2
    assert number_at(video("late"), 0.1) == whole("late")[0].number


def test_the_very_end_still_shows_the_last_frame(video: Video, whole: Whole) -> None:
    last = whole("b_frames")[-1]
    assert number_at(video("b_frames"), last.ends) == last.number


@pytest.mark.parametrize(
    "kind", ["b_frames", "mkv", "mkv_without_index", "fragmented", "webm_vp9", "irregular", "late"]
)
def test_a_moment_past_the_end_is_refused_and_the_duration_named(video: Video, whole: Whole, kind: str) -> None:
    """S28: at once behind the end, and far behind it."""
    end = whole(kind)[-1].ends
    for moment in (end + 0.01, end + 3, 4000.0):
        with pytest.raises(PastTheEnd, match=rf"moment \S+ s is past the end: the video lasts {end:.2f} s$"):
            number_at(video(kind), round(moment, 6))


@pytest.mark.parametrize("suffix", [".mp4", ".mkv", ".ts"])
def test_until_its_sound_ends_a_video_shows_its_last_frame(tmp_path: Path, suffix: str) -> None:
    """A player that has played to the end stands where the longest stream ends, mostly the sound."""
    path = make(replace(GOOD["with_sound"], suffix=suffix, audio_until=3.15), tmp_path / f"sound{suffix}")
    with path.open("rb") as file:
        lasts = media.probe(file).duration_seconds
    last = decoded_whole(path)[-1]
    assert lasts
    assert lasts > last.ends + 0.1
    assert number_at(path, lasts) == last.number
    with pytest.raises(PastTheEnd, match=f"the video lasts {last.ends:.2f} s$"):
        number_at(path, lasts + 0.01)


def test_sound_that_lasts_much_longer_shows_no_frame_and_is_no_sign_of_damage(tmp_path: Path) -> None:
    path = make(replace(GOOD["with_sound"], audio_until=5.0), tmp_path / "sound.mp4")
    for moment in (3.3, 4.9):
        with pytest.raises(PastTheEnd, match=r"the video lasts 3.00 s$"):
            number_at(path, moment)


@pytest.mark.parametrize("kind", ["b_frames", "mkv", "fragmented", "edit_list"])
def test_a_frame_number_past_the_end_is_refused_and_the_count_named(video: Video, whole: Whole, kind: str) -> None:
    count = len(whole(kind))
    for number in (count, 10**9):
        with pytest.raises(PastTheEnd, match=f"frame {number} is past the end: the video has {count} frames and lasts"):
            begin_of(video(kind), number)


def test_the_time_of_a_frame_as_we_tell_it_leads_back_to_that_frame(video: Video, whole: Whole, tmp_path: Path) -> None:
    """However it is rounded on the way: 1/30 s is 0.033333 s in six digits."""
    for number, one in enumerate(whole("irregular")):
        if number % 5 == 0:
            told = round(one.begins, 6)
            assert shown_at(whole("irregular"), told) == Interval(one.number, one.begins, one.ends)
            assert number_at(video("irregular"), told) == one.number


# --- without an index -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["mkv_without_index", "webm_vp8"])
def test_a_long_recording_that_was_not_finished_is_read_packet_by_packet(tmp_path: Path, kind: str) -> None:
    """As a browser or a recorder that was cut off leaves it: FFmpeg would read all of it in one seek."""
    recipe = replace(GOOD[kind], times=tuple(range(0, 500 * 3600, 3600)), muxing={"live": "1"})
    data = make(recipe, tmp_path / f"long{recipe.suffix}").read_bytes()
    limits = Limits(max_header_bytes=len(data) // 2)
    for number in (20, 333, 498):
        with opened(io.BytesIO(data), limits) as opened_video:
            moment = round((number + 0.5) / 25 * 1e6)
            shown = next(frames_from(opened_video, moment, moment))
        assert number_on(cast(Any, shown.frame).to_image()) == number


@pytest.mark.parametrize("kind", ["ts", "flv", "avi_mpeg4"])
def test_a_moment_past_the_end_of_a_file_without_an_index_is_refused(video: Video, whole: Whole, kind: str) -> None:
    end = whole(kind)[-1].ends
    for moment in (end + 0.01, 4000.0):
        with pytest.raises(PastTheEnd, match=rf"is past the end: the video lasts {end:.2f} s"):
            number_at(video(kind), round(moment, 6))
    with pytest.raises(PastTheEnd, match=f"the video has {len(whole(kind))} frames"):
        begin_of(video(kind), len(whole(kind)))


@pytest.mark.at_length  # each kind's frames are compared with a whole decoding above, in every run
@pytest.mark.parametrize("kind", ["ts", "ts_open_gop", "ts_of_a_camera", "flv"])
def test_a_frame_is_the_one_that_the_same_recording_has_in_an_mp4(video: Video, tmp_path: Path, kind: str) -> None:
    """As far as a clock of whole milliseconds goes, which is what FLV has."""
    original = make(replace(GOOD[kind], suffix=".mp4", audio_from=None), tmp_path / "original.mp4")
    alone = make(replace(GOOD[kind], audio_from=None), tmp_path / f"alone{GOOD[kind].suffix}")
    for number in range(0, 75, 7):
        begins = begin_of(original, number)
        assert begin_of(alone, number) == pytest.approx(begins, abs=0.0005)
        assert number_at(alone, begins + 0.02) == number_at(original, begins + 0.02) == number


def test_little_is_decoded_of_what_lies_before_the_moment(video: Video) -> None:
    """A seek is two readings; what is decoded is two groups of frames."""
    with video("ts_open_gop").open("rb") as file, opened(file, Limits()) as opened_video:
        left = opened_video.pixels_left
        frames = frames_from(opened_video, 2_900_000, 2_900_000)
        next(frames)
        decoded = (left - opened_video.pixels_left) / (320 * 180)
    assert decoded <= 24 * 2 + 10


def test_a_recording_that_begins_within_a_group_of_frames_shows_what_can_be_decoded(video: Video) -> None:
    """As a recorder cuts it: the first keyframe is not the first packet."""
    data = video("ts_open_gop").read_bytes()
    cut = io.BytesIO(data[188 * 40 :])
    with opened(cut, Limits()) as opened_video:
        shown = [number_on(cast(Any, one.frame).to_image()) for one in frames_from(opened_video, 0, 10**9)]
    assert shown == list(range(shown[0], 75))
    assert 0 < shown[0] < 30


def test_the_first_keyframe_of_a_recording_may_come_late(tmp_path: Path) -> None:
    """After sound alone, and in a recording that begins within a long group of frames, as of a camera that saves."""
    after_sound = replace(GOOD["ts"], times=tuple(range(8 * 90_000, 11 * 90_000, 3600)), audio_from=0.0)
    path = make(after_sound, tmp_path / "sound.ts")
    assert media.probe(io.BytesIO(path.read_bytes())).width == 320
    assert [number_at(path, moment) for moment in (0.0, 9.1)] == [0, 26]
    long_group = replace(GOOD["ts"], times=tuple(range(0, 330 * 3600, 3600)), options=PYRAMID | {"g": "300"})
    data = make(long_group, tmp_path / "long.ts").read_bytes()
    (tmp_path / "cut.ts").write_bytes(data[188 * 100 :])
    assert number_at(tmp_path / "cut.ts", 0.0) == 300


def test_a_stream_whose_clock_begins_anew_is_refused(video: Video) -> None:
    """Two recordings in one file: a second of it would be two moments."""
    twice = video("ts").read_bytes() * 2
    with opened(io.BytesIO(twice), Limits()) as opened_video, pytest.raises(Unreadable, match="clock jumps back"):
        next(frames_from(opened_video, 4_000_000, 4_000_000))


@pytest.mark.parametrize(
    ("codec", "options"), [("libx264", PYRAMID), ("libx264", X264 | {"bf": "0"}), ("mpeg4", {"bf": "2", "g": "12"})]
)
def test_an_avi_that_does_not_say_when_its_frames_are_shown_is_refused(
    codec: str, options: dict[str, str], tmp_path: Path
) -> None:
    path = make(Recipe(".avi", codec, clock=25, options=options), tmp_path / "a.avi")
    with pytest.raises(UnsupportedContainer, match="does not say when frames"):
        number_at(path, 0.0)
    with path.open("rb") as file:
        assert (media.probe(file).compatible, media.probe(file).container_format) == (False, "avi")
