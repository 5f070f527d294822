"""Whose line it is: the rank at a line's head behind stamps, never a clock's hour, a line's number or a rank in a sentence."""

from __future__ import annotations

import pytest

from collectors.records import LogEvent
from tests.collectors.formats.test_log_steps import read, steps
from tests.support.live_hangs import verdict

ERROR = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
CRASH = ("Traceback (most recent call last):", '  File "/app/run.py", line 7, in <module>', "    main()", ERROR)
STAMPS = [
    "2026-01-05 08:00:{:02d} ", "2026-01-05 08:00:{:02d},123 ", "2026-01-05 08:00:{:02d} INFO ", "[2026-01-05 08:00:{:02d}] ",
    "I0105 08:00:{:02d}.123456 812 run.py:88] ", "08:00:{:02d} ", "08:00:{:02d}.123 ", "[08:00:{:02d}] ", "",
    "2026-01-05 08:00:{:02d},123 - root - INFO - ", "2026-01-05T08:00:{:02d}Z stdout F ",
    "[2026-01-05 08:00:{:02d}][app.run][INFO] ",
    "INFO:app.run: ", "0: 08:00:{:02d} ",
]  # fmt: skip
NAMES = ["[rank{}]: ", "[Rank {}] ", "[rank {}]: ", "[rank: {}] ", "(rank {}) "]


def job(stamp: str, name: str, nan: int = 2) -> list[str]:
    """Return four ranks' steps; one's loss is NaN two steps before the others'."""
    return [
        f"{stamp.format(step)}{name.format(rank)}step {step} loss {'nan' if step > 28 + 2 * (rank != nan) else 0.5}"
        for step in range(1, 35)
        for rank in range(4)
    ]


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("name", NAMES)
def test_a_rank_behind_a_stamp_has_steps_and_a_crash_of_its_own(stamp: str, name: str) -> None:
    """In either order, and with the program's words before an outer task's."""
    found = read("\n".join(job(stamp, name)))

    assert [record.rank for record in steps(found)] == [0, 1, 2, 3]
    assert [culprit.id for culprit in verdict(found).culprits] == ["2"]

    lines = [*job(stamp, name, nan=-1)[:80], *(f"{stamp.format(31)}{name.format(3)}{line}" for line in CRASH)]
    (event,) = (one for one in read("\n".join(lines)) if isinstance(one, LogEvent))
    assert (event.event, event.rank, event.message) == ("traceback", 3, ERROR.partition(": ")[2])


@pytest.mark.parametrize("name", ["rank={} ", "rank {}: ", "rank{} | "])
def test_a_rank_without_brackets_counts_behind_a_stamp(name: str) -> None:
    """At the line's start it may be a row of ranks."""
    found = read("\n".join(job(STAMPS[0], name)))

    assert [record.rank for record in steps(found)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "prefix",
    ["03:00:{:02d} ", "03:00:{:02d},123 ", "03:00:{:02d}.123 ", "03:00:{:02d}: ",
     "03:00:{:02d} INFO ", "03:00:{:02d} 812 ", "03:{:02d} "],
)  # fmt: skip
def test_a_clocks_hour_is_no_rank(prefix: str) -> None:
    """It looks like srun's label."""
    lines = [f"step {step} loss 0.5" for step in range(1, 30)]
    found = read("\n".join(prefix.format(number) + line for number, line in enumerate([*lines, *CRASH])))

    assert [record.rank for record in steps(found)] == [None]
    assert [one.rank for one in found if isinstance(one, LogEvent)] == [None]


def test_each_hour_of_a_log_is_of_one_process() -> None:
    """A job of several hours has one series of steps."""
    clock = (f"{9 + minute // 60:02d}:{minute % 60:02d}:00 step {minute} loss 0.5" for minute in range(1, 200, 3))

    (found,) = steps(read("\n".join(clock)))

    assert (found.rank, found.count) == (None, 67)


@pytest.mark.parametrize("form", ["{}:", "{}: ", "{}. "])
def test_numbers_that_only_ascend_are_of_lines(form: str) -> None:
    """``grep -n`` writes them, and people who number a list."""
    lines = [*(f"step {step} loss 0.5" for step in range(1, 30)), *CRASH]
    found = read("\n".join(form.format(7 * number) + line for number, line in enumerate(lines)))

    assert [one.rank for one in found if isinstance(one, LogEvent)] == [None]
    assert {record.rank for record in steps(found)} <= {None}


def test_numbers_that_mix_are_tasks() -> None:
    """srun's tasks print several lines each."""
    found = read("\n".join(f"{rank}: {line}" for line in CRASH for rank in (4, 5)))

    assert [one.rank for one in found if isinstance(one, LogEvent)] == [4, 5]


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (f"4: 08:00:31 [rank3]: {ERROR}", 3),
        (f"[1,4]<stderr>:08:00:31 [rank3]: {ERROR}", 3),
        (f"[1,4]<stderr>:08:00:31 {ERROR}", 4),
        (f"[rank4]: 08:00:31 [rank 3] {ERROR}", 4),
    ],
)
def test_what_the_program_prints_wins_over_a_label(line: str, rank: int) -> None:
    """A label is the launcher's; torch's own prefix is the job's rank."""
    assert [one.rank for one in read(f"{line}\n{line}") if isinstance(one, LogEvent)] == [rank]


@pytest.mark.parametrize(
    "line",
    [
        "2026-01-05 08:00:31 ERROR timeout on rank 3: {}",
        "2026-01-05 08:00:31 ERROR Rank 3: not responding, {}",
        "2026-01-05 08:00:31 ERROR rank=3 is gone, {}",
        "2026-01-05 08:00:31 the peer [rank 3] is gone: {}",
    ],
)
def test_a_rank_in_a_sentence_does_not_speak(line: str) -> None:
    """Another process talks about it."""
    said = line.format("CUDA error: uncorrectable ECC error encountered")

    assert {one.rank for one in read(said) if isinstance(one, LogEvent)} <= {None}


@pytest.mark.parametrize("behind", ["", "08:00:31 "])
def test_another_processs_words_are_not_of_a_stamped_ranks_traceback(behind: str) -> None:
    """Every line of the rank has its stamp: lines without one are others'."""
    stamped = [f"2026-01-05 08:00:31 [rank3]: {line}" for line in CRASH]
    found = read("\n".join([*stamped, *(f"{behind}{line}" for line in (*CRASH[:-1], "ValueError: another"))]))

    assert [(one.rank, one.exception) for one in found if isinstance(one, LogEvent)] == [
        (3, "torch.AcceleratorError"),
        (None, "ValueError"),
    ]


def test_a_traceback_of_which_the_first_line_alone_has_the_stamp_is_whole() -> None:
    """A logger stamps a record once."""
    found = read("\n".join([f"2026-01-05 08:00:31 ERROR [rank3] failed: {CRASH[0]}", *CRASH[1:]]))

    assert [(one.rank, one.exception) for one in found if isinstance(one, LogEvent)] == [(3, "torch.AcceleratorError")]


def test_a_local_rank_behind_a_node_is_the_nodes() -> None:
    """Two nodes' local ranks stay apart."""
    text = "\n".join(
        f"08:00:{step:02d} node{node} local_rank {rank} step {step} loss 0.5"
        for step in range(9)
        for node in (1, 2)
        for rank in (0, 1)
    )

    assert [(one.node, one.rank) for one in steps(read(text))] == [(f"node{node}", None) for node in (1, 1, 2, 2)]


def crashed(head: str, text: str = ERROR, tail: str = "") -> LogEvent:
    """Return the one event of a log in which a line of this head reports an error."""
    (event,) = (one for one in read(f"{head}{text}{tail}\n") if isinstance(one, LogEvent))
    return event


@pytest.mark.parametrize(
    ("head", "tail", "place"),
    [
        ("2026-01-05 08:00:00.121 | ERROR    | run:main:88 - [Rank 3] ", "", (3, None)),
        ("2026-01-05 08:00:00.121 | ERROR    | app.run:<module>:7 - rank 3: ", "", (3, None)),
        ('ts=2026-01-05T08:00:00Z level=error rank=3 msg="', '"', (3, None)),
        ('ts=2026-01-05T08:00:00Z level=info host=n2 rank=3 msg="', '"', (3, "n2")),
        ('time="2026-01-05 08:00:00" level=error rank=3 host=n2 msg="', '"', (3, "n2")),
        ('{"ts":"2026-01-05T08:00:00Z","level":"info","rank":3,"host":"n2","msg":"', '"}', (3, "n2")),
        ('{"level":"ERROR","rank":3,"hostname":"n2","message":"', '"}', (3, "n2")),
        ('{"level":"ERROR","rank":3,"host":"localhost","message":"', '"}', (3, None)),
        ('{"level":"ERROR","host":"hub.example","message":"', '"}', (None, None)),  # what it talks about
        ("[2026-01-05 08:00:00 TP3] ", "", (3, None)),
        ("[2026-01-05 08:00:00 DP1 TP3] ", "", (None, None)),  # a coordinate of several
    ],
)
def test_fields_and_coordinates_name_the_speaker(head: str, tail: str, place: tuple[int | None, str | None]) -> None:
    """Loguru's place in the source, logfmt, JSON, SGLang's only coordinate."""
    event = crashed(head, tail=tail)

    assert (event.rank, event.node) == place


@pytest.mark.parametrize(
    "head",
    [
        "level=error msg=lost rank=3 ",
        "run:main:88 - lost rank 3: ",
        'level=error peer="rank=3" ',
        "host=n2 port=1 rank=3 ",
    ],
)
def test_a_rank_that_a_message_names_is_no_speaker(head: str) -> None:
    """Fields of other names may be what the line talks about."""
    assert crashed(head).rank is None
