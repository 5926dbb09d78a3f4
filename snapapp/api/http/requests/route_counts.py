"""Counts requests and their durations by route. Written on the event loop's thread only."""

from bisect import bisect_left
from dataclasses import dataclass, field

from starlette.types import Scope

UNROUTED = "(no route)"  # one entry for all unknown paths, so that a client that tries paths cannot fill our memory
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds


@dataclass(slots=True)
class Answers:
    """The answers of one route with one class of status."""

    requests: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    # the last bucket is for answers that took longer than all bounds
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))


@dataclass(slots=True)
class RouteCounts:
    method: str
    pattern: str
    by_class: dict[int, Answers] = field(default_factory=dict)  # 2 -> the 2xx

    @property
    def requests(self) -> int:
        return sum(answers.requests for answers in self.by_class.values())

    @property
    def errors(self) -> int:
        return self.of_class(4) + self.of_class(5)

    @property
    def seconds(self) -> float:
        return sum(answers.seconds for answers in self.by_class.values())

    @property
    def longest(self) -> float:
        return max((answers.longest for answers in self.by_class.values()), default=0.0)

    def of_class(self, number: int) -> int:
        return self.by_class[number].requests if number in self.by_class else 0


class Traffic:
    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteCounts] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        key = pattern_of(scope)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = RouteCounts(*key)
        answers = route.by_class.get(status // 100)
        if answers is None:
            answers = route.by_class[status // 100] = Answers()
        answers.requests += 1
        answers.seconds += seconds
        answers.longest = max(answers.longest, seconds)
        answers.buckets[bisect_left(BUCKETS, seconds)] += 1

    def routes(self) -> list[RouteCounts]:
        """All routes, the busiest first."""
        return sorted(self._routes.values(), key=lambda route: -route.requests)


_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


def pattern_of(scope: Scope) -> tuple[str, str]:
    """The method and the route's pattern. Unknown methods and paths are replaced by one name each, so the number of
    keys is bounded."""
    pattern = getattr(scope.get("route"), "path", None) or UNROUTED
    method = scope["method"] if scope["method"] in _METHODS else "OTHER"
    return method, pattern
