"""Black, frozen, blurred, and which frame is best."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import av
import pytest
from PIL import Image, ImageDraw, ImageFilter

from snapapp import media
from snapapp.media import Extracted
from tests.media.material import X264, X265, Folder, Recipe, make, make_wanted

Paint = Callable[[int, tuple[int, int]], Image.Image]
SIZE = (640, 360)


def extracted(paint: Paint, folder: Path, fps: float = 5) -> Extracted:
    path = make(Recipe(paint=paint, size=SIZE, options=X264, times=tuple(range(0, 30 * 3600, 3600))), folder / "v.mp4")
    with path.open("rb") as file:
        return media.extract(file, make_wanted(0.0, fps=fps), Folder(folder))


def field(number: int, size: tuple[int, int]) -> Image.Image:
    """Something with edges that moves."""
    image = Image.new("RGB", size, (90, 120, 60))
    draw = ImageDraw.Draw(image)
    for place in range(0, size[0], 40):
        left = (place + 7 * number) % size[0]
        draw.ellipse((left, 80 + place % 90, left + 30, 160 + place % 90), fill=(230, 220, 200), outline="black")
    return image


def black(number: int, size: tuple[int, int]) -> Image.Image:
    return Image.new("RGB", size, (6, 5, 7))


def night(number: int, size: tuple[int, int]) -> Image.Image:
    """Dark, and something is to be seen."""
    return field(number, size).point(lambda value: value // 3)


def soft(number: int, size: tuple[int, int]) -> Image.Image:
    return field(number, size).filter(ImageFilter.GaussianBlur(9))


def still(number: int, size: tuple[int, int]) -> Image.Image:
    return field(0, size)


@pytest.mark.parametrize(
    ("paint", "flags"),
    [
        (field, (False, False, False)),
        (night, (False, False, False)),
        (black, (True, True, False)),
        (soft, (False, False, True)),
        (still, (False, True, False)),
    ],
)
def test_a_video_is_judged_as_a_person_would(tmp_path: Path, paint: Paint, flags: tuple[bool, bool, bool]) -> None:
    """Black, frozen, blurred: of the moment, when all its frames are; the first frame cannot be frozen."""
    made = extracted(paint, tmp_path)
    assert (made.black, made.frozen, made.blurred) == flags
    assert not made.frames[0].quality.frozen
    assert made.frames[0].quality.change is None


def test_the_sharpest_frame_is_the_best_one(tmp_path: Path) -> None:
    def sharp_once(number: int, size: tuple[int, int]) -> Image.Image:
        return field(number, size) if 14 <= number <= 16 else soft(number, size)

    made = extracted(sharp_once, tmp_path)
    assert [frame.is_best for frame in made.frames] == [False, False, False, True, False]
    assert [frame.quality.blurred for frame in made.frames] == [True, True, True, False, True]
    assert (made.best_index, made.blurred) == (4, False)


def test_a_black_frame_is_never_the_best_while_there_is_another(tmp_path: Path) -> None:
    def lit_once(number: int, size: tuple[int, int]) -> Image.Image:
        return soft(number, size) if 4 <= number <= 6 else black(number, size)

    made = extracted(lit_once, tmp_path)
    assert made.best_index == 2
    assert not made.black


def test_a_slow_video_is_not_frozen_because_it_shows_one_frame_for_long(tmp_path: Path) -> None:
    """Ten pictures a second of a video that has four: some are the same frame, and are judged as it is."""
    times = tuple(range(0, 12 * 22_500, 22_500))
    path = make(Recipe(paint=field, size=SIZE, options=X264, times=times), tmp_path / "v.mp4")
    with path.open("rb") as file:
        made = media.extract(file, make_wanted(0.0, fps=10), Folder(tmp_path))
    assert len({frame.timestamp_seconds for frame in made.frames}) == 4
    assert not any(frame.quality.frozen for frame in made.frames)


def test_a_small_film_of_a_large_video_says_which_colours_it_has(tmp_path: Path) -> None:
    """A player takes what says nothing for BT.709 when it is large and for BT.601 when it is small."""
    path = make(Recipe(size=(1280, 720), times=(0, 3600, 7200)), tmp_path / "v.mp4")
    with path.open("rb") as file:
        made = media.extract(file, make_wanted(0.0, duration_seconds=0.1, max_width=320), Folder(tmp_path))
    with av.open(str(tmp_path / made.snapshot_video.file_name)) as clip:
        context = clip.streams.video[0].codec_context
        assert (context.width, context.colorspace, context.color_range) == (320, 1, 1)  # BT.709, limited


@pytest.mark.parametrize(("size", "space"), [((1280, 720), 1), ((320, 180), 6)])
def test_a_film_of_a_screen_recorded_in_rgb_says_how_it_is_converted(
    tmp_path: Path, size: tuple[int, int], space: int
) -> None:
    """BT.709 or BT.601: of a film that says RGB of its yuv420p Chromium shows 212, 73, 31 where 200, 60, 30 was."""
    path = make(Recipe(codec="libx264rgb", pix_fmt="bgr0", size=size, times=(0, 3600, 7200)), tmp_path / "v.mp4")
    with path.open("rb") as file:
        made = media.extract(file, make_wanted(0.0, duration_seconds=0.1), Folder(tmp_path))
    assert made.probe.pixel_format == "gbrp"
    with av.open(str(tmp_path / made.snapshot_video.file_name)) as clip:
        assert clip.streams.video[0].codec_context.colorspace == space


@pytest.mark.parametrize(
    "recipe",
    [
        Recipe(),
        Recipe(codec="libx264rgb", pix_fmt="bgr0"),
        Recipe(".mov", "mjpeg", pix_fmt="yuvj420p", options={"q:v": "2"}),
        Recipe(".webm", "libvpx-vp9", options={"deadline": "realtime", "cpu-used": "8"}),
        Recipe(codec="libx265", options=X265, pix_fmt="yuv420p10le"),
        Recipe(pix_fmt="yuv444p", rotation=90),
    ],
)
@pytest.mark.parametrize("color", [(200, 60, 40), (0, 0, 0), (255, 255, 255), (30, 90, 200)])
def test_colours_stay_what_they_were(tmp_path: Path, recipe: Recipe, color: tuple[int, int, int]) -> None:
    """Limited and full range, 8 and 10 bits, in the pictures and in the clip."""
    plain = replace(recipe, paint=lambda number, size: Image.new("RGB", size, color), times=recipe.times[:10])
    path = make(plain, tmp_path / ("v" + recipe.suffix))
    with path.open("rb") as file:
        made = media.extract(file, make_wanted(0.1, duration_seconds=0.2), Folder(tmp_path))
    with av.open(str(tmp_path / made.snapshot_video.file_name)) as clip:
        filmed = next(clip.decode(video=0)).to_image()  # type: ignore[no-untyped-call]
    with Image.open(tmp_path / made.poster) as image:
        for seen in (image.convert("RGB").getpixel((50, 50)), filmed.getpixel((50, 50))):
            assert seen == pytest.approx(color, abs=8)
