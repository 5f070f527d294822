"""Mark-up around a line of a log goes; within a sentence it stays."""

from __future__ import annotations

import pytest

from collectors.formats.markup import Margin, is_literal, unmarked

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


@pytest.mark.parametrize(
    "line",
    [
        '    "{}",',
        "    ('{}', 79),",
        '\t\t\tinput: "{}",',
        '    "input": "{}",',
        'line = "{}"',
        "const line = `{}`;",
        '\t{{"off the bus", "{}", 79}},',
    ],
)
def test_a_string_of_a_program_s_source_is_known(line: str) -> None:
    """An element of a list, a row or a field of a test's table, an assignment."""
    assert is_literal(line.format(LINE))


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '"{}"',
        "`{}`",
        'time="2026-11-22T10:00:00Z" level=warn msg="{}"',
        '{{"level": "warn", "line": "{}"}}',
        '    "line": "{}",',
        '{{"MESSAGE":"{}","PRIORITY":"3"}}',
    ],
)
def test_a_line_of_a_log_is_no_string_of_a_program(line: str) -> None:
    """A line that a person put between quotation marks, and what structured loggers print."""
    assert not is_literal(line.format(LINE))


@pytest.mark.parametrize(
    "prefixes",
    [("    ", "    "), ("logs/slurm-7.out:12:", "logs/slurm-7.out-13-"), ("job.err:7:", "job.err:9:")],
)
def test_a_margin_is_what_stands_before_every_line(prefixes: tuple[str, str]) -> None:
    """Blanks of a thread's code; a log's name and the number, as grep writes them."""
    text = "\n".join(prefix + LINE for prefix in prefixes)
    margin = Margin.of(text)

    assert [margin.off(line) for line in text.splitlines()] == [LINE, LINE]


def test_counted_lines_lose_their_numbers() -> None:
    """As cat -n writes them: numbers that follow each other, in six columns."""
    text = "\n".join(f"{number:6}\t{LINE}" for number in range(98, 102))
    margin = Margin.of(text)

    assert {margin.off(line) for line in text.splitlines()} == {LINE}


@pytest.mark.parametrize(
    "text",
    [
        "docs/errors.md:7:CUDA error: x\ndocs/errors.md:9:CUDA error: y",
        "Counts:\n     3\ta\n     1\tb\n    12\tc\n     9\td",
        "1\tfirst\n2\tsecond\n3\tthird\n4\tfourth",
        "0: a\n1: b\n2: c\n3: d",
    ],
)
def test_numbers_that_count_no_lines_stay(text: str) -> None:
    """A document's lines, counts of messages, a list, srun's tasks."""
    margin = Margin.of(text)

    assert [margin.off(line) for line in text.splitlines()] == text.splitlines()


def test_colours_go() -> None:
    """With their escape character, and as a paste leaves them."""
    assert Margin.of("\x1b[31m" + LINE).off("\x1b[31m" + LINE + "\x1b[0m") == LINE
    assert Margin.of("[0m").off("[1;31m" + LINE + "[0m") == LINE
