"""The queue: snap_processing_job, the tables beside it, its SQL functions and the views for people."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    for part in ("tables", "functions", "views", "comments"):
        op.get_bind().execution_options(no_parameters=True).exec_driver_sql(
            (SQL / f"0001_{part}.sql").read_text(encoding="utf-8")
        )


def downgrade() -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql(
        (SQL / "0001_down.sql").read_text(encoding="utf-8")
    )
