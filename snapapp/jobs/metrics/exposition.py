"""Writes metrics as the text that Prometheus reads. The families are made anew for each scrape, from numbers that are
kept elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client import Metric, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

Labels = Mapping[str, str]


def counter(name: str, text: str, *samples: tuple[float, Labels]) -> Metric:
    return _family(name.removesuffix("_total"), "counter", text, ((name, *sample) for sample in samples))


def gauge(name: str, text: str, *samples: tuple[float, Labels]) -> Metric:
    return _family(name, "gauge", text, ((name, *sample) for sample in samples))


def summary(name: str, text: str, *sums: tuple[int, float, Labels]) -> Metric:
    """A summary with counts and sums, without quantiles: quantiles cannot be added up over processes."""
    return _family(
        name,
        "summary",
        text,
        (each for count, total, of in sums for each in ((f"{name}_sum", total, of), (f"{name}_count", count, of))),
    )


def histogram(
    name: str, text: str, bounds: Iterable[float], *of_each: tuple[Iterable[int], float, Labels]
) -> HistogramMetricFamily:
    """A histogram. The counts have one place more than `bounds`, for values above the last bound."""
    names = [*(f"{bound:g}" for bound in bounds), "+Inf"]
    family = HistogramMetricFamily(name, text, labels=list(of_each[0][2]) if of_each else [])
    for counts, total, labels in of_each:
        family.add_metric([*labels.values()], [*zip(names, accumulate(counts), strict=True)], total)
    return family


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[str, float, Labels]]) -> Metric:
    family = Metric(name, text, kind)
    for full_name, value, labels in samples:
        family.add_sample(full_name, dict(labels), value)
    return family


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Leaves out families without samples: a number that is not known must not be shown as 0."""
        return (family for family in self._families if family.samples)


def render(families: Iterable[Metric]) -> str:
    return generate_latest(_Families(families)).decode()
