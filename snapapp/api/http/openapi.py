"""The description of the API at /openapi.json and /docs: FastAPI's, with additions that FastAPI cannot find in the
routes."""

import re
from collections.abc import Iterator
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from snapapp.api.http.errors import ErrorBody, answer
from snapapp.api.http.requests.access import WRONG_A_MINUTE
from snapapp.api.http.requests.exchange import BODY_MAX
from snapapp.api.http.requests.tokens import INTERNAL_TOKEN
from snapapp.api.http.tenancy import TENANT_CODE, TENANT_TOKEN

Operation = dict[str, Any]

_TAGS = {
    "snaps": "Moments that people marked in videos: their state, their evidence, and searches for them.",
    "frames": "The first version of the API: frames of up to ten moments in one request, which waits for them.",
    "videos": "The videos that snaps are taken from, named by a URL or uploaded.",
    "templates": "The attributes that a tenant wants of its subjects.",
    "public": "What a public link shows, without any headers.",
    "events": "State changes of snaps, live, as server-sent events.",
    "webhooks": "URLs that are called when a snap completes, fails or is shared.",
    "operators": "The people who sign in by a personal link, and their roles.",
    "session": "A browser signs in and out.",
    "actuator": "Health checks, for load balancers, systemd and people.",
    "metrics": "Counters of this process and the depth of the queue, for people and for Prometheus.",
    "observability": "Health, metrics, alerts, the doctor and the audit, as JSON for dashboards.",
    "jobs": "Jobs that wait, run or failed, and what a person can do with them.",
    "queues": "How full and how fast each queue is, and its switch for pausing.",
    "workers": "The processes that work the queue, and how former ones ended.",
    "fleet": "Supervisors and their pools, the commands sent to them, and why pools were scaled.",
    "schedules": "Recurring jobs: when each fires next, and what happened at each slot.",
    "media": "Frames, clips and videos, by links that need no headers.",
}

_UNAUTHORIZED = {
    "type": "object",
    "title": "Unauthorized",
    "required": ["status", "message"],
    "properties": {
        "status": {"type": "integer", "examples": [401]},
        "message": {"type": "string", "examples": ["Internal API token required"]},
    },
}


def describe(app: FastAPI) -> None:
    """Makes the app describe itself with `_description_of`, once, when the description is first asked for."""

    lock = Lock()  # forty threads that were first at once would each make it, and in their minute nobody was answered

    def openapi() -> dict[str, Any]:
        with lock:
            if not app.openapi_schema:
                app.openapi_schema = _description_of(app)
            return app.openapi_schema

    def show(request: Request) -> JSONResponse:
        root = request.scope.get("root_path", "").rstrip("/")
        return JSONResponse(app.openapi() | ({"servers": [{"url": root}]} if root else {}))

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's own way to change it
    # FastAPI's route is async: while it makes the description, half a second, nobody else would be answered.
    app.add_route("/openapi.json", show, include_in_schema=False)
    app.add_exception_handler(405, _not_allowed)  # type: ignore[arg-type]  # starlette types it for Exception


def _not_allowed(request: Request, error: HTTPException) -> JSONResponse:
    """Answers 405 with the methods of all routes that match the path; Starlette would name those of the first one
    only."""
    methods = _methods(request.app.openapi()["paths"], request.url.path)
    headers = {"Allow": ", ".join(sorted(methods))} if methods else error.headers
    return answer(405, "Method Not Allowed", headers=headers)


def _methods(paths: dict[str, Any], path: str) -> set[str]:
    fitting = [path] if path in paths else [each for each in paths if _as_pattern(each).fullmatch(path)]
    return {method.upper() for each in fitting for method in paths[each]}


def _as_pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)))


def _description_of(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    used_tags = {tag for _, _, operation in _operations(schema) for tag in operation.get("tags", [])}
    schema["tags"] = [{"name": tag, "description": _TAGS[tag]} for tag in _TAGS if tag in used_tags]
    components = schema.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    schemas["Unauthorized"] = _UNAUTHORIZED
    schemas.setdefault("ErrorBody", ErrorBody.model_json_schema())
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's models of 422; invalid input is 400 here
        schemas.pop(name, None)
    for _, method, operation in _operations(schema):
        asked_with = [name for option in operation.get("security", []) for name in option]
        if TENANT_CODE.scheme_name in asked_with:
            _say_which_tenants_may(method, operation)
        if INTERNAL_TOKEN.scheme_name in asked_with:
            operation["responses"]["401"] = _answer("The token is missing or wrong.", "Unauthorized")
            operation["responses"]["403"] = _answer(
                "No token is set and the request does not come from this machine; or `SNAPAPP_INTERNAL_ALLOW` does not "
                "name its address; or its token may only read."
            )
        if asked_with:
            operation["responses"]["429"] = _answer(
                f"The address tried {WRONG_A_MINUTE} different wrong tokens in a minute; come back after `Retry-After` "
                "seconds."
            )
        _say_what_the_middleware_does(operation)
        bodies = operation.get("requestBody", {}).get("content", {}).values()
        for sent in (*operation.get("parameters", []), *bodies):
            sent["schema"] = _without_null(sent["schema"])
    for model in schemas.values():
        for field in model.get("properties", {}).values():
            field.pop("title", None)  # pydantic makes "Delayms" of delayMs
    _name_readably(schema)
    return schema


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a parameter or body without null: pydantic makes what is optional nullable. A query cannot hold
    null, and generators of clients refuse a body that is an object or null."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "title")}
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    return {**options[0], **rest} if options else rest


def _operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, Operation]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _say_which_tenants_may(method: str, operation: Operation) -> None:
    """Adds what FastAPI cannot know: a code and a token may be sent together, and neither if tokens are not required;
    the tenant is then `default`."""
    both: dict[str, list[str]] = {TENANT_CODE.scheme_name: [], TENANT_TOKEN.scheme_name: []}
    operation["security"] = [{}, both, *operation["security"]]
    responses = operation["responses"]
    responses.setdefault("401", _answer("The tenant's token is required, or wrong."))
    responses.setdefault("404", _answer("There is no such tenant."))
    if method not in ("get", "head"):
        responses.setdefault(
            "403", _answer("The request comes from a page of another site, or who is signed in may not do this.")
        )


def _say_what_the_middleware_does(operation: Operation) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    if not operation.get("parameters") and "requestBody" not in operation:
        responses.pop("400", None)
    if "requestBody" in operation:
        responses.setdefault("408", _answer("The rest of the body did not come in time."))
        responses.setdefault("413", _answer(f"The body has more than {BODY_MAX} bytes."))
    operation["responses"] = dict(sorted(responses.items()))


def _answer(why: str, model: str = "ErrorBody") -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}
    return {"description": why, "content": content}


def _name_readably(schema: dict[str, Any]) -> None:
    """Names operations `listJobs` instead of `list_jobs_internal_jobs_get`. A second route to the same function is
    named by its path."""
    used_names: set[str] = set()
    for path, _, operation in _operations(schema):
        name = to_camel(re.sub(r"\W+", "_", operation["summary"].lower()))
        if name in used_names:
            name = to_camel(re.sub(r"\W+", "_", path.lower()).strip("_"))
        used_names.add(name)
        operation["operationId"] = name
