"""A moment as the server's pages show it: its name, its attributes and its picture."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from snapapp.api.product.pages.language import NAMES, Language
from snapapp.api.product.snap_views import PublicSnap, SnapLine
from snapapp.domain.tables import SnapStatus


@dataclass(frozen=True, slots=True)
class PageMoment:
    """A moment, as a page shows it."""

    id: UUID
    name: str | None  # None: not named yet
    snap: SnapLine
    facts: str
    picture: str | None
    clock: str  # its position in the video
    state: str


def page_moment(t: Language, snap: SnapLine) -> PageMoment:
    name = None if snap.subject.id == str(snap.snap_id) else snap.subject.id
    best = next((frame.path for frame in snap.frames if frame.is_best), None)
    picture = snap.thumbnail_path or snap.poster_path or best
    facts = [f"{label}: {value}" for label, value, _ in said_of(t, snap) if value != name]
    seconds = snap.resolved_start_seconds or snap.start_seconds or 0
    return PageMoment(snap.snap_id, name, snap, " · ".join(facts), picture, t.clock(seconds), _state(t, snap))


def _state(t: Language, snap: SnapLine) -> str:
    """The state in words. A moment that is not finished is "queued", because lists do not read the job."""
    if snap.status is not SnapStatus.COMPLETED:
        return t("failed") if snap.status is SnapStatus.FAILED else t("queued")
    frames = t("1 frame") if snap.frame_count == 1 else f"{snap.frame_count} {t('frames')}"
    return f"{frames} + {t('clip')}" if snap.snapshot_video else frames


def said_of(t: Language, snap: SnapLine | PublicSnap) -> Iterator[tuple[str, str, float | None]]:
    """The attributes that have a value: the label, the value as a text, and as a number if it is one."""
    for each in snap.subject.attributes:
        number = each.number_value
        value = (each.string_value or "") if number is None else t.in_full(number)
        if value:
            yield t(NAMES.get(each.key, each.key)), value, number
