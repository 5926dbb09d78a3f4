"""Writes the rows by which searches find a snap: its subject's attributes and words."""

from typing import Any, cast
from uuid import UUID

from sqlalchemy import Double, Insert, Integer, Table, Text, Uuid, bindparam, delete, func, insert, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeEngine

from snapapp.domain.rules.subjects import Subject
from snapapp.domain.tables import SubjectAttribute, SubjectWord


def _rows_in(table: type[SubjectAttribute | SubjectWord], **columns: TypeEngine[Any]) -> Insert:
    """An INSERT that takes its values as one list for each column. Passed as rows they would go through psycopg's
    pipeline, which takes twice as long for the few rows of a snap."""
    of_snap = [bindparam("tenant", type_=Text), bindparam("snap_id", type_=Uuid)]
    lists = [func.unnest(bindparam(name, type_=ARRAY(column_type))) for name, column_type in columns.items()]
    return insert(cast("Table", table.__table__)).from_select(["tenant", "snap_id", *columns], select(*of_snap, *lists))


_ATTRIBUTES = _rows_in(
    SubjectAttribute, position=Integer(), key=Text(), type=Text(), text_value=Text(), number_value=Double()
)
_ALL = _rows_in(SubjectWord, word=Text()).add_cte(_ATTRIBUTES.cte("attributes"))


def write(db: Session, tenant: str, snap_id: UUID, subject: Subject) -> None:
    attributes = subject.attributes
    columns = {
        "position": [*range(len(attributes))],
        "key": [each.key for each in attributes],
        "type": [each.type for each in attributes],
        "text_value": [each.value if isinstance(each.value, str) else None for each in attributes],
        "number_value": [None if isinstance(each.value, str) else float(each.value) for each in attributes],
        "word": subject.words(),
    }
    db.execute(_ALL, {"tenant": tenant, "snap_id": snap_id} | columns)


def write_anew(db: Session, tenant: str, snap_id: UUID, subject: Subject) -> None:
    for table in (SubjectAttribute, SubjectWord):
        db.execute(delete(table).where(table.tenant == tenant, table.snap_id == snap_id))
    write(db, tenant, snap_id, subject)
