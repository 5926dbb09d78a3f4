"""What a link shows to a person: a page without scripts, in their language, for paper and for previews in chats too.
Jinja2 makes it, because it escapes whatever it is handed unless it is told otherwise."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from snapapp.api.product.pages.language import NAMES, Language, language_of, weights
from snapapp.api.product.snap_views import PublicSnap

_PAGES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
# Programs that draw the preview of a link in a chat. They say that they take anything.
_PREVIEWERS = re.compile(
    "whatsapp|facebookexternalhit|telegrambot|twitterbot|slackbot|discordbot|linkedinbot", re.IGNORECASE
)


# --- who asks for it ---------------------------------------------------------------------------------------------


def is_wanted(request: Request) -> bool:
    """Whether whoever asks would rather have a page than JSON."""
    said = weights(request.headers.get("Accept", ""))
    html, json = said.get("text/html", 0.0), said.get("application/json", 0.0)
    return html > json or (not json and _PREVIEWERS.search(request.headers.get("User-Agent", "")) is not None)


# --- the page ----------------------------------------------------------------------------------------------------


def shown(request: Request, snap: PublicSnap, poster: str | None, base: str) -> HTMLResponse:
    """`poster` is the name of the clip's first picture, `base` the address by which others know us, if there is one."""
    t = language_of(request)
    is_named = snap.subject.id != str(snap.snap_id)
    best = next((frame for frame in snap.frames if frame.is_best), None) or next(iter(snap.frames), None)
    folder = f"/public/snaps/{snap.public_share_token}/media/"
    page = _PAGES.get_template("public_page.html").render(
        t=t,
        snap=snap,
        title=snap.subject.id if is_named else t("A marked moment"),
        summary=_summary(t, snap),
        picture=_absolute(base, best.path) if best else None,
        poster=f"{folder}{poster}" if poster else None,
        record=list(_record(t, snap, is_named)),
        files=[*([snap.snapshot_video] if snap.snapshot_video else []), *snap.frames],
        seconds=lambda value: "" if value is None else f"{t.number(value)} s",
    )
    return _answer(200, page, [frame.path for frame in snap.frames])


def dead(request: Request) -> HTMLResponse:
    """Nothing is told of why: to whoever has a dead link, one that never was is the same."""
    t = language_of(request)
    title = t("This link shows nothing any more")
    page = _PAGES.get_template("public_page.html").render(t=t, snap=None, title=title, picture=None)
    return _answer(404, page, [])


def _answer(status: int, page: str, paths: list[str]) -> HTMLResponse:
    # files that the old service made may lie elsewhere
    sources = "'self' https:" if any("://" in path for path in paths) else "'self'"
    policy = (
        f"default-src 'none'; style-src 'self'; img-src {sources}; media-src {sources}; form-action 'none'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )
    headers = {
        "Content-Security-Policy": policy,
        "Referrer-Policy": "no-referrer",  # the address is the permission
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept, Accept-Language, User-Agent",
        "Cache-Control": "private, no-cache",  # a link may be revoked at any time
        "X-Robots-Tag": "noindex, nofollow",
    }
    return HTMLResponse(page, status, headers)


def _absolute(base: str, path: str) -> str:
    return path if "://" in path else f"{base}{path}"


def _summary(t: Language, snap: PublicSnap) -> str:
    parts = [f"{t('Filmed')} {t.moment(snap.data_filmagem)}" if snap.data_filmagem else None]
    parts.append(f"{t('Marked by')} {snap.nickname}")
    return " · ".join(filter(None, parts))


def _record(t: Language, snap: PublicSnap, is_named: bool) -> Iterator[tuple[str, str]]:
    if is_named:
        yield t("Subject"), snap.subject.id
    for each in snap.subject.attributes:
        value = each.string_value if each.number_value is None else t.number(each.number_value)
        if value:
            yield t(NAMES.get(each.key, each.key)), value
    if snap.data_filmagem:
        yield t("Filmed"), t.moment(snap.data_filmagem)
    yield t("Marked"), t.moment(snap.created_at)
    yield t("Marked by"), snap.nickname
    if snap.resolved_start_seconds is not None:
        yield t("Moment in the video"), f"{t.number(snap.resolved_start_seconds)} s"
    yield t("Duration"), f"{t.number(snap.duration_seconds)} s"
    if snap.video_probe and snap.video_probe.compatible:
        yield t("Video"), _video(t, snap.video_probe)


def _video(t: Language, probe: Any) -> str:
    size = f"{probe.width} × {probe.height}" if probe.width else None
    rate = f"{t.number(probe.source_fps)} {t('frames a second')}" if probe.source_fps else None
    return " · ".join(filter(None, [size, probe.codec_name, rate]))
