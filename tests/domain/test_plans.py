"""Every list goes through its index at 40,000 snaps, and at 100,000 with --everything, within the scope of a tenant:
what was executed is explained, and must have read about as many rows as it shows."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.orm import Session

from snapapp.domain import sharing, snaps, tenants, videos
from snapapp.domain.finding import search
from snapapp.domain.finding.paging import Window
from snapapp.domain.finding.search import Criteria
from snapapp.domain.tables import SnapStatus
from snapapp.jobs.rows.database import sqlalchemy_url
from snapapp.postgres import database
from tests.conftest import EMBEDDED
from tests.databases import Postgres
from tests.domain.making import begun

BIG = "big"
VIDEOS = 10_000
TABLES = {"snap", "video", "subject_attribute", "subject_word", "snap_processing_job", "share", "operator"}


# 10,000 videos, of which the first has a third of the snaps; 4,000 animals, of which the first has a tenth; Ana marked
# half of them. One in ten is shared, one in a hundred still waits. The replica's role does not check foreign keys.
def fill(snaps: int) -> str:
    return f"""
SET session_replication_role = replica;
INSERT INTO operator (id, tenant, email, nickname) VALUES (1000, 'big', 'ana@example.org', 'Ana');
INSERT INTO video (id, tenant, url, url_hash)
SELECT md5('video ' || n)::uuid, 'big', 'https://example.org/' || n, sha256(convert_to('video ' || n, 'UTF8'))
  FROM generate_series(0, {VIDEOS - 1}) AS n;
INSERT INTO snap (id, tenant, video_id, operator_id, template_id, nickname, email, kind, start_seconds,
                  duration_seconds, clip_seconds, fps, max_width, format, quality, subject_id, subject, ended, frames,
                  processed_at, resolved_start_seconds, created_at)
SELECT md5('snap ' || n)::uuid, 'big', md5('video ' || CASE n % 3 WHEN 0 THEN 0 ELSE n % {VIDEOS} END)::uuid, 1000,
       (SELECT id FROM template WHERE tenant = 'big' AND is_default),
       CASE n % 2 WHEN 0 THEN 'Ana' ELSE 'Operator ' || n % 50 END, 'ana@example.org', 'INSTANT', n % 3600, 1, 1, 5,
       1280, 'jpg', 3, 'boi-' || CASE n % 10 WHEN 0 THEN 0 ELSE n % 4000 END, '{{}}',
       CASE WHEN n % 100 > 0 THEN 'COMPLETED' END, CASE WHEN n % 100 > 0 THEN jsonb '[]' END,
       CASE WHEN n % 100 > 0 THEN now() END, CASE WHEN n % 100 > 0 THEN n * 7919 % 3600 END, now() - n * interval '1 s'
  FROM generate_series(1, {snaps}) AS n;
INSERT INTO share (token, tenant, snap_id)
SELECT md5('share ' || n), 'big', md5('snap ' || n)::uuid FROM generate_series(1, {snaps}, 10) AS n;
INSERT INTO subject_attribute (snap_id, position, tenant, key, type, text_value, number_value)
SELECT md5('snap ' || n)::uuid, position, 'big', key, type, text_value, number_value
  FROM generate_series(1, {snaps}) AS n
 CROSS JOIN LATERAL (VALUES (0, 'brinco', 'string', 'A' || n, NULL),
                            (1, 'sexo', 'string', CASE n % 2 WHEN 0 THEN 'F' ELSE 'M' END, NULL),
                            (2, 'peso', 'number', NULL, 300 + n % 3000 / 10.0))
            AS its (position, key, type, text_value, number_value);
INSERT INTO subject_word (snap_id, word, tenant)
SELECT md5('snap ' || n)::uuid, word, 'big' FROM generate_series(1, {snaps}) AS n
 CROSS JOIN LATERAL (VALUES ('boi'), ('a' || n), (CASE n % 500 WHEN 0 THEN 'manco' ELSE 'sadio' END)) AS its (word);
INSERT INTO snap_processing_job (kind, tenant, snap_id, status, finished_at)
SELECT 'snap.process', 'big', md5('snap ' || n)::uuid, CASE WHEN n % 100 > 0 THEN 'COMPLETED' ELSE 'PENDING' END,
       CASE WHEN n % 100 > 0 THEN now() END
  FROM generate_series(1, {snaps}) AS n;
SET session_replication_role = origin;
ANALYZE;
"""


@pytest.fixture(scope="module")
def many(everything: bool) -> int:
    """Snaps; no list reads a twentieth of them."""
    return 100_000 if everything else 40_000


@pytest.fixture(scope="module")
def crowded(servers: Callable[[str], Postgres], many: int) -> Iterator[sqlalchemy.Engine]:
    """A database with a tenant that has so many snaps."""
    with servers(EMBEDDED).database("migrated") as url:
        engine = sqlalchemy.create_engine(sqlalchemy_url(url))
        with begun(engine) as session:
            tenants.add(session, BIG, "Big")
        with psycopg.connect(url, autocommit=True) as filling:
            filling.execute(fill(many).encode())
            filling.execute("VACUUM")
        yield engine
        engine.dispose()


@dataclass
class Read:
    """What a call cost: which indexes it used, how many rows it took from its tables, what it read whole."""

    indexes: set[str]
    rows: int
    whole: set[str]


def cost(engine: sqlalchemy.Engine, call: Callable[[Session], object]) -> Read:
    """Of every statement that the call executes within its scope."""
    executed: list[tuple[str, Any]] = []
    with begun(engine) as session, database.scope(session, BIG):
        event.listen(
            session.connection(), "before_cursor_execute", lambda *given: executed.append((given[2], given[3]))
        )
        call(session)
        statements = list(executed)
        read = Read(set(), 0, set())
        for statement, parameters in statements:
            explained = (
                session.connection().exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar()
            )
            plan = explained if isinstance(explained, list) else json.loads(str(explained))
            _count(plan[0]["Plan"], read)
    return read


def _count(node: dict[str, Any], read: Read) -> None:
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES:
        read.whole.add(node["Relation Name"])
    if "Index Name" in node:
        read.indexes.add(node["Index Name"])
    if "Relation Name" in node or node["Node Type"] == "Bitmap Index Scan":
        removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
        read.rows += int((node["Actual Rows"] + removed) * node["Actual Loops"])
    for child in node.get("Plans", ()):
        _count(child, read)


def id_of(engine: sqlalchemy.Engine, name: str) -> UUID:
    with begun(engine) as session:
        found = session.connection().exec_driver_sql("SELECT md5(%(name)s)::uuid", {"name": name}).scalar()
    assert isinstance(found, UUID)
    return found


A_PAGE = 1000  # rows for 50 shown: each is read, joined with its video, looked up in shares and jobs
NEWEST, OLDEST, DEEP = Window(), Window(sort_dir="asc"), Window(offset=1000)

LISTS: dict[str, tuple[str, Callable[[Session, Window], object]]] = {
    "of a subject": (
        "snap_of_subject",
        lambda own, window: search.by_subject(own, BIG, Criteria(subject_id="boi-0"), window),
    ),
    "of a subject, as filmed": (
        "snap_of_subject_as_filmed",
        lambda own, window: search.by_subject(
            own, BIG, Criteria(subject_id="boi-0"), replace(window, sort_by="dataFilmagem")
        ),
    ),
    "of a nickname": ("snap_of_nickname", lambda own, window: search.recent(own, BIG, window, nickname="ANA")),
    "recent": ("snap_recent", lambda own, window: search.recent(own, BIG, window)),
    "of a status": (
        "snap_recent",
        lambda own, window: search.recent(own, BIG, window, Criteria(status=SnapStatus.COMPLETED)),
    ),
    "that failed": (
        "snap_failed",
        lambda own, window: search.recent(own, BIG, window, Criteria(status=SnapStatus.FAILED)),
    ),
    "that wait": (
        "snap_pending",
        lambda own, window: search.recent(own, BIG, window, Criteria(status=SnapStatus.PENDING)),
    ),
    "videos": ("video_recent", lambda own, window: videos.page(own, BIG, window)),
}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize(
    "window",
    # the lists of one video are read to their depths in every run
    [NEWEST, pytest.param(OLDEST, marks=pytest.mark.at_length), pytest.param(DEEP, marks=pytest.mark.at_length)],
    ids=["newest", "oldest", "deep"],
)
def test_a_list_in_its_own_order_reads_what_it_shows(crowded: sqlalchemy.Engine, name: str, window: Window) -> None:
    """S19-S22."""
    index, ask = LISTS[name]
    read = cost(crowded, lambda own: ask(own, window))
    assert index in read.indexes
    assert read.whole == set()
    assert read.rows <= A_PAGE + window.offset * 2


@pytest.mark.parametrize("window", [NEWEST, Window(sort_dir="desc"), DEEP], ids=["first", "last", "deep"])
def test_a_video_with_a_third_of_all_snaps_is_listed_by_moment(crowded: sqlalchemy.Engine, window: Window) -> None:
    """S19."""
    video = id_of(crowded, "video 0")
    read = cost(crowded, lambda own: search.of_video(own, BIG, video, window))
    assert ("snap_of_video" in read.indexes, read.whole) == (True, set())
    assert read.rows <= A_PAGE + window.offset * 2


@pytest.mark.parametrize(
    ("criteria", "index", "most"),
    [
        (Criteria(attr_key="Brinco", attr_value="A777"), "subject_attribute_text", 100),
        (Criteria(attr_key="brinco", attr_value="777"), "subject_attribute_text", 100),
        (Criteria(attr_key="peso", attr_value="450.5"), "subject_attribute_number", A_PAGE),
        (Criteria(attr_key="peso", attr_min=450, attr_max=450.2), "subject_attribute_number", A_PAGE),
        (Criteria(q="A777"), "subject_word_of_tenant", A_PAGE),
        (Criteria(q="a77"), "subject_word_of_tenant", 5 * A_PAGE),
        (Criteria(q="manco"), "subject_word_of_tenant", 2000),
        (Criteria(q="boi A777"), "subject_word_of_tenant", 2000),
        (Criteria(subject_id="boi-8", attr_key="brinco", attr_value="A4008"), "subject_attribute_text", 500),
    ],
    ids=["text", "number or text", "number", "range", "word", "beginning", "rare word", "words", "id and text"],
)
def test_what_few_snaps_have_is_found_through_its_index(
    crowded: sqlalchemy.Engine, criteria: Criteria, index: str, most: int
) -> None:
    """S20, S36, D12."""
    read = cost(crowded, lambda own: search.by_subject(own, BIG, criteria))
    assert (index in read.indexes, read.whole) == (True, set())
    assert read.rows <= most


@pytest.mark.parametrize(
    "criteria",
    [Criteria(attr_key="sexo", attr_value="F"), Criteria(attr_key="peso", attr_min=400), Criteria(q="sadio boi")],
    ids=["text", "range", "words"],
)
def test_what_many_snaps_have_is_met_soon_on_the_way_through_the_newest(
    crowded: sqlalchemy.Engine, criteria: Criteria
) -> None:
    """The count that finds out that they are many ends at 5,000."""
    read = cost(crowded, lambda own: search.by_subject(own, BIG, criteria))
    assert ("snap_recent" in read.indexes, read.whole) == (True, set())
    assert read.rows <= 5000 + 6 * A_PAGE


def test_my_videos_are_counted_in_an_index_alone(crowded: sqlalchemy.Engine, many: int) -> None:
    """S21: half of the snaps are Ana's, and each is counted; none is read. The videos are, for their URLs."""
    read = cost(crowded, lambda own: search.videos_mine(own, BIG, "ana"))
    assert "snap_of_nickname_by_video" in read.indexes
    assert "snap" not in read.whole
    assert read.rows <= many / 2 + VIDEOS + A_PAGE


ONE: dict[str, Callable[[Session, UUID], object]] = {
    "read": lambda own, snap_id: snaps.read(own, BIG, snap_id),
    "shared": lambda own, snap_id: sharing.in_force(own, BIG, snap_id),
    "corrections": lambda own, snap_id: snaps.corrections(own, BIG, snap_id),
    "video": lambda own, _: videos.at_url(own, BIG, "https://example.org/none"),
}


@pytest.mark.parametrize("name", ONE)
def test_one_thing_is_read_by_its_key(crowded: sqlalchemy.Engine, name: str) -> None:
    snap_id = id_of(crowded, "snap 100")  # which still waits, so that its job is looked at
    read = cost(crowded, lambda own: ONE[name](own, snap_id))
    assert read.whole == set()
    assert read.rows <= 10


def test_a_job_is_found_from_within_a_scope_by_its_snap(crowded: sqlalchemy.Engine) -> None:
    """The view guards itself against functions that leak; the condition on the snap must pass that guard."""
    snap_id = id_of(crowded, "snap 100")
    read = cost(crowded, lambda own: snaps.read(own, BIG, snap_id))
    assert "snap_processing_job_snap" in read.indexes
