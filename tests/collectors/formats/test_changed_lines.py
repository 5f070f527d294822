"""Lines of a change to files, which are no job's output."""

from __future__ import annotations

from collectors.formats.prose.advice import changed_lines, is_of_tests


def test_the_lines_of_a_fence_that_is_marked_as_a_change() -> None:
    """From the line that opens it; the lines below its end are a log's again."""
    text = "before\n```diff\n+CUDA out of memory\n```\nafter\n```\n+ an ordinary fence\n```\n"

    assert changed_lines(text) == {2, 3}


def test_the_lines_of_a_hunk() -> None:
    """They begin with a sign or a blank; the first that does not is none."""
    text = "@@ -1,2 +1,3 @@ def main\n context\n+new\n-old\nRuntimeError: real\n"

    assert changed_lines(text) == {1, 2, 3, 4}


def test_a_log_has_none() -> None:
    """Set -x prints signs as well, without a hunk's head."""
    assert changed_lines("+ python train.py\n-----\nRuntimeError: x\n") == frozenset()


def test_lines_that_are_each_explained_are_described() -> None:
    """One such line may be a reporter's own."""
    line = "> NVRM: Xid (PCI:0000:41:00): 149, NETIR_LINK_EVT Fatal\n- fatal\n\n"

    assert is_of_tests(line + line)
    assert not is_of_tests(line)
