"""Runs all tests, and those few that failed a second time, alone: `python -m tests.again [how many at a time]`.

Five tests run side by side, with browsers, servers and clocks among them, and on a busy machine one in ten thousand
comes too late. What passes alone is named and does not fail the run; many failures, or one that also fails alone, do.
A run of some tests, or with options, is pytest's own (Makefile): options would have to hold for the second time, too.
"""

import subprocess
import sys

import pytest

FEW = 3


class Failures:
    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.tests:
            self.tests.append(report.nodeid)


def main() -> int:
    failures = Failures()
    code = pytest.main(sys.argv[1:], plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or not 0 < len(failures.tests) <= FEW:
        return code
    named = ", ".join(failures.tests)
    print(f"\nOnce more, alone: {named}", flush=True)
    alone = subprocess.run([sys.executable, "-m", "pytest", *failures.tests], check=False).returncode
    if not alone:
        print(f"UNSTEADY, failed beside others and passed alone: {named}", flush=True)
    return alone


if __name__ == "__main__":
    sys.exit(main())
