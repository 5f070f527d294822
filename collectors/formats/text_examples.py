"""Texts about jobs: of what stands in one without a process, a time or frames, nothing may have happened."""

from __future__ import annotations

import re
from functools import cached_property

from collectors.formats.job_log.statements import STATED
from collectors.formats.prose.advice import is_advice, is_of_tests, is_reported
from collectors.formats.prose.lessons import is_lesson
from collectors.formats.prose.test_runs import is_test_run
from collectors.formats.prose.watch_rules import is_task, is_watch_rules
from collectors.records import LogEvent, Record, StragglerReports

_BARE_EVENTS = frozenset({"cuda_error", "oom", "oom_kill", "fatal_python", "traceback", STATED})
_OF_CHANGES = _BARE_EVENTS | {"evicted", "pod_waits", "diagnostic_failed"}
"""In a text that describes a change to a program, what a scheduler's tools print is an example, too."""
_PROMPT = re.compile(rb"^[ \t]{0,16}>>> ", re.MULTILINE)


class ExampleText:
    """What the beginning of a text shows of it."""

    def __init__(self, head: bytes) -> None:
        self._head, self._text = head, head.decode(errors="replace")

    @property
    def is_one(self) -> bool:
        """Whether the text advises, is of a test run, or shows what a program is tested with."""
        return self.is_test_run or self.advises or self.of_tests

    @cached_property
    def is_test_run(self) -> bool:
        """Whether it is the report of a test run."""
        return is_test_run(self._text)

    @cached_property
    def is_task(self) -> bool:
        """Whether it asks that a program find what it quotes."""
        return is_task(self._text)

    @cached_property
    def advises(self) -> bool:
        """Whether the text is about jobs: it advises, teaches, watches for faults, or shows an interpreter's prompts."""
        head = self._text
        prompts = _PROMPT.search(self._head) is not None and not is_reported(head)
        return prompts or is_advice(head) or is_lesson(head) or is_watch_rules(head)

    @cached_property
    def of_tests(self) -> bool:
        """Whether the lines in it are what a change to a program is about, or is tested with."""
        return is_of_tests(self._text)

    def has_as_example(self, record: Record) -> bool:
        """Whether a record of this text is an example: an event that nothing but its words shows, or a detector's reports."""
        if isinstance(record, LogEvent):
            return _is_bare(record, _OF_CHANGES if self.of_tests else _BARE_EVENTS) and self.is_one
        return isinstance(record, StragglerReports) and self.is_one


def _is_bare(event: LogEvent, kinds: frozenset[str]) -> bool:
    """Whether nothing but its words shows an event: no process, no time, no frames."""
    whose = (event.rank, event.local_rank, event.node, event.pid, event.at)
    frames = {frame.file for frame in event.frames} - {"<stdin>"}
    return event.event in kinds and not frames and set(whose) == {None}
