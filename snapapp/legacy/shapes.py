"""Turns a row of the old service into one of ours. Pure functions; a row that cannot be understood raises a LegacyError
that names it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from snapapp.domain import snaps
from snapapp.domain.rules import validation
from snapapp.domain.rules.snaps import DEFAULT_OVERLAY, INSTANT_SECONDS, MODE_ALIASES
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.rules.texts import composed
from snapapp.domain.tables import Kind
from snapapp.errors import Invalid
from snapapp.legacy.errors import LegacyError

Row = Mapping[str, Any]


def fields_of(template: Row) -> str:
    """A template's fields in our form, in their old order."""
    schema = _decoded(template["schema_json"], f"template {template['id']}") or {}
    fields = schema.get("fields") or [] if isinstance(schema, dict) else []
    return json.dumps([_field(each, place) for place, each in enumerate(fields, 1) if isinstance(each, dict)])


def _field(given: Row, place: int) -> dict[str, Any]:
    return {
        "key": str(given.get("key")),
        "type": "number" if str(given.get("type")).lower() == "number" else "string",
        "required": bool(given.get("required")),
        "order": given["order"] if isinstance(given.get("order"), int) else place,
        "default": given.get("default"),
    }


_PROBE_TEXTS = ("container_format", "codec_name", "pixel_format", "reason")
_PROBE_NUMBERS = ("duration_seconds", "source_fps")
_PROBE_SIZES = ("width", "height")
_HIGHEST = 1e9


def probe_of(row: Row, whose: str) -> dict[str, Any] | None:
    """The probe in our form. None also for one that does not say whether the video can be used, or has a value of
    another type: no list could show it."""
    old_probe = _decoded(row["video_probe_json"], whose)
    if not isinstance(old_probe, dict) or not isinstance(old_probe.get("compatible"), bool):
        return None
    probe = _snake(old_probe)
    texts, numbers, sizes = (
        {name: probe[name] for name in names if probe.get(name) is not None}
        for names in (_PROBE_TEXTS, _PROBE_NUMBERS, _PROBE_SIZES)
    )
    fits = (
        *(isinstance(text, str) for text in texts.values()),
        *(validation.number(each, -_HIGHEST, _HIGHEST) is None for each in numbers.values()),
        *(validation.whole(each, 0, int(_HIGHEST)) is None for each in sizes.values()),
    )
    return {"compatible": probe["compatible"]} | texts | numbers | sizes if all(fits) else None


def subject_of(snap: Row) -> Subject:
    """The subject of an old snap: from the JSON that was sent, or from the indexed attributes where that is missing."""
    sent = _decoded(snap["subject_json"], f"snap {snap['id']}")
    listed = sent.get("attributes") if isinstance(sent, dict) else None
    attributes_given = listed if isinstance(listed, list) else snap["attributes"]
    try:
        attributes = tuple(attribute for each in attributes_given if (attribute := _attribute(each)))
        return Subject(composed(snap["subject_id"] or str(snap["id"])), attributes)
    except (Invalid, KeyError, TypeError, AttributeError) as error:
        raise LegacyError(f"The subject of snap {snap['id']} cannot be read: {error}.") from error


def _attribute(given: Row) -> Attribute | None:
    """The attribute in our form; None if its value was left empty."""
    is_number = str(given.get("type")).lower() == "number"
    value = given.get("numberValue" if is_number else "stringValue", given.get("value"))
    if value is None:
        return None
    return Attribute(composed(given["key"]), value if is_number else composed(str(value)))


def ended(snap: Row) -> str | None:
    status = str(snap["status"]).upper()
    return status if status in ("COMPLETED", "FAILED", "CANCELLED") else None


def columns_of(snap: Row, subject: Subject) -> dict[str, Any]:
    """The columns of our row that follow from the old row alone."""
    whose, end = f"snap {snap['id']}", ended(snap)
    has_start = snap["start_seconds"] is not None or snap["start_frame"] is not None
    overlay = _decoded(snap["overlay_json"], whose)
    return {
        "id": snap["id"],
        "nickname": composed(snap["nickname_snapshot"]),
        "email": composed(snap["email_snapshot"]),
        "kind": _kind(snap),
        "filmed_at": snap["data_filmagem"],
        "start_seconds": snap["start_seconds"] if has_start else snap["resolved_start_seconds"] or 0.0,
        "start_frame": snap["start_frame"],
        "resolved_start_seconds": snap["resolved_start_seconds"],
        "duration_seconds": snap["duration_seconds"],
        "clip_seconds": snap["snapshot_duration_seconds"] or snap["duration_seconds"],
        "fps": snap["fps"],
        "max_width": snap["max_width"],
        "format": "png" if str(snap["format"]).lower() == "png" else "jpg",
        "quality": None if str(snap["format"]).lower() == "png" else snap["quality"],
        "overlay": _overlay(overlay) if _is_drawn(overlay) else None,
        "subject_id": subject.id,
        "subject": subject,
        "ended": end,
        "ended_error": None if end in (None, "COMPLETED") else _error_of(snap),
        "probe": probe_of(snap, whose),
        "created_at": snap["created_at"],
        "updated_at": snap["updated_at"],
        "processed_at": (snap["processed_at"] or snap["updated_at"]) if end else None,
    }


def _error_of(snap: Row) -> str:
    return snaps.storable(snap["error_message"] or "Failed without a reason")


def _is_drawn(overlay: Any) -> bool:
    return isinstance(overlay, dict) and str(overlay.get("enabled")).strip().lower() == "true"


def _overlay(given: Row) -> dict[str, Any]:
    """The overlay in our form, with every default filled in, as the processing needs it. The old service kept it as it
    was sent, and read it leniently: in any case, blank for the default, numbers in quotes."""
    meant = {name: _meant(name, value) for name, value in _snake(given).items() if name in DEFAULT_OVERLAY}
    overlay = dict(DEFAULT_OVERLAY) | {name: value for name, value in meant.items() if value not in (None, "")}
    return overlay | {"mode": MODE_ALIASES.get(overlay["mode"], overlay["mode"])}


def _meant(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if name in ("mode", "position"):
        return text.upper()
    return int(text) if text.isdecimal() else text.lower().replace("0x", "#")


def _kind(snap: Row) -> str:
    if snap["tipo_snap"] in ("INSTANT", "INTERVAL"):
        return str(snap["tipo_snap"])
    longest = max(snap["duration_seconds"], snap["snapshot_duration_seconds"] or 0)
    return (Kind.INSTANT if longest <= INSTANT_SECONDS else Kind.INTERVAL).value


def frames_of(snap: Row) -> list[dict[str, Any]]:
    decoded = _decoded(snap["frames_json"], f"snap {snap['id']}")
    old_frames = decoded if isinstance(decoded, list) else []
    return [
        _file(each, f"frame_{place:05}.jpg", f"snap {snap['id']}") | {"index": place}
        for place, each in enumerate(old_frames, 1)
    ]


def clip_of(snap: Row) -> dict[str, Any] | None:
    old_clip = _decoded(snap["snapshot_video_json"], f"snap {snap['id']}")
    return _file(old_clip, "snapshot.mp4", f"snap {snap['id']}") if isinstance(old_clip, dict) else None


_FILE_TEXTS = ("file_name", "path")
_FILE_TIMES = ("timestamp_seconds", "duration_seconds")
_LONGEST = 4096


def _file(given: Any, name: str, whose: str) -> dict[str, Any]:
    """A file in our form. It keeps its old `path` until `files_of` knows where the file is now. A value of another type
    is refused: no list could show it."""
    fields = _snake(given) if isinstance(given, dict) else {"path": str(given)}
    file = {field: fields[field] for field in (*_FILE_TEXTS, *_FILE_TIMES) if fields.get(field) is not None}
    for field, value in file.items():
        is_text = field in _FILE_TEXTS
        flaw = (
            validation.text(value, _LONGEST, shortest=0) if is_text else validation.number(value, -_HIGHEST, _HIGHEST)
        )
        if flaw:
            raise LegacyError(f"A file of {whose} cannot be read: {field} {flaw}.")
    path = file.get("path", "")
    return file | {"file_name": file.get("file_name") or path.rpartition("/")[2] or name, "path": path}


def _snake(given: Row) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): value for name, value in given.items()}


def _decoded(text: str | None, whose: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise LegacyError(f"The JSON of {whose} cannot be read: {error}.") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
