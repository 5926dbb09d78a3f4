"""Limits on queues and keys, and fair turns between lanes: what the claim by the rules asks for."""

from pathlib import Path

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    _run("0004_limits.sql")


def downgrade() -> None:
    for script in ("0004_down.sql", "0003_down.sql", "0003_explain.sql"):  # explain_job is again as 0003 made it
        _run(script)


def _run(name: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql((SQL / name).read_text(encoding="utf-8"))
