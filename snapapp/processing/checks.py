"""The doctor's view of the application: its settings, and its checks besides those of the queue and its database."""

from collections.abc import Mapping
from functools import lru_cache

from snapapp.backup import check as backups
from snapapp.jobs.doctor.finding import Check, Facts
from snapapp.postgres import database, schema
from snapapp.processing import bucket_check, compute_check, disk_check
from snapapp.processing.decoder import check as decoders
from snapapp.settings.table import Settings, StorageKind
from snapapp.storage import room_of


@lru_cache(maxsize=1)
def facts(settings: Settings, url: str) -> Facts:
    """The facts and checks for the doctor. Every call in a process returns the same object, because checks may remember
    their last result."""
    return Facts(
        jobs=settings.jobs(url),
        connections=database.connections_needed(settings),
        disk_free_min_mb=settings.disk_free_min_mb,
        schema=schema.wanted(product=settings.has_product),
        checks=of(settings),
    )


def of(settings: Settings) -> Mapping[str, Check]:
    product: dict[str, Check] = {
        backups.NAME: backups.check_of(settings),
        decoders.NAME: decoders.check,
        disk_check.NAME: lambda _: iter([disk_check.finding(room_of(settings))]),
    }
    if settings.storage is StorageKind.S3:
        product[bucket_check.NAME] = bucket_check.check_of(settings)
    cluster = {compute_check.NAME: compute_check.ComputeCheck(settings.compute)} if settings.compute else {}
    return (product if settings.has_product else {}) | cluster
