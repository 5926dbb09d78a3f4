"""A row of the old service as one of ours. Pure; what cannot be understood is a LegacyError that names the row."""

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from snapapp.domain.rules.snaps import DEFAULT_OVERLAY, INSTANT_SECONDS, MODE_ALIASES
from snapapp.domain.rules.subjects import Attribute, Subject
from snapapp.domain.tables import Kind
from snapapp.errors import Invalid
from snapapp.legacy.errors import LegacyError

Row = Mapping[str, Any]


def token_hash(token: str | None) -> bytes | None:
    return sha256(token.encode()).digest() if token else None


def fields_of(template: Row) -> str:
    """As ours has them, in the order in which they stand there."""
    given = _decoded(template["schema_json"], f"template {template['id']}") or {}
    fields = given.get("fields") or [] if isinstance(given, dict) else []
    return json.dumps([_field(each, place) for place, each in enumerate(fields, 1) if isinstance(each, dict)])


def _field(given: Row, place: int) -> dict[str, Any]:
    return {
        "key": str(given.get("key")),
        "type": "number" if str(given.get("type")).lower() == "number" else "string",
        "required": bool(given.get("required")),
        "order": given["order"] if isinstance(given.get("order"), int) else place,
        "default": given.get("default"),
    }


def probe_of(row: Row, whose: str) -> str | None:
    found = _decoded(row["video_probe_json"], whose)
    return json.dumps(_snake(found)) if isinstance(found, dict) else None


def subject_of(snap: Row) -> Subject:
    """From what was sent; where that is not kept, from its indexed attributes."""
    sent = _decoded(snap["subject_json"], f"snap {snap['id']}")
    listed = sent.get("attributes") if isinstance(sent, dict) else None
    given = listed if isinstance(listed, list) else snap["attributes"]
    try:
        attributes = tuple(made for each in given if (made := _attribute(each)))
        return Subject(snap["subject_id"] or str(snap["id"]), attributes)
    except (Invalid, KeyError, TypeError, AttributeError) as error:
        raise LegacyError(
            f"The subject of snap {snap['id']} cannot be read: {error}. Nothing was brought over."
        ) from error


def _attribute(given: Row) -> Attribute | None:
    """None: it was left empty."""
    is_number = str(given.get("type")).lower() == "number"
    value = given.get("numberValue" if is_number else "stringValue", given.get("value"))
    if value is None:
        return None
    return Attribute(given["key"], value if is_number else str(value))


def ended(snap: Row) -> str | None:
    status = str(snap["status"]).upper()
    return status if status in ("COMPLETED", "FAILED", "CANCELLED") else None


def columns_of(snap: Row, subject: Subject) -> dict[str, Any]:
    """What the row says by itself."""
    whose, end = f"snap {snap['id']}", ended(snap)
    has_start = snap["start_seconds"] is not None or snap["start_frame"] is not None
    overlay = _decoded(snap["overlay_json"], whose)
    return {
        "id": snap["id"],
        "nickname": snap["nickname_snapshot"],
        "email": snap["email_snapshot"],
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
        "overlay": json.dumps(_overlay(overlay)) if isinstance(overlay, dict) and overlay.get("enabled") else None,
        "subject_id": subject.id,
        "subject": json.dumps(subject.as_json()),
        "ended": end,
        "error": None if end in (None, "COMPLETED") else snap["error_message"] or "Failed without a reason",
        "probe": probe_of(snap, whose),
        "created_at": snap["created_at"],
        "updated_at": snap["updated_at"],
        "processed_at": (snap["processed_at"] or snap["updated_at"]) if end else None,
    }


def _overlay(given: Row) -> dict[str, Any]:
    """With every default in it, as the darkroom wants it."""
    known = {name: value for name, value in _snake(given).items() if name in DEFAULT_OVERLAY and value is not None}
    drawn = dict(DEFAULT_OVERLAY) | known
    return drawn | {"mode": MODE_ALIASES.get(drawn["mode"], drawn["mode"])}


def _kind(snap: Row) -> str:
    if snap["tipo_snap"] in ("INSTANT", "INTERVAL"):
        return str(snap["tipo_snap"])
    longest = max(snap["duration_seconds"], snap["snapshot_duration_seconds"] or 0)
    return (Kind.INSTANT if longest <= INSTANT_SECONDS else Kind.INTERVAL).value


def frames_of(snap: Row) -> list[dict[str, Any]]:
    found = _decoded(snap["frames_json"], f"snap {snap['id']}")
    given = found if isinstance(found, list) else []
    return [_file(each, f"frame_{place:05}.jpg") | {"index": place} for place, each in enumerate(given, 1)]


def clip_of(snap: Row) -> dict[str, Any] | None:
    found = _decoded(snap["snapshot_video_json"], f"snap {snap['id']}")
    return _file(found, "snapshot.mp4") if isinstance(found, dict) else None


def _file(given: Any, name: str) -> dict[str, Any]:
    """With its old `path`, which is replaced when it is known where the file will be."""
    told = _snake(given) if isinstance(given, dict) else {"path": str(given)}
    path = str(told.get("path") or "")
    return told | {"file_name": told.get("file_name") or path.rpartition("/")[2] or name, "path": path}


def _snake(given: Row) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): value for name, value in given.items()}


def _decoded(text: str | None, whose: str) -> Any:
    if not text:
        return None
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError as error:
        raise LegacyError(f"The JSON of {whose} cannot be read: {error}. Nothing was brought over.") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
