"""The languages of the pages that the server makes, and the choice between them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi import Request

_COOKIE = "language"  # holds the language that was chosen on a page; words.js sets it
NAMES = {  # English labels of the fields of the first templates
    "observacoes": "Notes",
    "brinco": "Ear tag",
    "raca": "Breed",
    "sexo": "Sex",
    "peso_referencia": "Weight, kg",
    "condicao_corporal": "Body condition",
    "lote": "Lot",
    "pasto": "Pasture",
}

_NUMBER = re.compile(r"-?[0-9][0-9.e+]*")


@dataclass(frozen=True, slots=True)
class Language:
    """A language. Called with an English text, it returns the translation."""

    code: str
    locale: str
    words: Mapping[str, str]
    date: str
    point: str

    def __call__(self, text: str) -> str:
        return self.words.get(text, text)

    def moment(self, moment: datetime) -> str:
        return f"{moment.astimezone(UTC):{self.date}} UTC"

    def clock(self, seconds: float) -> str:
        """A position in a video, as players show it."""
        hundredths = round(seconds * 100)
        return f"{hundredths // 6000}:{hundredths % 6000 / 100:05.2f}".replace(".", self.point)

    def number(self, value: float, digits: int = 3) -> str:
        text = f"{value:.{digits}f}"
        return (text.rstrip("0").rstrip(".") if digits else text).replace(".", self.point)

    def in_full(self, value: float) -> str:
        """A number that a person gave, with all its digits and no others."""
        return f"{value:.15g}".replace(".", self.point)

    def mistake(self, flaw: str, labels: Mapping[str, str]) -> str:
        """What a rule says, mostly `field: reason`. The catalogue has texts with `{}` in place of numbers."""
        name, _, reason = flaw.partition(": ")
        return f"{self(labels.get(name, name))}: {self._numbered(reason)}" if reason else self._numbered(flaw)

    def _numbered(self, text: str) -> str:
        translated = self.words.get(_NUMBER.sub("{}", text))
        if translated is None:
            return text
        for number in _NUMBER.findall(text):
            translated = translated.replace("{}", number, 1)
        return translated


_WORDS = json.loads((Path(__file__).parent / "portuguese.json").read_text())
ENGLISH = Language("en", "en", {}, "%d %b %Y, %H:%M:%S", ".")
PORTUGUESE = Language("pt", "pt-BR", _WORDS, "%d/%m/%Y, %H:%M:%S", ",")


def language_of(request: Request, *, reads_cookie: bool = True) -> Language:
    """The language of an answer: from `?lang=`, or chosen before, or from Accept-Language, where the one with more
    weight wins."""
    code = request.query_params.get("lang") or (request.cookies.get(_COOKIE) if reads_cookie else None)
    if code not in ("en", "pt"):
        accepted = weights(request.headers.get("Accept-Language", ""))
        ours = [name for name in accepted if name[:2] in ("pt", "en")]
        code = max(ours, key=lambda name: accepted[name], default="en")[:2]
    return PORTUGUESE if code == "pt" else ENGLISH


def weights(header: str) -> dict[str, float]:
    """The values of a header such as `text/html, */*;q=0.8`, with their weights."""
    return {
        name.strip().lower(): _weight(rest) for name, _, rest in (each.partition(";") for each in header.split(","))
    }


def _weight(parameters: str) -> float:
    match = re.search(r"(?:^|;)\s*q=([01](?:\.[0-9]{1,3})?)\s*(?:;|$)", parameters)
    return float(match[1]) if match else 1.0
