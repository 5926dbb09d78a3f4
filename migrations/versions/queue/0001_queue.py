"""The queue, without anything of the product: its tables, its SQL functions and the views for people."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[2] / "sql" / "queue"

# One object a file, made in this order. A table needs the functions that its triggers call; a function needs the tables
# whose rows it is given and, where it is written in SQL, the functions that it calls; a view comes last.
OBJECTS = (
    "functions/job_after_insert",
    "functions/job_rules_changed",
    "functions/job_parent_changed",
    "functions/job_parents_changed",
    "tables/snap_processing_job",
    "tables/job_parent",
    "tables/job_log",
    "tables/job_cost",
    "tables/job_kind",
    "tables/job_queue",
    "tables/job_limit",
    "tables/job_limit_key",
    "tables/job_rule_change",
    "tables/job_retention",
    "tables/job_schedule",
    "tables/job_schedule_slot",
    "tables/job_worker",
    "tables/job_worker_exit",
    "tables/job_master",
    "tables/job_pool",
    "tables/job_command",
    "tables/job_scaling",
    "tables/job_audit",
    "tables/job_history",
    "functions/job_holder",
    "functions/job_spec_key",
    "functions/job_done_before",
    "functions/job_refuse_long",
    "functions/job_specs",
    "functions/job_spec_rest",
    "functions/job_is_awaited",
    "functions/job_lock_children",
    "functions/job_children_are_free",
    "functions/job_admit",
    "functions/job_meet_parents",
    "functions/job_tell_children",
    "functions/job_tell_children_one_by_one",
    "functions/job_wait_for",
    "functions/enqueue_one_job",
    "functions/enqueue_jobs",
    "functions/enqueue_job",
    "functions/retry_job",
    "functions/run_job_now",
    "functions/replay_job",
    "functions/cancel_job",
    "functions/pause_queue",
    "functions/resume_queue",
    "functions/job_limit_of",
    "functions/job_limit_room",
    "functions/job_has_rules",
    "functions/job_lane_of",
    "functions/job_label",
    "functions/job_relabel",
    "functions/job_let_in",
    "functions/job_next_head",
    "functions/pause_schedule",
    "functions/resume_schedule",
    "functions/enqueue_scheduled_job",
    "functions/run_schedule",
    "functions/job_span",
    "functions/explain_memory_of_job",
    "functions/explain_limits_of_job",
    "functions/explain_workers_of_job",
    "functions/explain_place_of_job",
    "functions/job_parent_counts",
    "functions/explain_parents_of_job",
    "functions/explain_waiting_job",
    "functions/explain_job",
    "functions/job_error_line",
    "functions/job_percentiles",
    "functions/job_histogram",
    "functions/job_histogram_sum",
    "functions/command_fleet",
    "views/job_apart",
    "views/queue_overview",
    "views/queue_stuck",
    "views/queue_dead_letters",
    "views/workflow_overview",
    "views/queue_throughput",
    "views/queue_invariants",
    "views/limit_overview",
    "views/schedule_overview",
    "views/worker_overview",
    "views/kind_costs",
    "views/fleet_overview",
    "views/command_overview",
)
KINDS = {"tables": "TABLE", "functions": "FUNCTION", "views": "VIEW"}


def upgrade() -> None:
    for path in OBJECTS:
        _run((SQL / f"{path}.sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    for path in reversed(OBJECTS):
        folder, name = path.split("/")
        _run(f"DROP {KINDS[folder]} {name}")


def _run(sql: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql(sql)
