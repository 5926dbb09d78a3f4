"""The paths in the data directory, and the messages for people when the directory or the disk cannot be used."""

import errno
import os
import pwd
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from snapapp.errors import PostgresError

_SCARCE_MB = 64  # a new cluster takes 40 MB; with less free than this, a failure is most likely due to the disk


@dataclass(frozen=True, slots=True)
class Home:
    root: Path

    @classmethod
    def at(cls, data_dir: Path) -> "Home":
        """The home at its real path, so that every spelling of a directory leads to the same locks and the same
        server."""
        return cls(Path(os.path.realpath(data_dir)))

    @property
    def cluster(self) -> Path:
        return self.root / "postgres"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def gate(self) -> Path:
        return self.root / "postgres.gate"

    @property
    def adopters(self) -> Path:
        return self.root / "postgres.adopters"


def open_private(path: Path, flags: int) -> int:
    """Opens a file with a descriptor that no child inherits. A file that root creates is given to the directory's
    owner."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor


def write_durably(path: Path, text: str) -> None:
    with open(open_private(path, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def disk_hint(path: Path) -> str:
    free_mb = shutil.disk_usage(path).free // 2**20
    return f"\nThe disk that holds {path} is nearly full: {free_mb} MB left." if free_mb < _SCARCE_MB else ""


@contextmanager
def explained(home: Home) -> Iterator[None]:
    """Turns an error of the operating system about the data directory into a message that says what to do."""
    try:
        yield
    except OSError as error:
        raise PostgresError(_explanation(home, error)) from error


def _explanation(home: Home, error: OSError) -> str:
    path = error.filename or home.root
    elsewhere = "or set SNAPAPP_DATA_DIR to another directory"
    match error.errno:
        case errno.ENOTDIR | errno.EEXIST:
            return f"The data directory {home.root}, or one above it, is a file: move that away {elsewhere}."
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return (
                f"{path} is not open to the user {_user_name()} ({error.strerror}): give it to that user "
                f"with `chown -R {_user_name()} {home.root}` {elsewhere}."
            )
        case errno.ENOSPC | errno.EDQUOT:
            return f"The disk that holds {home.root} is full: free some space {elsewhere}."
        case _:
            return f"The data directory {home.root} cannot be used: {error}. Mend that {elsewhere}."


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
