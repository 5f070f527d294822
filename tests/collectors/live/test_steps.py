"""The job's logs as they grow: what a step's line says, and what the tail keeps, bounds and tells."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import pytest

from collectors.agent.run_output import Stamp
from collectors.agent.runner import Runner
from collectors.files.apart import ParsingLate
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.step_lines import Step, read_step
from collectors.live import Collector, NothingToCollect, Readings
from collectors.live.steps import FILE_BYTES, JobLogs
from collectors.records import STEP_COLUMNS, Steps, Unread, block
from tests.collectors.agent.test_agent_runner import Kept
from tests.support.bounds import in_time
from tests.support.tailed_jobs import Node, column, of

MEGATRON = (
    " [2026-11-21 10:00:00] iteration       41/  500000 | consumed samples:        10496 | elapsed time per iteration"
    " (ms): 5123.5 | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 1.500000E-04 | global batch size:   256 |"
    " lm loss: 2.345678E+00 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   1 |"
)
TORCHTITAN = (
    "[rank3]:[titan] 2026-11-21 10:00:00,500 - root - INFO - \x1b[31mstep: 41  \x1b[32mloss:  2.34567  "
    "\x1b[33mgrad_norm:  1.2345  \x1b[36mmemory: 12.34GiB(15.60%)  \x1b[34mtps: 12,345  \x1b[36mtflops: 1,123.45  "
    "\x1b[35mmfu: 12.34%\x1b[39m"
)
VERL = (
    "(TaskRunner pid=977) step:41 - global_seqlen/mean:1234.5 - actor/pg_loss:-0.0123 - "
    "actor/grad_norm:np.float64(0.5) - timing_s/step:12.25 - perf/throughput:1234.5"
)
LINES = [
    (MEGATRON, "megatron", {"seconds": 5.1235, "loss": 2.345678, "gradient_norm": 1.234, "tflops": 412.3, "skipped": 1}),
    (" iteration 41/ 500000 | elapsed time per iteration (ms): 512.5 | lm loss nan |", "megatron", {"seconds": 0.5125, "nan": 1}),
    (TORCHTITAN, "torchtitan", {"loss": 2.34567, "gradient_norm": 1.2345, "tokens_per_second": 12345.0, "tflops": 1123.45,
                                "rank": 3}),
    (VERL, "verl", {"seconds": 12.25, "loss": -0.0123, "gradient_norm": 0.5, "tokens_per_second": 1234.5}),
    ('{"step": 41, "at": 1795255200.0, "loss": NaN, "grad_norm": 1.5, "rank": 2}', "jsonl",
     {"at": 1795255200.0, "gradient_norm": 1.5, "nan": 1, "rank": 2}),
    ('{"step": 41, "data": {"train/loss": 0.5, "skipped": true}}', "jsonl", {"loss": 0.5, "skipped": 1}),
    ("2026-11-21 10:00:00 INFO step 41 loss 0.1234", "plain", {"loss": 0.1234}),
    ("iter 41: loss 2.5, time 123.5ms, mfu 3%", "plain", {"loss": 2.5, "seconds": 0.1235}),
    ("Epoch 3 Step [41/100] Loss: 2.5 grad_norm=0.25", "plain", {"loss": 2.5, "gradient_norm": 0.25}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "layout", "values"), LINES, ids=[f"{line[1]}-{n}" for n, line in enumerate(LINES)])
def test_a_line_reports_a_step(text: str, layout: str, values: dict[str, float]) -> None:
    """Each trainer's line gives its step with every value in the one unit; what it does not say stays untold."""
    found = read_step(peel(1, text))

    assert found is not None
    assert (found.layout, found.step) == (layout, 41)
    reported = {
        name: getattr(found, name) for name in Step.__slots__ if name not in {"layout", "step", "at"} or name in values
    }
    assert {
        name: value for name, value in reported.items() if value not in {0, None} and not math.isnan(value)
    } == values


@pytest.mark.parametrize(
    "text",
    [
        "saving checkpoint at step 40", "steps per epoch and loss", "step 3.5 loss 4", '{"step": 41}',
        '{"step": true, "loss": 1}',
        '{"step": 41, "loss": ' + "[" * 5000, "step:x - loss:1", " iteration 1/ |", '{"step": ' + "9" * 6000 + ', "loss": 1}',
        "step " + "9" * 4000 + " loss 1", "",
    ],
)  # fmt: skip
def test_other_lines_report_none(text: str) -> None:
    """A line that only mentions a step, or is built to break a parser, is no step."""
    assert read_step(peel(1, text)) is None


def append(path: Path, text: str, at: float | None = None) -> None:
    """Add to a log, as of an instant."""
    with path.open("a") as file:
        file.write(text)
    if at is not None:
        os.utime(path, (at, at))


def test_the_output_of_a_rank_gives_its_steps(node: Node, tmp_path: Path) -> None:
    """What a rank's process prints into a file becomes Steps of that rank and job, each line once."""
    log = tmp_path / "out.txt"
    append(log, "2026-11-21 10:00:00 INFO step 1 loss 0.5\n2026-11-21 10:00:01 INFO step 2 loss", node.clock.at)
    node.rank(3, output=log)
    collector = JobLogs(node.host)

    first = of(node.run(collector, "steps"), Steps)
    append(log, " nan\n", node.clock.at)
    second = of(node.run(collector, "steps"), Steps)

    assert [(record.rank, record.job, record.attempt, record.role, record.step) for record in first + second] == [
        (3, "llama-8b", 2, "trainer", 1), (3, "llama-8b", 2, "trainer", 2)
    ]  # fmt: skip
    assert column(first[0], "loss", STEP_COLUMNS) == [0.5]
    assert column(second[0], "nan", STEP_COLUMNS) == [1]
    assert all(isinstance(one, Readings) for one in node.run(collector, "steps"))


def test_a_restarted_agent_goes_on(node: Node, tmp_path: Path) -> None:
    """With the kept cursor a new collector reads no line twice and leaves none out."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n")
    node.rank(0, output=log)
    node.run(JobLogs(node.host), "steps")
    append(log, "step 2 loss 0.25\n")

    (found,) = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert column(found, "step", STEP_COLUMNS) == [2]


def test_what_a_busy_node_did_not_parse_is_read_by_the_next_run(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line is lost to a load: the same lines are given to the parser again, and none of them twice."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\nstep 2 loss 0.5\n")
    node.rank(0, output=log)
    collector, parse = JobLogs(node.host), node.host.apart.parse

    def late(*_arguments: object, **_named: object) -> object:
        raise ParsingLate("the node is busy")

    monkeypatch.setattr(node.host.apart, "parse", late)
    assert node.run(collector, "steps") == []  # nor does it say that all was read
    monkeypatch.setattr(node.host.apart, "parse", parse)
    append(log, "step 3 loss 0.5\n")

    (found,) = of(node.run(collector, "steps"), Steps)
    assert column(found, "step", STEP_COLUMNS) == [1, 2, 3]


def test_a_run_that_ends_at_its_bound_loses_nothing(node: Node, tmp_path: Path) -> None:
    """The next runs hand over the rest of a part that took long, each record once, and then what was written since."""
    log = tmp_path / "out.txt"
    append(log, "".join(f"[rank{rank}]: step {step} loss 0.5\n" for rank in range(3) for step in (1, 2)))
    node.rank(0, output=log)
    collector, kept = JobLogs(node.host), Kept()
    known = Collector("steps", "", 5.0, 0.0, lambda _host: collector)  # every record is past the bound
    runner = Runner(known, known.make, node.host, Stamp(node.host), kept, 5.0)

    kinds = [runner.run_once(None).kind for _ in range(4)]
    append(log, "[rank0]: step 3 loss 0.5\n")
    kinds += [runner.run_once(None).kind for _ in range(3)]

    steps = [
        one for entry in kept.entries for data in entry.records for one in block.decode(data) if isinstance(one, Steps)
    ]
    assert [(one.rank, column(one, "step", STEP_COLUMNS)) for one in steps] == [
        (0, [1, 2]), (1, [1, 2]), (2, [1, 2]), (0, [3]),
    ]  # fmt: skip
    assert not collector.unsent


def test_rotation_and_truncation_lose_nothing(node: Node) -> None:
    """Lines written before a rename, after it, and after a truncation in place are all read."""
    folder = node.folder / "files" / "srv"
    folder.mkdir()
    log = folder / "train.log"
    node.options["steps"] = {"paths": ["/srv/*.log"]}
    append(log, "step 1 loss 0.5\n")
    collector = JobLogs(node.host)
    seen = of(node.run(collector, "steps"), Steps)
    append(log, "step 2 loss 0.5\n")
    log.rename(folder / "train.log.1")
    append(log, "step 3 loss 0.5\n")
    seen += of(node.run(collector, "steps"), Steps)
    log.write_text("step 4 loss 1\n")
    seen += of(node.run(collector, "steps"), Steps)

    steps = sorted(step for record in seen for step in column(record, "step", STEP_COLUMNS))
    assert steps == [1, 2, 3, 4]


def test_an_idle_run_says_only_that_all_was_read(node: Node, tmp_path: Path) -> None:
    """Where no log has grown the run yields no record and no cursor: one tick, of when it began to read."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n")
    node.rank(0, output=log)
    collector = JobLogs(node.host)
    node.run(collector, "steps")

    node.clock.at += 5.0
    assert list(collector(None)) == [Readings("log", [""], ["files"], [[1]], "<i8", at=node.clock.at)]


def test_a_truncation_between_looks_is_kept(node: Node, tmp_path: Path) -> None:
    """A log that was emptied, and has grown past its old end by the next run, is read from its beginning."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n")
    node.rank(0, output=log)
    collector = JobLogs(node.host)
    node.run(collector, "steps")
    log.write_text("")
    node.run(collector, "steps")
    append(log, "step 2 loss 0.5\nstep 3 loss 0.5\n")

    (found,) = of(node.run(collector, "steps"), Steps)

    assert column(found, "step", STEP_COLUMNS) == [2, 3]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_to_another_users_file_is_not_followed(node: Node) -> None:
    """Among the configured logs a user's link to a file that is not his is left alone; his own, and root's, are read."""
    folder = node.folder / "files" / "srv"
    folder.mkdir()
    node.options["steps"] = {"paths": ["/srv/*.log"]}
    for name, link_of, file_of in (("a", 12345, 0), ("b", 12345, 12345), ("c", 0, 12345)):
        append(folder / name, f"step {ord(name)} loss 0.5\n")
        (folder / f"{name}.log").symlink_to(name)
        os.chown(folder / name, file_of, -1)
        os.chown(folder / f"{name}.log", link_of, -1, follow_symlinks=False)

    found = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert [column(record, "step", STEP_COLUMNS) for record in found] == [[ord("b")], [ord("c")]]


def test_a_log_that_was_written_anew_is_read_from_its_beginning(node: Node, tmp_path: Path) -> None:
    """A job started again into the same log, or a new file with a deleted one's number, that has outgrown the old end."""
    log = tmp_path / "out.txt"
    append(log, "first start\nstep 1 loss 0.5\n")
    node.rank(0, output=log)
    node.run(JobLogs(node.host), "steps")
    log.write_text("second start\nstep 1 loss 0.5\nstep 2 loss 0.5\n")

    (found,) = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert column(found, "step", STEP_COLUMNS) == [1, 2]


def test_a_flooding_log_is_bounded_and_reported(node: Node, tmp_path: Path) -> None:
    """Of twenty megabytes at once only the newest are read, and a record says how many bytes were not."""
    log = tmp_path / "out.txt"
    line = "x" * 99 + "\n"
    append(log, line * 200_000 + "step 7 loss 0.5\n")
    node.rank(0, output=log)

    found = node.run(JobLogs(node.host), "steps")

    (reported,) = of(found, Unread)
    assert reported.outcome == "limit"
    left_out = int(reported.reason.split(" ")[0].replace(",", ""))
    assert log.stat().st_size - FILE_BYTES <= left_out <= log.stat().st_size - FILE_BYTES + len(line)
    assert column(of(found, Steps)[0], "step", STEP_COLUMNS) == [7]


def test_a_burst_is_read_whole(node: Node, tmp_path: Path) -> None:
    """Two megabytes at once are all read, a part a run, without a line lost between the parts."""
    log = tmp_path / "out.txt"
    append(log, "".join(f"step {step} loss 0.5 {'x' * 80}\n" for step in range(20_000)))
    node.rank(0, output=log)
    collector = JobLogs(node.host)

    found = [record for _ in range(6) for record in of(node.run(collector, "steps"), Steps)]

    assert [step for record in found for step in column(record, "step", STEP_COLUMNS)] == list(range(20_000))


def test_many_flooding_logs_take_turns(node: Node, tmp_path: Path) -> None:
    """Where all logs together are more than a run reads, each is read within a few runs."""
    for rank in range(6):
        log = tmp_path / f"out{rank}.txt"
        append(log, "y" * (FILE_BYTES - 100) + f"\nstep {rank} loss 0.5\n")
        node.rank(rank, output=log)
    collector = JobLogs(node.host)

    seen = {record.rank for _ in range(3) for record in of(node.run(collector, "steps"), Steps)}

    assert seen == set(range(6))


def test_stamps_of_another_zone_become_instants(node: Node, tmp_path: Path) -> None:
    """A log in local time is moved by whole quarters of an hour once a line was seen to be just written."""
    log = tmp_path / "out.txt"
    append(log, "2026-11-21 15:30:00 INFO step 1 loss 0.5\n", 1_795_255_200.0)
    node.rank(0, output=log)
    collector = JobLogs(node.host)
    node.run(collector, "steps")
    append(log, "2026-11-21 15:30:05 INFO step 2 loss 0.5\n", 1_795_255_205.0)

    (found,) = of(node.run(collector, "steps"), Steps)

    assert column(found, "at", STEP_COLUMNS) == [1_795_255_205.0]


def test_only_regular_files_are_opened(node: Node, tmp_path: Path) -> None:
    """A pipe as output is neither opened nor read, and without any file there is nothing to collect."""
    os.mkfifo(tmp_path / "pipe")
    node.rank(0, output=tmp_path / "pipe")
    collector = JobLogs(node.host)

    with pytest.raises(NothingToCollect, match="output into a file"):
        node.run(collector, "steps")


def test_noise_is_survived(node: Node, tmp_path: Path) -> None:
    """Bytes that are no text, NULs, and a line without an end cost nothing but themselves."""
    log = tmp_path / "out.txt"
    log.write_bytes(b"\0" * 5000 + b"\xff\xfe\n" + b"z" * 200_000 + b"\nstep 5 loss 0.5\n")
    node.rank(0, output=log)

    (found,) = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert column(found, "step", STEP_COLUMNS) == [5]


@pytest.mark.parametrize(
    ("begin", "repeated"),
    [
        ("iteration 1/ 2 |", " "), ("iteration 1/ 2 |", " a: "), ("iteration 1/ 2 | loss", "1 "), ("step: 1  loss:", " "),
        ("step:1 - ", "a:"), ("step 1 loss", " "), ("step 1 loss ", "1,"), ("step 1 loss np.", "a"), ("", "step 1 "),
        ("", '{"step": 1, '), ("", "WorkNCCL(SeqNum=1, OpType=A"), ("WorkNCCL(SeqNum=1, OpType=A", "a"),
        ("", "DisruptionTarget"), ("reempt", "DisruptionTarget"),
    ],
)  # fmt: skip
def test_no_line_is_slow(node: Node, tmp_path: Path, begin: str, repeated: str) -> None:
    """A log whose lines are built to make patterns go back and forth is read within a second: it is read in the agent."""
    log = tmp_path / "out.txt"
    line = begin + repeated * ((8000 - len(begin)) // len(repeated)) + "\n"
    append(log, line * 60)
    node.rank(0, output=log)
    begun = time.process_time()

    node.run(JobLogs(node.host), "steps")

    assert in_time(time.process_time() - begun, 1)


def test_a_lying_cursor_is_survived(node: Node, tmp_path: Path) -> None:
    """A cursor of another form, or one beyond the file's end, begins anew instead of failing."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n")
    node.rank(0, output=log)
    status = log.stat()
    for cursor in (
        "x",
        {"files": [1]},
        {"files": {f"{status.st_dev}:{status.st_ino}": [10**9, 0, 0]}},
        {"files": {"1": ["a"]}},
        {"files": {f"{status.st_dev}:{status.st_ino}": [3, 0, 0, -1, 7]}},
    ):
        node.host.cursors["steps"] = cursor

        assert len(of(node.run(JobLogs(node.host), "steps"), Steps)) == 1


def of_trainer(loss: str = "0.5") -> str:
    """What transformers' Trainer prints where its progress bar goes elsewhere: no number."""
    return f"{{'loss': {loss}, 'grad_norm': 1.5, 'learning_rate': 4.9e-05, 'epoch': 0.03}}\n"


def test_lines_without_a_number_are_counted(node: Node, tmp_path: Path) -> None:
    """Each is a step, from the first of its process on, as a reader of the whole file counts them; a new run counts anew."""
    log = tmp_path / "out.txt"
    append(log, 3 * of_trainer(), node.clock.at)
    node.rank(0, output=log)
    collector = JobLogs(node.host)
    seen = of(node.run(collector, "steps"), Steps)
    append(log, "{'eval_loss': 0.4, 'eval_runtime': 2.0, 'epoch': 0.03}\n" + 2 * of_trainer(), node.clock.at + 5.0)
    seen += of(node.run(collector, "steps"), Steps)
    append(log, of_trainer("nan"), node.clock.at + 10.0)
    seen += of(node.run(JobLogs(node.host), "steps"), Steps)  # the agent was started again
    node.host.processes = ()
    node.rank(0, output=log, pid=5000)
    append(log, of_trainer(), node.clock.at + 20.0)
    seen += of(node.run(JobLogs(node.host), "steps"), Steps)

    assert [column(one, "step", STEP_COLUMNS) for one in seen] == [[1, 2, 3], [4, 5], [6], [1]]
    assert {one.told_by for one in seen} == {"transformers lines"}
    assert [(one.rank, one.step, column(one, "at", STEP_COLUMNS)[-1]) for one in seen] == [
        (0, 3, node.clock.at), (0, 5, node.clock.at + 5.0), (0, 6, node.clock.at + 10.0), (0, 1, node.clock.at + 20.0)
    ]  # fmt: skip


def test_a_file_that_nobody_writes_now_is_counted_from_its_beginning(node: Node) -> None:
    """A configured log has no known process: written anew, its steps are counted anew."""
    folder = node.folder / "files" / "srv"
    folder.mkdir()
    node.options["steps"] = {"paths": ["/srv/*.log"]}
    log, collector = folder / "train.log", JobLogs(node.host)
    append(log, 2 * of_trainer(), node.clock.at)
    seen = of(node.run(collector, "steps"), Steps)
    append(log, of_trainer(), node.clock.at)
    seen += of(node.run(collector, "steps"), Steps)
    log.write_text(of_trainer("0.25"))
    seen += of(node.run(collector, "steps"), Steps)

    assert [column(one, "step", STEP_COLUMNS) for one in seen] == [[1, 2], [3], [1]]
