"""Makes pictures and clips of videos, with PyAV and Pillow: functions over a seekable binary file, without network and
database. A moment is counted in whole microseconds from the file's second 0; its frame is the one shown at that moment.
Read `options` (what can be asked for), `container` (a file opened safely), `moments` (which frame), `extract` and
`artefacts` (the one pass that makes everything), then what these use: `scaling` (size and upright), `clip`, `pictures`,
`overlay`, `quality`. `probe` describes a video, `preview` makes it playable.
"""

from snapapp.media.artefacts import as_json
from snapapp.media.errors import (
    InvalidWish,
    MediaError,
    NoVideo,
    OutOfMemory,
    PastTheEnd,
    TooLarge,
    Unreadable,
    UnsupportedCodec,
    UnsupportedContainer,
    Unusable,
)
from snapapp.media.extract import Extracted, extract, still
from snapapp.media.options import Limits, Overlay, Wanted, cards
from snapapp.media.preview import preview
from snapapp.media.probe import Probe, probe

__all__ = [
    "Extracted",
    "InvalidWish",
    "Limits",
    "MediaError",
    "NoVideo",
    "OutOfMemory",
    "Overlay",
    "PastTheEnd",
    "Probe",
    "TooLarge",
    "Unreadable",
    "UnsupportedCodec",
    "UnsupportedContainer",
    "Unusable",
    "Wanted",
    "as_json",
    "cards",
    "extract",
    "preview",
    "probe",
    "still",
]
