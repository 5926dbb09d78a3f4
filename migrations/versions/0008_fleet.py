"""The fleet: supervisors, their pools, what they are told, and why pools were scaled."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    _run("0008_fleet.sql")


def downgrade() -> None:
    _run("0008_down.sql")


def _run(name: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql((SQL / name).read_text(encoding="utf-8"))
