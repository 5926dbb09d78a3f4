"""/v2/snaps/export: the snaps that a search finds, as CSV for Excel, as JSON, or as an archive with their evidence."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any
from uuid import UUID

from fastapi import HTTPException, Query
from fastapi.responses import StreamingResponse

from snapapp.api.http import spreadsheet
from snapapp.api.http.deps import MonolithDep
from snapapp.api.http.errors import may_be
from snapapp.api.http.lenient_query import LenientRoute
from snapapp.api.http.routers import Router
from snapapp.api.http.schema import Label
from snapapp.api.http.tenancy import Credentials, Presented, begun
from snapapp.api.http.timely import TimelyResponse
from snapapp.api.product.archive import Evidence, archive
from snapapp.api.product.public import names_of
from snapapp.api.product.snap_views import Places, SnapLine, line_of
from snapapp.api.product.snaps import Narrowed
from snapapp.api.product.urls import Placed
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import LONGEST, Page, Window
from snapapp.domain.tables import Snap
from snapapp.domain.transactions import TenantTransaction
from snapapp.process.monolith import Monolith
from snapapp.storage import full_disk_as_no_room

router = Router(prefix="/v2/snaps", tags=["snaps"], route_class=LenientRoute)

ROWS_MAX = 10_000
ARCHIVED_MAX = 200  # snaps: some GB
_COLUMNS_MAX = 500  # for attributes; further attributes share one column
_IN_MEMORY = 4 * 1024 * 1024


class ExportFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    ZIP = "zip"


SEND_WITHIN = 60.0  # seconds that a client may take for a piece
_TYPES = {
    ExportFormat.CSV: "text/csv; charset=utf-8",
    ExportFormat.JSON: "application/json",
    ExportFormat.ZIP: "application/zip",
}
_FILE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            "text/csv": {"schema": {"type": "string"}},
            "application/json": {"schema": {"type": "object"}},
            "application/zip": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=_FILE | may_be(_400="Too many match, or none can.", _507="The disk is full."),
)
def export_snaps(
    monolith: MonolithDep,
    credentials: Presented,
    places: Placed,
    which: Narrowed,
    form: Annotated[
        ExportFormat, Query(alias="format", description="`zip` holds both others, and the files.")
    ] = ExportFormat.CSV,
    video_id: Annotated[UUID | None, Query(alias="videoId", description="Only snaps of this video.")] = None,
    nickname: Annotated[Label | None, Query(description="Only snaps that this person marked, in any case.")] = None,
) -> StreamingResponse:
    """All snaps that match, oldest first: at most 10,000, or 200 with their files. The filters are those of a search;
    without any, all snaps of the tenant are exported."""

    def find(own: TenantTransaction, window: Window) -> Page[Snap]:
        return search.recent(own.db, own.code, window, which, nickname=nickname, video_id=video_id)

    return exported(monolith, credentials, places, form, find)


Find = Callable[[TenantTransaction, Window], Page[Snap]]


def exported(
    monolith: Monolith, credentials: Credentials, places: Places, form: ExportFormat, find: Find
) -> StreamingResponse:
    """The answer that holds all snaps that `find` finds page by page."""
    with begun(monolith, credentials, sees_one_moment=True) as transaction, transaction.as_tenant():
        export = _gather(_pages(transaction, find), places, form, monolith.settings.data_dir)
    match form:
        case ExportFormat.CSV:
            content = export.csv()
        case ExportFormat.JSON:
            content = export.json()
        case ExportFormat.ZIP:
            content = archive(monolith.storage, {"snaps.csv": export.csv(), "snaps.json": export.json()}, export.files)
    name = f"snaps-{datetime.now(UTC):%Y%m%d-%H%M%S}.{form}"
    headers = {
        "Content-Type": _TYPES[form],
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
    return TimelyResponse(_closing(export, content), headers, what="An export", send_within=SEND_WITHIN)


def _pages(own: TenantTransaction, find: Find) -> Iterator[Page[Snap]]:
    """All pages, by offset. The transaction must see one moment: otherwise a snap that is deleted meanwhile would make
    the next page skip another."""
    for offset in range(0, ROWS_MAX + 1, LONGEST):
        page = find(own, Window(offset, LONGEST, "createdAt", "asc"))
        yield page
        if not page.has_more:
            return


# --- gathered ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Export:
    """The snaps to export, as lines of JSON in a file, because ten thousand are too many for memory; and the columns,
    which CSV needs before its first row."""

    lines: IO[bytes]
    with_files: bool
    keys: dict[str, None] = field(default_factory=dict)  # keys of attributes, in the order in which they were met
    files: list[Evidence] = field(default_factory=list)

    def add(self, snap: Snap, line: SnapLine) -> None:
        self.lines.write(line.model_dump_json(by_alias=True).encode() + b"\n")
        self.keys |= dict.fromkeys(attribute.key for attribute in snap.subject.attributes)
        if self.with_files and snap.media_prefix:
            self.files.append(Evidence(snap.id, snap.media_prefix, tuple(sorted(names_of(snap)))))

    def rows(self) -> Iterator[SnapLine]:
        self.lines.seek(0)
        return (SnapLine.model_validate_json(line) for line in self.lines)

    def csv(self) -> Iterator[bytes]:
        keys = dict.fromkeys([*self.keys][:_COLUMNS_MAX])
        yield (spreadsheet.BOM + spreadsheet.lines([[*_COLUMNS, *keys, _OTHERS]])).encode()
        for row in self.rows():
            yield spreadsheet.lines([_cells(row, keys)]).encode()

    def json(self) -> Iterator[bytes]:
        yield b'{"items":['
        self.lines.seek(0)
        for number, line in enumerate(self.lines):
            yield (b",\n" if number else b"\n") + line.rstrip()
        yield b"]}\n"

    def close(self) -> None:
        self.lines.close()

    def discard(self) -> None:
        with suppress(OSError):  # on a full disk the last buffer cannot be written
            self.close()


def _gather(pages: Iterable[Page[Snap]], places: Places, form: ExportFormat, folder: Path) -> _Export:
    """Writes the snaps to a temporary file in `folder`, which is on a disk; the system's folder for temporary files may
    be in memory."""
    with full_disk_as_no_room():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        spool = tempfile.SpooledTemporaryFile(_IN_MEMORY, dir=str(folder))  # noqa: SIM115 - closed when the answer has been sent
        export = _Export(spool, with_files=form is ExportFormat.ZIP)
        try:
            _fill(export, pages, places)
            spool.flush()  # a full disk must be met before the headers are sent
        except BaseException:
            export.discard()
            raise
    return export


def _fill(export: _Export, pages: Iterable[Page[Snap]], places: Places) -> None:
    most, count = ARCHIVED_MAX if export.with_files else ROWS_MAX, 0
    for page in pages:
        count += len(page.items)
        if count > most:
            raise HTTPException(400, f"More than {most} snaps match: narrow the search, by time for example")
        for snap in page.items:
            export.add(snap, line_of(snap, places))


def _closing(export: _Export, content: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from content
    finally:
        export.close()


_COLUMNS = (
    *("snapId", "status", "createdAt", "processedAt", "dataFilmagem", "nickname", "email", "tipoSnap", "videoId"),
    *("videoUrl", "startSeconds", "startFrame", "resolvedStartSeconds", "durationSeconds", "snapshotDurationSeconds"),
    *("frameCount", "error", "subjectId"),
)
_OTHERS = "otherAttributes"


def _cells(row: SnapLine, keys: Mapping[str, None]) -> list[Any]:
    values = {
        attribute.key: _value(attribute.string_value, attribute.number_value) for attribute in row.subject.attributes
    }
    others = {key: value for key, value in values.items() if key not in keys}
    return [
        *(row.snap_id, row.status.value, row.created_at, row.processed_at, row.data_filmagem, row.nickname, row.email),
        *(row.tipo_snap, row.video_id, row.video_url, row.start_seconds, row.start_frame, row.resolved_start_seconds),
        *(row.duration_seconds, row.snapshot_duration_seconds, row.frame_count, row.error, row.subject.id),
        *(values.get(key) for key in keys),
        json.dumps(others, ensure_ascii=False) if others else None,
    ]


def _value(text: str | None, number: float | None) -> str | float | None:
    return text if number is None else number
