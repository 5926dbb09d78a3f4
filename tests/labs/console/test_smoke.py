"""The labs of /ops in small; `python -m tests.labs console --help` says how to run them in full."""

import pytest

from tests.labs.console import bulk, faults, scale, stage


@pytest.mark.at_length  # web/ops/test_dialogs has the dialog, api/internal/test_failures the steps, in every run
@pytest.mark.skipif(stage.program() is None, reason="there is no browser")
def test_thousands_are_retried_from_the_page_while_a_worker_works() -> None:
    seen = bulk.run(jobs=3000, seconds=2)
    assert seen.retried == 3000
    assert 0 < seen.stopped_at == seen.retried_until_stopped < 3000
    assert [jobs for _, jobs in seen.audited] == [3000, seen.stopped_at]
    assert seen.meanwhile.ended > 0


@pytest.mark.at_length  # jobs/rows/test_views holds the plans in every run
def test_each_view_answers_beside_many_rows_and_viewers_are_told() -> None:
    seen = scale.run(20_000, 5_000, viewers=3, seconds=2)
    assert len(seen.views) > 30
    assert all(len(view.times) > 1 for view in seen.views)
    assert seen.events > 0


@pytest.mark.at_length  # jobs/doctor has each of the findings in every run
@pytest.mark.parametrize("fault", ["a pinned xmin", "a dead worker"])
def test_a_fault_is_told_with_its_cure_wherever_somebody_looks(fault: str) -> None:
    [told] = faults.run(fault)
    assert told.missing == []
