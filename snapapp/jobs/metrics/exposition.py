"""The text that Prometheus reads, version 0.0.4: eighty lines here, and no dependency with a registry of its own."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    labels: Mapping[str, str]
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """All samples of one name. Without samples it is not written: what is not known is left out, never 0."""

    name: str
    type: str
    help: str
    samples: Sequence[Sample]


def counter(name: str, help: str, *samples: tuple[float, Mapping[str, str]]) -> Family:  # noqa: A002 - its name there
    return Family(name, "counter", help, [Sample(*sample) for sample in samples])


def gauge(name: str, help: str, *samples: tuple[float, Mapping[str, str]]) -> Family:  # noqa: A002
    return Family(name, "gauge", help, [Sample(*sample) for sample in samples])


def summary(name: str, help: str, *sums: tuple[int, float, Mapping[str, str]]) -> Family:  # noqa: A002
    """Of each: how many and their sum. Without quantiles, which cannot be added up over processes."""
    samples = [
        sample
        for count, total, labels in sums
        for sample in (Sample(total, labels, "_sum"), Sample(count, labels, "_count"))
    ]
    return Family(name, "summary", help, samples)


def distribution(
    bounds: Sequence[float], counts: Sequence[int], total: float, labels: Mapping[str, str]
) -> Iterator[Sample]:
    """Samples of a histogram; `counts` has one place more than `bounds`, for what lies above all of them."""
    so_far = 0
    for bound, count in zip([*bounds, math.inf], counts, strict=True):
        so_far += count
        yield Sample(so_far, {**labels, "le": _number(bound)}, "_bucket")
    yield Sample(total, labels, "_sum")
    yield Sample(so_far, labels, "_count")


def render(families: Iterable[Family]) -> str:
    return "".join(line for family in families if family.samples for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    said = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {family.name} {said}\n# TYPE {family.name} {family.type}\n"
    for sample in family.samples:
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels.items())
        yield f"{family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {_number(sample.value)}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() else repr(float(value))
