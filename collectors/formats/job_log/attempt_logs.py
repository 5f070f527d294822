"""The attempts of a job that one log holds: each is read as a log of its own, and what it reported is numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import msgspec

from collectors.formats import Input
from collectors.formats.job_log import attempts
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.job_log import JobLog
from collectors.formats.job_log.step_series import MAX_STEPS_OF_SERIES, StepSeries
from collectors.records import Record

MAX_ATTEMPTS = 64  # of one log; a job that is started again and again is judged by its newest


class AttemptLogs:
    """The newest attempt, and those before it; of the earliest of very many nothing is kept."""

    def __init__(self, input: Input) -> None:
        self._input = input
        self._earlier: list[JobLog] = []
        self.newest = self._begun()

    def _begun(self) -> JobLog:
        return JobLog(self._input, StepSeries(MAX_STEPS_OF_SERIES))

    def begin_after_failure(self, number: int, text: str, flush: Callable[[], None]) -> bool:
        """Begin a new log where the job begins anew. ``flush`` reads what waits of the newest attempt."""
        line = peel(number, text, numbered=self.newest.numbered)
        launched = attempts.by_launcher(line.text)
        if not (launched or attempts.by_program(line.text)) or not self.newest.failed:
            return False
        flush()
        if not (launched or self.newest.found.ended or self.newest.runs.seen):
            return False
        self._earlier = [*self._earlier, self.newest][-MAX_ATTEMPTS:]
        self.newest = self._begun()
        return True

    def goes_on(self, number: int) -> bool:
        """Whether the job of any attempt goes on for long after a line without a stamp."""
        return any(job.runs.goes_on("", number, is_own=False) for job in (*self._earlier, self.newest))

    def records(self, is_example: Callable[[Record], bool]) -> Iterator[Record]:
        """Yield what each attempt reported and the text does not have as an example, numbered where there are several."""
        numbered: list[tuple[int, Record]] = []
        attempt = 0
        for job in (*self._earlier, self.newest):
            before = job.ended_before()
            again = attempt + (before > 0)
            for event in job.events():
                if is_example(event):
                    continue
                line = int(event.source.rpartition(":")[2])
                numbered.append((attempt if line <= before else again, event))
            source, node = self._input.source, self._input.node
            own = chain(job.steps.records(source, job.rank_of), job.stragglers.records(source))
            real = (record for record in own if not is_example(record))
            numbered += ((again, msgspec.structs.replace(each, node=each.node or node)) for each in real)
            attempt = again + 1
        several = len({number for number, _ in numbered}) > 1
        for number, record in numbered:
            yield msgspec.structs.replace(record, attempt=number) if several else record
