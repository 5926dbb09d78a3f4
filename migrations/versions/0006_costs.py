"""job_cost and kind_costs: what attempts cost; and what a worker holds back for want of memory, on its roster row."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    _run("0006_costs.sql")


def downgrade() -> None:
    _run("0006_down.sql")


def _run(name: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql((SQL / name).read_text(encoding="utf-8"))
