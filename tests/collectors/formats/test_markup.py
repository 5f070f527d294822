"""Mark-up around a line of a log goes; within a sentence it stays."""

from __future__ import annotations

import pytest

from collectors.formats.markup import unmarked

LINE = "[ 4211.100200] NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=python, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "marked",
    ["`{}`", "```{}```", "```{}", "- {}", "* `{}`", "  1. `{}`", '"{}"', "“{}”", "<pre>{}", "<li><code>{}", "{}"],
)
def test_a_marked_line_is_the_line(marked: str) -> None:
    """Code marks, bullets, quotation marks and tags around the whole line are taken off."""
    assert unmarked(marked.format(LINE)) == LINE


def test_entities_are_letters_again() -> None:
    """A host and port of NCCL's, as a page shows them."""
    assert unmarked("Connect to 10.1.2.3&lt;4000&gt; failed") == "Connect to 10.1.2.3<4000> failed"


@pytest.mark.parametrize(
    "text",
    [
        "we saw `Xid 79` and then `Xid 45` on it",
        "- the job prints CUDA out of memory when",
        '"CUDA out of memory" is what it prints',
        "| `Xid 79` | off the bus |",
        "a < b && c > d",
        "[rank0]: ValueError: `x` is not set",
    ],
)
def test_what_stands_in_a_sentence_stays(text: str) -> None:
    """A quotation keeps its marks, by which it is known to be one."""
    assert unmarked(text) == text
