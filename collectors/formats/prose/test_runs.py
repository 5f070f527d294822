"""Reports of test runs (pytest, unittest, GoogleTest, ctest, Go): a program's tests failed, and no job did.

The marks are those that the tools' own terminal reporters print (``_pytest/terminal.py``, ``unittest/runner.py``, ``gtest.cc``).
"""

from __future__ import annotations

import re

WHY = "the report of a test run: a test that failed is no job's failure"
_MARK = re.compile(
    r"(?m)^[\s>]{0,8}(?:={3,} (?:test session starts|FAILURES|ERRORS|short test summary info"
    r"|(?:\d{1,7} \w{1,20},? ){1,8}in \d[\d.:]{0,20}s?\b.{0,40}) ?=*\s*$"
    r"|(?:FAILED|ERROR) \S{1,200}\.py::\S|E {3,}\S|Ran \d{1,7} tests? in \d[\d.]{0,20}s"
    r"|(?:FAIL|ERROR): test\w{0,200} \([\w.]{1,300}\)"
    r"|\[  FAILED  \] |The following tests FAILED|--- FAIL: Test\w"
    r"|\d{1,7} (?:failed|passed)(?:, \d{1,7} \w{1,20}){0,8} in \d[\d.]{0,20}s)"
)


def is_test_run(head: str) -> bool:
    """Whether a text holds what a test runner prints of its tests."""
    return _MARK.search(head) is not None
