"""A backup is brought back, into a database and a storage that are empty: nothing that is there is ever replaced. The
media come first and the database last, in one transaction; so what was interrupted is gone on with by the same
command."""

import shutil
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
from psycopg import sql

from snapapp.backup import reading
from snapapp.backup.errors import BackupError, Damaged, NotEmpty
from snapapp.backup.manifest import Manifest, MediaFile
from snapapp.backup.place import Place
from snapapp.backup.streams import BLOCK, counted
from snapapp.postgres import dump
from snapapp.storage import Storage, keys


@dataclass(frozen=True, slots=True)
class Restored:
    manifest: Manifest
    rows: int


def restore(url: str, media: Storage, place: Place, id_: str | None, scratch: Path) -> Restored:
    manifest = chosen(place, id_)
    files = {file.key: file for file in place.media(manifest)}
    with reading.connected(url) as db:
        require_empty(db)
        reading.role(db)  # refused now rather than when all else is done
        add_roles(db, manifest.roles)
    for file in missing(files, media):
        restore_file(file, media, place)
    restore_database(url, place, manifest, scratch)
    return Restored(manifest, sum(compared(url, manifest).values()))


def chosen(place: Place, id_: str | None) -> Manifest:
    whole = place.whole()
    if not whole:
        raise BackupError("There is no whole backup there.")
    if id_ and id_ not in whole:
        raise BackupError(f"There is no whole backup {id_}; there are: {', '.join(whole)}")
    return place.manifest(id_ or whole[-1])


# --- the database -----------------------------------------------------------------------------------------------


def require_empty(db: reading.Db) -> None:
    if found := reading.tables(db):
        raise NotEmpty(f"The database has tables already ({', '.join(found[:3])}, …): restore into a new, empty one.")


def add_roles(db: reading.Db, names: tuple[str, ...]) -> None:
    """The schema grants rights to them; they belong to the whole server, so no dump of a database has them."""
    there = {name for (name,) in db.execute("SELECT rolname FROM pg_roles")}
    for name in names:
        if name not in there:
            try:
                db.execute(sql.SQL("CREATE ROLE {} NOLOGIN").format(sql.Identifier(name)))
            except psycopg.errors.InsufficientPrivilege as error:
                raise BackupError(
                    f"The role {name} is missing. As a superuser of the database, type: CREATE ROLE {name} NOLOGIN;"
                ) from error


def restore_database(
    url: str, place: Place, manifest: Manifest, scratch: Path, *, extensions: Container[str] | None = None
) -> None:
    """The dump is whole, and what its manifest says, before anything of it is run. With `extensions` those alone are
    added that are among them."""
    with reading.connected(url) as db:
        server = reading.major(db)
    with TemporaryDirectory(prefix="restore-", dir=scratch) as folder:
        file = Path(folder) / "database"
        with place.database(manifest) as source, file.open("wb") as target:
            shutil.copyfileobj(source, target, BLOCK)
        dump.pg_restore(url, server, file, extensions=extensions)


def compared(url: str, manifest: Manifest) -> Mapping[str, int]:
    """The rows that are there now, which are as many as were dumped."""
    with reading.connected(url) as db:
        role = reading.role(db)
        with db.transaction():
            reading.act_as(db, role)
            found = reading.rows(db)
    if found != manifest.tables:
        names = sorted({*found} | {*manifest.tables})
        wrong = [name for name in names if found.get(name) != manifest.tables.get(name)]
        told = ", ".join(f"{name} {found.get(name)} instead of {manifest.tables.get(name)}" for name in wrong[:5])
        raise Damaged(f"The restored database has other rows than were dumped: {told}")
    return found


# --- the media --------------------------------------------------------------------------------------------------


def missing(files: Mapping[str, MediaFile], media: Storage) -> Iterator[MediaFile]:
    """What an earlier, interrupted try has brought already need not come again; anything else must not be there."""
    there = {stored.key: stored.size for folder in keys.FOLDERS for stored in media.listed(folder)}
    for key in there:
        if key not in files or not _is_that(media, files[key]):
            raise NotEmpty(f"The storage has something already ({key}): restore into a new, empty one.")
    return (file for key, file in files.items() if key not in there)


def _is_that(media: Storage, file: MediaFile) -> bool:
    with media.open(file.key) as source:
        return counted(source).sha256 == file.sha256


def restore_file(file: MediaFile, media: Storage, place: Place) -> None:
    with place.media_file(file) as source, media.upload(file.key) as upload:
        while block := source.read(BLOCK):
            upload.write(block)
        upload.finish()  # which is not reached where it is not what it should be
