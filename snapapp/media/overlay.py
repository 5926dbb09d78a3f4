"""Draws cards with the subject's values in a corner of a copy of the picture."""

from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from snapapp.media.container import SECOND
from snapapp.media.options import Overlay, color

# Pillow's own font draws boxes instead of accents.
_FONT = (Path(__file__).parent / "fonts" / "DejaVuSans-Bold.ttf").read_bytes()
_SMALLEST = 8  # pixels: smaller text cannot be read
_GAP = 4  # between cards


@dataclass(slots=True)
class CardPainter:
    """Draws the cards. Keeps the cards drawn last, because the next frame mostly has the same."""

    overlay: Overlay
    _texts: tuple[str, ...] = ()
    _cards: Image.Image = field(default_factory=lambda: Image.new("RGBA", (1, 1)))

    def on(self, image: Image.Image, index: int, time: int) -> Image.Image:
        """A copy of the image with the cards on it. `index` and `time` are the frame's."""
        texts = (*self.overlay.cards, *self._about(index, time))
        if texts != self._texts:
            self._texts, self._cards = texts, _column(self.overlay, texts, image.size)
        copy = image.copy()
        copy.paste(self._cards, _corner(self.overlay, self._cards.size, image.size), self._cards)
        return copy

    def _about(self, index: int, time: int) -> list[str]:
        frame = [f"frame {index}"] if self.overlay.shows_frame else []
        return frame + ([_clock(time)] if self.overlay.shows_time else [])


def _column(overlay: Overlay, texts: tuple[str, ...], size: tuple[int, int]) -> Image.Image:
    """As many cards as fit above each other; the last one counts those that do not."""
    margin, padding = _margin(overlay, size), min(overlay.padding, size[0] // 16, size[1] // 16)
    width = max(_SMALLEST, size[0] - 2 * margin - 2 * padding)
    font, texts = _fitting(overlay.font_size, texts, width)
    line = sum(font.getmetrics())
    most = max(1, (size[1] - 2 * margin + _GAP) // (line + 2 * padding + _GAP))
    if len(texts) > most:
        texts = (*texts[: most - 1], f"+ {len(texts) - most + 1}")
    widths = [round(font.getlength(text)) + 2 * padding for text in texts]
    column = Image.new("RGBA", (max(widths), len(texts) * (line + 2 * padding + _GAP) - _GAP))
    draw = ImageDraw.Draw(column)
    for row, (text, wide) in enumerate(zip(texts, widths, strict=True)):
        left = 0 if overlay.is_left else column.width - wide
        top = row * (line + 2 * padding + _GAP)
        box = (left, top, left + wide - 1, top + line + 2 * padding - 1)
        draw.rounded_rectangle(box, radius=min(6, line // 3), fill=color(overlay.box_color))
        draw.text((left + padding, top + padding), text, font=font, fill=color(overlay.font_color))
    return column


def _fitting(font_size: int, texts: tuple[str, ...], width: int) -> tuple[ImageFont.FreeTypeFont, tuple[str, ...]]:
    """A font in which the longest text fits, and the texts, cut if they do not fit even in the smallest font."""
    font = _font(font_size)
    longest = max(font.getlength(text) for text in texts)
    if longest > width:
        font = _font(max(_SMALLEST, int(font_size * width / longest)))
    return font, tuple(_cut(text, font, width) for text in texts)


def _cut(text: str, font: ImageFont.FreeTypeFont, width: int) -> str:
    while len(text) > 1 and font.getlength(text) > width:
        text = text.rstrip("…")[:-1] + "…"
    return text


@lru_cache(maxsize=8)
def _font(size: int) -> ImageFont.FreeTypeFont:
    # the basic layout, because the other needs libraries that a machine may lack
    return ImageFont.truetype(BytesIO(_FONT), size, layout_engine=ImageFont.Layout.BASIC)


def _margin(overlay: Overlay, size: tuple[int, int]) -> int:
    return min(overlay.margin, size[0] // 8, size[1] // 8)


def _corner(overlay: Overlay, cards: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    margin = _margin(overlay, size)
    left = margin if overlay.is_left else size[0] - margin - cards[0]
    top = margin if overlay.is_top else size[1] - margin - cards[1]
    return left, top


def _clock(time: int) -> str:
    seconds, rest = divmod(round(time / 1000), SECOND // 1000)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:03}"
