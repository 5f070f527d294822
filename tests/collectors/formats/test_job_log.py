"""Job logs are read as they are: prefixed, interleaved, chained, cut off, and ended by their launchers."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.formats import Input
from collectors.formats.job_log import exit_codes, found_events, job_log
from collectors.formats.job_log.job_lines import instant, peel
from collectors.formats.job_log.shapes import MAX_MEMBERS, members_of
from collectors.formats.job_log.tracebacks import MAX_FRAMES, MAX_MESSAGE_CHARACTERS
from collectors.records import LogEvent, Record, Unread

SEEN_AT = datetime(2026, 11, 18, tzinfo=UTC).timestamp()


def records(text: str, *, source: str = "train.log", rank: int | None = None, reader: object = job_log) -> list[Record]:
    """Read a text as one file."""
    data = text.encode()
    read = getattr(reader, "read")  # noqa: B009  # either of two modules
    return list(read(Input(source, io.BytesIO(data), data[:65536], rank=rank, at=SEEN_AT)))


def events(text: str, **options: object) -> list[LogEvent]:
    """The log events of a text."""
    return [record for record in records(text, **options) if isinstance(record, LogEvent)]  # type: ignore[arg-type]


def prefixed(prefix: str, text: str) -> list[str]:
    """Put a prefix before every line."""
    return [f"{prefix}{line}" for line in text.strip("\n").splitlines()]


def traceback(error: str, function: str = "step", line: int = 7) -> str:
    """A small traceback as Python prints it."""
    return (
        "Traceback (most recent call last):\n"
        '  File "/app/train.py", line 90, in <module>\n    main()\n'
        f'  File "/app/train.py", line {line}, in {function}\n    work()\n    ^^^^^^\n{error}\n'
    )


def interleave(*parts: list[str]) -> str:
    """Shuffle the parts' lines together one by one, each in its own order."""
    longest = max(len(part) for part in parts)
    return "\n".join(part[index] for index in range(longest) for part in parts if index < len(part)) + "\n"


@pytest.mark.parametrize(
    "template",
    [
        "[rank{}]: ",
        "[default{0}]:[rank{0}]: ",
        "[trainer9|{}]: ",
        "{}: ",
        "[1,{}]<stderr>:",
        "(W pid=1{}, ip=10.0.0.7) [rank{}]: ",
        "(VllmWorker rank={0} pid=4{0}) ERROR 11-12 09:41:20 [worker.py:52{0}] ",
    ],
)
def test_interleaved_tracebacks_are_reassembled_by_prefix(template: str) -> None:
    """Two ranks' tracebacks that alternate line by line come out whole, each with its own rank."""
    parts = [
        prefixed(
            template.replace("{}", str(rank)).replace("{0}", str(rank)), traceback(f"ValueError: of {rank}", line=rank)
        )
        for rank in (2, 5)
    ]

    found = events(interleave(*parts))

    assert [(event.event, event.rank, event.message) for event in found] == [
        ("traceback", 2, "of 2"),
        ("traceback", 5, "of 5"),
    ]
    assert [(frame.function, frame.line) for frame in found[1].frames] == [("step", 5), ("<module>", 90)]


def test_a_chain_keeps_its_root_and_names_what_followed() -> None:
    """Of chained exceptions the first is the event's, the later ones stand in its text."""
    text = traceback("KeyError: 'a'")
    text += "\nThe above exception was the direct cause of the following exception:\n\n" + traceback("RuntimeError: b")
    text += "\nDuring handling of the above exception, another exception occurred:\n\n" + traceback(
        "OSError: c", "close"
    )

    (found,) = events(text, rank=4)

    assert (found.exception, found.message, found.rank) == ("KeyError", "'a'", 4)
    assert "RuntimeError, OSError" in found.text
    assert found.frames[0].function == "step"


def test_a_message_of_many_lines_is_kept_and_ends_at_a_stamp() -> None:
    """NCCL's message has several lines; the logger's next line is no part of it."""
    error = "torch.distributed.DistBackendError: NCCL error in: X.cpp:1, remote process exited\nLast error:\n"
    error += "socketProgress: Connection closed by remote peer gpu-7<33759>\n2026-11-17 12:00:00,123 INFO next"

    (found,) = events(traceback(error))

    assert found.message is not None
    assert found.message.endswith("gpu-7<33759>")
    assert found.peer == "gpu-7:33759"


def test_a_logger_that_repeats_its_stamp_before_every_line_is_seen_through() -> None:
    """A traceback printed through a logger, stamp on every line, is read like a plain one."""
    lines = prefixed("ERROR 11-17 12:00:01 worker.py:46] ", traceback("ValueError: logged"))

    (found,) = events("\n".join(lines))

    assert (found.exception, found.message, len(found.frames)) == ("ValueError", "logged", 2)


def test_recursion_and_long_messages_are_bounded() -> None:
    """A traceback of a thousand frames keeps the innermost, a message its first characters."""
    frames = "".join(f'  File "/app/a.py", line {line}, in f\n    f()\n' for line in range(1, 1001))
    text = f"Traceback (most recent call last):\n{frames}RecursionError: {'x' * 60_000}\n"

    (found,) = events(text)

    assert len(found.frames) == MAX_FRAMES
    assert found.frames[0].line == 1000
    assert len(found.message or "") == MAX_MESSAGE_CHARACTERS


WATCHDOG = (
    "[rank7]:[E1117 12:00:00.123456789 ProcessGroupNCCL.cpp:683] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600041 milliseconds "
    "before timing out."
)


def test_a_watchdog_line_gives_operation_times_and_the_global_rank() -> None:
    """The prefix is the rank of the job; the rank in brackets is only the group's."""
    (found,) = events(WATCHDOG)

    assert (found.event, found.rank, found.sequence, found.operation) == ("watchdog_timeout", 7, 1580, "ALLREDUCE")
    assert (found.timeout_ms, found.elapsed_ms) == (600_000, 600_041)
    assert found.at == pytest.approx(datetime(2026, 11, 17, 12, 0, 0, 123457, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("line", "rank", "group"),
    [
        ("[rank7]:[E602 11:17:52.5 X.cpp:1] [PG ID 3 PG GUID 5(mesh_tp) Rank 1] ProcessGroupNCCL: {}", 7, "5"),
        ("[E602 11:17:52.5 ProcessGroupNCCL.cpp:1] [PG ID 0 PG GUID 0(default_pg) Rank 1] {}", 1, "0"),
        ("[E602 11:17:52.5 ProcessGroupNCCL.cpp:1] [PG ID 3 PG GUID 5(mesh_tp) Rank 1] {}", None, "5"),
        ("[rank2]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 2] {}", 2, "local:1"),
        ("[E907 22:34:22.8 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 6] {}", 6, "local:0"),
    ],
)
def test_progress_lines_give_the_group_that_is_unique_in_the_job(line: str, rank: int | None, group: str) -> None:
    """Last enqueued and completed come with the group's unique id; a rank inside a subgroup is nobody's global rank."""
    said = "Exception (either an error or timeout) detected by watchdog at work: 9, last enqueued NCCL work: 11, "

    (found,) = events(line.format(said + "last completed NCCL work: 8."))

    assert (found.rank, found.group, found.sequence) == (rank, group, 9)
    assert (found.last_enqueued, found.last_completed) == (11, 8)


@pytest.mark.parametrize(
    ("text", "name", "fields"),
    [
        ("[rank1]:[E1117 1 ProcessGroupNCCL.cpp:9] First PG on this rank to signal dumping.", "watchdog_dump", {"first": True}),
        ("[rank1]: ProcessGroupNCCL: Received a dump signal due to a collective timeout from  rank 13 and", "watchdog_dump",
         {"peer": "rank 13"}),
        (("[rank3]:[E1 ProcessGroupNCCL.cpp:2] Process group watchdog thread terminated with exception: CUDA error: an "
         "illegal memory access was encountered"), "cuda_error", {"rank": 3}),
        ("[rank3]: ProcessGroupNCCL's watchdog got stuck for 480 seconds", "watchdog_stuck", {"rank": 3}),
        ("gpu1:9:9 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer gpu-2<4242>",
         "connection_closed", {"peer": "gpu-2:4242"}),
        ("what(): [x/pair.cc:553] Connection closed by peer [10.0.0.7]:27558", "connection_closed", {"peer": "10.0.0.7:27558"}),
        ("torch: CUDA out of memory. Tried to allocate 2.00 GiB", "oom", {}),
        ("Fatal Python error: Segmentation fault", "exit", {"signal": 11}),
        ("step 9 | loss: nan | lr 1e-4", "nan", {}),
        ("srun: error: gpu-0413: task 3: Killed", "exit", {"rank": 3, "signal": 9, "node": "gpu-0413"}),
        ("srun: error: n1: task 0: Exited with exit code 1", "exit", {"rank": 0, "exit_code": 1}),
        ("srun: error: n1: task 4: Segmentation fault (core dumped)", "exit", {"rank": 4, "signal": 11}),
        ("srun: error: n1: task 4: Out Of Memory", "oom_kill", {"rank": 4}),
        ("slurmstepd: error: *** JOB 37 ON n1 CANCELLED AT 2026-11-17T18:00:46 DUE TO PREEMPTION ***", "preempted", {}),
        ("slurmstepd: error: *** JOB 37 ON n1 CANCELLED AT 2026-11-17T18:00:46 DUE TO TIME LIMIT ***", "time_limit", {}),
        ("slurmstepd: error: *** STEP 37.0 ON n1 CANCELLED AT 2026-11-17T18:00:46 ***", "step_cancelled", {}),
        ("slurmstepd: error: *** STEP 37.0 ON n1 CANCELLED ***", "step_cancelled", {}),
        ("slurmstepd: error: *** JOB 37 ON n1 CANCELLED AT 2026-11-17T18:00:46 DUE TO NODE FAILURE, SEE SLURMCTLD LOG ***",
         "node_failure", {"node": None}),
        ("mpirun noticed that process rank 3 with PID 21 on node n2 exited on signal 9 (Killed).", "exit",
         {"rank": 3, "node": "n2", "signal": 9, "first": True}),
        (("E1117 12:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:1] failed (exitcode: -9) local_rank: 1 "
         "(pid: 88) of binary: python"), "exit", {"rank": None, "local_rank": 1, "signal": 9, "pid": 88, "first": True}),
        ("W1117 12:00:00.5 9 torch/distributed/elastic/x.py:1] Sending process 8642 closing signal SIGTERM", "closing_signal",
         {"pid": 8642}),
        ("run.sh: line 3:  8156 Killed                  python3 main.py", "exit", {"signal": 9}),
        ("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGKILL", "exit",
         {"rank": 1, "signal": 9}),
    ],
)  # fmt: skip
def test_one_line_gives_one_event(text: str, name: str, fields: dict[str, object]) -> None:
    """Each layout of a line becomes its event with the fields it holds."""
    (found,) = events(text + "\n")

    assert found.event == name
    assert {key: getattr(found, key) for key in fields} == fields


def test_a_range_of_tasks_is_one_event_a_task_up_to_the_limit() -> None:
    """``tasks 5-7,9`` is four exits, and a hostile range is cut at the named limit."""
    found = events("srun: error: n1: tasks 5-7,9: Killed\n")

    assert [event.rank for event in found] == [5, 6, 7, 9]
    assert len(members_of("0-4000000000")) == MAX_MEMBERS


def test_tasks_of_srun_that_started_torchrun_are_not_ranks() -> None:
    """Where srun runs one torchrun a node, its task numbers name nodes and no rank is claimed."""
    agent = "W1117 12:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:1] Sending process 8 closing signal SIGTERM\n"

    found = [event for event in events(agent + "srun: error: n1: task 1: Killed\n") if event.event == "exit"]

    assert [(event.rank, event.node) for event in found] == [(None, "n1")]


@pytest.mark.parametrize(
    ("before", "kept"), [("", False), ("n1:7:9 [0] NCCL WARN Call to ibv_create_qp failed\n", True)]
)
def test_a_network_that_is_ready_is_an_event_where_one_was_missing(before: str, kept: bool) -> None:
    """Every healthy run of NCCL prints that its rings are connected."""
    found = events(before + "n1:7:9 [0] NCCL INFO Connected all rings\nstep 1 loss 2.5\n")

    assert any(event.event == "fabric_ready" for event in found) == kept


def test_repeats_are_folded() -> None:
    """A thousand equal errors of one rank are one event."""
    assert len(events("[rank1]: CUDA error: unspecified launch failure\n" * 1000)) == 1


def test_events_over_the_limit_are_reported_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit one record says where reading stopped."""
    monkeypatch.setattr(found_events, "MAX_EVENTS", 10)

    found = records("".join(f"[rank{rank}]: CUDA error: x\n" for rank in range(30)))

    assert len(found) == 11
    last = found[-1]
    assert isinstance(last, Unread)
    assert last.outcome == "limit"
    assert "line 11" in last.reason


@pytest.mark.parametrize("cut", [10, 120, 400, 900])
def test_a_log_cut_anywhere_or_full_of_rubbish_is_read_without_an_error(cut: int) -> None:
    """Cutting a log, or mixing bytes that are no text into it, raises nothing and claims no exception it did not see."""
    whole = (
        traceback("ValueError: x")
        + WATCHDOG
        + "\nRoot Cause (first observed failure):\n[0]:\n  time : x\n  exitcode  : -9"
    )
    data = whole.encode()[:cut] + b"\xff\xfe\0[rank99999999999]: \r\r[" + bytes(range(256))

    found = list(job_log.read(Input("x.log", io.BytesIO(data), data)))

    assert all(isinstance(record, LogEvent) for record in found)
    assert len(found) <= 3


def test_stamps_of_many_makers_are_the_same_instant() -> None:
    """ISO with and without zone, torchrun's underscore, the American form and glog's yearless one agree."""
    noon = datetime(2026, 11, 17, 12, tzinfo=UTC).timestamp()

    assert instant("2026-11-17T12:00:00Z x") == noon
    assert instant("2026-11-17 14:00:00,000+0200") == noon
    assert instant("2026-11-17_12:00:00") == noon
    assert instant("[INFO] 11/17/2026 12:00:00 - x") == noon
    assert peel(1, "E1117 12:00:00.000000 12 x.cc:1] x", seen_at=SEEN_AT).at == noon
    assert peel(1, "2026-11-17T12:00:00.000Z stderr F boom", seen_at=None).at == noon


def test_a_glog_stamp_of_december_read_in_january_is_last_year() -> None:
    """A stamp without a year never lies in the future of its file."""
    new_year = datetime(2027, 1, 2, tzinfo=UTC).timestamp()

    assert (
        peel(1, "E1231 23:00:00.5 1 x.cc:1] x", seen_at=new_year).at
        == datetime(2026, 12, 31, 23, 0, 0, 500000, UTC).timestamp()
    )
    assert peel(1, "E1231 23:00:00.5 1 x.cc:1] x").at is None


@pytest.mark.parametrize(
    ("head", "source", "low", "high"),
    [
        (b"Traceback (most recent call last):\n", "a.txt", 30, 60),
        (b"[rank3]: hello\n", "a", 30, 60),
        (b"step 1 loss 2.0\n", "run/stdout", 10, 30),
        (b"step 1 loss 2.0\n", "notes.txt", 0, 0),
        (b"\x80\x02}q\x00(X\x07", "x.log", 0, 0),
        (b"", "x.log", 0, 0),
    ],
)
def test_a_log_is_claimed_low_so_that_surer_readers_win(head: bytes, source: str, low: int, high: int) -> None:
    """Marks of a job give about 40, a log's mere name about 20, anything else nothing."""
    assert low <= job_log.sniff(head, source) <= high


def test_accounting_and_lists_of_exit_codes_are_read() -> None:
    """sacct's table in both forms, a script's list and a JSON object give exits; successes say nothing."""
    table = "JobID           JobName      State ExitCode        NodeList\n"
    table += "------------ ---------- ---------- -------- ---------------\n"
    table += "37              train  NODE_FAIL      0:9            gpu-7\n37.0  train  COMPLETED  0:0  gpu-7\n"
    bars = "JobID|State|ExitCode|NodeList\n38|PREEMPTED|0:15|gpu-[1-2]\n"

    assert exit_codes.sniff(table.encode(), "sacct.txt") > 50
    (lost,) = events(table, reader=exit_codes)
    assert (lost.event, lost.node, lost.signal) == ("node_failure", "gpu-7", 9)
    (taken,) = events(bars, reader=exit_codes)
    assert (taken.event, taken.node) == ("preempted", None)
    listed = events("rank 0 exited with code 0\nrank 3 exited with code -9\n", reader=exit_codes)
    assert [(event.rank, event.signal) for event in listed] == [(3, 9)]
    (object_,) = events('{"0": 0, "2": 137}', reader=exit_codes, source="exit_codes.json")
    assert (object_.rank, object_.signal) == (2, 9)


PROGRAM = """
import datetime, os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=3))
value = torch.ones(4)
for step in range(1000):
    dist.all_reduce(value)
    if step == 3:
        if sys.argv[1] == "one" and rank == 1: raise ValueError("bad sample\\nand more")
        if sys.argv[1] == "all": raise KeyError("lr")
        if sys.argv[1] == "kill" and rank == 1: os.kill(os.getpid(), 9)
        if sys.argv[1] == "hang" and rank == 1: time.sleep(60)
    time.sleep(0.02)
"""


def torchrun(mode: str, folder: Path, *options: str) -> str:
    """Run a real job of three gloo ranks that breaks, and return all it printed."""
    program = folder / "train.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(program), mode], capture_output=True, text=True, timeout=120, check=False, env=environment
    )
    return done.stderr + done.stdout


@pytest.mark.system
@pytest.mark.parametrize(
    ("mode", "options", "rank_1", "others"),
    [
        ("one", ("--tee", "3"), ("ValueError", 1, None), "Connection (closed|reset) by peer"),
        pytest.param("all", (), ("KeyError", 1, None), "lr", marks=pytest.mark.acceptance),
        ("kill", ("--tee", "3"), (None, -9, 9), None),
        ("hang", (), (None, -15, 15), "Timed out waiting"),
    ],
)
def test_the_output_of_a_real_torchrun_is_read(
    mode: str, options: tuple[str, ...], rank_1: tuple[object, ...], others: str | None, tmp_path: Path
) -> None:
    """Exceptions, echoes, exits and the launcher's root cause of real gloo jobs arrive with the right ranks."""
    text = torchrun(mode, tmp_path, *options)

    found = events(text, source="torchrun.log")

    by_rank = {event.rank: event for event in found if event.event == "traceback" and event.rank is not None}
    exits = {event.rank: event for event in found if event.event == "torchrun_failure"}
    assert sorted(rank for rank in exits if rank is not None) == [0, 1, 2], text[-3000:]
    assert sum(1 for event in exits.values() if event.first) == 1
    if mode == "all":  # the launcher may end the slower ranks before they speak
        assert {event.exception for event in by_rank.values()} == {rank_1[0]}
    else:
        assert (by_rank[1].exception if 1 in by_rank else None) == rank_1[0]
        aborted = [(-6, 6)] if mode == "one" else []  # gloo's threads may abort a process that leaves by an exception
        assert (exits[1].exit_code, exits[1].signal) in [rank_1[1:], *aborted]
    for rank in {0, 2} & set(by_rank):
        assert re.search(others or "Connection", by_rank[rank].message or ""), by_rank[rank]
    if mode == "hang":
        assert {0, 2} & set(by_rank)
    assert all(event.at is not None for event in exits.values())
