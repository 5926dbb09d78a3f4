"""The guides for whoever is on call say what the code says, and all of it."""

import re

import pytest

from snapapp.jobs.doctor import CHECKS
from snapapp.processing import bucket_check, checks, compute_check
from snapapp.settings.table import Settings
from tests.docs import monitoring_page, troubleshooting_page
from tests.docs.monitoring_page import LAYERS, Layer
from tests.factory import Db

QUERIES = [when for layer in LAYERS for when, _ in layer.look_when if when.startswith("SELECT")]
ALL_CHECKS = {*CHECKS, *checks.of(Settings()), compute_check.NAME, bucket_check.NAME}


def test_the_pages_are_what_the_code_says() -> None:
    """QueueMaster's MONITORING and TROUBLESHOOTING, Q51: they cannot drift."""
    assert monitoring_page.PAGE.read_text() == monitoring_page.document(), "type: make docs"
    assert troubleshooting_page.PAGE.read_text() == troubleshooting_page.document(), "type: make docs"


def test_every_number_and_every_view_is_watched_in_one_layer() -> None:
    numbers = {
        name: [its.title for its in LAYERS if name.startswith(its.metrics)] for name in monitoring_page.families()
    }
    assert {name: layers for name, layers in numbers.items() if len(layers) != 1} == {}
    named = [view for layer in LAYERS for view in layer.views]
    assert sorted(named) == sorted(monitoring_page.views())


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.title)
def test_what_to_look_for_can_be_looked_for(layer: Layer) -> None:
    known = monitoring_page.families().keys()
    named = {name for when, _ in layer.look_when for name in re.findall(r"snapapp_\w+", when)}
    assert {name for name in named if re.sub("_(count|bucket)$", "", name) not in known} == set()
    assert {*layer.doctor.split(",")} <= ALL_CHECKS


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_of_the_guide_runs(db: Db, query: str) -> None:
    db.execute(query.encode())


def test_every_check_is_in_the_guide_with_all_that_it_finds() -> None:
    assert {name for names in troubleshooting_page.COMPONENTS.values() for name in names} == ALL_CHECKS | {"any"}
    found = list(troubleshooting_page.troubles())
    assert {each.check for each in found} == ALL_CHECKS | {"any"}
    assert [each.id for each in found if not each.saw.strip("… ") and not each.do] == []
    assert [each.id for each in found if each.check != "backups" and not each.why.strip("… ")] == []
    assert {"NO_WORKER", "SETTING_FSYNC", "CHECK_FAILED", "BACKUP_NOT_SET"} <= {each.id for each in found}
