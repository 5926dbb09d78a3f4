"""The doctor's check of the backups."""

from collections.abc import Callable, Iterator

from snapapp.backup import records
from snapapp.backup.judgement import hours, troubles
from snapapp.backup.records import What
from snapapp.jobs.doctor.finding import ExaminedDatabase, Finding, Severity
from snapapp.settings.table import Settings

NAME = "backups"


def check_of(settings: Settings) -> Callable[[ExaminedDatabase], Iterator[Finding]]:
    def check(examined: ExaminedDatabase) -> Iterator[Finding]:
        states = records.states(examined.db)
        is_well = True
        for trouble in troubles(states, settings):
            is_well = False
            yield Finding(
                id=trouble.id,
                severity=Severity.WARNING if trouble.is_serious else Severity.NOTICE,
                saw=trouble.saw,
                why="What is lost with this disk is lost; only a backup that was restored on trial is one.",
                do=trouble.do,
                numbers={"seconds": trouble.age.total_seconds()} if trouble.age else {},
            )
        if is_well:
            ages = {what: state.good_age for what, state in states.items() if state.good_age is not None}
            yield Finding(
                id="BACKUPS",
                saw=f"The newest backup is {hours(ages[What.BACKUP])} old, the last drill {hours(ages[What.DRILL])}.",
                numbers={f"{what.value}_seconds": age.total_seconds() for what, age in ages.items()},
            )

    return check
