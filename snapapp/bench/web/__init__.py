"""How quick the web is: `pages` asks for every page of a tenant who has much, which `crowd` makes; `backlog` asks
beside a worker that has more to do than it can. Both ask a real process, which `served` starts."""

from snapapp.bench.ground import Ground
from snapapp.bench.plan import Plan, Step
from snapapp.bench.report import Measurement
from snapapp.bench.web import backlog, pages


def measure(ground: Ground, plan: Plan, step: Step) -> list[Measurement]:
    return [*pages.measure(ground, plan, step), *backlog.measure(ground, plan, step)]
