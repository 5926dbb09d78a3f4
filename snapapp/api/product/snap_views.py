"""The answers about snaps, field by field as in the contract. They never contain storage keys, workers or internal
error texts."""

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, PlainSerializer, WithJsonSchema

from snapapp.api.http.paging import Listed
from snapapp.api.http.schema import Shown
from snapapp.api.product.snap_schema import AttributeType
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.tables import Snap, SnapJob, SnapStatus
from snapapp.errors import error_for_client


class AttributeShown(Shown):
    key: str = Field(examples=["peso_referencia"])
    type: AttributeType
    string_value: str | None
    number_value: float | None = Field(examples=[412.5])


class SubjectShown(Shown):
    """What the snap shows."""

    id: str = Field(examples=["BR-1042"])
    attributes: list[AttributeShown]


class ProbeShown(Shown):
    """What the probe found out about the video."""

    compatible: bool = Field(description="Whether frames can be taken of it.")
    container_format: str | None = Field(None, examples=["mov,mp4,m4a,3gp,3g2,mj2"])
    codec_name: str | None = Field(None, examples=["h264"])
    width: int | None = Field(None, description="Of the coded picture, before `rotation`.", examples=[1920])
    height: int | None = Field(None, examples=[1080])
    duration_seconds: float | None = Field(None, examples=[61.4])
    source_fps: float | None = Field(None, examples=[29.97])
    pixel_format: str | None = Field(None, examples=["yuv420p"])
    reason: str | None = Field(None, description="Why it is not compatible.")
    rotation: int | None = Field(
        None, description="Degrees clockwise by which the picture must be turned to be upright."
    )
    frame_count: int | None = Field(None, description="As the file states it, if it does.", examples=[1842])
    plays_in_browsers: bool | None = Field(None, description="If not, `…/content` gives a copy that does.")
    filmed_at: str | None = Field(
        None, description="The time that the camera wrote into the file.", examples=["2026-03-01T11:15:00+00:00"]
    )


class ClipShown(Shown):
    """A short clip that every browser plays."""

    file_name: str = Field(examples=["snapshot.mp4"])
    path: str = Field(description="A URL that works without headers.")
    duration_seconds: float | None = Field(examples=[2.0])
    sha256: str | None = None


class FrameShown(Shown):
    """A still."""

    index: int = Field(description="From 1.", examples=[1])
    timestamp_seconds: float | None = Field(description="When the video shows the frame.", examples=[12.479])
    file_name: str = Field(examples=["frame_00001.jpg"])
    path: str = Field(description="A URL that works without headers.")
    clean_path: str | None = Field(None, description="The same frame without the overlay, if there is one.")
    is_black: bool | None = None
    is_frozen: bool | None = Field(None, description="The same picture as the frame before.")
    is_blurred: bool | None = None
    is_best: bool | None = Field(None, description="Whether it is the sharpest frame.")
    sha256: str | None = None


def _with_its_fraction(moment: datetime) -> str:
    """A time as it was given, without trailing zeros in the fraction."""
    text = re.sub(r"(\.\d*?)0+(?=[+-])", r"\1", moment.isoformat())
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


Filmed = Annotated[
    datetime,
    PlainSerializer(_with_its_fraction, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]


class JobShown(Shown):
    """The job of a snap, with its finer state, its attempts and its last error."""

    job_id: int = Field(examples=[42])
    status: str = Field(examples=["RUNNING"])
    attempts: int = Field(examples=[1])
    max_attempts: int = Field(examples=[3])
    next_run_at: datetime = Field(description="From when on it may, or could, run.")
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None = Field(examples=[None])
    progress: Any = Field(None, description="How far it is.", examples=[{"percent": 40, "note": "frames"}])


class SnapLine(Shown):
    """A snap as an item of a list."""

    snap_id: UUID
    video_id: UUID
    status: SnapStatus
    tipo_snap: Literal["INSTANT", "INTERVAL"] = Field(description="INSTANT: up to a second.")
    nickname: str = Field(examples=["ana"])
    email: str = Field(examples=["ana@fazenda.example"])
    operator_id: int = Field(description="Who marked it: operators who sign in may change their own.", examples=[7])
    subject_template_id: int | None = Field(description="The template that was applied.")
    data_filmagem: Filmed | None
    subject: SubjectShown
    video_url: str | None
    start_seconds: float | None = Field(examples=[12.48])
    start_frame: int | None
    resolved_start_seconds: float | None = Field(description="The moment as it was used.", examples=[12.48])
    duration_seconds: float = Field(examples=[1.0])
    snapshot_duration_seconds: float = Field(examples=[2.0])
    fps: int = Field(examples=[5])
    max_width: int = Field(examples=[1280])
    format: Literal["jpg", "png"]
    quality: int | None = Field(description="Null for png.", examples=[3])
    video_probe: ProbeShown | None
    snapshot_video: ClipShown | None
    frame_count: int = Field(examples=[5])
    frames: list[FrameShown]
    error: str | None = Field(description="The last failure; if it was cancelled, by whom.")
    created_at: datetime
    processed_at: datetime | None
    is_draft: bool = False
    poster_path: str | None = None
    thumbnail_path: str | None = None
    thumbhash: str | None = Field(None, description="A placeholder of some 25 bytes, in base64.")
    job: JobShown | None = Field(None, description="Null in lists.")


class SnapWhole(SnapLine):
    """A snap with its job."""


class SnapList(Listed):
    """Snaps, page by page."""

    items: list[SnapLine]


class VideoSnapList(SnapList):
    """The snaps of a video."""

    video_id: UUID


class MySnapList(SnapList):
    """The snaps that one person marked."""

    nickname: str = Field(examples=["ana"])


class PublicSnap(Shown):
    """A snap as its link shows it, without e-mail, errors or internal ids."""

    snap_id: UUID
    public_share_token: str = Field(examples=["0f8fad5bd9cb469fa16570867728950e"])
    status: SnapStatus
    tipo_snap: Literal["INSTANT", "INTERVAL"]
    nickname: str = Field(examples=["ana"])
    data_filmagem: Filmed | None
    subject: SubjectShown
    resolved_start_seconds: float | None
    duration_seconds: float
    snapshot_duration_seconds: float
    frame_count: int
    video_probe: ProbeShown | None
    snapshot_video: ClipShown | None
    frames: list[FrameShown]
    created_at: datetime
    processed_at: datetime | None


# --- from the domain's values -----------------------------------------------------------------------------------


# The beginning of the addresses of a snap's files for the client of this request, to which a file's name is added.
Places = Callable[[Snap], str]


def line_of(snap: Snap, places: Places) -> SnapLine:
    return SnapLine(**_fields(snap, places))


def lines_of(snaps: Iterable[Snap], places: Places) -> list[SnapLine]:
    return [line_of(snap, places) for snap in snaps]


def whole_of(snap: Snap, places: Places) -> SnapWhole:
    return SnapWhole(**_fields(snap, places), job=_job_of(snap.job) if snap.job else None)


def public_of(snap: Snap, token: str, places: Places) -> PublicSnap:
    """A snap for a public link: without clean copies, which links do not serve, and without the reason of a failure."""
    fields = _fields(snap, places)
    if fields["video_probe"]:
        fields["video_probe"] = fields["video_probe"].model_copy(update={"reason": None})
    fields["frames"] = [frame.model_copy(update={"clean_path": None}) for frame in fields["frames"]]
    return PublicSnap(
        public_share_token=token, **{name: fields[name] for name in PublicSnap.model_fields.keys() & fields.keys()}
    )


def _fields(snap: Snap, places: Places) -> dict[str, Any]:
    base = places(snap) if snap.media_prefix else None
    hashes = hashes_of(snap.extras)
    return {
        "snap_id": snap.id,
        "video_id": snap.video_id,
        "status": snap.status,
        "tipo_snap": snap.kind.value,
        "nickname": snap.nickname,
        "email": snap.email,
        "operator_id": snap.operator_id,
        "subject_template_id": snap.template_id,
        "data_filmagem": snap.filmed_at,
        "subject": subject_of(snap.subject),
        "video_url": snap.video_url or f"/v2/videos/{snap.video_id}/content",
        "start_seconds": snap.start_seconds,
        "start_frame": snap.start_frame,
        "resolved_start_seconds": snap.resolved_start_seconds,
        "duration_seconds": snap.duration_seconds,
        "snapshot_duration_seconds": snap.clip_seconds,
        "fps": snap.fps,
        "max_width": snap.max_width,
        "format": snap.format,
        "quality": snap.quality,
        "video_probe": _probe_of(snap),
        "snapshot_video": clip_of(snap.clip, base, hashes) if snap.clip else None,
        "frame_count": snap.frame_count,
        "frames": [frame_of(frame, base, hashes) for frame in snap.frames or ()],
        "error": error_for_client(snap.error),
        "created_at": snap.created_at,
        "processed_at": snap.processed_at,
        "is_draft": snap.is_draft,
        "poster_path": _path_of(snap.extras.get("poster"), base),
        "thumbnail_path": _path_of(snap.extras.get("thumbnail"), base),
        "thumbhash": snap.extras.get("thumbhash"),
    }


def _probe_of(snap: Snap) -> ProbeShown | None:
    if snap.probe:
        return ProbeShown.model_validate(snap.probe)
    if snap.status is not SnapStatus.FAILED:
        return None
    return ProbeShown.model_validate({"compatible": False, "reason": error_for_client(snap.error)})


def subject_of(subject: Subject) -> SubjectShown:
    return SubjectShown(id=subject.id or "", attributes=[_attribute_of(each) for each in subject.attributes])


def _attribute_of(attribute: Attribute) -> AttributeShown:
    text = attribute.value if isinstance(attribute.value, str) else None
    number = None if isinstance(attribute.value, str) else float(attribute.value)
    return AttributeShown(key=attribute.key, type=AttributeType(attribute.type), string_value=text, number_value=number)


def hashes_of(extras: Mapping[str, Any]) -> dict[str, str]:
    """The hash of each file, by its name."""
    return {file["file_name"]: file["sha256"] for file in extras.get("artefacts", ())}


def clip_of(clip: Mapping[str, Any], base: str | None, hashes: Mapping[str, str]) -> ClipShown:
    return ClipShown(
        file_name=clip["file_name"],
        path=_path_of(clip, base) or "",
        duration_seconds=clip.get("duration_seconds"),
        sha256=hashes.get(clip["file_name"]),
    )


def frame_of(frame: Mapping[str, Any], base: str | None, hashes: Mapping[str, str]) -> FrameShown:
    quality = frame.get("quality") or {}
    return FrameShown(
        index=frame["index"],
        timestamp_seconds=frame.get("timestamp_seconds"),
        file_name=frame["file_name"],
        path=_path_of(frame, base) or "",
        clean_path=_path_of(frame.get("clean_file_name"), base),
        is_black=quality.get("black"),
        is_frozen=quality.get("frozen"),
        is_blurred=quality.get("blurred"),
        is_best=frame.get("is_best"),
        sha256=hashes.get(frame["file_name"]),
    )


def _path_of(file: Any, base: str | None) -> str | None:
    """The address of a file. Files of the old service may have a URL of their own."""
    if isinstance(file, Mapping) and file.get("url"):
        return str(file["url"])
    return f"{base}{name}" if base and (name := name_of(file)) else None


def name_of(file: Any) -> str | None:
    """The name of a file, which a snap gives as a text, or as an object that has it."""
    name: str | None = file.get("file_name") if isinstance(file, Mapping) else file
    return name


def _job_of(job: SnapJob) -> JobShown:
    return JobShown(
        job_id=job.id,
        status=str(job.status),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        next_run_at=job.next_run_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        last_error=None if job.status == "COMPLETED" else error_for_client(job.last_error),
        progress=job.progress,
    )
