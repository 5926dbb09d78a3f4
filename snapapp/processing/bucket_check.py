"""The doctor's check of the bucket in which the files are kept."""

from collections.abc import Callable, Iterator
from datetime import timedelta

from snapapp import storage
from snapapp.domain import kinds
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity
from snapapp.jobs.os.threads import in_a_thread
from snapapp.processing.media_work import WAITS_FOR_STORAGE
from snapapp.settings.table import Settings
from snapapp.storage import Storage, StorageAway, keys

NAME = "bucket"
_PATIENCE = timedelta(seconds=5)  # the storage itself is more patient with a bucket that hangs than a doctor may be

# A key that may not write, or a quota, shows in no list. Jobs that wait look each minute, and log what they were told.
_WAITING = """
SELECT said.message
  FROM snap_processing_job AS job,
       LATERAL (SELECT message FROM job_log WHERE job_id = job.id ORDER BY id DESC LIMIT 1) AS said
 WHERE status IN ('PENDING', 'RETRY_WAIT') AND (gate = 'open' OR gate = 'later') AND kind = ANY (%(kinds)s)
   AND next_retry_at > now() AND progress ->> 'note' = %(note)s AND said.message LIKE '%%: it ' || %(note)s
   AND EXISTS (SELECT FROM job_log
                WHERE job_id = job.id AND at < now() - %(patience)s::interval AND message LIKE '%%: it ' || %(note)s)
 LIMIT 100
"""
_KINDS = [kinds.SNAP, kinds.PROBE, kinds.PREVIEW, kinds.STILL]
_HICCUP = timedelta(minutes=2)


def check_of(settings: Settings) -> Callable[[ExaminedDatabase], Iterator[Finding]]:
    def check(examined: ExaminedDatabase) -> Iterator[Finding]:
        found = finding(storage.from_settings(settings))
        yield found if found.severity is not Severity.OK else waited_for(examined) or found

    return check


def waited_for(examined: ExaminedDatabase) -> Finding | None:
    """The bucket gives a list, and yet jobs wait for it."""
    note = WAITS_FOR_STORAGE["note"]
    waiting = examined.ask(_WAITING, kinds=_KINDS, note=note, patience=_HICCUP)
    if not waiting:
        return None
    reason = waiting[0][0].removesuffix(f": it {note}")
    return Finding(
        id="BUCKET_REFUSES",
        severity=Severity.CRITICAL,
        saw=f"Jobs wait for the bucket of SNAPAPP_S3_BUCKET, although it gives a list. One was told: {reason}.",
        why="Evidence is not made, and uploads may be refused. The jobs wait until the bucket takes their files.",
        do="Look for a key that may list and not read or write, a quota that is used up, or a rule of the bucket. What "
        "waits goes on by itself within a minute; new settings need a restart.",
        paste="snapapp config --explain",
        numbers={"jobs": len(waiting)},
    )


def finding(bucket: Storage, patience: timedelta = _PATIENCE) -> Finding:
    """What the bucket says when it is asked for a list."""
    # empty; the refusal of a list says why, that of an object does not
    answer = in_a_thread("bucket check", lambda: list(bucket.listed(f"{keys.OWNER}/")))
    try:
        answer.result(patience.total_seconds())
    except StorageAway as error:
        return _away(str(error))
    except TimeoutError:
        return _away(f"it gives no answer within {patience.total_seconds():g} s")
    return Finding(id="BUCKET", saw="The bucket of SNAPAPP_S3_BUCKET answers.")


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
