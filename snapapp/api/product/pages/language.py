"""The languages of pages that the server makes, and in which of them one is asked for."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fastapi import Request

COOKIE = "language"  # what somebody chose on a page of ours; words.js keeps it
NAMES = {  # of the fields that the first templates have
    "observacoes": "Notes",
    "brinco": "Ear tag",
    "raca": "Breed",
    "sexo": "Sex",
    "peso_referencia": "Weight, kg",
    "condicao_corporal": "Body condition",
    "lote": "Lot",
    "pasto": "Pasture",
}


@dataclass(frozen=True, slots=True)
class Language:
    """Called with the English words, it says them."""

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
        """A place in a video, as its player has it."""
        hundredths = round(seconds * 100)
        return f"{hundredths // 6000}:{hundredths % 6000 / 100:05.2f}".replace(".", self.point)

    def number(self, value: float, digits: int = 3) -> str:
        text = f"{value:.{digits}f}"
        return (text.rstrip("0").rstrip(".") if digits else text).replace(".", self.point)


_WORDS = json.loads((Path(__file__).parent / "portuguese.json").read_text())
ENGLISH = Language("en", "en", {}, "%d %b %Y, %H:%M:%S", ".")
PORTUGUESE = Language("pt", "pt-BR", _WORDS, "%d/%m/%Y, %H:%M:%S", ",")


def language_of(request: Request, *, chosen: str | None = None) -> Language:
    """As the page was asked for, or as somebody chose before, or as the browser is set: of the two, the one that it
    names with more weight."""
    asked = request.query_params.get("lang") or chosen
    if asked not in ("en", "pt"):
        said = weights(request.headers.get("Accept-Language", ""))
        ours = [name for name in said if name[:2] in ("pt", "en")]
        asked = max(ours, key=lambda name: said[name], default="en")[:2]
    return PORTUGUESE if asked == "pt" else ENGLISH


def weights(header: str) -> dict[str, float]:
    """`text/html, */*;q=0.8`: what is taken, and how gladly."""
    return {
        name.strip().lower(): _weight(rest) for name, _, rest in (each.partition(";") for each in header.split(","))
    }


def _weight(parameters: str) -> float:
    found = re.search(r"(?:^|;)\s*q=([01](?:\.[0-9]{1,3})?)\s*(?:;|$)", parameters)
    return float(found[1]) if found else 1.0
