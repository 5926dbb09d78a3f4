"""The sizes of the bench in one value, so that a test can run a very small bench."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

Step = Callable[[str], None]  # tells people what is being measured now

KIND = "bench.noop"

SCENARIOS = (
    *("enqueue", "drain", "slots", "pickup", "start", "idle", "claim", "neighbours", "web", "versus"),
    "steady",
)
_LONG = {"steady"}  # measured only if asked for by name
PEERS = ("pgqueuer",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The defaults are the full bench."""

    runs: int = 3
    jobs: int = 100_000  # drained in each run; also enqueued in bulk
    singles: int = 3_000  # enqueued one by one
    pickups: int = 300
    idle_for: timedelta = timedelta(minutes=1)
    deep: int = 1_000_000  # rows of the deep queue, which should not slow a claim
    shallow: int = 1_000  # rows of the queue that it is compared with
    lanes: int = 100_000  # concurrency keys
    heads: int = 2_000  # kinds and priorities
    claims: int = 15
    web_for: timedelta = timedelta(seconds=20)  # each series of requests
    crowd_of_videos: int = 1_000  # of the tenant whose pages are measured
    crowd_of_snaps: int = 100_000
    page_asks: int = 40  # requests for each page in a run
    pinned: int = 200_000  # jobs drained beside an idle transaction
    steady_for: timedelta = timedelta(minutes=10)
    crowd: int = 3_000  # small jobs beside a neighbour
    naps: int = 20_000  # jobs of a millisecond
    batches: tuple[int, ...] = (100, 500)
    processes: tuple[int, ...] = (1, 2)
    scenarios: tuple[str, ...] = tuple(name for name in SCENARIOS if name not in _LONG)
    versus: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = {*self.scenarios} - {*SCENARIOS} | {*self.versus} - {*PEERS}
        if unknown:
            known = ", ".join((*SCENARIOS, *PEERS))
            raise ValueError(f"{', '.join(sorted(unknown))}: not among {known}")
        if self.runs < 1 or self.jobs < 100:
            raise ValueError(f"at least 1 run of 100 jobs, not {self.runs} of {self.jobs}")


# A tenth of everything: enough to see whether a change made things much worse, but not for publishing.
QUICK = Plan(
    jobs=20_000,
    singles=1_000,
    pickups=100,
    idle_for=timedelta(seconds=20),
    web_for=timedelta(seconds=5),
    page_asks=20,
    deep=100_000,
    lanes=10_000,
    pinned=40_000,
    steady_for=timedelta(minutes=1),
    naps=5_000,
)
