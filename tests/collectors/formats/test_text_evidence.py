"""One file, several kinds of evidence: each line goes to the reader that knows it, whatever stands around it."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.formats import Input, text_concerns, text_evidence
from collectors.formats.job_log import job_log, late_steps, log_marks, step_lines
from collectors.formats.job_log.job_lines import peel
from collectors.formats.kernel_log import kernel_lines
from collectors.formats.stacks import stack_lines
from collectors.formats.text_lines import is_text
from collectors.records import KernelEvent, LogEvent, Record, StackDump, Steps, Unread

KERNEL = "[99120.110001] NVRM: Xid (PCI:0000:9b:00): 79, pid=11, name=python, GPU has fallen off the bus."
PY_SPY = 'Process 41: python train.py --rank 2\nThread 41 (idle): "MainThread"\n    read (io.py:3)\n    <module> (train.py:9)\n'
FAULTHANDLER = (
    'Thread 0x00007f01 (most recent call first):\n  File "/w/a.py", line 3 in wait\n  File "/w/b.py", line 4 in main\n'
)
GDB = "(gdb) bt\n#0  0x00007f1d in poll () from /lib/libc.so.6\n#1  0x00007f1c in ncclProxyService () from /x/libnccl.so.2\n"
CUT = '  File "/w/a.py", line 3, in step\n    f(x)\nKeyError: 1\n'
STEP = "[rank0]: step 4 loss 2.5\n"


def read(text: str, source: str = "all.log", *, of_machine: bool = False) -> list[Record]:
    """Read a text in one pass."""
    data = text.encode()
    return list(text_evidence.read(Input(source, io.BytesIO(data), data[:65536]), of_machine=of_machine))


def shape_of(record: Record) -> str:
    """Name a record for a comparison."""
    if isinstance(record, LogEvent):
        return record.exception or record.event
    if isinstance(record, StackDump):
        return f"{record.tool} {len(record.threads[0].frames)}"
    return f"xid {record.code}" if isinstance(record, KernelEvent) else type(record).__name__


PARTS = {
    KERNEL + "\n": "xid 79",
    PY_SPY: "py-spy 2",
    FAULTHANDLER: "faulthandler 2",
    GDB: "gdb 2",
    CUT: "KeyError",
    STEP: "Steps",
}


@given(st.permutations(list(PARTS)))
def test_every_kind_is_found_in_every_order(parts: list[str]) -> None:
    """No part of a mixed file takes another's lines, in whatever order they were pasted."""
    found = read("some words\n".join(parts))

    assert sorted(shape_of(record) for record in found) == sorted(PARTS.values())


def test_a_job_log_with_the_word_memory_keeps_its_kernel_line_and_its_error() -> None:
    """No vote over the whole file decides who may read a line."""
    text = f"Memory: 12 GiB used\n{STEP}{KERNEL}\n[rank0]: RuntimeError: CUDA error: unspecified launch failure\n"

    assert {shape_of(record) for record in read(text)} == {"xid 79", "cuda_error", "Steps"}


def test_an_indented_continuation_of_a_kernel_message_is_read() -> None:
    """dmesg puts a message's second line below its first, without a stamp."""
    text = "[99120.110021] NVRM: The NVIDIA GPU 0000:9b:00.0\n               NVRM: fallen off the bus and is not responding\n"

    (found,) = read(text, of_machine=True)

    assert isinstance(found, KernelEvent)
    assert (found.event, found.pci) == ("off_bus", "0000:9b:00")


def test_a_machines_log_gives_no_trouble_of_its_daemons() -> None:
    """A traceback of some daemon in syslog is none of the job's; slurmstepd's words are."""
    text = (
        "Nov 11 10:00:00 n1 tracker[9]: RuntimeError: CUDA error: unknown error\n"
        "Nov 11 10:00:01 n1 slurmstepd[8]: error: Detected 1 oom_kill event in StepId=1.0.\n"
    )

    (found,) = read(text, of_machine=True)

    assert isinstance(found, LogEvent)
    assert (found.event, found.node) == ("oom_kill", "n1")


def test_stacks_of_several_processes_in_one_log_stay_apart() -> None:
    """Each prefix is a process: two that print their stacks at once give two dumps, with their ranks."""
    lines = [
        (f"[rank{rank}]: {line}" if line else f"[rank{rank}]:")
        for pair in zip(PY_SPY.splitlines(), PY_SPY.splitlines(), strict=True)
        for rank, line in enumerate(pair)
    ]

    found = [record for record in read("\n".join(lines)) if isinstance(record, StackDump)]

    assert [(dump.rank, len(dump.threads[0].frames)) for dump in found] == [(0, 2), (1, 2)]


def test_headerless_stacks_below_labels_have_their_ranks() -> None:
    """py-spy's threads without its first line: the next main thread is another process, the label above it names the rank."""
    bare = PY_SPY.split("\n", 1)[1]

    found = [record for record in read(f"Rank 0:\n{bare}\n--- rank 5 ---\n{bare}") if isinstance(record, StackDump)]

    assert [dump.rank for dump in found] == [0, 5]


@pytest.mark.parametrize(
    ("line", "rank", "local_rank", "node", "text"),
    [
        ("[2026-05-10 00:18:21] (WorkerDict pid=7, ip=10.0.0.3) [rank15]: x", 15, None, "10.0.0.3", "x"),
        ("[80748] [rank3]: x", 3, None, None, "x"),
        ("[3]<stderr>:x", 3, None, None, "x"),
        ("2026-04-11T07:13:44.884Z: [1,12]<stdout>:n-3:815:864 [0] NCCL WARN x", 12, None, "n-3", "NCCL WARN x"),
        ("[default2]: x", None, 2, None, "x"),
        ("worker-3: [rank4]: x", 4, None, "worker-3", "x"),
        ("[2026-05-10 00:18:21 DP0 TP3] x", None, None, None, "x"),
        ("(Worker_TP1 pid=88) [rank1]: x", 1, None, None, "x"),
        ("trainer-1  | [rank6]: x", 6, None, None, "x"),
        ("[pod/trainer-2/pytorch] [rank17]: x", 17, None, None, "x"),
        ("Nov 11 10:00:00 gpu-8 python[77]: [rank2]: x", 2, None, "gpu-8", "x"),
        ("[gpu-9:4411] *** Process received signal ***", None, None, "gpu-9", "*** Process received signal ***"),
        ("[1000] loss: 2.1", None, None, None, "[1000] loss: 2.1"),
        ("[2026-05-10 00:18:21] [INFO] x", None, None, None, "[2026-05-10 00:18:21] [INFO] x"),
    ],
)
def test_every_layer_of_prefix_is_peeled(
    line: str, rank: int | None, local_rank: int | None, node: str | None, text: str
) -> None:
    """Each layer gives what it has of the process, and an outer one hides no inner one."""
    found = peel(1, line)

    assert (found.rank, found.local_rank, found.node, found.text) == (rank, local_rank, node, text)


@pytest.mark.parametrize(
    ("line", "rank", "group_rank"),
    [
        ("[PG ID 5 PG GUID 31 Rank 0] Watchdog caught collective operation timeout: WorkNCCL(x)", None, 0),
        ("[E310 00:18:21.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout", None, 0),
        ("[rank9]:[E310 00:18:21.1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout", 9, None),
        ("[E ProcessGroupNCCL.cpp:474] [Rank 2] Watchdog caught collective operation timeout: WorkNCCL(x)", 2, None),
    ],
)  # fmt: skip
def test_a_rank_inside_a_group_is_not_the_jobs(line: str, rank: int | None, group_rank: int | None) -> None:
    """Where torch's own prefix is cut off, the rank in the line is one of an unknown or of a smaller group."""
    (found,) = (record for record in read(line + "\n") if isinstance(record, LogEvent))

    assert (found.rank, found.group_rank) == (rank, group_rank)


LINES = st.sampled_from([
    "[rank0]: step {} loss 2.5", "[rank1]: step {} loss 2.5", "[rank0]: step {} loss nan", "step {} loss 1.0", "loss: nan",
    "words {}", "[rank1]: step {} loss nan", "loss: 2.0", "[rank0]: CUDA error: {}",
])  # fmt: skip


@given(st.lists(LINES, max_size=40))
def test_steps_that_wait_are_read_as_if_they_had_not(templates: list[str]) -> None:
    """Reading steps late changes no record: the same as line by line."""
    text = "\n".join(template.format(number) for number, template in enumerate(templates)) + "\n"
    data = text.encode()

    late = read(text)
    at_once = list(job_log.read(Input("all.log", io.BytesIO(data), data)))

    assert sorted(map(repr, late)) == sorted(map(repr, at_once))


@pytest.mark.parametrize("step", ["[rank0]: step 4 loss 2.5", "[rank0]: iteration 4/ 9 | lm loss: 2.5 |"])
def test_a_step_before_a_traceback_takes_nothing_from_it(step: str) -> None:
    """A step that waits is read while the traceback below it is open, and belongs before it."""
    lines = [
        step,
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/w/a.py", line 3, in f',
        "[rank0]: KeyError: 1",
    ]

    (found,) = (record for record in read("\n".join(lines)) if isinstance(record, LogEvent))

    assert (found.source, found.message) == ("all.log:2", "1")


def test_no_word_of_trouble_is_a_number() -> None:
    """A word that is nothing but a number, once numbers are blanked, would have every line of a log read."""
    assert {word for shown, word in text_concerns.TROUBLE if not shown.strip("0 ")} == set()


def test_of_many_steps_the_newest_are_kept_and_where_a_nan_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are dropped unread cost neither the newest steps of a rank nor the step at which its loss was lost."""
    monkeypatch.setattr(late_steps, "MOST_OF_PROCESS", 10)
    lines = [f"[rank{number % 2}]: step {number} loss {'nan' if number == 7 else 2.5}\n" for number in range(100)]

    steps = {record.rank: record for record in read("".join(lines)) if isinstance(record, Steps)}

    assert (steps[0].step, steps[1].step) == (98, 99)
    assert steps[0].count < 20
    assert 1 in steps[1].columns["nan"]


@pytest.mark.parametrize(
    "make", [lambda: "[rank0]: " + "x" * 3_000_000, lambda: "Traceback " * 200_000, lambda: "]" * 1_000_000]
)
def test_a_line_of_megabytes_costs_little(make: Callable[[], str]) -> None:
    """Of a long line only the beginning is held, and the next line is read."""
    found = read(make() + "\n[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n")

    assert [record.rank for record in found if isinstance(record, LogEvent)] == [3]
    assert not [record for record in found if isinstance(record, Unread)]


ROWS = (*log_marks.TROUBLE, *kernel_lines.WORDS, *stack_lines.WORDS, *step_lines.WORDS, *log_marks.NO_NUMBER)


def test_no_word_is_lost_in_a_template() -> None:
    """A line with a word of any table concerns its reader, whatever numbers stand around it."""
    for word in ROWS:
        known = text_concerns.Concerns()
        for line in (f"4711 deadbeef {word} 0badcafe 12", f"{word}", f"a1 {word}"):
            mask, words = known.learn(line.encode())

            assert mask, line
            assert word in words or word not in log_marks.TROUBLE, line


def test_a_few_bytes_of_zero_leave_a_text_readable() -> None:
    """A handler of signals in C++ writes one behind its words; UTF-16 has one a letter."""
    log = b"step 3 loss 1.2\nERROR: Unexpected segmentation fault encountered in worker.\n\0step 4 loss 1.1\n"

    assert is_text(log, "train.log")
    assert not is_text("step 3 loss 1.2\nstep 4 loss 1.1\n".encode("utf-16"), "train.log")


@pytest.mark.parametrize(("further", "count"), [(6, 1), (20, 0)])
def test_a_kernel_s_line_without_a_stamp_is_no_event_where_the_job_goes_on_for_long(further: int, count: int) -> None:
    """A text of the job's data may hold it; after few steps the others may have waited for the GPU that was lost."""
    steps = [f"2026-11-22 10:00:{step:02} INFO step {step} loss 1.0\n" for step in range(10 + further)]
    found = read("".join([*steps[:10], KERNEL.partition("] ")[2] + "\n", *steps[10:]]))

    assert sum(isinstance(record, KernelEvent) for record in found) == count


def test_an_exception_without_its_header_was_written_when_the_prefix_says() -> None:
    """A time in its message is what it talks about."""
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    (stamped,) = read(f'{{"ts": "2026-11-22 10:02:00,000", "level": "ERROR", "rank": 3, "msg": "{said}"}}')
    (bare,) = read(f"[rank3]: {said} at 2026-11-22 10:02:00")

    assert (stamped.at, bare.at) == (1795341720.0, None)
