"""No input makes a parser's time grow faster than the input: each parser on inputs that are made of its own patterns."""

from __future__ import annotations

import re

import pytest

from tests.support.adversarial import Case, cases, growth, is_quadratic, scan
from tests.support.parsers import parsers

SIZE = 1 << 12
MOST_CASES = 24  # of each parser; `python -m tests.acceptance.adversarial_lines` runs all, up to 1 MB
WORDS_OF_A_STACK = Case(
    "words of a stack",
    "",
    f"[  100.300000] INFO: task a:1 blocked for more than 120 seconds.\n[  100.300001] {'a' * 127}x\n",
)
# What was found quadratic once, of each kind, or worse.
FOUND = {
    "kernel_log": [WORDS_OF_A_STACK],
    "live kernel": [WORDS_OF_A_STACK],
    "nccl_ras_json": [
        Case("braces", "", "{"),
        Case("escapes", '{"hash":"', '\\"'),
        Case("nested", "", '{"hash":"a","x":['),
    ],
    "exit_codes": [Case("blank lines", "", " ", 2), Case("states", "JobID ", "State ")],
    "hosts": [Case("commas", "", ","), Case("brackets", "", "[")],
    "job_log": [Case("colons", "RuntimeError: Connection closed by remote peer", ":")],
}


@pytest.mark.system
@pytest.mark.parametrize("name", sorted(parsers()))
def test_time_is_linear(name: str) -> None:
    """A spread of the parser's inputs, and those that were quadratic once, take four times as long at four times the size."""
    parser = parsers()[name]
    every = cases(parser.modules)
    found = scan(parser.parse, every[:: max(1, len(every) // MOST_CASES)], [SIZE])
    found += scan(parser.parse, FOUND.get(name, []), [SIZE, 4 * SIZE])

    assert found
    assert [one for one in found if is_quadratic(one)] == []


@pytest.mark.system
@pytest.mark.parametrize("pattern", [r'\{[\s{,]*"hash"', r"x\s*\s*y"])
def test_a_pattern_that_is_not_linear_is_found(pattern: str) -> None:
    """A measure that passes everything would prove nothing: it finds quadratic and exponential patterns."""
    text = re.compile(pattern)
    hostile = [Case("braces", "", "{"), Case("blanks", "x", " ")]

    assert any(is_quadratic(growth(lambda data: text.search(data.decode()), case, SIZE)) for case in hostile)
