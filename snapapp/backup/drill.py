"""The drill: it restores the newest backup into a scratch database and a scratch folder, compares the result with the
manifest, and removes it. A backup that was never restored proves nothing.

The scratch database runs on an embedded server of its own, so the drill does not touch the server in use and needs no
right to create databases there. Objects are restored one by one and removed at once, so the disk needs room for the
largest one only."""

from pathlib import Path

from snapapp import postgres
from snapapp.backup import reading, restoring, temporary
from snapapp.backup.errors import Damaged
from snapapp.backup.manifest import Manifest
from snapapp.backup.place import Place
from snapapp.backup.streams import size_and_hash
from snapapp.storage import Local, Room

# Nothing in the scratch database outlives the drill, so no write needs to wait for the disk.
_FAST_CONFIGURATION = "fsync = off\nfull_page_writes = off\nshared_buffers = 32MB\njit = off\n"


def drill(place: Place, id_: str | None, scratch: Path) -> Manifest:
    """Returns the description of the backup that was restored on trial."""
    manifest = restoring.chosen(place, id_)
    with temporary.folder(scratch, temporary.DRILL) as folder:
        _media(place, manifest, folder)
        _database(place, manifest, folder / temporary.DATABASE)
    return manifest


def _media(place: Place, manifest: Manifest, folder: Path) -> None:
    media = Local(folder / "media", Room(folder, 0))
    files = [*place.media(manifest)]
    if (len(files), sum(file.size for file in files)) != (manifest.objects, manifest.object_bytes):
        raise Damaged(f"The list of the media has {len(files)} objects, not {manifest.objects}.")
    for file in files:
        restoring.restore_file(file, media, place)
        with media.open(file.key) as source:
            if size_and_hash(source).sha256 != file.sha256:
                raise Damaged(f"{file.key} was not restored as it was.")
        media.delete(file.key)


def _database(place: Place, manifest: Manifest, folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "postgres.local.conf").write_text(_FAST_CONFIGURATION)
    with postgres.start(folder, create=True) as server:
        with reading.connected(server.url) as db:
            restoring.add_roles(db, manifest.roles)
            # Extensions that the embedded server lacks are left out: they watch a server (pg_stat_statements), and hold
            # no rows.
            available = {name for (name,) in db.execute("SELECT name FROM pg_available_extensions").fetchall()}
        restoring.restore_database(server.url, place, manifest, folder, extensions=available)
        restoring.compare_rows(server.url, manifest)
