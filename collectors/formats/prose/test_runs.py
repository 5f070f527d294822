"""Reports of test runs (pytest, unittest, GoogleTest, ctest, Go): a program's tests failed, and no job did.

The marks are those that the tools' own terminal reporters print (``_pytest/terminal.py``, ``unittest/runner.py``, ``gtest.cc``).
"""

from __future__ import annotations

import re

WHY = "the report of a test run: a test that failed is no job's failure"
_FAILED = re.compile(
    r"(?m)^[\s>]{0,8}(?:={3,} (?:FAILURES|ERRORS) =*\s*$"
    r"|(?:={1,80} )?(?:\d{1,7} \w{1,20}, ){0,8}\d{1,7} (?:failed|errors?)(?:, \d{1,7} \w{1,20}){0,8} in \d[\d.:]{0,20}s"
    r"|(?:FAILED|ERROR) \S{1,200}\.py::\S|E {3,}\S|FAILED \((?:failures|errors)=\d"
    r"|(?:FAIL|ERROR): test\w{0,200} \([\w.]{1,300}\)"
    r"|\[  FAILED  \] |The following tests FAILED|--- FAIL: Test\w)"
)


def is_test_run(head: str) -> bool:
    """Whether a text holds what a runner prints of failed tests. Passed ones may stand before a job's own lines."""
    return _FAILED.search(head) is not None
