"""The pages: files as they lie here, no build step. They get what they show from the API, as any client does. Their
routes are async: what lies in memory need not wait for a thread."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

_HERE = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
_HEADERS = {
    "Cache-Control": "no-cache",  # ask every time; the answer is mostly 304
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "media-src 'self'; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"  # text cannot become HTML by mistake
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex, nofollow",
}

_INSTALLABLE = "; worker-src 'self'; manifest-src 'self'"  # the page that stays where there is no line

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Page:
    content: bytes
    headers: Mapping[str, str]


def _read(path: Path) -> Page:
    content = path.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = _HEADERS | {"ETag": etag, "Content-Type": _TYPES[path.suffix]}
    if path.name == "home.html":
        policy = headers["Content-Security-Policy"].replace("trusted-types 'none'", "trusted-types service-worker")
        headers["Content-Security-Policy"] = policy + _INSTALLABLE
    return Page(content, headers)


_PAGES = {path.relative_to(_HERE).as_posix(): _read(path) for path in _HERE.rglob("*") if path.suffix in _TYPES}


_AT = {
    "/": "home/home.html",  # the operator's: videos, and moments marked in them
    # For whoever is on call: one page, whose views are addresses.
    **dict.fromkeys(("/ops", "/ops/{view}", "/ops/jobs/{job_id}", "/ops/schedules/{name}"), "ops/ops.html"),
    "/snaps/{snap_id:uuid}": "pages/snap.html",  # whether there is such a moment, and for whom, the API tells the page
    "/docs": "docs/docs.html",  # FastAPI's own page loads scripts from elsewhere: they could read the internal token
    "/service-worker.js": "service-worker.js",  # at the root, because one has what lies below its own address
    "/robots.txt": "robots.txt",
}


def _showing(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        return _answer(request, name)

    return show


for _address, _name in _AT.items():
    router.add_api_route(_address, _showing(_name), methods=["GET", "HEAD"])


@router.api_route("/static/{name:path}", methods=["GET", "HEAD"])
async def static(request: Request, name: str) -> Response:
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    page = _PAGES.get(name)
    if page is None:
        raise HTTPException(404)
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("If-None-Match", "").split(",")]
    if page.headers["ETag"] in known or known == ["*"]:
        return Response(status_code=304, headers=page.headers)
    return Response(page.content, headers=page.headers)
