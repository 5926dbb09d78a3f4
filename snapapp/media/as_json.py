"""The results as plain JSON values, with the names they have in Python."""

from dataclasses import fields, is_dataclass
from typing import Any


def as_json(value: object) -> Any:
    if is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return value
