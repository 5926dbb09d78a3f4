"""The subject of a snap: an id and typed attributes. What they may hold, and by which words a search finds them; all
functions are pure."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from snapapp.domain.rules import validation
from snapapp.domain.rules.snaps import (
    ATTRIBUTE_KEY_LONGEST,
    ATTRIBUTE_NUMBER,
    ATTRIBUTE_TEXT_LONGEST,
    MOST_ATTRIBUTES,
    SUBJECT_ID_LONGEST,
)
from snapapp.domain.rules.texts import normalized

MOST_WORDS = 400  # of a subject that a search can find; further words are not indexed
WORD_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Attribute:
    key: str
    value: str | float

    @property
    def type(self) -> Literal["string", "number"]:
        return "string" if isinstance(self.value, str) else "number"

    def flaw(self) -> str | None:
        flaw = validation.text(self.key, ATTRIBUTE_KEY_LONGEST)
        if flaw:
            return f"key: {flaw}"
        if isinstance(self.value, str):
            flaw = validation.text(self.value, ATTRIBUTE_TEXT_LONGEST, shortest=0)
            return flaw and f"stringValue: {flaw}"
        flaw = ATTRIBUTE_NUMBER.flaw(self.value)
        return flaw and f"numberValue: {flaw}"

    def as_json(self) -> dict[str, Any]:
        return {"key": self.key, "type": self.type, f"{self.type}Value": self.value}


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject without an id gets the id of its snap."""

    id: str | None = None
    attributes: tuple[Attribute, ...] = ()

    def __post_init__(self) -> None:
        validation.insist({"subject.id": self.id and validation.text(self.id, SUBJECT_ID_LONGEST)}, self._flaws())

    def _flaws(self) -> Iterator[str]:
        if len(self.attributes) > MOST_ATTRIBUTES:
            yield f"subject.attributes: must be at most {MOST_ATTRIBUTES}"
            return
        seen: set[str] = set()
        for place, attribute in enumerate(self.attributes):
            flaw = attribute.flaw() or ("key: is there twice" if attribute.key in seen else None)
            seen.add(attribute.key)
            if flaw:
                yield f"subject.attributes[{place}].{flaw}"

    def as_json(self) -> dict[str, Any]:
        return {"id": self.id, "attributes": [attribute.as_json() for attribute in self.attributes]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Subject":
        """Reads a stored subject without checking it: rows were checked when they were written."""
        subject = object.__new__(cls)
        object.__setattr__(subject, "id", value.get("id"))
        object.__setattr__(subject, "attributes", tuple(map(_attribute, value.get("attributes") or ())))
        return subject

    @property
    def version(self) -> str:
        """A hash of the content, which changes with each change of the subject."""
        return hashlib.sha256(json.dumps(self.as_json()).encode()).hexdigest()[:32]

    def words(self) -> list[str]:
        texts = [self.id or "", *(_searchable_text(attribute.value) for attribute in self.attributes)]
        return words(" ".join(texts))[:MOST_WORDS]


def _attribute(value: Mapping[str, Any]) -> Attribute:
    typed_value = value.get("numberValue") if value.get("type") == "number" else value.get("stringValue")
    return Attribute(value["key"], "" if typed_value is None else typed_value)


def _searchable_text(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.15g}"  # with every digit, as a person would type them


def words(text: str) -> list[str]:
    """The distinct words of a text, in lower case without accents: `Maçã` is found by `maca`."""
    separate = " ".join(normalized("NFKD", part) for part in text.split())
    plain = "".join(letter for letter in separate if not unicodedata.combining(letter))
    return list(dict.fromkeys(word[:WORD_LONGEST] for word in re.findall(r"[^\W_]+", plain.casefold())))
