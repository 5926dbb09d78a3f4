"""The table from errors to answers, whose body is {timestamp, status, error, message, details[]}. Invalid input is 400,
never 422; the details of a 5xx are logged and not sent."""

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from itertools import islice
from typing import Any
from urllib.parse import quote

import psycopg
import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.types import Scope

from snapapp.api.http.schema import WHOLE
from snapapp.errors import (
    Conflict,
    Invalid,
    NotAllowed,
    NotFound,
    SnapError,
    SnapHasChanged,
    StorageUsedUp,
    Unauthorized,
)
from snapapp.jobs.errors import DuplicateKey, IllegalTransition, InvalidJob, JobsError, UnknownJob
from snapapp.jobs.fleet.errors import InvalidCommand, UnknownPool
from snapapp.jobs.schedules.slots import InvalidSchedule, UnknownSchedule
from snapapp.logs import without_links
from snapapp.signing import ExpiredLink, ForgedLink
from snapapp.storage import NoRoom, StorageAway, UploadTooLarge

_log = logging.getLogger(__name__)

COME_BACK = {"Retry-After": "5"}
_LONGEST = 500  # characters of a message or a detail
_DETAILS = 20


class ErrorBody(BaseModel):
    """What every refusal looks like."""

    timestamp: datetime
    status: int = Field(examples=[400])
    error: str = Field(description="The reason phrase of the status.", examples=["Bad Request"])
    message: str = Field(examples=["Validation failed"])
    details: list[str] = Field(description="One line for each field: `field: reason`.")


STATUS_OF: Mapping[type[Exception], int] = {
    NotFound: 404,
    Invalid: 400,
    Unauthorized: 401,
    NotAllowed: 403,
    Conflict: 409,
    SnapHasChanged: 412,
    UnknownJob: 404,
    IllegalTransition: 409,
    DuplicateKey: 409,
    InvalidJob: 400,
    UnknownSchedule: 404,
    UnknownPool: 404,
    InvalidCommand: 409,  # the fields are valid, but do not go together
    InvalidSchedule: 409,  # not the client's fault: another release declared the schedule
    ForgedLink: 404,
    ExpiredLink: 410,
    UploadTooLarge: 413,
    NoRoom: 507,
    StorageUsedUp: 507,
}


def status_of(error: Exception) -> int | None:
    return next((status for kind, status in STATUS_OF.items() if isinstance(error, kind)), None)


def body_of(status: int, message: str, details: Iterable[str] = ()) -> dict[str, Any]:
    return {
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "status": status,
        "error": HTTPStatus(status).phrase,
        "message": _clean(message),
        "details": [_clean(detail) for detail in islice(details, _DETAILS)],
    }


def _clean(text: str) -> str:
    """The text, cut and without lone surrogates, which no answer can hold. It may quote what a client sent."""
    return text[:_LONGEST].encode("utf-8", "backslashreplace").decode()


def answer(
    status: int, message: str, details: Iterable[str] = (), headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(body_of(status, message, details), status, headers)


def asked_for(scope: Scope) -> str:
    """The method and path for a log line. Escaped, so that a path cannot begin another line, and without the tokens of
    links."""
    return f"{scope['method']} {without_links(quote(scope['path'], errors='replace'))}"


def add_handlers(app: FastAPI) -> None:
    """Adds the handlers. All are async, because a refusal must not wait for a thread."""
    # starlette types these for Exception
    app.add_exception_handler(HTTPException, _http_error)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _invalid_request)  # type: ignore[arg-type]
    app.add_exception_handler(JobsError, _known_error)  # type: ignore[arg-type]
    app.add_exception_handler(SnapError, _known_error)  # type: ignore[arg-type]
    app.add_exception_handler(StorageAway, _storage_away)  # type: ignore[arg-type]
    app.add_exception_handler(sqlalchemy.exc.TimeoutError, _pool_exhausted)  # type: ignore[arg-type]
    app.add_exception_handler(sqlalchemy.exc.DBAPIError, _database_error)  # type: ignore[arg-type]


async def _http_error(_request: Request, error: HTTPException) -> JSONResponse:
    return answer(error.status_code, str(error.detail), headers=error.headers)


async def _known_error(_request: Request, error: JobsError | SnapError) -> JSONResponse:
    if isinstance(error, Invalid):
        return answer(400, error.message, error.details)
    status = status_of(error)
    if status is None:
        raise error
    return answer(status, str(error))


async def _storage_away(request: Request, error: StorageAway) -> JSONResponse:
    _log.warning("A request met no storage: %s: %s", asked_for(request.scope), error)
    return answer(503, "The storage is away, try again", headers=COME_BACK)


async def _pool_exhausted(_request: Request, _error: sqlalchemy.exc.TimeoutError) -> JSONResponse:
    return answer(503, "Too many requests at once, try again", headers=COME_BACK)


async def _database_error(request: Request, error: sqlalchemy.exc.DBAPIError) -> JSONResponse:
    match error.orig:
        case psycopg.errors.UndefinedTable() | psycopg.errors.UndefinedFunction() | psycopg.errors.UndefinedColumn():
            return answer(503, "The database is not prepared yet", headers=COME_BACK)
        case psycopg.errors.DeadlockDetected() | psycopg.errors.SerializationFailure():
            return answer(503, "Somebody changed the same rows, try again", headers=COME_BACK)
        case psycopg.errors.QueryCanceled() | psycopg.errors.LockNotAvailable():
            return answer(503, "The database took too long, try again", headers=COME_BACK)
        case psycopg.errors.ReadOnlySqlTransaction():  # it became a standby, or its provider's disk is nearly full
            _log.warning("A request met a database that takes no writes: %s", asked_for(request.scope))
            return answer(503, "The database takes no writes at the moment, try again", headers=COME_BACK)
        case psycopg.errors.DiskFull() as full:  # it may last: no Retry-After
            _log.error("A request met a full disk: %s: %s", asked_for(request.scope), full.diag.message_primary)
            return answer(507, "The disk of the database is full: nothing can be written until there is room")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            _log.warning(
                "A request met no database: %s: %s", asked_for(request.scope), " ".join(str(error.orig).split())
            )
            return answer(503, "The database is away, try again", headers=COME_BACK)
    raise error


# --- validation -------------------------------------------------------------------------------------------------


async def _invalid_request(_request: Request, error: RequestValidationError) -> JSONResponse:
    mistakes = error.errors()
    for mistake in mistakes:
        if mistake["type"] == "json_invalid":
            return answer(400, "Malformed JSON request", [str(mistake.get("ctx", {}).get("error", ""))])
        if mistake["type"] == WHOLE:
            return answer(400, mistake["msg"])
        if mistake["type"] == "missing" and mistake["loc"][0] == "query":
            return answer(400, f"Missing required parameter: {mistake['loc'][-1]}")
    return answer(400, "Validation failed", [_detail(mistake) for mistake in mistakes])


def _detail(mistake: Mapping[str, Any]) -> str:
    place = ".".join(str(part) for part in mistake["loc"][1:]) or str(mistake["loc"][0])
    return f"{place}: {_reason(mistake)}"


def reasons(mistakes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The reasons why a part of a request is invalid, one text for each mistake."""
    return [_clean(": ".join(filter(None, [".".join(map(str, each["loc"])), _reason(each)]))) for each in mistakes]


def _reason(mistake: Mapping[str, Any]) -> str:
    if isinstance(mistake.get("input"), bytes):  # a body that is not said to be JSON is not read as such
        return "The Content-Type should be application/json"
    return str(mistake["msg"]).removeprefix("Value error, ")


# --- documentation ----------------------------------------------------------------------------------------------

RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorBody, "description": "Something in the request is not as it must be."},
    503: {
        "model": ErrorBody,
        "description": "The database is away, or too many ask at once; come back after `Retry-After` seconds.",
    },
}


def may_be(**why: str) -> dict[int | str, dict[str, Any]]:
    """Error responses for a route's `responses`: `may_be(_404="There is no such job.")`."""
    return {int(status[1:]): {"model": ErrorBody, "description": reason} for status, reason in why.items()}
