"""The doctor: it finds what is wrong with the queue and its database, and says why that matters and what to do.

`examine` runs the checks and returns findings; `mend` applies the remedies that are safe; `compare` says whether this
code knows all kinds and schedules in the database. Read `finding`, then `examination`, then the checks: `server`,
`tables`, `work`, `held_up` and `fleet`.
"""

from snapapp.jobs.doctor.deploy import Deploy, compare
from snapapp.jobs.doctor.examination import CHECKS, consulting, examine
from snapapp.jobs.doctor.finding import Facts, Finding, Limits, Severity, needs_a_person, saw_nothing, worst
from snapapp.jobs.doctor.remedies import Deed, mend
from snapapp.jobs.doctor.words import as_json, in_lines, in_words, of_deploy

__all__ = [
    "CHECKS",
    "Deed",
    "Deploy",
    "Facts",
    "Finding",
    "Limits",
    "Severity",
    "as_json",
    "compare",
    "consulting",
    "examine",
    "in_lines",
    "in_words",
    "mend",
    "needs_a_person",
    "of_deploy",
    "saw_nothing",
    "worst",
]
