"""How much of a machine one video may take."""

from dataclasses import dataclass

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    max_pixels: int = 4096 * 4096
    """Of one frame. The decoder keeps up to 20 of them: 8 bits at this size are 24 MB each."""

    max_decoded_pixels: int = 20_000_000_000
    """Of all frames that one moment costs: 2,400 at 4K, about half a minute on two cores."""

    max_preview_pixels: int = 500_000_000_000
    """Of a whole video that is made playable: more than two hours of 1080p at 30 frames a second."""

    max_header_bytes: int = 256 * MB
    """Read before the first packet; the index of a day at 60 frames a second has about 100 MB."""

    max_packet_bytes: int = 64 * MB
    """Read from one packet to the next, so that a packet that claims the whole file does not fill the memory."""

    threads: int = 2
