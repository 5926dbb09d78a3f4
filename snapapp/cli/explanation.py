"""The messages of failed commands."""

import psycopg

from snapapp.errors import SnapError
from snapapp.jobs.errors import JobsError
from snapapp.jobs.os.shortage import is_lack_of_threads

_OF_EXTRAS = frozenset(
    {"av", "fastapi", "httptools", "itsdangerous", "obstore", "PIL", "python_multipart", "starlette", "thumbhash"}
    | {"uvicorn", "uvloop"}
)
_TO_TYPE = "type `pip install 'snapapp[product,server]'`."


def explanation(error: BaseException) -> str | None:
    """The message for an error that a person can do something about; None for a bug, which is shown with its
    traceback."""
    error = getattr(error, "orig", None) or error  # SQLAlchemy wraps the driver's errors
    match error:
        case SnapError():
            return str(error)
        case JobsError():
            return one_line(str(error))
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedFunction() | psycopg.errors.UndefinedColumn():
            return "The database does not have the schema that this code needs: type `snapapp migrate`."
        case psycopg.errors.ReadOnlySqlTransaction():
            return (
                "The database takes no writes: it is a standby, or default_transaction_read_only is on. Name the "
                "primary, or all hosts with target_session_attrs=read-write."
            )
        case psycopg.OperationalError() if error.sqlstate is None:
            return f"The database cannot be reached: {one_line(str(error))}"
        case psycopg.Error():
            return f"The database refuses: {one_line(str(error))}"
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] in _OF_EXTRAS:
            return f"{error.name} is not installed, which the queue alone does not need: {_TO_TYPE}"
        case ModuleNotFoundError() if (error.name or "").partition(".")[0] in ("dask", "distributed"):
            return f"{error.name} is not installed, which a cluster takes: type `pip install 'snapapp[compute]'`."
        case RuntimeError() if is_lack_of_threads(error):
            return (
                "The system starts no more threads: raise the limit of processes (TasksMax, pids.max, ulimit -u) or of "
                "memory."
            )
        case OSError() if error.strerror:
            return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return None


def one_line(text: str) -> str:
    return " ".join(text.split())
