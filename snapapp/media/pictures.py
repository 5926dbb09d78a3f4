"""Encodes pictures: JPEG, PNG, thumbnails and ThumbHash."""

import base64
import io

from PIL import Image
from thumbhash import rgba_to_thumb_hash

THUMBNAIL_WIDTH = 320
_HASHED_WIDTH = 40  # 100 pixels give the same hash and take six times as long, because a hash keeps only 7 waves across

# FFmpeg's scale to Pillow's, so that the files have equal sizes; the median of five pictures: footage with and without
# grain, blurred footage, a fractal and a test card.
_QUALITY = {2: 87, 3: 79, 4: 69, 5: 60, 6: 49, 7: 40, 8: 34, 9: 31, 10: 28}


def jpeg(image: Image.Image, quality: int = 3) -> bytes:
    """The image as JPEG. `quality` is on FFmpeg's scale: 2 is best, 10 smallest."""
    return _encode(image, "JPEG", quality=_QUALITY[quality])


def png(image: Image.Image) -> bytes:
    return _encode(image, "PNG", compress_level=1)  # level 6 makes files a fifth smaller and takes five times as long


def thumbnail(image: Image.Image) -> Image.Image:
    return _within(image, THUMBNAIL_WIDTH)


def thumbhash(image: Image.Image) -> str:
    """About 25 bytes from which a browser draws a blurred placeholder, in base64."""
    small = _within(image, _HASHED_WIDTH)
    return base64.b64encode(bytes(rgba_to_thumb_hash(*small.size, list(small.convert("RGBA").tobytes())))).decode()


def _within(image: Image.Image, width: int) -> Image.Image:
    """Scales the picture so that its longer side is at most `width`."""
    shrink = min(1.0, width / max(image.size))
    size = (max(1, round(image.width * shrink)), max(1, round(image.height * shrink)))
    return image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)


def _encode(image: Image.Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
