"""The demo's rows: there once, whoever asks how often."""

from dataclasses import replace

import pytest
import sqlalchemy

from snapapp.demo import PREPARE, first_minute
from snapapp.demo.animals import HERD
from snapapp.domain import snaps, tenants
from snapapp.jobs import Job
from snapapp.jobs.rows.database import connect
from snapapp.postgres.migrate import migrate
from tests.domain.making import acting, begun
from tests.factory import Db, running_job, scalar

PAINTED = {"size_bytes": 600_000, "sha256": "0" * 64}
KINDS = "SELECT array_agg(kind ORDER BY id) FROM snap_processing_job WHERE kind <> 'test'"


@pytest.fixture
def job(db: Db) -> Job:
    return replace(running_job(db), tenant=tenants.DEFAULT)


def prepare(engine: sqlalchemy.Engine, job: Job) -> None:
    with engine.begin() as connection:
        first_minute.publish(connection, job, PAINTED)


def test_a_new_database_orders_the_demo_and_one_that_was_there_does_not(empty_url: str) -> None:
    for _ in range(2):
        migrate(empty_url, if_new=first_minute.order)
    with connect(empty_url, name="test") as db:
        assert scalar(db, KINDS) == [PREPARE]


def test_what_is_ordered_twice_is_one_job(engine: sqlalchemy.Engine) -> None:
    with begun(engine) as session:
        assert first_minute.order(session) == first_minute.order(session)


def test_the_demo_is_three_ordinary_snaps_one_with_an_overlay(db: Db, engine: sqlalchemy.Engine, job: Job) -> None:
    prepare(engine, job)
    assert scalar(db, KINDS) == ["snap.process"] * 3 + ["video.probe"]
    assert scalar(db, "SELECT count(*) FROM snap WHERE overlay IS NOT NULL") == 1
    assert scalar(db, "SELECT count(*) FROM snap JOIN template ON template.id = template_id WHERE slug = 'gado'") == 3
    tags = {animal.tag for animal in HERD}
    assert set(scalar(db, "SELECT array_agg(subject_id) FROM snap")) < tags
    moments = scalar(db, "SELECT array_agg(start_seconds) FROM snap")
    assert moments == [round(each, 1) for each in moments], "else an export shows 14.899999999999999"


def test_asked_again_it_adds_what_is_missing_and_nothing_else(db: Db, engine: sqlalchemy.Engine, job: Job) -> None:
    prepare(engine, job)
    before = scalar(db, "SELECT array_agg(id ORDER BY id) FROM snap")
    prepare(engine, job)
    assert scalar(db, "SELECT array_agg(id ORDER BY id) FROM snap") == before
    with acting(engine, tenants.DEFAULT) as own:
        snaps.remove(own, tenants.DEFAULT, before[0])
    prepare(engine, job)
    assert scalar(db, "SELECT array_agg(id ORDER BY id) FROM snap") == before
    assert scalar(db, "SELECT count(*) FROM video") == 1
