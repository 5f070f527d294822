"""By when an error had happened whose own line has no time: the stamps beside it tell."""

from __future__ import annotations

from array import array

import pytest
from msgspec.structs import replace

from analyzers.diagnosis.crash.crash import analyze
from analyzers.diagnosis.crash.instants import SILENT_SECONDS
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, LogEvent, Record, Steps
from collectors.records.record import ARRAY_CODES, column_bytes
from tests.support.crash_claims import KNOWLEDGE, died, raised, said


def at(event: LogEvent, source: str, seconds: float | None = None) -> LogEvent:
    """The same event at another place of the logs."""
    return replace(event, source=source, at=seconds)


def crash(*records: Record) -> Finding:
    """Return what the logs claim."""
    (found,) = analyze(Window.build(records), Topology((0, 1)), KNOWLEDGE)
    return found


def steps(source: str, *instants: float) -> Steps:
    """A log's steps with their times."""
    columns = {
        name: column_bytes(array(ARRAY_CODES[kind], [at if name == "at" else 0 for at in instants]))
        for name, kind in STEP_COLUMNS.items()
    }
    return Steps(source=source, rank=1, count=len(instants), columns=columns)


ERROR = at(raised(1, "RuntimeError", "CUDA error: an illegal memory access was encountered"), "job.log:40")


def test_the_next_stamped_line_of_its_log_bounds_it() -> None:
    """The launcher's table comes after the traceback; a line that is further down says less."""
    report, later = at(died(1, 1, first=True), "job.log:60", 1000.0), at(died(0, -15), "job.log:70", 1500.0)
    assert crash(ERROR, report, later).no_later_than == 1000.0


def test_its_launchers_report_in_another_log_bounds_it() -> None:
    """Each rank has its own log, and the launcher one that has times."""
    assert crash(ERROR, at(died(1, 1, first=True), "launcher.log:3", 1200.0)).no_later_than == 1200.0


def test_a_log_that_ends_with_the_error_bounds_it_by_its_last_stamp() -> None:
    """The job may have stood still before the error, and not for ever."""
    assert crash(ERROR, steps("job.log", 800.0, 900.0)).no_later_than == 900.0 + SILENT_SECONDS


@pytest.mark.parametrize("records", [(), (steps("other.log", 900.0),)])
def test_without_a_stamp_beside_it_nothing_is_known(records: tuple[Record, ...]) -> None:
    """Another log's stamps bound nothing."""
    assert crash(ERROR, *records).no_later_than is None


def timed_out(rank: int, sequence: int, at: float | None = None, timeout_ms: int | None = None) -> LogEvent:
    """A rank's watchdog that gave up."""
    return said("watchdog_timeout", rank, sequence=sequence, operation="ALLREDUCE", at=at, timeout_ms=timeout_ms)


def test_time_outs_bound_when_the_newest_hang_began() -> None:
    """The first watchdog of the newest hang fires after its time-out; lines without either bound nothing."""
    before = [timed_out(rank, 20, at=1000.0, timeout_ms=600_000) for rank in (0, 1)]
    after = [timed_out(rank, 70, at=9000.0 + rank, timeout_ms=600_000) for rank in (0, 1)]

    def bounds(*records: Record) -> tuple[float | None, float | None]:
        finding = crash(*records)
        return finding.no_earlier_than, finding.no_later_than

    assert bounds(*before, *after) == (8400.0, 9000.0)
    assert bounds(timed_out(0, 20, at=1000.0)) == (None, 1000.0)
    assert bounds(timed_out(0, 20)) == (None, None)
    assert bounds(*before, steps("job.log", 900.0)) == (400.0, 1000.0)
    assert bounds(*before, steps("job.log", 900.0, 2000.0)) == (None, None), "the job went on, or was started again"


def test_an_error_of_a_later_start_is_not_the_first_symptom() -> None:
    """The launcher had ended the others before it: the error without a time is the older one."""
    raised_first = at(raised(1, "ValueError", "bad shard"), "job.log:40")
    ending = at(LogEvent(source="", rank=0, event="closing_signal", signal=15), "job.log:50", 1000.0)
    lost = at(raised(None, "RuntimeError", "Connection closed by peer"), "job.log:70", 1020.0)
    found = crash(raised_first, ending, lost)

    assert found.first_symptom is not None
    assert (found.first_symptom.source, found.onset) == ("job.log:40", 1000.0)


@pytest.mark.parametrize("lost_at", [990.0, 1000.0])
def test_a_symptom_with_the_earliest_time_is_the_first(lost_at: float) -> None:
    """Nothing shows that the error without a time was older."""
    lost = at(raised(0, "RuntimeError", "Connection closed by peer"), "rank0.log:70", lost_at)
    found = crash(at(raised(1, "ValueError", "bad shard"), "job.log:40"), at(died(1, 1), "job.log:50", 1000.0), lost)

    assert found.first_symptom is not None
    assert (found.first_symptom.source, found.onset) == ("rank0.log:70", lost_at)


def test_an_instant_that_no_line_has_is_not_when_it_began() -> None:
    """How long a job may stand still bounds the error; it is no time of anything."""
    late = 901.0 + SILENT_SECONDS
    lost = at(raised(0, "RuntimeError", "Connection closed by peer"), "rank0.log:70", late)
    found = crash(at(raised(1, "ValueError", "bad shard"), "job.log:40"), steps("job.log", 900.0), lost)

    assert found.onset == late
