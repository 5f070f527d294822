"""What a line quotes is no report of a failure: by its own words, by the heading above it, by the steps that go on."""

from __future__ import annotations

import io

import pytest

from collectors.formats import Input, text_evidence
from collectors.formats.job_log.recognition import sniff
from collectors.formats.prose.advice import is_advice
from collectors.formats.quotations import is_quoted
from tests.collectors.formats.test_job_log import events

CUDA = "CUDA error: an illegal memory access was encountered"
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/w/t.py", line 3, in main\n    f(x)\n' + f"RuntimeError: {CUDA}\n"
)


@pytest.mark.parametrize(
    "line",
    [
        f"sample: '{CUDA}'",
        f"sample[3] = RuntimeError: {CUDA}",
        f"Response: {CUDA}",
        f"[response] {CUDA}",
        f"2026-11-22 10:00:00 ERROR eval: answer='{CUDA}'",
        f"  - {CUDA} is listed",
        f"2. RuntimeError: {CUDA}",
        f"# {CUDA}",
        f"docs/faults.md:41:{CUDA}",
        f'{{"step": 3, "text": "it said {CUDA}"}}',
        f"{{'role': 'user', 'content': 'RuntimeError: {CUDA}'}}",
        f"it/s, loss=1.9, text='{CUDA}'",
        f"│ Write a test │ RuntimeError: {CUDA} │ 0.1 │",
        f"if you see {CUDA} restart the job",
        f"Fixed a crash with {CUDA}",
        f"known = ['{CUDA}', 'NCCL error']",
        f'    if "{CUDA}" in str(error):',
    ],
)
def test_talk_of_an_error_is_quoted(line: str) -> None:
    """Below a content's key, in a list, a table, a document or a sentence."""
    assert is_quoted(line, line.index("CUDA error"))
    assert events(line + "\n") == []


@pytest.mark.parametrize(
    "line",
    [
        CUDA,
        f"RuntimeError: {CUDA}",
        f"2026-11-22 10:00:00,001 ERROR trainer: training failed: {CUDA}",
        f"[W1122 10:00:00.1 x.cpp:7] {CUDA}",
        f'level=error msg="{CUDA}"',
        f"lastError='{CUDA}'",
        f"`RuntimeError: {CUDA}`",
        f"Worker 3 raised torch.AcceleratorError: {CUDA}",
        f"Process group watchdog thread terminated with exception: {CUDA}",
    ],
)
def test_a_program_s_own_words_are_not(line: str) -> None:
    """At the beginning, behind a logger's prefix, as a message's value; or a whole line that a reporter marked as code."""
    assert not is_quoted(line, line.index("CUDA error"))
    assert events(line + "\n") != []


@pytest.mark.parametrize("word", ["it's ", '"a" ', "x: ", "[a] ", "| ", "sample", "`", "a=b "])
def test_a_long_line_costs_little(word: str) -> None:
    """What is looked at is bounded; a hostile line of repeated marks is answered."""
    line = word * 8000 + CUDA

    assert isinstance(is_quoted(line, line.index("CUDA error")), bool)


def _steps(first: int, last: int, form: str = "step {} | loss 2.1\n") -> str:
    return "".join(form.format(step) for step in range(first, last + 1))


STAMPED = "2026-11-22 10:00:{0:02} INFO step {0} loss 2.1\n"


@pytest.mark.parametrize("form", ["step {} | loss 2.1\n", STAMPED, "[rank2]: step {} | loss 2.1\n"])
def test_a_fatal_error_after_which_its_process_goes_on_is_none(form: str) -> None:
    """A text of the job's data printed it, or it was handled; few steps without a rank may be those of others."""
    prefix, many, few = ("[rank2]: ", 8, 5) if "rank2" in form else ("", 19, 9)

    assert events(_steps(1, 3, form) + prefix + f"RuntimeError: {CUDA}\n" + _steps(4, many, form)) == []
    assert events(_steps(1, 3, form) + prefix + f"RuntimeError: {CUDA}\n" + _steps(4, few, form)) != []


@pytest.mark.parametrize(
    "text",
    [
        TRACEBACK + _steps(1, 9),  # a buffer that is written when the program ends
        _steps(1, 9) + TRACEBACK + _steps(5, 9),  # a restart from a checkpoint
        _steps(1, 3) + "[rank1]: RuntimeError: " + CUDA + "\n" + _steps(4, 9),  # another process
        "x" * 9000 + "\n" + _steps(1, 3) + TRACEBACK + _steps(4, 9),  # a part of a buffered log
    ],
)
def test_steps_below_that_prove_nothing_contradict_nothing(text: str) -> None:
    """Of another process, after a restart, or printed when the process ended."""
    assert [each.event for each in events(text)] in (["traceback"], ["cuda_error"])


def test_a_text_below_its_heading_is_quoted_until_a_step() -> None:
    """What a model wrote may hold a whole traceback; what follows the next step is the process's own."""
    quoted = "completion:\n" + TRACEBACK
    tagged = "<|im_start|>assistant\n" + TRACEBACK + "<|im_end|>\n"

    assert events(quoted) == events(tagged) == []
    assert [each.event for each in events(quoted + _steps(1, 1) + TRACEBACK)] == ["traceback"]
    assert [each.event for each in events(tagged + TRACEBACK)] == ["traceback"]


def test_docker_s_lines_are_the_process_s_own() -> None:
    """What stands in the message of a JSON line has the prefixes of any line; a row of data is none."""
    row = '{{"log":"{}\\n","stream":"stderr","time":"2026-11-22T10:00:0{}.5Z"}}\n'
    inner = [
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File \\"/w/t.py\\", line 3, in main',
        "[rank3]: KeyError: 7",
    ]

    (found,) = events("".join(row.format(text, at) for at, text in enumerate(inner)))

    assert (found.event, found.rank, found.exception, len(found.frames)) == ("traceback", 3, "KeyError", 1)
    assert found.at is not None
    assert events('{"role": "user", "message": "RuntimeError: ' + CUDA + '"}\n') == []


GUIDE = (
    "What it means\n\nThe driver can no longer reach the GPU. It is often the power supply.\n\n"
    "Typical line\n{}\nDrain the node when you see it.\n"
)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus", 0),
        ("CUDA error: uncorrectable ECC error encountered", 0),
        ("[ 99.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus", 1),
        ("[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered", 1),
    ],
)
def test_a_guide_s_example_is_no_event(line: str, count: int) -> None:
    """In a text that advises, only a line that shows whose and when it is was written by a machine."""
    assert len(_read(GUIDE.format(line))) == count


def test_an_interpreter_s_session_is_an_example() -> None:
    """What is typed at a prompt is no job; the same traceback of a program that is fed to Python is one."""
    raised = 'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\nValueError: no truth\n'

    assert _read(">>> bool(x)\n" + raised) == []
    assert len(_read(raised)) == 1


@pytest.mark.parametrize(("lines", "count"), [(0, 1), (100, 1), (300, 0)])
def test_an_exception_s_last_line_alone_stands_near_the_end(lines: int, count: int) -> None:
    """A text that goes on for long after "Exception: …" was not ended by it."""
    assert len(_read("Exception: the queue is closed\n" + "more text\n" * lines)) == count


@pytest.mark.parametrize("text", ["The " + "a " * 3000 + "=", "a" + " b," * 3000 + "=", "```\n" * 9000])
def test_hostile_prose_costs_little(text: str) -> None:
    """Whether a text advises is found out in linear time."""
    assert not is_advice(text)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('{"level":"warn","line":"NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."}', 1),
        (
            'condition="{Message:ErrorCode:79 kernel: [16450076.435595] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU lost}"',
            1,
        ),
        ("gpu-3: [ 99.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus", 1),
        ("/var/log/kern.log:7:[ 99.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus", 1),
        ('line: "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus",', 0),
        ('x = Parse("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus").Code', 0),
        ("docs/xid.md:7:NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", 0),
        ("NVRM: Xid (PCI:0000:3b:00): 79 means that the GPU has fallen off the bus", 0),
        ("We wait for NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus", 0),
    ],
)
def test_the_kernel_s_line_counts_in_a_program_s_own_form(line: str, count: int) -> None:
    """As a message of a monitor, behind a host's or a log's name; not in a sentence, a source or a document."""
    assert len(_read(line + "\n")) == count


def _read(text: str) -> list[object]:
    data = text.encode()
    return list(text_evidence.read(Input("standard input", io.BytesIO(data), data)))


def test_a_programs_own_file_is_no_log_of_what_it_prints() -> None:
    """The lines that it would print stand in it; under a log's name the same lines are a job's steps."""
    lines = "".join(f"step {number} loss {'nan' if number > 3 else 2.0}\n" for number in range(8)).encode()
    assert sniff(lines, "train.py") == 0
    assert sniff(lines, "train.log") == 30
