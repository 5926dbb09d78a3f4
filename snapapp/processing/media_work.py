"""Where pictures are made: in a child, of what the payload says, into storage. Failures that another attempt cannot
mend are told from those that it may (D8): the first are `Permanent`, in words for the person who marked the moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from snapapp import media, sources, storage
from snapapp.domain import snap_rules
from snapapp.domain.snap_rules import Mode, Position
from snapapp.errors import Invalid
from snapapp.jobs import Job, Permanent
from snapapp.media import Extracted, Overlay, Wanted, as_json
from snapapp.processing import child_settings, scratch
from snapapp.settings.table import Settings
from snapapp.storage import NotStored, Storage, keys

_EXTRAS = (
    *("poster", "thumbnail", "thumbhash", "best_index", "black", "frozen", "blurred", "width", "height"),
    *("missing_seconds", "damaged_packets", "artefacts", "settings"),
)


@dataclass(frozen=True, slots=True)
class MediaWork:
    storage: Storage
    fetching: sources.Limits
    scratch: Path

    @classmethod
    def of(cls, settings: Settings) -> "MediaWork":
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
def here() -> MediaWork:
    """One for each process."""
    return MediaWork.of(child_settings.settings())


@contextmanager
def judged() -> Iterator[None]:
    try:
        yield
    except NotStored as error:
        raise Permanent("The video's file is no longer there: upload it again") from error
    except (media.Unusable, sources.SourceRefused, Invalid) as error:
        raise Permanent(str(error)) from error


def wanted_of(order: dict[str, Any]) -> Wanted:
    """Checked once more, because a job may also be written by hand, in SQL."""
    snap_rules.insist(order["wanted"], order["overlay"])
    wanted = {name: value for name, value in order["wanted"].items() if name != "format"}
    return Wanted(**wanted, overlay=_overlay_of(order))


def _overlay_of(order: dict[str, Any]) -> Overlay | None:
    if order["overlay"] is None:
        return None
    drawn = {**order["overlay"]}
    mode, position = Mode(drawn.pop("mode")), Position(drawn.pop("position"))
    return Overlay(
        cards=media.cards(order["subject_id"], order["values"]),
        shows_frame=mode in (Mode.SUBJECT_AND_FRAME, Mode.SUBJECT_AND_BOTH),
        shows_time=mode in (Mode.SUBJECT_AND_TIMESTAMP, Mode.SUBJECT_AND_BOTH),
        is_left=position in (Position.TOP_LEFT, Position.BOTTOM_LEFT),
        is_top=position in (Position.TOP_LEFT, Position.TOP_RIGHT),
        **drawn,
    )


def evidence_of(made: Extracted, prefix: str) -> dict[str, Any]:
    """As `snaps.Evidence` takes it."""
    return {
        "probe": as_json(made.probe),
        "resolved_start_seconds": made.resolved_start_seconds,
        "frames": as_json(made.frames),
        "clip": as_json(made.snapshot_video),
        "extras": {name: as_json(getattr(made, name)) for name in _EXTRAS},
        "media_prefix": prefix,
    }
