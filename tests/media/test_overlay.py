"""Cards: readable in every corner, whatever is written on them."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFont

from snapapp import media
from snapapp.media import InvalidWish, Overlay, cards
from snapapp.media.overlay import CardPainter
from tests.media.material import make_overlay

SIZE = (640, 360)
GREY = (120, 120, 120)
FONT = Path(media.__file__).parent / "fonts" / "DejaVuSans-Bold.ttf"


def signed(overlay: Overlay, size: tuple[int, int] = SIZE, index: int = 1, time: int = 0) -> Image.Image:
    return CardPainter(overlay).on(Image.new("RGB", size, GREY), index, time)


def place_of_cards(image: Image.Image) -> tuple[int, int, int, int]:
    box = ImageChops.difference(image, Image.new("RGB", image.size, GREY)).getbbox()
    assert box
    return box


def text_of(image: Image.Image) -> Image.Image:
    """What is nearly white, as it was printed: white on black."""
    return image.convert("L").point(lambda value: 255 if value > 200 else 0)


def printed(text: str, size: int) -> Image.Image:
    """The same text, drawn by itself."""
    font = ImageFont.truetype(str(FONT), size)
    image = Image.new("L", (round(font.getlength(text)) + 4, size * 2))
    ImageDraw.Draw(image).text((0, 0), text, font=font, fill=255)
    return image.point(lambda value: 255 if value > 150 else 0)


def ink(image: Image.Image) -> int:
    return sum(image.histogram()[128:])


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("is_top", [True, False])
def test_cards_stand_in_their_corner_at_their_margin(is_left: bool, is_top: bool) -> None:
    """S30."""
    left, top, right, bottom = place_of_cards(signed(make_overlay(("1020", "Nelore"), is_left=is_left, is_top=is_top)))
    assert (left == 20) == is_left
    assert (right == SIZE[0] - 20) == (not is_left)
    assert (top == 20) == is_top
    assert (bottom == SIZE[1] - 20) == (not is_top)


@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("background", ["white", "black", "yellow"])
def test_a_text_can_be_read_on_any_background(is_left: bool, background: str) -> None:
    """By its pixels: white letters, each as many as the font has, on a box that is darker by far."""
    image = CardPainter(make_overlay(("São João 1020",), font_size=24, is_left=is_left, box_color="black@0.7")).on(
        Image.new("RGB", SIZE, background), 1, 0
    )
    difference = ImageChops.difference(image, Image.new("RGB", SIZE, background))
    card = image.crop(difference.getbbox() if background != "black" else None)
    letters = card.convert("L").point(lambda value: 255 if value > 200 else 0)
    if background == "black":  # the box does not show on it, the letters do
        assert ink(letters) == pytest.approx(ink(printed("São João 1020", 24)), rel=0.15)
        return
    inner = card.crop((8, 8, card.width - 8, card.height - 8)).convert("L")
    histogram = inner.histogram()
    assert sum(histogram[:110]) > sum(histogram) * 0.5  # box
    assert ink(inner.point(lambda value: 255 if value > 200 else 0)) == pytest.approx(
        ink(printed("São João 1020", 24)), rel=0.15
    )


@pytest.mark.parametrize("letter", "áàâãçéêíóôõúüñÁÇÉÕßøåŁžșğΩЖ°º€–")
def test_letters_with_accents_are_letters_and_not_boxes(letter: str) -> None:
    """Pillow's own font draws the same box for each of them."""
    there, missing = (text_of(signed(make_overlay((text,), font_size=60))) for text in (letter, "\U00012000"))
    assert ImageChops.difference(there, missing).getbbox()
    if letter in "áàâãçéêíóôõúüñ":
        plain = {"á": "a", "ç": "c", "é": "e", "í": "i", "ó": "o", "ú": "u", "ñ": "n"}.get(letter, "a")
        assert ImageChops.difference(there, text_of(signed(make_overlay((plain,), font_size=60)))).getbbox()


@pytest.mark.parametrize("size", [(640, 360), (320, 180), (180, 320), (64, 36), (16, 16), (2, 2)])
@pytest.mark.parametrize("font_size", [8, 18, 200])
def test_the_longest_values_stay_inside_the_picture(size: tuple[int, int], font_size: int) -> None:
    overlay = make_overlay(("W" * 48, "i" * 48, "1"), font_size=font_size, margin=500, padding=200)
    image = signed(overlay, size)
    assert image.size == size
    left, top, right, bottom = place_of_cards(image)
    if size[0] >= 180:
        margin = min(size) // 8
        assert (left, top, right, bottom) >= (0, 0, 0, 0)
        assert left >= margin - 1
        assert right <= size[0] - margin + 1
        assert bottom <= size[1]


def test_more_cards_than_fit_are_counted_on_the_last_one() -> None:
    many = make_overlay(tuple(f"value {number}" for number in range(100)), is_left=True)
    image = signed(many)
    _, top, _, bottom = place_of_cards(image)
    assert top >= 20
    assert bottom <= SIZE[1] - 20
    shown = (bottom - top + 4) // 45
    fewer = make_overlay((*many.cards[: shown - 1], f"+ {100 - shown + 1}"), is_left=True)
    assert ImageChops.difference(image, signed(fewer)).getbbox() is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["São João", 412.5, None, "", "  "], ("São João", "412.5")),
        ([None, "", " \n\t "], ("bovino-1",)),
        ([], ("bovino-1",)),
        ([412.0, 0.1, 1e6, -3, 0.30000000000000004], ("412", "0.1", "1000000", "-3", "0.3")),
        # an ear tag that somebody kept as a number
        (
            [76012345678912.0, -99_999_999_999_999.0, 123456789.012345],
            ("76012345678912", "-99999999999999", "123456789.012345"),
        ),
        (["x" * 48], ("x" * 48,)),
        (["x" * 49], ("x" * 47 + "…",)),
        (["one\nline\r\nonly\x00\x1b[31m"], ("one line only [31m",)),
        (["a\u0303"], ("ã",)),
    ],
)
def test_there_is_a_card_for_every_value_that_says_something(values: list[Any], expected: tuple[str, ...]) -> None:
    """S30: 48 characters each; the id where there is none."""
    assert cards("bovino-1", values) == expected


def test_frame_number_and_time_are_drawn_and_change_with_the_frame() -> None:
    """D12."""
    board = CardPainter(make_overlay(("1020",), shows_frame=True, shows_time=True, is_left=True))
    background = Image.new("RGB", SIZE, GREY)
    images = [board.on(background, index, time) for index, time in ((1, 0), (2, 0), (2, 3_723_456_000))]
    same = CardPainter(make_overlay(("1020", "frame 2", "1:02:03.456"), is_left=True)).on(background, 9, 9)
    assert ImageChops.difference(images[0], images[1]).getbbox()
    assert ImageChops.difference(images[1], images[2]).getbbox()
    assert ImageChops.difference(images[2], same).getbbox() is None
    assert ImageChops.difference(background, Image.new("RGB", SIZE, GREY)).getbbox() is None  # it draws on copies


@pytest.mark.parametrize("color", ["black@0.7", "white", "#12aBcD", "#000000@.5", "Yellow@1", "red@0", "blue@1.0"])
def test_colours_are_names_or_numbers_with_an_opacity(color: str) -> None:
    assert make_overlay(("1",), box_color=color, font_color=color).box_color == color


@pytest.mark.parametrize("color", ["", "blackish", "black@", "black@2", "black@0.7:x=1", "#12", "rgb(1,2,3)", "@0.5"])
def test_what_is_no_colour_is_refused(color: str) -> None:
    """S30: FFmpeg would have read options out of it."""
    with pytest.raises(InvalidWish, match="is no colour"):
        make_overlay(("1",), box_color=color)


def test_the_font_comes_with_its_licence() -> None:
    assert "Bitstream Vera" in (FONT.parent / "LICENSE").read_text()
