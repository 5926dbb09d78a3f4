"""Measures how quick the web is. `pages` requests every page of a tenant with many snaps, which `crowd` creates;
`backlog` sends requests beside a worker with an endless backlog. Both use a real process, which `served` starts."""

from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement
from snapapp.bench.server import BenchServer
from snapapp.bench.web import backlog, pages


def measure(server: BenchServer, plan: Plan, step: Step) -> list[Measurement]:
    return [*pages.measure(server, plan, step), *backlog.measure(server, plan, step)]
