"""The doctor's check of the cluster whose nodes run child processes."""

from collections.abc import Iterator
from time import monotonic

from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity
from snapapp.jobs.errors import JobsError

NAME = "compute"
_GOOD_FOR = 60.0  # seconds: each look opens a connection to the scheduler, which logs two lines


class ComputeCheck:
    """The check. A good result is kept for a minute; after a bad one each examination looks again."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._well: list[Finding] = []  # both are written by the thread that examines
        self._looked = float("-inf")

    def __call__(self, _: ExaminedDatabase) -> Iterator[Finding]:
        if not self._well or monotonic() - self._looked > _GOOD_FOR:
            findings = list(_findings(self._address))
            self._well = [each for each in findings if each.severity is Severity.OK]
            self._looked = monotonic()
            return iter(findings)
        return iter(self._well)


def in_one_line(address: str) -> str:
    """What the check saw, in one line, for `check-deploy`."""
    return next(_findings(address)).saw.rstrip(".")


def _findings(address: str) -> Iterator[Finding]:
    try:
        from snapapp.jobs.compute.look import look  # needs Dask, which is an extra

        seen = look(address)
    except ModuleNotFoundError as error:
        yield _away(f"SNAPAPP_COMPUTE is set, and {error.name} is not installed.", "pip install 'snapapp[compute]'")
    except JobsError as error:
        yield _away(f"The cluster cannot be reached: {error}.", "dask scheduler --port 8786")
    else:
        strangers = f", beside {seen.others} that run none of our children" if seen.others else ""
        has = f"{seen.nodes} nodes with {seen.cores} cores and {seen.memory_mb} MB for jobs{strangers}."
        if seen.nodes:
            numbers = {"nodes": seen.nodes, "cores": seen.cores, "memory_mb": seen.memory_mb}
            yield Finding(id="COMPUTE", saw=f"The cluster at {address} has {has}", numbers=numbers)
        else:
            yield Finding(
                id="COMPUTE_EMPTY",
                severity=Severity.WARNING,
                saw=f"The cluster at {address} has no node for our jobs: {has}",
                why="Kinds that run in child processes wait until there is one.",
                do="Start a node on each machine that is to run them.",
                paste=f"snapapp compute node {address}",
            )


def _away(saw: str, paste: str) -> Finding:
    return Finding(
        id="COMPUTE_AWAY",
        severity=Severity.CRITICAL,
        saw=saw,
        why="Kinds that run in child processes wait in the queue, uncharged; all others go on.",
        do="Start its scheduler, or take SNAPAPP_COMPUTE away: then they run on the workers' own machines.",
        paste=paste,
    )
