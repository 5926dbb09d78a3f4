"""Measures how quick the web is. `pages` requests every page of a tenant with many snaps, which `crowd` creates;
`backlog` sends requests beside a worker with an endless backlog. Both use a real process, which `served` starts."""

from snapapp.bench.ground import Ground
from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement
from snapapp.bench.web import backlog, pages


def measure(ground: Ground, plan: Plan, step: Step) -> list[Measurement]:
    return [*pages.measure(ground, plan, step), *backlog.measure(ground, plan, step)]
