"""Known defects, a few lines each: those that queues are known for, and for the rows of the requirements one that their
tests must notice. A module holds those of one document; `mutants` plants them."""

from tests.labs.defects import claims, external_worker, failures, originals, snap_queue, supervisor, worker_service
from tests.labs.defects.model import Mutant

_DOCUMENTS = (worker_service, claims, supervisor, external_worker, snap_queue, originals, failures)
MUTANTS: dict[str, Mutant] = {name: its for document in _DOCUMENTS for name, its in document.DEFECTS.items()}
