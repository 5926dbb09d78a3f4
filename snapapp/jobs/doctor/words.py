"""Findings as text: the worst first, and one line for each check that found nothing wrong."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from snapapp.jobs.doctor.deploy import Deploy, PendingKind
from snapapp.jobs.doctor.finding import Finding, Severity, worst
from snapapp.jobs.doctor.remedies import Deed
from snapapp.jobs.doctor.waiting import CAP


def as_json(findings: Sequence[Finding], deeds: Iterable[Deed] = ()) -> dict[str, Any]:
    shown = [finding.as_json() for finding in findings]
    return {"worst": worst(findings), "findings": shown, "deeds": [asdict(deed) for deed in deeds]}


def in_words(findings: Sequence[Finding], deeds: Iterable[Deed] = ()) -> Iterator[str]:
    for deed in deeds:
        yield f"{'fixed' if deed.has_worked else 'tried'}     {deed.check}: {deed.said}"
    for severity in reversed(Severity):
        for finding in findings:
            if finding.severity is severity:
                yield from in_lines(finding)
    yield _verdict(findings)


def in_lines(finding: Finding) -> Iterator[str]:
    yield f"{finding.severity.value:<9} {finding.check}: {finding.saw}"
    if finding.severity is Severity.OK:
        return
    if finding.why:
        yield f"          {finding.why}"
    if finding.do:
        yield f"          {finding.do}{' (--fix does it.)' if finding.can_fix else ''}"
    if finding.paste:
        yield f"            {finding.paste}"


def _verdict(findings: Sequence[Finding]) -> str:
    if not findings:
        return "\nNothing was looked at: these checks have nothing to look at here."
    counts = {severity: sum(each.severity is severity for each in findings) for severity in reversed(Severity)}
    wrong = counts[Severity.CRITICAL] + counts[Severity.WARNING]
    counted = ", ".join(f"{count} {severity.value}" for severity, count in counts.items() if count)
    return f"\n{'All is well' if not wrong else 'Something needs a person'}: {counted}."


# --- before a deploy --------------------------------------------------------------------------------------------


def of_deploy(its: Deploy) -> Iterator[str]:
    for each in its.kinds:
        yield f"{'ok  ' if each.is_known else 'LOST'}  {each.kind}: {_jobs(each)}{_versions(each)}"
    for name in its.vanished:
        yield f"LOST  schedule {name}: this code does not declare it, so nothing will fire"
    for name in its.changed:
        yield f"ok    schedule {name}: this code declares it otherwise; its next slots follow the new one"
    for name in its.new:
        yield f"ok    schedule {name}: new"
    yield _conclusion(its)


def _jobs(each: PendingKind) -> str:
    waits = f"more than {CAP:,}" if each.waiting > CAP else f"{each.waiting:,}"
    known = "" if each.is_known else ", and this code has no processor for it"
    return f"{waits} waiting, {each.running:,} running{known}"


def _versions(each: PendingKind) -> str:
    if not each.versions:
        return ""
    versions = ", ".join(f"{version or 'none'}: {jobs:,}" for version, jobs in sorted(each.versions.items()))
    return f"; payload versions {versions}"


def _conclusion(its: Deploy) -> str:
    if its.is_safe:
        return "\nThis code knows everything that waits."
    return (
        "\nNot safe: deploy code that declares what is LOST beside it, or drain and cancel those jobs and delete those "
        "schedules first."
    )
