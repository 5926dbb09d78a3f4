"""The classes of tables.py beside what the migrations make."""

from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from snapapp.domain.tables import Base, SnapJob

# Said in SQL alone, where psql shows them and where they can be said whole.
IN_SQL_ALONE = {"index", "unique_constraint"}
COMMENTS = {"add_table_comment", "remove_table_comment", "modify_comment"}


def is_compared(thing: Any, name: str | None, kind: str, is_reflected: bool, _other: object) -> bool:
    if kind == "table":
        is_of_the_queue = is_reflected and ("job" in str(name) or name == "product_version")
        is_of_the_box = name == "backup_run"  # read by statements, on whatever connection somebody has
        return not is_of_the_queue and not is_of_the_box and not thing.info.get("is_view")
    return kind not in IN_SQL_ALONE


def differences(connection: sqlalchemy.Connection) -> list[str]:
    options = {"compare_type": True, "compare_server_default": True, "include_object": is_compared}
    found = compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata)
    single = [one for each in found for one in (each if isinstance(each, list) else [each])]
    return [f"{one[0]}: {one[1:]}" for one in single if one[0] not in COMMENTS]


@pytest.mark.both_servers
def test_the_classes_are_the_tables_that_the_migrations_make(engine: sqlalchemy.Engine) -> None:
    with engine.connect() as connection:
        assert differences(connection) == []


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("ALTER TABLE snap ADD COLUMN weather text", "remove_column"),
        ("ALTER TABLE snap DROP COLUMN request_id", "add_column"),
        ("ALTER TABLE snap ALTER COLUMN fps TYPE bigint", "modify_type"),
        ("ALTER TABLE snap ALTER COLUMN email DROP NOT NULL", "modify_nullable"),
        ("ALTER TABLE snap ALTER COLUMN frame_count SET DEFAULT 1", "modify_default"),
        ("ALTER TABLE correction DROP CONSTRAINT correction_tenant_snap_id_fkey", "add_fk"),
        ("CREATE TABLE ox (tenant text)", "remove_table"),
    ],
)
def test_a_difference_is_noticed(engine: sqlalchemy.Engine, change: str, difference: str) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql(change)
        assert [each.partition(":")[0] for each in differences(connection)] == [difference]


def test_the_view_of_jobs_has_what_its_class_reads(engine: sqlalchemy.Engine) -> None:
    columns = {column["name"] for column in sqlalchemy.inspect(engine).get_columns("snap_job")}
    assert {column.name for column in SnapJob.__table__.columns} <= columns
