"""The doctor's check of the bucket in which the files are kept."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from threading import Thread

from snapapp import storage
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity
from snapapp.settings.table import Settings
from snapapp.storage import Storage, StorageAway, keys

NAME = "bucket"
_PATIENCE = timedelta(seconds=5)  # the storage itself is more patient with a bucket that hangs than a doctor may be


def check_of(settings: Settings) -> Callable[[ExaminedDatabase], Iterator[Finding]]:
    def check(_: ExaminedDatabase) -> Iterator[Finding]:
        yield finding(storage.from_settings(settings))

    return check


def finding(bucket: Storage, patience: timedelta = _PATIENCE) -> Finding:
    """What the bucket says when it is asked for a list."""
    answer: Future[None] = Future()
    Thread(target=_ask, args=(bucket, answer), name="bucket check", daemon=True).start()
    try:
        answer.result(patience.total_seconds())
    except StorageAway as error:
        return _away(str(error))
    except TimeoutError:
        return _away(f"it gives no answer within {patience.total_seconds():g} s")
    return Finding(id="BUCKET", saw="The bucket of SNAPAPP_S3_BUCKET answers.")


def _ask(bucket: Storage, answer: Future[None]) -> None:
    try:
        list(bucket.listed(f"{keys.OWNER}/"))  # empty; the refusal of a list says why, that of an object does not
        answer.set_result(None)
    except BaseException as error:  # noqa: BLE001 - it is the check's
        answer.set_exception(error)


def _away(reason: str) -> Finding:
    return Finding(
        id="BUCKET_AWAY",
        severity=Severity.CRITICAL,
        saw=f"The bucket of SNAPAPP_S3_BUCKET cannot be used: {reason}.",
        why="Nobody sees evidence or videos, and uploads are refused. Jobs that make pictures wait until it is back.",
        do="Look for a key that has expired, a clock that is wrong, a bucket that is gone or misspelt, or a provider "
        "that is down. What waits goes on by itself within a minute; new settings need a restart.",
        paste="snapapp config --explain",
    )
