"""docs/operate/monitoring.md: what to watch, layer by layer. What numbers and views there are comes from the code and
the schema; which of them belong to a layer, and from when on somebody should look, is said here."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from snapapp.jobs.metrics import depth, fleet, work
from snapapp.jobs.metrics.depth import Depth
from snapapp.jobs.rows.roster import Counts
from tests import ROOT

PAGE = ROOT / "docs" / "operate" / "monitoring.md"
_METRICS_OF_THE_PROCESS = ROOT / "snapapp/api/internal/actuator/process_metrics.py"
_VIEWS = ROOT / "migrations/sql/queue/views"


@dataclass(frozen=True, slots=True)
class Layer:
    title: str
    about: str
    metrics: tuple[str, ...]  # how their names begin
    views: tuple[str, ...]
    look_when: tuple[tuple[str, str], ...]  # an expression of Prometheus or a query, and what it means
    doctor: str  # the checks that say more


LAYERS = (
    Layer(
        "The queue",
        "What waits, for how long, and what gave up. The age of the oldest due job says more than how many wait.",
        ("snapapp_queue_", "snapapp_dead_letters", "snapapp_stuck_jobs"),
        ("queue_overview", "queue_stuck", "queue_dead_letters", "queue_throughput", "workflow_overview", "job_apart"),
        (
            (
                "max by (queue) (snapapp_queue_oldest_due_seconds) > max by (queue) (snapapp_queue_long_wait_seconds)",
                "more comes in than is done, or nothing is done",
            ),
            (
                "max(snapapp_stuck_jobs) > 0",
                "for longer than a minute: no worker takes them back, or none knows the kind",
            ),
            ("delta(snapapp_dead_letters[1h]) > 0", "jobs gave up: group them by their error on /ops"),
            (
                "SELECT name, long_wait FROM job_queue;",
                "from when on a wait is an alert and a finding of the doctor; null: 5 minutes, years: silenced",
            ),
            ("SELECT * FROM queue_overview;", "the same in psql, with who paused what and why"),
        ),
        "kinds,stuck,queues,limits,repeated,dead",
    ),
    Layer(
        "The workers",
        "Whether they live, what they do, and how long it takes.",
        (
            *("snapapp_workers", "snapapp_worker_", "snapapp_jobs_", "snapapp_job_", "snapapp_claim_"),
            *("snapapp_oldest_heartbeat_", "snapapp_held_back_ratio"),
        ),
        ("worker_overview", "kind_costs", "limit_overview"),
        (
            ("max(snapapp_workers) < 1", "nothing runs"),
            ("snapapp_worker_up == 0", "for longer than a lease: this process neither claims nor settles"),
            (
                "rate(snapapp_jobs_retried_total[15m]) / rate(snapapp_jobs_claimed_total[15m]) > 0.2",
                "a kind has trouble",
            ),
            (
                "increase(snapapp_jobs_lease_lost_total[1h]) > 0",
                "a worker froze, or was cut off, for longer than a lease",
            ),
            (
                "histogram_quantile(0.95, sum by (kind, le) (rate(snapapp_job_wait_seconds_bucket[15m]))) > 5",
                "more comes in than is done; or, where nothing waits, looking for work is too slow: see "
                "SNAPAPP_WORKER_POLL_DELAY_MS, and think of a broker only if LISTEN lives and this stays",
            ),
            ("max by (worker, id, outcome) (rate(snapapp_worker_attempts_total[5m]))", "who does how much"),
            ("max(snapapp_oldest_heartbeat_seconds) > 30", "a worker hangs: at the lease's end its jobs go to others"),
            ("SELECT * FROM kind_costs;", "what each kind waits and takes: p50, p95, p99"),
        ),
        "workers,listen,slots,suspects",
    ),
    Layer(
        "The schedules",
        "Each slot stands in a ledger with what became of it, so they are watched in SQL.",
        (),
        ("schedule_overview",),
        (
            ("SELECT * FROM schedule_overview WHERE workers = 0;", "nobody alive declares them: nothing fires"),
            (
                "SELECT * FROM job_schedule_slot WHERE outcome <> 'fired' AND slot > now() - interval '1 day';",
                "slots that came late or not, and why",
            ),
        ),
        "schedules",
    ),
    Layer(
        "The fleet",
        "Where `snapapp supervisor` runs; without it there is nothing here.",
        ("snapapp_supervisor_up", "snapapp_pool_"),
        ("fleet_overview", "command_overview"),
        (
            ("min by (host) (snapapp_supervisor_up) == 0", "nobody there replaces workers that die"),
            (
                "snapapp_pool_processes < snapapp_pool_wanted_processes",
                "for minutes: they die at their start, or memory is short",
            ),
            ("SELECT * FROM job_worker_exit ORDER BY id DESC LIMIT 20;", "how workers ended, and why"),
        ),
        "fleet",
    ),
    Layer(
        "The web",
        "Requests come first: where the event loop lags, the worker in this process pauses.",
        ("snapapp_http_", "snapapp_web_pool_", "snapapp_loop_lag_", "snapapp_info"),
        (),
        (
            (
                'rate(snapapp_http_request_duration_seconds_count{status="5xx"}[5m]) > 0',
                "the log has the traceback and the id",
            ),
            ("snapapp_web_pool_in_use == snapapp_web_pool_size", "for a minute: requests wait for connections"),
            ("snapapp_loop_lag_p99_seconds > 0.1", "something holds up the event loop"),
        ),
        "connections",
    ),
    Layer(
        "PostgreSQL",
        "Everything rests on it. The doctor looks at what slows a queue down before anybody feels it.",
        ("snapapp_database_up",),
        ("queue_invariants",),
        (
            ("snapapp_database_up == 0", "this process cannot reach it; it goes on by itself when it can"),
            ("SELECT * FROM queue_invariants;", "any row: something is broken that no retry mends"),
            (
                "SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5;",
                "the oldest transactions: they keep vacuum from removing anything",
            ),
        ),
        "schema,settings,connections,rights,disk,numbers,xmin,locks,tables,indexes,sequences,cost,invariants",
    ),
    Layer(
        "Backups",
        "Only a backup that was restored on trial is one.",
        ("snapapp_backup_",),
        (),
        (
            ('snapapp_backup_age_seconds{what="backup"} > 26 * 3600', "the nightly one did not come"),
            ("snapapp_backup_failed == 1", "the log of its unit says why"),
        ),
        "backups",
    ),
)
_HEAD = """\
# Monitoring

<!-- Made by `make docs` from tests/docs/monitoring_page.py, the metrics in the code and the views in migrations/sql/;
do not edit. -->

`snapapp serve` tells whom you name here. Every minute it has the doctor look, and sends each warning once with its
cure, again if it becomes critical and when it is over:

| setting | |
|---|---|
| `SNAPAPP_ALERT_WEBHOOK_URL` | to where, as JSON; its `text` is what Slack and Mattermost show |
| `SNAPAPP_ALERT_EMAIL`, `SNAPAPP_ALERT_SMTP_URL` | to whom by mail, and through which server; a password only over \
TLS, to a server with a valid certificate |
| `SNAPAPP_HEARTBEAT_URL` | what it asks for while there is nothing to act on: a service outside that expects this \
notices a dead machine |

A receiver that is down or has moved is told later. A warning that becomes a notice is not over, and is sent again if it
becomes a warning after an hour. Of the processes that share a data folder one sends, and `alarm.json` there holds what
was told. Where several machines serve, set these on one of them.

By hand one question is enough: `snapapp doctor` exits with 1 when somebody should look. What to do then is in
[troubleshooting.md](troubleshooting.md). `GET /internal/observability/alerts` knows less: nothing of dead letters, hung
slots and paused queues; and it has an alert when jobs take more than five seconds on average.

For more, Prometheus reads `/metrics` of each `snapapp serve`; beside what is below it has the usual `process_*`. What
is in the database is told the same by every process: take `max()`, not `sum()`. The numbers below are a beginning:
choose your own.

[ops/monitoring](../../ops/monitoring/alerts.yml) has alert rules for Prometheus (`rule_files:` in its settings) and a
[dashboard](../../ops/monitoring/grafana.json) for Grafana (Dashboards, New, Import). Prometheus asks so:

```yaml
scrape_configs:
  - job_name: snapapp
    static_configs: [{targets: ["127.0.0.1:8000"]}]
```

"""


def families() -> dict[str, str]:
    """Every family of ours on /metrics, with what it says of itself."""
    nothing = Depth([], [], [], 0, 0, [], 0, 0, None, None)
    known = [*depth.families(nothing), *work.families(Counts(), 0, {}), *fleet.families([])]
    return {_sampled(its.name, its.type): its.documentation for its in known} | dict(_written())


def _sampled(name: str, kind: str) -> str:
    return f"{name}_total" if kind == "counter" else name


def _written() -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(_METRICS_OF_THE_PROCESS.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="gauge" | "counter" | "histogram"), args=[its_name, text, *_]):
                yield ast.literal_eval(its_name), ast.literal_eval(text)


def views() -> dict[str, str]:
    """Every view for people, with its comment."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(_VIEWS.glob("*.sql")))
    found = (re.search(r"COMMENT ON VIEW (\w+) IS '((?:[^']|'')*)'", text) for text in texts)
    return {its[1]: its[2].replace("''", "'") for its in found if its}


def document() -> str:
    return _HEAD + "\n".join(map(_chapter, LAYERS))


def _chapter(its: Layer) -> str:
    lines = [f"## {its.title}", "", its.about, "", "| look when | because |", "|---|---|"]
    lines += [f"| `{when.replace('|', chr(92) + '|')}` | {why} |" for when, why in its.look_when]
    told = [(name, text) for name, text in sorted(families().items()) if name.startswith(its.metrics)]
    told += [(f"{view} (a view)", views()[view]) for view in its.views]
    lines += ["", "| what there is | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in told)]
    return "\n".join([*lines, "", f"More: `snapapp doctor --only {its.doctor}`.", ""])


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
