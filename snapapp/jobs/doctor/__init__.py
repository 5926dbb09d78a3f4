"""What is wrong with the queue and its database, why that matters, and what to do about it.

`examine` looks and returns findings; `mend` does what is safe to do about them; `compare` holds this code against the
jobs that wait for it. Read `finding`, then `examination`, then the checks: `server`, `tables`, `work`,
and `fleet`.
"""

from snapapp.jobs.doctor.deploy import Deploy, compare
from snapapp.jobs.doctor.examination import CHECKS, consulting, examine
from snapapp.jobs.doctor.finding import Finding, House, Limits, Severity, needs_a_person, saw_nothing, worst
from snapapp.jobs.doctor.remedies import Deed, mend
from snapapp.jobs.doctor.words import as_json, in_words, of_deploy

__all__ = [
    "CHECKS",
    "Deed",
    "Deploy",
    "Finding",
    "House",
    "Limits",
    "Severity",
    "as_json",
    "compare",
    "consulting",
    "examine",
    "in_words",
    "mend",
    "needs_a_person",
    "of_deploy",
    "saw_nothing",
    "worst",
]
