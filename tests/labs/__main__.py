"""One command for all labs: `python -m tests.labs NAME [ARGUMENTS]`; without a name it lists them.

`python -m tests.labs NAME --help` says what a lab prints and what its exit code means.
"""

import sys
from importlib import import_module

LABS = {
    "box": ("box", "a box of 2 GB under mixed load for half an hour: p99 of reads, memory by part and its slope"),
    "chaos": ("chaos.command", "workers and PostgreSQL killed, stopped and cut off; nothing may be lost or doubled"),
    "compute": (
        "compute.command",
        "a cluster of three machines beside children: the same snaps, kills, pace",
    ),
    "console": ("console.command", "/ops with 100,000 dead letters to retry, 10 million rows, or one of ten faults"),
    "departures": ("departures", "the process that serves is told to stop, again and again, under load"),
    "deploys": ("deploys", "the service is restarted behind its proxy, and clients notice nothing"),
    "executors": ("executors.command", "children killed at random under good and bad jobs of every executor"),
    "failover": ("failover", "the machine with PostgreSQL dies under load, and a synchronous standby takes its place"),
    "fleet": ("fleet.command", "three pools under a supervisor; workers, supervisors and the server are killed"),
    "hostile": ("hostile", "broken and crafted videos through the API, the queue and the children"),
    "image": ("image", "the container image, built and run as its user on a read-only root"),
    "install": ("install", "the installer on a blank Debian: twice, upgrades, bad releases, backup, wipe, restore"),
    "limits": ("limits", "four workers share a limit of three while they are killed"),
    "media": ("media.command", "videos broken at random, or our speed beside three commands of FFmpeg"),
    "mutants": ("mutants", "known defects planted in a copy, one by one, which the everyday tests must notice"),
    "outage": ("outage", "PostgreSQL goes away while jobs run, and the process that serves stays"),
    "schedules": ("schedules.command", "a week in which the clocks change, with three workers that are killed"),
    "simulate": ("fleet.simulate", "the autoscaler on recorded loads in simulated time; draws docs/fleet/*.svg"),
    "sources": ("sources.command", "the bytes and requests that a moment of a long remote video costs"),
    "stack": ("stack", "the memory of PostgreSQL, the API and its children while videos become snaps"),
    "takes": ("takes", "the process that serves is told to stop while films come in"),
    "traces": ("traces", "what traces cost: no-ops enqueued and run with a collector and without one"),
    "workflows": ("workflows", "chains and batches under workers that are killed; no child too early, twice or never"),
}


def main() -> int:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        for name, (_, does) in LABS.items():
            print(f"  {name:<11} {does}")
        return 0
    name = sys.argv[1]
    if name not in LABS:
        print(f"There is no lab {name!r}; there are: {', '.join(LABS)}", file=sys.stderr)
        return 2
    sys.argv[:2] = [f"python -m tests.labs {name}"]  # the name that the lab's own --help shows
    module, _ = LABS[name]
    result: int = import_module(f"tests.labs.{module}").main()
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
