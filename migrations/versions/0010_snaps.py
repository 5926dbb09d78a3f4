"""The domain: tenants, videos, snaps and what belongs to them, each tenant behind a wall that the database holds."""

from pathlib import Path

from alembic import op

revision = "0010"
down_revision = "0008"
branch_labels = None
depends_on = None

SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    for part in ("role", "tables", "walls", "jobs", "seeds", "comments"):
        _run(f"0010_{part}.sql")


def downgrade() -> None:
    _run("0010_down.sql")


def _run(name: str) -> None:
    op.get_bind().execution_options(no_parameters=True).exec_driver_sql((SQL / name).read_text(encoding="utf-8"))
