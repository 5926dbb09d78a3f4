"""Reads the old service's rows, all as of one moment, in one read-only transaction."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import IsolationLevel
from psycopg.rows import dict_row

from snapapp.legacy.errors import LegacyError

Row = dict[str, Any]

_PAGE = 500  # rows

_COLUMNS: Mapping[str, str] = {
    "assinatura": "id codigo nome api_token status created_at",
    "subject_template": "id assinatura_id nome slug ativo schema_json is_default created_at updated_at",
    "usuario": "id nickname email status created_at",
    "video": "id assinatura_id original_url video_probe_json created_by_usuario_id created_at",
    "snap": "id assinatura_id video_id created_by_usuario_id subject_template_id nickname_snapshot email_snapshot"
    " tipo_snap status public_share_token is_public data_filmagem start_seconds start_frame resolved_start_seconds"
    " duration_seconds snapshot_duration_seconds fps max_width format quality subject_id subject_json overlay_json"
    " video_probe_json snapshot_video_json frames_json error_message created_at updated_at processed_at",
    "snap_subject_attr": "id snap_id attr_key value_type string_value number_value",
    "snap_processing_job": "id snap_id status",
}

_SHAPE = """
SELECT table_name, array_agg(column_name::text) FROM information_schema.columns
 WHERE table_schema = ANY (current_schemas(false)) AND table_name = ANY (%s) GROUP BY table_name
"""

_TENANTS = "SELECT * FROM assinatura ORDER BY id"

_TEMPLATES = "SELECT * FROM subject_template WHERE assinatura_id = %(tenant)s ORDER BY id"

_PEOPLE = """
SELECT * FROM usuario
 WHERE id IN (SELECT created_by_usuario_id FROM snap WHERE assinatura_id = %(tenant)s
              UNION SELECT created_by_usuario_id FROM video WHERE assinatura_id = %(tenant)s)
 ORDER BY id
"""

_VIDEOS = "SELECT * FROM video WHERE assinatura_id = %(tenant)s ORDER BY created_at, id"

_SNAPS = """
SELECT snap.*,
       ARRAY(SELECT jsonb_build_object('key', attr_key, 'type', value_type, 'stringValue', string_value,
                                       'numberValue', number_value)
               FROM snap_subject_attr WHERE snap_id = snap.id ORDER BY snap_subject_attr.id) AS attributes
  FROM snap WHERE assinatura_id = %(tenant)s ORDER BY created_at, id
"""


@dataclass(frozen=True, slots=True)
class Old:
    """One transaction on the old database."""

    connection: psycopg.Connection[Row]

    def tenants(self) -> list[Row]:
        return self.connection.execute(_TENANTS).fetchall()

    def templates(self, tenant: int) -> list[Row]:
        return self.connection.execute(_TEMPLATES, {"tenant": tenant}).fetchall()

    def people(self, tenant: int) -> list[Row]:
        """The people who marked something for this tenant. In the old database people belong to no tenant."""
        return self.connection.execute(_PEOPLE, {"tenant": tenant}).fetchall()

    def videos(self, tenant: int) -> Iterator[Row]:
        return self._stream("videos", _VIDEOS, tenant)

    def snaps(self, tenant: int) -> Iterator[Row]:
        return self._stream("snaps", _SNAPS, tenant)

    def count(self) -> int:
        """How many snaps there are."""
        [row] = self.connection.execute("SELECT count(*) AS snaps FROM snap").fetchall()
        return int(row["snaps"])

    def _stream(self, name: str, statement: str, tenant: int) -> Iterator[Row]:
        with self.connection.cursor(name=name) as cursor:
            cursor.itersize = _PAGE
            cursor.execute(statement, {"tenant": tenant})
            yield from cursor


@contextmanager
def opened(dsn: str) -> Iterator[Old]:
    """Connects to the old database in a read-only transaction."""
    try:
        connection = psycopg.connect(
            dsn.removeprefix("jdbc:"),
            row_factory=dict_row,
            connect_timeout=10,
            application_name="snapapp import-legacy",
        )
    except psycopg.Error as error:
        raise LegacyError(f"The old database cannot be reached: {' '.join(str(error).split())}.") from error
    with connection:
        connection.read_only = True
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        try:
            _insist_on_shape(connection)
            yield Old(connection)
        except psycopg.Error as error:
            raise LegacyError(f"The old database cannot be read: {' '.join(str(error).split())}.") from error


def _insist_on_shape(connection: psycopg.Connection[Row]) -> None:
    rows = connection.execute(_SHAPE, [list(_COLUMNS)]).fetchall()
    columns = {row["table_name"]: set(row["array_agg"]) for row in rows}
    missing = [table for table in _COLUMNS if table not in columns]
    if missing:
        raise LegacyError(f"This is no database of snap-player-api: it has no table {', '.join(missing)}.")
    missing_columns = [
        f"{table}.{name}" for table, names in _COLUMNS.items() for name in names.split() if name not in columns[table]
    ]
    if missing_columns:
        raise LegacyError(
            f"This is no database of snap-player-api as of its migration V3: {', '.join(missing_columns)} is missing."
        )
