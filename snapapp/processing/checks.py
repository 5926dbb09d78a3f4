"""What the doctor looks at besides the queue and its database."""

from collections.abc import Mapping

from snapapp.backup import check as backups
from snapapp.jobs.doctor.finding import Check
from snapapp.processing import compute_check
from snapapp.processing.decoder import check as decoders
from snapapp.settings.table import Settings


def of(settings: Settings) -> Mapping[str, Check]:
    product = {backups.NAME: backups.check_of(settings), decoders.NAME: decoders.check} if settings.has_product else {}
    cluster = {compute_check.NAME: compute_check.check_of(settings.compute)} if settings.compute else {}
    return product | cluster
