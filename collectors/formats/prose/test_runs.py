"""Reports of test runs (pytest, unittest, GoogleTest, ctest, Go): a program's tests failed, and no job did.

The marks are those that the tools' own terminal reporters print (``_pytest/terminal.py``, ``unittest/runner.py``, ``gtest.cc``).
"""

from __future__ import annotations

import re

WHY = "the report of a test run: a test that failed, or what a test logs, is no job's failure"
_FAILED = re.compile(
    r"(?m)^[\s>]{0,8}(?:={3,} (?:FAILURES|ERRORS) =*\s*$"
    r"|(?:={1,80} )?(?:\d{1,7} \w{1,20}, ){0,8}\d{1,7} (?:failed|errors?)(?:, \d{1,7} \w{1,20}){0,8} in \d[\d.:]{0,20}s"
    r"|(?:FAILED|ERROR) \S{1,200}\.py::\S|E {3,}\S|FAILED \((?:failures|errors)=\d"
    r"|(?:FAIL|ERROR): test\w{0,200} \([\w.]{1,300}\)"
    r"|\[  FAILED  \] |The following tests FAILED|--- FAIL: Test\w)"
)

_BEGINS = re.compile(r"={3,} test session starts =+\s*$|Running \d{1,7} tests? from \d|\[={8,}\] Running \d")
_PASSED = re.compile(
    r"(?:={1,80} )?(?:\d{1,7} \w{1,20}, ){0,8}\d{1,7} \w{1,20}(?:, \d{1,7} \w{1,20}){0,8} in \d[\d.:]{0,20}s(?: =+)?\s*$|"
    r"\[  PASSED  \] \d"
)


def is_test_run(head: str) -> bool:
    """Whether a text holds what a runner prints of failed tests, or is its report from the first line to the last."""
    return _FAILED.search(head) is not None or _is_whole(head)


def _is_whole(head: str) -> bool:
    """Whether a runner's first and last words enclose a text: passed tests alone may stand before a job's own lines."""
    lines = head.strip().splitlines()
    return bool(lines) and _BEGINS.match(lines[0]) is not None and _PASSED.match(lines[-1]) is not None
