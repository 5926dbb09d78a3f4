"""For each alert rule: series at which it fires, and series close to them at which it must not."""

from dataclasses import dataclass
from typing import Any

Series = dict[str, str]  # as promtool writes values: "0+1x10" is 0, 1, … 10, a minute apart

_ATTEMPTS = 'snapapp_worker_attempts_total{worker="w",id="1",outcome="%s",instance="%s"}'
_QUEUE = 'snapapp_queue_%s{queue="mail",instance="%s"}'
_LONG_WAIT = _QUEUE % ("long_wait_seconds", "b")


@dataclass(frozen=True)
class Case:
    alert: str
    fires: Series
    is_quiet: Series
    after: str = "20m"


CASES = [
    Case("SnapappDown", {}, {"snapapp_info": "1x30"}),
    Case("SnapappDatabaseAway", {"snapapp_database_up": "0x30"}, {"snapapp_database_up": "0x19 1x10"}),
    Case(
        "SnapappQueuesUncounted",
        {'snapapp_database_up{instance="a"}': "1x30", 'snapapp_workers{instance="b"}': "1x30"},
        {'snapapp_database_up{instance="a"}': "1x30", 'snapapp_workers{instance="a"}': "0x30"},
    ),
    Case("SnapappNoWorker", {"snapapp_workers": "0x30"}, {'snapapp_workers{instance="b"}': "1x30"}),
    Case("SnapappWorkerStopped", {"snapapp_worker_up": "0x30"}, {"snapapp_worker_up": "1x30"}),
    Case("SnapappJobsStuck", {"snapapp_stuck_jobs": "2x30"}, {"snapapp_stuck_jobs": "2x18 0x10"}),
    Case(
        "SnapappJobsWaitLong",
        {_QUEUE % ("oldest_due_seconds", "a"): "600x30", _LONG_WAIT: "300x30", _QUEUE % ("paused", "a"): "0x30"},
        {_QUEUE % ("oldest_due_seconds", "a"): "600x30", _LONG_WAIT: "300x30", _QUEUE % ("paused", "a"): "1x30"},
    ),
    Case(
        "SnapappJobsWaitLong",
        {_QUEUE % ("oldest_due_seconds", "a"): "180x30", _LONG_WAIT: "120x30"},
        {_QUEUE % ("oldest_due_seconds", "a"): "600x30", _LONG_WAIT: "283824000x30"},
    ),
    Case(
        "SnapappQueuePausedAndFull",
        {_QUEUE % ("paused", "a"): "1x700 _x7 1x800", _QUEUE % ("waiting_jobs", "b"): "3x1500"},
        {_QUEUE % ("paused", "a"): "1x1500", _QUEUE % ("waiting_jobs", "b"): "0x1500"},
        after="1500m",
    ),
    Case(
        "SnapappJobsGaveUp",
        {_ATTEMPTS % ("failed", "a"): "0+1x30"},
        {_ATTEMPTS % ("failed", "a"): "7x30", _ATTEMPTS % ("retried", "a"): "0+1x30"},
    ),
    Case(
        "SnapappJobsGaveUp",
        {_ATTEMPTS % ("failed", "a"): "_x10 7x20", "snapapp_dead_letters": "2x10 9x20"},
        {_ATTEMPTS % ("failed", "a"): "_x10 7x20", "snapapp_dead_letters": "9x10 2x20"},
    ),
    Case(
        "SnapappJobsAreRepeated",
        {_ATTEMPTS % ("retried", "a"): "0+3x60", _ATTEMPTS % ("completed", "a"): "0+7x60"},
        {_ATTEMPTS % ("retried", "a"): "0+1x60", _ATTEMPTS % ("completed", "a"): "0+7x60"},
        after="50m",
    ),
    Case("SnapappLeasesLost", {"snapapp_jobs_lease_lost_total": "0+1x30"}, {"snapapp_jobs_lease_lost_total": "5x30"}),
    Case(
        "SnapappPoolShort",
        {
            'snapapp_pool_processes{host="h",pool="p"}': "1x30",
            'snapapp_pool_wanted_processes{host="h",pool="p"}': "2x30",
        },
        {
            'snapapp_pool_processes{host="h",pool="p"}': "2x30",
            'snapapp_pool_wanted_processes{host="h",pool="p"}': "2x30",
        },
    ),
    Case(
        "SnapappSupervisorLost",
        {'snapapp_supervisor_up{host="h"}': "0x30"},
        {'snapapp_supervisor_up{host="h"}': "1x30"},
    ),
    Case(
        "SnapappRequestsFail",
        {'snapapp_http_request_duration_seconds_count{status="5xx"}': "0+60x30"},
        {'snapapp_http_request_duration_seconds_count{status="4xx"}': "0+60x30"},
    ),
    Case(
        "SnapappWebWaitsForConnections",
        {"snapapp_web_pool_in_use": "5x30", "snapapp_web_pool_size": "5x30"},
        {"snapapp_web_pool_in_use": "4x30", "snapapp_web_pool_size": "5x30"},
    ),
    Case(
        "SnapappEventLoopLate", {"snapapp_loop_lag_p99_seconds": "0.4x30"}, {"snapapp_loop_lag_p99_seconds": "0.2x30"}
    ),
    Case(
        "SnapappBackupOld",
        {'snapapp_backup_age_seconds{what="backup"}': "100000x30"},
        {
            'snapapp_backup_age_seconds{what="backup"}': "80000x30",
            'snapapp_backup_age_seconds{what="drill"}': "100000x30",
        },
    ),
    Case(
        "SnapappBackupFailed",
        {'snapapp_backup_failed{what="drill"}': "1x30"},
        {'snapapp_backup_failed{what="drill"}': "0x30"},
    ),
    Case(
        "SnapappNoBackup",
        {'snapapp_backup_failed{what="backup"}': "0x120", 'snapapp_backup_age_seconds{what="drill"}': "9x120"},
        {
            'snapapp_backup_failed{what="backup"}': "0x120",
            'snapapp_backup_age_seconds{what="backup"}': "9x120",
            'snapapp_backup_failed{what="drill"}': "0x120",
        },
        after="90m",
    ),
]


def document(rules: str) -> dict[str, Any]:
    """What `promtool test rules` is given."""
    asked = [(case, series, count) for case in CASES for series, count in ((case.fires, 1), (case.is_quiet, 0))]
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": [_test(*each) for each in asked]}


def _test(case: Case, series: Series, count: int) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{case.alert}", alertstate="firing"}}) or vector(0)'
    return {
        "name": f"{case.alert} fires" if count else f"{case.alert} is quiet",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": firing, "eval_time": case.after, "exp_samples": [{"labels": "{}", "value": count}]}
        ],
    }
