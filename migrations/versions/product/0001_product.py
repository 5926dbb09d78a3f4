"""The product: tenants, videos, snaps and what belongs to them, each tenant behind a wall that the database holds.

Whatever belongs to a tenant names it, in the row and in every reference: (tenant, id) of one table can only be pointed
at by a row of the same tenant.
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parents[2] / "sql" / "product"

# One object a file, made in this order. The last two functions bring their triggers, which are on the queue's table.
OBJECTS = (
    "functions/tenant_begins_with_templates",
    "tables/tenant",
    "tables/operator",
    "tables/template",
    "tables/video",
    "tables/snap",
    "tables/subject_attribute",
    "tables/subject_word",
    "tables/share",
    "tables/correction",
    "tables/idempotency",
    "tables/webhook",
    "tables/backup_run",
    "functions/snap_ends_with_its_job",
    "functions/snap_waits_with_its_job",
    "views/snap_job",
)
KINDS = {"tables": "TABLE", "functions": "FUNCTION", "views": "VIEW"}


def upgrade() -> None:
    for path in ("role", *OBJECTS, "seeds"):
        _run((SQL / f"{path}.sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """The role stays: other databases of the cluster may use it."""
    for trigger in ("snap_ends_with_its_job", "snap_waits_with_its_job", "snap_waits_with_its_replay"):
        _run(f"DROP TRIGGER {trigger} ON snap_processing_job")
    for path in reversed(OBJECTS):
        folder, name = path.split("/")
        _run(f"DROP {KINDS[folder]} {name}")


def _run(sql: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql(sql)
