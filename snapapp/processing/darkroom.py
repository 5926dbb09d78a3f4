"""Where pictures are made: in a child, of what the payload says, into storage. Failures that another attempt cannot
mend are told from those that it may (D8): the first are `Permanent`, in words for the person who marked the moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from snapapp import media, sources, storage
from snapapp.jobs import Job, Permanent
from snapapp.media import Extracted, Overlay, Wanted, as_json
from snapapp.processing import scratch, surroundings
from snapapp.settings import Settings
from snapapp.storage import NotStored, Storage, keys

_EXTRAS = (
    *("poster", "thumbnail", "thumbhash", "best_index", "black", "frozen", "blurred", "width", "height"),
    *("missing_seconds", "damaged_packets", "artefacts", "settings"),
)


@dataclass(frozen=True, slots=True)
class Darkroom:
    storage: Storage
    fetching: sources.Limits
    scratch: Path

    @classmethod
    def of(cls, settings: Settings) -> "Darkroom":
        return cls(storage.from_settings(settings), sources.Limits.of(settings), settings.data_dir / "scratch")

    def snap(self, job: Job) -> dict[str, Any]:
        """The evidence of a moment, under a prefix that no other attempt writes to."""
        assert job.snap_id is not None
        return self._evidence(job, keys.of_attempt(job.snap_id, job.lease_seq))

    def frames(self, job: Job) -> dict[str, Any]:
        """The same of a moment that is no snap."""
        return self._evidence(job, f"{job.payload['folder']}{job.lease_seq}/")

    def probe(self, job: Job) -> dict[str, Any]:
        with judged(), self._video(job.payload["video"]) as video:
            found: dict[str, Any] = as_json(media.probe(video))
            return found

    def preview(self, job: Job) -> None:
        with judged(), self._video(job.payload["video"]) as video, scratch.folder(self.scratch) as folder:
            target = folder / "preview.mp4"
            media.preview(video, target, job.update_progress)
            self.storage.put(job.payload["key"], target)

    def still(self, job: Job) -> None:
        with judged(), self._video(job.payload["video"]) as video:
            self.storage.put(job.payload["key"], media.still(video, job.payload["at"]))

    def _evidence(self, job: Job, prefix: str) -> dict[str, Any]:
        order = job.payload
        with judged(), self._video(order["video"]) as video, scratch.folder(self.scratch) as folder:
            made = media.extract(video, wanted_of(order), folder, job.update_progress)
            for artefact in made.artefacts:
                self.storage.put(prefix + artefact.file_name, folder / artefact.file_name)
        return evidence_of(made, prefix)

    @contextmanager
    def _video(self, place: dict[str, str]) -> Iterator[BinaryIO]:
        if "key" in place:
            with self.storage.open(place["key"]) as stored:
                yield stored
        else:
            with sources.open_remote(place["url"], self.fetching) as remote:
                yield remote  # type: ignore[misc]  # it reads, seeks and tells, which is all that is asked of it


@cache
def here() -> Darkroom:
    """The child's own."""
    return Darkroom.of(surroundings.settings())


@contextmanager
def judged() -> Iterator[None]:
    try:
        yield
    except NotStored as error:
        raise Permanent("The video's file is no longer there: upload it again") from error
    except (media.Unusable, sources.SourceRefused) as error:
        raise Permanent(str(error)) from error


def wanted_of(order: dict[str, Any]) -> Wanted:
    return Wanted(
        **order["wanted"] | {"format": media.Format(order["wanted"]["format"]), "overlay": _overlay_of(order)}
    )


def _overlay_of(order: dict[str, Any]) -> Overlay | None:
    if order["overlay"] is None:
        return None
    drawn = {**order["overlay"]}
    mode, position = media.Mode(drawn.pop("mode")), media.Position(drawn.pop("position"))
    texts = media.cards(order["subject_id"], order["values"])
    return Overlay(texts, mode=mode, position=position, **drawn)


def evidence_of(made: Extracted, prefix: str) -> dict[str, Any]:
    """In the domain's words: see snaps.Evidence."""
    return {
        "probe": as_json(made.probe),
        "resolved_start_seconds": made.resolved_start_seconds,
        "frames": as_json(made.frames),
        "clip": as_json(made.snapshot_video),
        "extras": {name: as_json(getattr(made, name)) for name in _EXTRAS},
        "media_prefix": prefix,
    }
