"""Deletes old backups, and the objects that no other backup needs."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from snapapp.backup.manifest import by_age, when
from snapapp.backup.place import Place

_A_DAY = timedelta(days=1)  # younger uploads may be in progress: a bucket lists the uploads of media too


def outlived(ids: Sequence[str], now: datetime, *, keep: int, keep_for: timedelta) -> list[str]:
    """The backups to delete: older than `keep_for`, and not among the newest `keep`."""
    newest = by_age(ids, now)[-keep:]
    return [id_ for id_ in ids if id_ not in newest and now - when(id_) > keep_for]


def apply(place: Place, now: datetime, *, keep: int, keep_for: timedelta) -> list[str]:
    """Deletes old and unfinished backups, and objects that no remaining backup needs. It must run while no backup is
    being made. Of each backup the manifest is deleted first, so that an interrupted deletion leaves an unfinished
    backup instead of a damaged one."""
    gone = outlived(place.whole(), now, keep=keep, keep_for=keep_for)
    for id_ in gone:
        place.forget(id_)
    for id_ in place.unfinished():
        place.forget(id_)
    # A manifest that cannot be read raises here, before any object that its backup may need is deleted.
    needed = {file.sha256 for id_ in place.whole() for file in place.media(place.manifest(id_))}
    for key in [key for sha256, key in place.objects() if sha256 not in needed]:
        place.store.delete(key)
    place.store.forget_uploads(now - _A_DAY)  # left by killed backups; nothing else clears this storage
    return gone
