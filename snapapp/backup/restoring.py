"""Restores a backup into an empty database and an empty storage; it never replaces anything. The media come first, and
the database last, in one transaction. So the same command continues a restore that was interrupted."""

import shutil
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import psycopg
from psycopg import sql

from snapapp.backup import reading, temporary
from snapapp.backup.errors import BackupError, Damaged, NotEmpty
from snapapp.backup.manifest import Manifest, MediaFile
from snapapp.backup.place import Place
from snapapp.backup.streams import BLOCK, size_and_hash
from snapapp.jobs.schema import migrations_folder
from snapapp.postgres import dump
from snapapp.storage import Storage, keys


def restore(url: str, media: Storage, place: Place, id_: str | None, scratch: Path) -> Manifest:
    """Returns the description of the backup that was restored."""
    manifest = chosen(place, id_)
    files = {file.key: file for file in place.media(manifest)}
    reading.require_sessions(url)
    if _is_back(url, media, manifest, files):
        return manifest
    with reading.connected(url) as db:
        require_empty(db)
        reading.role(db)  # a missing right is reported before the long copy, not after it
        become_tenant(db)
        add_roles(db, manifest.roles)
    for file in missing(files, media):
        restore_file(file, media, place)
    restore_database(url, place, manifest, scratch)
    compare_rows(url, manifest)
    return manifest


def _is_back(url: str, media: Storage, manifest: Manifest, files: Mapping[str, MediaFile]) -> bool:
    """Whether an earlier restore, which was interrupted after its transaction, has brought back everything."""
    with reading.connected(url) as db:
        if {*reading.tables(db)} != {*manifest.tables}:
            return False
    try:
        compare_rows(url, manifest)
        return not any(missing(files, media))
    except (Damaged, NotEmpty):
        return False


def chosen(place: Place, id_: str | None) -> Manifest:
    whole = place.whole()
    if not whole:
        raise BackupError("There is no whole backup there.")
    if id_ and id_ not in whole:
        raise BackupError(f"There is no whole backup {id_}; there are: {', '.join(whole)}")
    return place.manifest(id_ or whole[-1])


# --- the database -----------------------------------------------------------------------------------------------


def require_empty(db: reading.Db) -> None:
    if tables := reading.tables(db):
        raise NotEmpty(f"The database has tables already ({', '.join(tables[:3])}, …): restore into a new, empty one.")


def become_tenant(db: reading.Db) -> None:
    """Makes the tenants' role, and this role its member, with the statements of the migration. Roles and memberships
    belong to the whole server, so a dump has neither; without them, every request of a tenant would be refused."""
    try:
        db.execute((migrations_folder() / "sql" / "product" / "role.sql").read_bytes())
    except psycopg.errors.InsufficientPrivilege as error:
        raise BackupError(error.diag.message_primary) from error


def add_roles(db: reading.Db, names: tuple[str, ...]) -> None:
    """Creates the roles that the schema grants rights to, which the dump does not contain."""
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
    """Restores the dump, after it was read as a whole and compared with its manifest. With `extensions`, other
    extensions are left out."""
    with reading.connected(url) as db:
        server = reading.major(db)
    with temporary.folder(scratch, temporary.RESTORE) as folder:
        file = folder / "database"
        with place.database(manifest) as source, file.open("wb") as target:
            shutil.copyfileobj(source, target, BLOCK)
        dump.pg_restore(url, server, file, extensions=extensions)


def compare_rows(url: str, manifest: Manifest) -> None:
    """Counts the restored rows of each table; Damaged if there are other numbers than in the manifest."""
    with reading.connected(url) as db:
        role = reading.role(db)
        with db.transaction():
            reading.act_as(db, role)
            counts = reading.rows(db)
    if counts != manifest.tables:
        names = sorted({*counts} | {*manifest.tables})
        wrong = [name for name in names if counts.get(name) != manifest.tables.get(name)]
        differences = [f"{name} {counts.get(name)} instead of {manifest.tables.get(name)}" for name in wrong[:5]]
        raise Damaged(f"The restored database has other rows than were dumped: {', '.join(differences)}")


# --- the media --------------------------------------------------------------------------------------------------


def missing(files: Mapping[str, MediaFile], media: Storage) -> Iterator[MediaFile]:
    """The files that are not in the storage yet. Files of this backup may be there, from a restore that was
    interrupted; anything else raises NotEmpty."""
    there = {stored.key: stored.size for folder in keys.FOLDERS for stored in media.listed(folder)}
    for key in there:
        if key not in files or not _has_content(media, files[key]):
            raise NotEmpty(f"The storage has something already ({key}): restore into a new, empty one.")
    return (file for key, file in files.items() if key not in there)


def _has_content(media: Storage, file: MediaFile) -> bool:
    with media.open(file.key) as source:
        return size_and_hash(source).sha256 == file.sha256


def restore_file(file: MediaFile, media: Storage, place: Place) -> None:
    with place.media_file(file) as source, media.upload(file.key) as upload:
        while block := source.read(BLOCK):
            upload.write(block)
        upload.finish()  # not reached if the file is damaged: reading its end has raised then
