"""Measures whether a frame is black, frozen or blurred, on a small grey copy."""

from dataclasses import dataclass

from PIL import Image, ImageChops, ImageFilter, ImageStat

_WIDTH = 320
_EDGES = ImageFilter.Kernel((3, 3), (0, 1, 0, 1, -4, 1, 0, 1, 0), scale=1, offset=128)
_DARK = 32  # of 255; a darker pixel counts as black
_BLACK_SHARE = 0.98
_FROZEN_BELOW = 0.255  # mean difference, of 255: a thousandth, as in FFmpeg's freezedetect
_BLURRED_BELOW = 40.0


@dataclass(frozen=True, slots=True)
class Quality:
    sharpness: float
    """Variance of the Laplacian: how much of the picture is edges."""
    change: float | None
    """Mean difference to the frame before, of 255; None for the first frame."""
    black: bool
    frozen: bool
    blurred: bool


def grey(image: Image.Image) -> Image.Image:
    height = max(3, round(image.height * _WIDTH / image.width))
    return image.convert("L").resize((_WIDTH, height), Image.Resampling.BOX)


def measured(picture: Image.Image, before: Image.Image | None) -> Quality:
    """Measures a frame, given the grey copies of it and of the frame before."""
    histogram = picture.histogram()
    dark = sum(histogram[:_DARK]) / (picture.width * picture.height)
    sharpness = ImageStat.Stat(picture.filter(_EDGES)).var[0]
    change = ImageStat.Stat(ImageChops.difference(picture, before)).mean[0] if before else None
    black = dark >= _BLACK_SHARE
    return Quality(
        sharpness=round(sharpness, 2),
        change=None if change is None else round(change, 3),
        black=black,
        frozen=change is not None and change < _FROZEN_BELOW,
        blurred=not black and sharpness < _BLURRED_BELOW,
    )
