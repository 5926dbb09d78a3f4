"""Whether somebody should look: pure, and as the doctor and the commands tell it."""

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from snapapp.backup import records
from snapapp.backup.judgement import troubles
from snapapp.backup.records import State, What
from snapapp.settings.table import Environment, Settings
from snapapp.storage import Local, Room
from tests.backup.conftest import FILES, content
from tests.commands import Call
from tests.factory import Db

DAY = timedelta(days=1)
SETTINGS = Settings(backup_to="/backups", backup_max_age=DAY, backup_drill_max_age=7 * DAY)
GOOD = State(DAY / 2, None)


@pytest.mark.parametrize(
    ("backup", "drill", "found"),
    [
        (GOOD, GOOD, []),
        (State(2 * DAY, None), GOOD, ["BACKUP_OLD"]),
        (State(None, None), State(None, None), ["BACKUP_OLD", "DRILL_OLD"]),
        (GOOD, State(6 * DAY, None), []),
        (GOOD, State(8 * DAY, None), ["DRILL_OLD"]),
        (State(DAY / 2, "the disk is full"), GOOD, ["BACKUP_FAILED"]),
        (GOOD, State(None, "it is damaged"), ["DRILL_FAILED"]),
    ],
)
def test_old_and_failed_ones_are_trouble(backup: State, drill: State, found: list[str]) -> None:
    assert [each.id for each in troubles({What.BACKUP: backup, What.DRILL: drill}, SETTINGS)] == found


@pytest.mark.parametrize("env", Environment)
def test_no_place_for_backups_is_serious_in_prod(env: Environment) -> None:
    [its] = troubles({What.BACKUP: GOOD, What.DRILL: GOOD}, Settings(env=env))
    assert (its.id, its.is_serious) == ("BACKUP_NOT_SET", env is Environment.PROD)


@pytest.mark.both_servers_at_length
def test_the_newest_run_says_whether_it_failed_and_the_newest_good_one_how_old(url: str, db: Db) -> None:
    assert records.states(db) == {What.BACKUP: State(None, None), What.DRILL: State(None, None)}
    for is_good in (False, True, False):
        records.add(url, What.BACKUP, took=DAY, is_good=is_good, said="what went wrong")
    state = records.states(db)[What.BACKUP]
    assert state.good_age is not None
    assert state.failed == "what went wrong"
    records.add(url, What.BACKUP, took=DAY, is_good=True, said="")
    assert records.states(db)[What.BACKUP].failed is None


def test_a_run_of_before_the_clock_was_set_back_hides_nothing_that_came_since(url: str, db: Db) -> None:
    records.add(url, What.BACKUP, took=DAY, is_good=True, said="")
    db.execute("UPDATE backup_run SET ended_at = now() + interval '4 years'")
    assert records.states(db)[What.BACKUP] == State(None, None)
    records.add(url, What.BACKUP, took=DAY, is_good=False, said="the disk is full")
    assert records.states(db)[What.BACKUP] == State(None, "the disk is full")


# --- as it is typed ---------------------------------------------------------------------------------------------


@pytest.mark.at_length  # test_backup brings one back in every run
def test_typed_from_the_backup_to_the_restore(
    call: Call, url: str, empty_url: str, db: Db, media: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", url)
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path))
    assert "SNAPAPP_BACKUP_TO" in call("backup").err
    monkeypatch.setenv("SNAPAPP_BACKUP_TO", str(tmp_path / "backups"))
    assert call("drill").code == 1
    assert "The last drill failed: There is no folder" in call("doctor", "--only", "backups").out
    made = call("backup", "--json").json
    assert (made["objects"], made["copied"]) == (len(FILES), len(FILES))
    assert call("backup", "--list", "--json").json[0]["id"] == made["id"]
    assert "rows and hashes as they were" in call("drill").out
    (tmp_path / "backups/backups/20260101T000000Z").mkdir()
    (tmp_path / "backups/backups/20260101T000000Z/manifest").write_text("?")
    listed = call("backup", "--list", "--json")
    assert ([each["id"] for each in json.loads(listed.out)], listed.code) == ([made["id"]], 1)
    assert "Backup 20260101T000000Z: Its manifest cannot be read" in listed.err
    shutil.rmtree(tmp_path / "backups/backups/20260101T000000Z")
    assert call("doctor", "--only", "backups").code == 0
    assert "The database has tables already" in call("restore").err
    (tmp_path / "backups").rename(tmp_path / "unmounted")
    for typed in (["backup"], ["backup", "--list"], ["drill"], ["restore"]):  # none writes to the disk below
        assert "Is its disk mounted?" in call(*typed).err
    (tmp_path / "unmounted").rename(tmp_path / "backups")
    monkeypatch.setenv("SNAPAPP_DATABASE_URL", empty_url)
    monkeypatch.setenv("SNAPAPP_DATA_DIR", str(tmp_path / "new"))
    assert call("restore", made["id"]).code == 0
    assert content(Local(tmp_path / "new/media", Room(tmp_path, 0))) == FILES
