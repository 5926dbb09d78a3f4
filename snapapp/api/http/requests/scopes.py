"""What the scope of a request says."""

from starlette.types import Scope


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    return dict(scope["headers"])


def path_of_route(scope: Scope) -> str:
    """The path as routes see it, without the prefix of `uvicorn --root-path /app`."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def is_internal(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith("/internal") or path_of_route(scope).startswith("/internal")


def is_sign_in(scope: Scope) -> bool:
    return scope["method"] == "POST" and path_of_route(scope) in ("/v2/session", "/sign-in")


def is_upload(scope: Scope) -> bool:
    path = path_of_route(scope)
    if path.startswith("/v2/uploads/"):
        return scope["method"] in ("PATCH", "POST")  # POST replaces PATCH in networks that block PATCH
    return scope["method"] == "POST" and path == "/v2/videos"
