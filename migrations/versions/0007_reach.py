"""explain_job(id) knows rooms, turns and suspects; who paused a queue; how often a job's context was entered."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    _run("0007_reach.sql")


def downgrade() -> None:
    _run("0007_down.sql")


def _run(name: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql((SQL / name).read_text(encoding="utf-8"))
