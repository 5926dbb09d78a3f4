"""The page of a public link: without scripts, in the reader's language, also for printing and for previews in chats."""

import re
from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from snapapp.api.product.pages.language import Language, language_of, weights
from snapapp.api.product.pages.moment import said_of
from snapapp.api.product.pages.page import allowed_sources, rendered
from snapapp.api.product.snap_views import PublicSnap

# Programs that make the preview of a link in a chat. Their Accept header takes anything.
_PREVIEWERS = re.compile(
    "whatsapp|facebookexternalhit|telegrambot|twitterbot|slackbot|discordbot|linkedinbot", re.IGNORECASE
)


# --- whether a page is wanted ------------------------------------------------------------------------------------


def is_wanted(request: Request) -> bool:
    """Whether the client prefers a page to JSON."""
    accepted = weights(request.headers.get("Accept", ""))
    html, json = accepted.get("text/html", 0.0), accepted.get("application/json", 0.0)
    return html > json or (not json and _PREVIEWERS.search(request.headers.get("User-Agent", "")) is not None)


# --- the page ----------------------------------------------------------------------------------------------------


def shown(request: Request, snap: PublicSnap, poster: str | None, base: str) -> HTMLResponse:
    """The page of a snap. `poster` is the file name of the clip's poster, `base` our public address, or empty."""
    t = language_of(request, reads_cookie=False)
    is_named = snap.subject.id != str(snap.snap_id)
    best = next((frame for frame in snap.frames if frame.is_best), None) or next(iter(snap.frames), None)
    folder = f"/public/snaps/{snap.public_share_token}/media/"
    page = rendered(
        t,
        "public_page.html",
        snap=snap,
        title=snap.subject.id if is_named else t("A marked moment"),
        summary=_summary(t, snap),
        picture=_absolute(base, best.path) if best else None,
        poster=f"{folder}{poster}" if poster else None,
        record=list(_record(t, snap, is_named)),
        files=[*([snap.snapshot_video] if snap.snapshot_video else []), *snap.frames],
        seconds=lambda value: "" if value is None else f"{t.number(value)} s",
    )
    return _answer(200, page)


def dead(request: Request) -> HTMLResponse:
    """The page of a link that is not in force. It does not say why, so revoked and unknown links look alike."""
    t = language_of(request, reads_cookie=False)
    title = t("This link shows nothing any more")
    return _answer(404, rendered(t, "public_page.html", snap=None, title=title, picture=None))


def _answer(status: int, page: str) -> HTMLResponse:
    sources = allowed_sources(page)
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
    yield from ((label, value) for label, value, _ in said_of(t, snap))
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
