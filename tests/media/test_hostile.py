"""Files that are broken, lie, or mean harm: a reason for a person, within bounds of memory and time."""

import io
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from snapapp import media
from snapapp.media import Limits, NoVideo, PastTheEnd, TooLarge, Unreadable, UnsupportedContainer
from tests import ROOT
from tests.media.conftest import Video, Whole
from tests.media.material import (
    GOOD,
    Folder,
    decoded_whole,
    giant,
    make,
    make_wanted,
    number_on,
    patched,
)


def refused(data: bytes, folder: Path, moment: float = 1.0, limits: Limits | None = None) -> str:
    """Why, in words that name no error number only."""
    with pytest.raises(media.Unusable) as raised:
        media.extract(io.BytesIO(data), make_wanted(moment), Folder(folder), limits=limits)
    return f"{type(raised.value).__name__}: {raised.value}"


def image_as(kind: str) -> bytes:
    Image.new("RGB", (64, 64)).save(buffer := io.BytesIO(), kind)
    return buffer.getvalue()


def zipped() -> bytes:
    with zipfile.ZipFile(buffer := io.BytesIO(), "w") as archive:
        archive.writestr("video.mp4", b"ftyp")
    return buffer.getvalue()


NO_VIDEOS = {
    "a WAV file": b"RIFF\x00\x10\x00\x00WAVEfmt " + bytes(500),
    "a WebP picture": image_as("WEBP"),
    "a HEIF picture": b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(500),
    "an AVIF picture": image_as("AVIF"),
    "a PNG picture": image_as("PNG"),
    "a JPEG picture": image_as("JPEG"),
    "a GIF picture": image_as("GIF"),
    "a web page or other text": b"<html><body>Not found</body></html>",
    "a ZIP archive": zipped(),
    "a PDF document": b"%PDF-1.7\n" + bytes(500),
    "a playlist": b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:1/a.ts\n",
    "something else": bytes(1000),
}


@pytest.mark.parametrize("what", NO_VIDEOS)
def test_what_is_no_video_is_named(what: str, tmp_path: Path) -> None:
    """S28: by its bytes; a name or a Content-Type proves nothing."""
    expected = f"UnsupportedContainer: this is {what}; we read MP4, MOV, MKV, WebM, MPEG-TS, FLV and AVI"
    assert refused(NO_VIDEOS[what], tmp_path) == expected
    with pytest.raises(UnsupportedContainer):
        media.probe(io.BytesIO(NO_VIDEOS[what]))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("start", [b"ffconcat version 1.0\nfile '%s'\n", b"#EXTM3U\n#EXTINF:10,\nfile:%s\n"])
def test_a_playlist_cannot_name_a_file_of_ours(video: Video, tmp_path: Path, start: bytes) -> None:
    """FFmpeg would open it. Behind the first bytes of a video as well."""
    playlist = start % os.fsencode(video("plain"))
    assert "a playlist" in refused(playlist, tmp_path)
    assert "Unreadable" in refused(b"\x00\x00\x00\x18ftypisom\x00\x00\x00\x00isommp42" + playlist, tmp_path)


def test_an_empty_file_and_one_that_is_cut_off_say_so(video: Video, tmp_path: Path) -> None:
    assert refused(b"", tmp_path) == "Unreadable: the file is empty"
    data = video("b_frames").read_bytes()  # its index is at the end
    for size in (1, 8, 40, len(data) // 2, len(data) - 200):
        assert "cut off" in refused(data[:size], tmp_path) or "something else" in refused(data[:size], tmp_path)


def test_of_a_video_that_breaks_off_the_beginning_is_used(video: Video, whole: Whole, tmp_path: Path) -> None:
    """Its index is in front: it promises three seconds."""
    data = video("faststart").read_bytes()
    half = data[: data.index(b"mdat") + (len(data) - data.index(b"mdat")) // 2]
    made = media.extract(io.BytesIO(half), make_wanted(0.2, duration_seconds=0.4), Folder(tmp_path))
    assert made.frame_count == 2
    with pytest.raises(PastTheEnd, match=r"the video lasts 1\.\d\d s \(it says 3.00 s: it was cut off\)"):
        media.still(io.BytesIO(half), 2.9)


@pytest.mark.parametrize("kind", ["mkv", "mkv_of_one_gop", "mkv_without_index", "fragmented", "webm_vp9"])
def test_containers_that_are_written_as_they_go_can_break_off_anywhere(video: Video, tmp_path: Path, kind: str) -> None:
    data = video(kind).read_bytes()
    data = data[: len(data) * 2 // 3]
    assert media.probe(io.BytesIO(data)).compatible
    made = media.extract(io.BytesIO(data), make_wanted(0.2, duration_seconds=0.4), Folder(tmp_path))
    assert made.frame_count == 2


def test_pictures_that_are_there_are_read_although_their_sound_is_missing(tmp_path: Path) -> None:
    """The fragment that was written last has its sound after its pictures."""
    data = make(replace(GOOD["fragmented"], audio_from=0.0), tmp_path / "sound.mp4").read_bytes()
    frame = decoded_whole(tmp_path / "sound.mp4")[65]
    last = data.rindex(b"moof")
    still = media.still(io.BytesIO(data[: last + (len(data) - last) * 9 // 10]), frame.begins)
    assert number_on(Image.open(io.BytesIO(still))) == frame.number


def test_a_stream_that_begins_in_the_middle_is_passed_over(video: Video, whole: Whole) -> None:
    data, place = video("flv").read_bytes(), 13
    while place < len(data) * 0.9:  # FFmpeg looks at the beginning for streams
        place += 11 + int.from_bytes(data[place + 1 : place + 4], "big") + 4
    other_sound = b"\x08\0\0\x02" + data[place + 4 : place + 8] + b"\0\0\0" + b"\x2f\0" + b"\0\0\0\x0d"
    for frame in (whole("flv")[3], whole("flv")[-1]):
        still = media.still(io.BytesIO(data[:place] + other_sound + data[place:]), frame.begins)
        assert number_on(Image.open(io.BytesIO(still))) == frame.number


# --- headers that lie ------------------------------------------------------------------------------------------


def test_the_decoder_is_believed_and_not_the_header(video: Video, tmp_path: Path) -> None:
    """The box says 16 × 16, and 65,535 × 65,535; the pictures have what they have."""
    data = video("plain").read_bytes()
    for size in (b"\x00\x10\x00\x10", b"\xff\xff\xff\xff"):
        lying = patched(data, b"avc1", 24, size, which=-1 + data.count(b"avc1"))
        made = media.extract(io.BytesIO(lying), make_wanted(1.0), Folder(tmp_path))
        assert (made.height, made.frame_count) == (180, 5)


@pytest.mark.parametrize(("box", "offset"), [(b"stsz", 8), (b"stsz", 12), (b"stts", 4), (b"stsc", 4), (b"stco", 8)])
@pytest.mark.parametrize("value", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x00\x00\x00\x00"])
def test_counts_sizes_and_offsets_that_lie_do_no_harm(
    video: Video, tmp_path: Path, box: bytes, offset: int, value: bytes
) -> None:
    lying = patched(video("plain").read_bytes(), box, offset, value)
    assert ending(lying, tmp_path) in (5, "reason")


def ending(data: bytes, folder: Path) -> int | str:
    """The number of frames, or that a reason was given."""
    try:
        return media.extract(io.BytesIO(data), make_wanted(1.0), Folder(folder)).frame_count
    except media.MediaError as error:
        return "reason" if len(str(error)) > 20 else repr(error)


@pytest.mark.parametrize("name", ["giant.mov", "giant.webm"])
def test_a_giant_picture_is_refused_before_it_takes_memory(tmp_path: Path, name: str) -> None:
    """4.1: 16,384 × 16,384 pixels took 621 MB before anybody could look."""
    path = giant(tmp_path / name)
    program = (
        "import resource, sys; from pathlib import Path; from snapapp import media\n"
        "source = open(sys.argv[1], 'rb'); before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(media.probe(source).reason)\n"
        "try: media.still(source, 0)\n"
        "except media.Unusable as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    reason, error, grown = ended.stdout.splitlines()
    expected = "its picture has no size that can be read: it is damaged, or larger than 16.8 million pixels"
    assert reason == error == expected
    assert int(grown) < 100


def test_the_limit_of_pixels_is_of_the_limits(video: Video, tmp_path: Path) -> None:
    assert "TooLarge: the picture has 320×180" in refused(
        video("plain").read_bytes(), tmp_path, limits=Limits(max_pixels=320 * 180 - 1)
    )


@pytest.mark.parametrize("kind", ["one_gop", "mkv", "fragmented", "webm_vp9"])
def test_work_beyond_its_limit_is_refused(video: Video, tmp_path: Path, kind: str) -> None:
    """By the index before anything is decoded where there is one, else when the limit is reached."""
    few = Limits(max_decoded_pixels=20 * 320 * 180)
    assert "TooLarge: too many frames of 320×180" in refused(video(kind).read_bytes(), tmp_path, 1.9, few)
    assert media.extract(
        io.BytesIO(video(kind).read_bytes()), make_wanted(0.0, duration_seconds=0.1), Folder(tmp_path), limits=few
    ).frame_count


def test_work_that_the_index_shows_to_be_too_much_is_not_begun(video: Video, tmp_path: Path) -> None:
    class Counting(io.BytesIO):
        taken = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.taken += len(data)
            return data

    path = make(replace(GOOD["prores"], options={"profile": "2"}), tmp_path / "v.mov")
    source = Counting(path.read_bytes())
    with pytest.raises(TooLarge):
        media.extract(
            source, make_wanted(0.1, duration_seconds=2), Folder(tmp_path), limits=Limits(max_decoded_pixels=10**6)
        )
    assert source.taken < len(source.getvalue()) / 3


def test_a_part_that_claims_to_be_large_is_not_read_at_once(video: Video, tmp_path: Path) -> None:
    small = Limits(max_packet_bytes=5000, max_header_bytes=200_000)
    assert "TooLarge: the video has a part of more than" in refused(video("prores").read_bytes(), tmp_path, 1.0, small)


def test_a_stream_without_a_size_or_a_frame_is_no_video(tmp_path: Path, video: Video) -> None:
    """Only a header, as a recorder leaves it that was switched off at once."""
    data = video("fragmented").read_bytes()
    header = data[: data.index(b"moof") - 4]
    assert "no picture that can be decoded" in refused(header, tmp_path)
    with pytest.raises((Unreadable, NoVideo)):
        media.still(io.BytesIO(header), 0)


# --- broken at random ------------------------------------------------------------------------------------------


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mutants", [20, pytest.param(200, marks=pytest.mark.at_length)])
def test_videos_broken_at_random_end_in_one_of_two_ways(mutants: int) -> None:
    """4.1, 5.5: each in a process of its own with a memory limit; in full, 2,000."""
    lab = [sys.executable, "-m", "tests.labs", "media", "--mutants", str(mutants), "--seed", "3"]
    ended = subprocess.run(lab, cwd=ROOT, capture_output=True, text=True, timeout=580, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout + ended.stderr
    assert f"{mutants} mutants" in ended.stdout
    assert " 0 problems" in ended.stdout
