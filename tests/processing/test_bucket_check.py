"""The doctor's check of the bucket."""

import threading
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

from snapapp.jobs.doctor.finding import Severity
from snapapp.processing.bucket_check import NAME, finding
from snapapp.processing.checks import facts
from snapapp.settings.table import Settings, StorageKind
from snapapp.storage import Local, Room, Storage, StorageAway


def test_a_bucket_that_answers_is_well(tmp_path: Path) -> None:
    """Also a new one, in which no sweep has been."""
    assert finding(Local(tmp_path, Room(tmp_path, 0))).id == "BUCKET"


def test_a_bucket_that_refuses_is_critical_and_says_why() -> None:
    """The snaps wait then, and nobody was told."""
    refusing = Mock(Storage, listed=Mock(side_effect=StorageAway("owner/", "403 RequestTimeTooSkewed")))
    away = finding(refusing)
    assert (away.id, away.severity) == ("BUCKET_AWAY", Severity.CRITICAL)
    assert "RequestTimeTooSkewed" in away.saw


def test_a_bucket_that_hangs_does_not_keep_the_doctor() -> None:
    answers = threading.Event()
    away = finding(Mock(Storage, listed=lambda _: [answers.wait(60)]), patience=timedelta(milliseconds=20))
    answers.set()
    assert away.id == "BUCKET_AWAY"
    assert "no answer within 0.02 s" in away.saw


def test_only_whoever_has_a_bucket_is_told_of_one() -> None:
    names = [facts(Settings(storage=kind), "postgresql:///none").checks.keys() for kind in StorageKind]
    assert [NAME in each for each in names] == [kind is StorageKind.S3 for kind in StorageKind]
