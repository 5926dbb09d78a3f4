"""What a decoder can do, a function for each. They get the job's payload and its channels."""

import importlib
import pkgutil
from typing import Any

import av
from PIL import Image

from snapapp import media
from snapapp.domain.rules import snaps as snap_rules
from snapapp.domain.rules.snaps import Mode, Position
from snapapp.media import Extracted, Overlay, Wanted, as_json
from snapapp.processing.decoder.process import Channels

PREVIEW, STILL = "preview.mp4", "still.jpg"
_EXTRAS = (
    *("poster", "thumbnail", "thumbhash", "best_index", "black", "frozen", "blurred", "width", "height"),
    *("missing_seconds", "damaged_packets", "artefacts", "settings"),
)


def _import_the_rest() -> None:
    """PyAV and Pillow import some of their modules only when a video needs them, which the sandbox would refuse."""
    for module in pkgutil.walk_packages(av.__path__, "av."):
        if module.name != "av.__main__":
            importlib.import_module(module.name)
    Image.preinit()


_import_the_rest()


def extract(payload: dict[str, Any], channels: Channels) -> dict[str, Any]:
    return result_as_json(media.extract(channels.source, wanted_of(payload), channels.output, channels.progress))


def probe(_payload: dict[str, Any], channels: Channels) -> dict[str, Any]:
    description: dict[str, Any] = as_json(media.probe(channels.source))
    return description


def preview(_payload: dict[str, Any], channels: Channels) -> None:
    media.preview(channels.source, channels.output.film(PREVIEW), channels.progress)


def still(payload: dict[str, Any], channels: Channels) -> None:
    channels.output.write(STILL, media.still(channels.source, payload["at"]))


def wanted_of(payload: dict[str, Any]) -> Wanted:
    """The options in a payload. They are checked again, because a job may also be enqueued by hand, in SQL."""
    snap_rules.insist(payload["wanted"], payload["overlay"])
    wanted = {name: value for name, value in payload["wanted"].items() if name != "format"}
    return Wanted(**wanted, overlay=_overlay_of(payload))


def _overlay_of(payload: dict[str, Any]) -> Overlay | None:
    if payload["overlay"] is None:
        return None
    options = {**payload["overlay"]}
    mode, position = Mode(options.pop("mode")), Position(options.pop("position"))
    return Overlay(
        cards=media.cards(payload["subject_id"], payload["values"]),
        shows_frame=mode in (Mode.SUBJECT_AND_FRAME, Mode.SUBJECT_AND_BOTH),
        shows_time=mode in (Mode.SUBJECT_AND_TIMESTAMP, Mode.SUBJECT_AND_BOTH),
        is_left=position in (Position.TOP_LEFT, Position.BOTTOM_LEFT),
        is_top=position in (Position.TOP_LEFT, Position.TOP_RIGHT),
        **options,
    )


def result_as_json(made: Extracted) -> dict[str, Any]:
    """The result as `snaps.Evidence` takes it, without the prefix of the files, which a decoder does not know."""
    return {
        "probe": as_json(made.probe),
        "resolved_start_seconds": made.resolved_start_seconds,
        "frames": as_json(made.frames),
        "clip": as_json(made.snapshot_video),
        "extras": {name: as_json(getattr(made, name)) for name in _EXTRAS},
    }
