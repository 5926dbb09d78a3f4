"""Scales and turns frames: the result is upright, has square pixels and even sizes, and is never enlarged."""

import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import cast

from av.filter import Graph
from av.sidedata.sidedata import SideData
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from PIL import Image

from snapapp.media.container import SECOND, Video
from snapapp.media.probe import clockwise

_TURNS: dict[int, list[tuple[str, str | None]]] = {
    0: [],
    90: [("transpose", "clock")],
    180: [("hflip", None), ("vflip", None)],
    270: [("transpose", "cclock")],
}
_WITHOUT_MATRIX = {0, 2}  # colour spaces: RGB, as screens are recorded, and unspecified
_TALLEST = 4  # height at most, in widths: a video may have 16 × 65,000 pixels, which no JPEG can
_HD = 720  # lines; a video without a stated colour space is taken as BT.709 from this height on, as players do


@dataclass(slots=True)
class FrameScaler:
    rotation: int
    is_mirrored: bool
    """Whether the coded picture is turned upside down, as by a mirror below it, before it is rotated."""
    coded_size: tuple[int, int]
    """The size to which a decoded frame is scaled, before it is turned."""
    _scaler: VideoReformatter = field(default_factory=VideoReformatter)
    _painter: VideoReformatter = field(default_factory=VideoReformatter)
    _turner: Graph | None = None

    @property
    def size(self) -> tuple[int, int]:
        width, height = self.coded_size
        return (height, width) if self.rotation in (90, 270) else (width, height)

    def picture(self, frame: VideoFrame) -> VideoFrame:
        """The frame scaled and turned, in yuv420p as a clip needs it."""
        colors = _colors(frame)
        scaled = self._scaler.reformat(
            frame,
            *self.coded_size,
            "yuv420p",
            src_colorspace=colors,
            dst_colorspace=colors,
            interpolation=Interpolation.BILINEAR,
            dst_color_range=ColorRange.MPEG,
            threads=1,
        )
        return self._turn(scaled) if self.rotation or self.is_mirrored else scaled

    def image(self, picture: VideoFrame) -> Image.Image:
        painted = self._painter.reformat(picture, format="rgb24", dst_color_range=ColorRange.JPEG, threads=1)
        plane = painted.planes[0]
        size = (painted.width, painted.height)
        return Image.frombuffer("RGB", size, plane, "raw", "RGB", plane.line_size, 1)  # type: ignore[arg-type]

    def _turn(self, frame: VideoFrame) -> VideoFrame:
        if self._turner is None:
            self._turner = _turner(frame, self.rotation, self.is_mirrored)
        self._turner.vpush(frame)
        return self._turner.vpull()


def scaler_for(video: Video, frame: VideoFrame, max_width: int) -> FrameScaler:
    """The FrameScaler for a video, from its first frame."""
    rotation = clockwise(frame.rotation)
    ratio = video.stream.sample_aspect_ratio or 1
    width, height = float(frame.width), float(frame.height)
    if 0.25 <= ratio < 1:
        height /= float(ratio)
    elif 1 < ratio <= 4:
        width *= float(ratio)
    upright_width = height if rotation in (90, 270) else width
    upright_height = width if rotation in (90, 270) else height
    shrink = min(1.0, max_width / upright_width, _TALLEST * max_width / upright_height)
    return FrameScaler(rotation, _is_mirrored(frame), (_even(width * shrink), _even(height * shrink)))


def _is_mirrored(frame: VideoFrame) -> bool:
    """Whether the file's matrix mirrors the picture, as phones write it for the camera on their front. The rotation
    says only where the matrix takes the picture's upper edge."""
    matrix = cast(SideData | None, frame.side_data.get("DISPLAYMATRIX"))
    if matrix is None:
        return False
    a, b, _, c, d = struct.unpack_from("=5i", bytes(matrix))
    return bool(a * d < b * c)


def _even(length: float) -> int:
    return max(2, round(length / 2) * 2 if round(length / 2) * 2 <= length + 0.001 else int(length / 2) * 2)


def _colors(frame: VideoFrame) -> Colorspace | None:
    """The colour space of the result, where the frame has none that yuv420p can have."""
    if frame.colorspace not in _WITHOUT_MATRIX:
        return None
    return Colorspace.ITU709 if frame.height >= _HD else Colorspace.ITU601


def _turner(frame: VideoFrame, rotation: int, is_mirrored: bool) -> Graph:
    graph = Graph()
    ticks = Fraction(1, SECOND)  # has no effect: times are set later
    nodes = [graph.add_buffer(width=frame.width, height=frame.height, format=frame.format, time_base=ticks)]
    turns = [("vflip", None)] * is_mirrored + _TURNS[rotation]
    nodes += [graph.add(name, argument) for name, argument in turns]
    graph.link_nodes(*nodes, graph.add("buffersink")).configure()
    return graph
