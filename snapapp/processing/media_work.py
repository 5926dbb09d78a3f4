"""What a child process does with a video: it opens the video, has a decoder process decode it, and stores the results.
A failure that another attempt cannot mend becomes `Permanent`, in words for the person who marked the moment; a
full disk and a storage that is away are waited for; any other failure is tried again."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from snapapp import sources, storage
from snapapp.errors import Invalid, SnapError
from snapapp.jobs import Job, Permanent, Snooze
from snapapp.processing import child_settings
from snapapp.processing.decoder.client import WORK, Decoders, Made, Refused
from snapapp.processing.decoder.protocol import Garbled
from snapapp.settings.table import Settings
from snapapp.storage import NoRoom, NotStored, ObjectRefused, Storage, StorageAway, keys

STILLS_MAX = 500  # of a video: some 100 MB, and more than somebody looks at who steps through it
LOOK_EVERY = timedelta(minutes=1)  # for room, or for the storage
# progress without a percentage: nothing is being done
WAITS = {"note": "waits for room on the server's disk"}
WAITS_FOR_STORAGE = {"note": "waits until the server can reach its files"}

DECODERS = Decoders(WORK)  # shared by all jobs of this process


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
        """Makes the evidence of a snap, under a prefix that no other attempt writes to."""
        assert job.snap_id is not None
        with waiting_for_storage(job):
            return self._evidence(job, keys.of_attempt(job.snap_id, job.lease_seq))

    def frames(self, job: Job) -> dict[str, Any]:
        """Makes the evidence of a moment for a request without a snap."""
        return self._evidence(job, f"{job.payload['folder']}{job.lease_seq}/")

    def probe(self, job: Job) -> dict[str, Any]:
        with waiting_for_storage(job), self._decode("probe", job) as made:
            description: dict[str, Any] = made.told
            return description

    def preview(self, job: Job) -> None:
        with waiting_for_storage(job), self._decode("preview", job) as made:
            self.storage.put(job.payload["key"], made.content("preview.mp4"))

    def still(self, job: Job) -> None:
        """Takes a still. The oldest of the video go then: there can be one for each of its milliseconds, they count for
        no tenant's storage, and they are made again on request."""
        key = job.payload["key"]
        with self._decode("still", job) as made:
            self.storage.put(key, made.content("still.jpg"))
        stills = [stored for stored in self.storage.listed(keys.folder_of(key)) if keys.is_still(stored.key)]
        for stored in sorted(stills, key=lambda still: still.modified)[:-STILLS_MAX]:
            self.storage.delete(stored.key)

    def _evidence(self, job: Job, prefix: str) -> dict[str, Any]:
        with self._decode("extract", job) as made:
            evidence = evidence_of(made, prefix)
            for name in made.names:
                self.storage.put(prefix + name, made.content(name))
        return evidence

    @contextmanager
    def _decode(self, what: str, job: Job) -> Iterator[Made]:
        with marking_permanent_failures():
            self.decoders.start()  # the fork server starts while the video is opened
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
                yield remote  # type: ignore[misc]  # it can read, seek and tell, and no more is needed


@cache
def here() -> MediaWork:
    """The one MediaWork of this process."""
    return MediaWork.of(child_settings.settings())


@contextmanager
def marking_permanent_failures() -> Iterator[None]:
    """Turns errors that another attempt cannot mend into Permanent."""
    try:
        yield
    except NotStored as error:
        raise Permanent("The video's file is no longer there: upload it again") from error
    except (Refused, sources.SourceRefused, Invalid) as error:
        raise Permanent(str(error)) from error


@contextmanager
def waiting_for_storage(job: Job) -> Iterator[None]:
    """Lets the job wait, for as long as it takes, until there is room on the disk and the storage can be used: no
    attempt counts. A bucket may be away for a weekend, for the reason that its key has expired."""
    try:
        yield
    except ObjectRefused as error:  # not a storage that is away: what is refused so would be waited for in vain
        job.log(f"{error}: {error.reason}", level="ERROR")
        raise
    except StorageAway as error:
        raise _waiting(job, error, WAITS_FOR_STORAGE) from error
    except NoRoom as error:
        raise _waiting(job, error, WAITS) from error
    except sources.SourceUnavailable as error:
        if error.reason is not sources.Reason.NO_ROOM:
            raise
        raise _waiting(job, error, WAITS) from error


def _waiting(job: Job, error: SnapError, note: dict[str, str]) -> Snooze:
    job.log(f"{error}: it {note['note']}")
    job.update_progress(note)
    return Snooze(LOOK_EVERY)


def evidence_of(made: Made, prefix: str) -> dict[str, Any]:
    """The result as `snaps.Evidence` takes it. Every file name in it must be of a file that this attempt made."""
    answer, extras = made.told, made.told["extras"]
    named_files = {answer["clip"]["file_name"], extras["poster"], extras["thumbnail"]}
    named_files |= {each["file_name"] for each in (*answer["frames"], *extras["artefacts"])}
    named_files |= {each["clean_file_name"] for each in answer["frames"] if each["clean_file_name"] is not None}
    if unknown := named_files - {*made.names}:
        raise Garbled(f"files that were not made are named: {sorted(map(str, unknown))[:3]}")
    return {**answer, "media_prefix": prefix}
