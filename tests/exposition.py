"""A strict reader of Prometheus's text, version 0.0.4: what it does not understand is an error."""

import math
import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,(?!$)|$)')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
_TYPES = {"counter", "gauge", "histogram", "summary"}

Labels = frozenset[tuple[str, str]]


@dataclass
class Exposition:
    types: dict[str, str] = field(default_factory=dict)
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name, frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self.samples}


def parse(text: str) -> Exposition:
    """Each family once and in one piece: HELP, TYPE, its samples; no sample twice; histograms that add up."""
    found, family = Exposition(), ""
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in found.types, f"{family} comes twice"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family, f"TYPE of {name} below HELP of {family}"
            assert kind in _TYPES
            assert kind != "counter" or name.endswith("_total"), f"the counter {name}"
            found.types[name] = kind
        else:
            _add(found, family, line)
    for name, kind in found.types.items():
        assert any(sample.startswith(name) for sample in found.names()), f"{name} has no samples"
        if kind == "histogram":
            _check_histogram(found, name)
    return found


def _add(found: Exposition, family: str, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match, f"not a sample: {line!r}"
    name, labels, value = match.groups()
    allowed = [family + suffix for suffix in _SUFFIXES.get(found.types[family], ("",))]
    assert name in allowed, f"{name} stands below {family}"
    key = (name, _labels(labels or ""))
    assert key not in found.samples, f"{line!r} comes twice"
    found.samples[key] = float(value)
    assert not math.isnan(found.samples[key])


def _labels(text: str) -> Labels:
    read, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        assert match, f"not labels: {text!r}"
        read[match[1]] = re.sub(r"\\(.)", lambda escaped: {"n": "\n"}.get(escaped[1], escaped[1]), match[2])
        at = match.end()
    return frozenset(read.items())


def _check_histogram(found: Exposition, name: str) -> None:
    buckets: dict[Labels, dict[float, float]] = {}
    for (sample, labels), value in found.samples.items():
        if sample == f"{name}_bucket":
            bound = float(dict(labels)["le"])
            rest = frozenset(label for label in labels if label[0] != "le")
            buckets.setdefault(rest, {})[bound] = value
    for rest, counts in buckets.items():
        in_order = [counts[bound] for bound in sorted(counts)]
        assert in_order == sorted(in_order), f"{name} falls: {counts}"
        assert counts[math.inf] == found.samples[f"{name}_count", rest]
        assert found.samples[f"{name}_sum", rest] >= 0
