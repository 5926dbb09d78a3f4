"""Which backups stay, and what goes with those that do not."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from snapapp.backup.manifest import when
from snapapp.backup.place import Place

_A_DAY = timedelta(days=1)  # a bucket's uploads lie beside those of the media, which may be under way


def outlived(ids: Sequence[str], now: datetime, *, keep: int, keep_for: timedelta) -> list[str]:
    """Those that are neither among the newest so many nor young."""
    newest = {*sorted(ids)[-keep:]}
    return [id_ for id_ in ids if id_ not in newest and now - when(id_) > keep_for]


def apply(place: Place, now: datetime, *, keep: int, keep_for: timedelta) -> list[str]:
    """After a backup was made whole, and while no other is being made. The manifest goes first: what is half removed is
    no backup. An object goes when no backup that is left has it."""
    gone = outlived(place.whole(), now, keep=keep, keep_for=keep_for)
    for id_ in gone:
        place.forget(id_)
    for id_ in place.unfinished():
        place.forget(id_)
    # a manifest that cannot be read raises here, before anything that it may need is removed
    needed = {file.sha256 for id_ in place.whole() for file in place.media(place.manifest(id_))}
    for sha256, key in list(place.objects()):
        if sha256 not in needed:
            place.store.delete(key)
    place.store.forget_uploads(now - _A_DAY)  # of a backup that was killed: nobody else clears a folder of backups
    return gone
