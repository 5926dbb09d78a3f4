"""What a child does with a video: opens it, has it decoded by a process that can do nothing else, and puts what was
made into storage. Failures that another attempt cannot mend are told from those that it may (D8): the first are
`Permanent`, in words for the person who marked the moment."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from snapapp import sources, storage
from snapapp.errors import Invalid
from snapapp.jobs import Job, Permanent
from snapapp.processing import child_settings
from snapapp.processing.decoder.client import WORK, Decoders, Made, Refused
from snapapp.processing.decoder.wire import Garbled
from snapapp.settings.table import Settings
from snapapp.storage import NotStored, Storage, keys

DECODERS = Decoders(WORK)  # of this process


@dataclass(frozen=True, slots=True)
class MediaWork:
    storage: Storage
    fetching: sources.Limits
    scratch: Path
    decoders: Decoders = DECODERS

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
        with self._decoded("probe", job) as made:
            found: dict[str, Any] = made.told
            return found

    def preview(self, job: Job) -> None:
        with self._decoded("preview", job) as made:
            self.storage.put(job.payload["key"], made.content("preview.mp4"))

    def still(self, job: Job) -> None:
        with self._decoded("still", job) as made:
            self.storage.put(job.payload["key"], made.content("still.jpg"))

    def _evidence(self, job: Job, prefix: str) -> dict[str, Any]:
        with self._decoded("extract", job) as made:
            evidence = evidence_of(made, prefix)
            for name in made.names:
                self.storage.put(prefix + name, made.content(name))
        return evidence

    @contextmanager
    def _decoded(self, what: str, job: Job) -> Iterator[Made]:
        with judged():
            self.decoders.start()  # it gets ready while the video is opened
            with (
                self._video(job.payload["video"]) as video,
                self.decoders.run(f"{WORK}:{what}", job.payload, video, self.scratch, job.update_progress) as made,
            ):
                yield made

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
    except (Refused, sources.SourceRefused, Invalid) as error:
        raise Permanent(str(error)) from error


def evidence_of(made: Made, prefix: str) -> dict[str, Any]:
    """As `snaps.Evidence` takes it. Whatever names a file names one of this attempt's own."""
    told, extras = made.told, made.told["extras"]
    named = {told["clip"]["file_name"], extras["poster"], extras["thumbnail"]}
    named |= {each["file_name"] for each in (*told["frames"], *extras["artefacts"])}
    named |= {each["clean_file_name"] for each in told["frames"] if each["clean_file_name"] is not None}
    if unknown := named - {*made.names}:
        raise Garbled(f"files that were not made are named: {sorted(map(str, unknown))[:3]}")
    return {**told, "media_prefix": prefix}
