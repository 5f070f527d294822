"""Readers of stacks and of process tables, on what the tools print about a live process and on damaged text."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.formats import Input, recognise
from collectors.records import LogEvent, ProcessState, Record, StackDump, Unread

PROGRAM = """
import faulthandler, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
def wait_in_background():
    threading.Event().wait()
def load_batch():
    time.sleep(600)
def train():
    load_batch()
threading.Thread(target=wait_in_background, daemon=True, name="background").start()
print("ready", flush=True)
train()
"""


def read(data: bytes, source: str = "dumps/file", **identity: object) -> list[Record]:
    """Read bytes through whichever reader recognises them."""
    format = recognise(data[:65_536], source)
    assert format is not None, f"nobody recognises {data[:80]!r}"
    return list(format.read(Input(source, io.BytesIO(data), data[:65_536], **identity)))  # type: ignore[arg-type]


def name_of(data: bytes) -> str | None:
    """Name the format that the bytes are taken for."""
    format = recognise(data[:65_536], "file")
    return format.name if format else None


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Run a small Python process that sleeps in ``load_batch``."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "train.py").write_text(PROGRAM)
    errors = (folder / "stderr").open("w")
    command = [sys.executable, str(folder / "train.py"), "--rank", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    yield process, folder
    process.kill()
    process.wait()
    process.stdout.close()
    errors.close()


def run_tool(*command: str) -> bytes:
    """Run a tool on the live process; skip where the machine lacks it or refuses to trace."""
    path = shutil.which(command[0]) or shutil.which(command[0], path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"{command[0]} is not installed here")
    done = subprocess.run([path, *command[1:]], capture_output=True, timeout=60)
    if done.returncode and not done.stdout:
        pytest.skip(f"{command[0]} was refused: {done.stderr.decode()[:200]}")
    return done.stdout


def main_functions(dump: StackDump) -> list[str]:
    """Return the main thread's functions, innermost first."""
    (main,) = [thread for thread in dump.threads if thread.main]
    return [frame.function for frame in main.frames]


def the_dump(records: list[Record]) -> StackDump:
    """Return the only record, a stack dump."""
    (dump,) = records
    assert isinstance(dump, StackDump)
    return dump


@pytest.mark.parametrize("form", ["--json", "--nonblocking"])
def test_pyspy_of_a_live_process(live: tuple[subprocess.Popen[str], Path], form: str) -> None:
    """py-spy's JSON and text both give the pid and the main thread's frames, innermost first."""
    data = run_tool("py-spy", "dump", "--nonblocking", *({form} - {"--nonblocking"}), "--pid", str(live[0].pid))
    dump = the_dump(read(data, rank=3))
    assert (dump.tool, dump.pid, dump.rank) == ("py-spy", live[0].pid, 3)
    assert main_functions(dump) == ["load_batch", "train", "<module>"]
    assert {thread.name for thread in dump.threads} == {"MainThread", "background"}


def test_pyspy_text_names_the_rank_of_the_command_line(live: tuple[subprocess.Popen[str], Path]) -> None:
    """The command line that py-spy's text prints gives the rank where the file name does not."""
    assert the_dump(read(run_tool("py-spy", "dump", "--pid", str(live[0].pid)))).rank == 3


def test_faulthandler_of_a_live_process(live: tuple[subprocess.Popen[str], Path]) -> None:
    """Two dumps by signal are two records whose main thread is the last printed."""
    process, folder = live
    for _ in range(2):
        os.kill(process.pid, 10)
        time.sleep(0.3)
    dumps = read((folder / "stderr").read_bytes())
    assert len(dumps) == 2
    assert main_functions(the_dump(dumps[:1])) == ["load_batch", "train", "<module>"]


def test_gdb_of_a_live_process(live: tuple[subprocess.Popen[str], Path]) -> None:
    """gdb's backtrace gives native frames, innermost first, and its thread 1 is the main one."""
    dump = the_dump(read(run_tool("gdb", "-p", str(live[0].pid), "-batch", "-ex", "thread apply all bt")))
    (main,) = [thread for thread in dump.threads if thread.main]
    assert (dump.tool, dump.pid, main.os_thread_id) == ("gdb", live[0].pid, live[0].pid)
    assert "nanosleep" in main.frames[0].function
    assert len(dump.threads) == 2


def test_ps_of_a_live_process(live: tuple[subprocess.Popen[str], Path]) -> None:
    """ps with its header gives state, wait channel, age and rank, and shows a stopped process."""
    process, _ = live
    os.kill(process.pid, 19)
    try:
        time.sleep(0.1)
        records = read(run_tool("ps", "-ww", "-eo", "pid,stat,wchan:32,etime,args"))
    finally:
        os.kill(process.pid, 18)
    (row,) = [one for one in records if isinstance(one, ProcessState) and one.pid == process.pid]
    assert (row.state, row.rank) == ("T", 3)
    assert row.elapsed_seconds is not None
    assert not [one for one in records if isinstance(one, Unread)]


def pyspy_thread(pid: int, name: str | None = "MainThread", function: str = "f", **more: object) -> dict[str, object]:
    """One thread as py-spy's JSON has it."""
    frames = [{"name": function, "filename": "/x/train.py", "module": None, "short_filename": "train.py", "line": 7}]
    return {
        "pid": pid,
        "thread_id": 1,
        "thread_name": name,
        "os_thread_id": pid,
        "owns_gil": False,
        "frames": frames,
        **more,
    }


def test_pyspy_json_of_several_processes() -> None:
    """Arrays after each other, one a line or one array for all: a record per process and array."""
    one, two = pyspy_thread(10), pyspy_thread(11)
    for data in (json.dumps([one]) + "\n" + json.dumps([two]), json.dumps([one, two], indent=2)):
        assert [record.pid for record in read(data.encode()) if isinstance(record, StackDump)] == [10, 11]
    again = read((json.dumps([one]) + json.dumps([one])).encode())
    assert len(again) == 2
    assert len({record.source for record in again}) == 2


def test_pyspy_json_without_thread_names_finds_the_main_thread_by_id() -> None:
    """A stopped process has no thread names; the thread whose id is the pid is the main one."""
    other = {**pyspy_thread(10, None, "g"), "os_thread_id": 99}
    dump = the_dump(read(json.dumps([other, pyspy_thread(10, None)]).encode()))
    assert main_functions(dump) == ["f"]


def test_pyspy_json_cut_off_keeps_what_precedes_the_cut() -> None:
    """Threads before the cut stand, and the cut is reported with its offset."""
    data = json.dumps([pyspy_thread(10), pyspy_thread(11)]).encode()
    dump, unread = read(data[:-40])
    assert isinstance(dump, StackDump)
    assert isinstance(unread, Unread)
    assert (unread.outcome, unread.offset is not None and unread.offset > 100) == ("damaged", True)


def test_pyspy_json_with_hostile_values_gives_no_error() -> None:
    """Wrong types, absurd numbers and deep nesting are dropped or reported, never raised."""
    frames = [None, {"name": 5, "line": 10**30}, {"name": "x" * 10_000}]
    hostile = {**pyspy_thread(10), "frames": frames, "pid": "a", "os_thread_id": True}
    dump = the_dump(read(json.dumps([hostile]).encode()))
    assert [len(frame.function) for frame in dump.threads[0].frames] == [0, 500]
    deep = json.dumps([pyspy_thread(10)])[:-1] + "," + '{"frames": ' + "[" * 100_000
    assert [type(record) for record in read(deep.encode())] == [StackDump, Unread]


def test_pyspy_text_of_a_process_tree() -> None:
    """Every process of ``--subprocesses`` is a record with its parent; lines of --locals are no frames."""
    text = """Process 12: python train.py --rank=7
Python v3.11.7 (/usr/bin/python3.11)

Thread 12 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
        Arguments:
            tensor: <Tensor at 0x7f> (a.py:3)
    <module> (train.py:16)
Thread 0x7F3 (active+gil): "loader"
    0x7f35dde4524a (libc.so.6)

------------------------------------------------------------
Process 14: python train.py --rank=7
Parent Process 12: python train.py

Thread 14 (idle)
    _worker_loop (torch/utils/data/_utils/worker.py:1)
"""
    first, second = read(text.encode())
    assert isinstance(first, StackDump)
    assert isinstance(second, StackDump)
    assert (first.rank, main_functions(first)) == (7, ["all_reduce", "<module>"])
    assert (first.threads[1].owns_gil, first.threads[1].active, first.threads[1].os_thread_id) == (True, True, None)
    assert (first.threads[0].owns_gil, first.threads[0].active) == (None, False)
    assert (second.pid, second.parent_pid, main_functions(second)) == (14, 12, ["_worker_loop"])


def test_faulthandler_with_interleaved_rank_prefixes() -> None:
    """Lines of two ranks that a launcher mixed come apart by their prefix."""
    lines = []
    for text in ("Fatal Python error: Segmentation fault", "", "Current thread 0x0000 (most recent call first):"):
        lines += [f"[rank{rank}]:{text}" for rank in (3, 5)]
    lines += ['[rank3]:  File "a.py", line 1 in inner', '[rank5]:  File "b.py", line 2 in other']
    lines += ['[rank3]:  File "a.py", line 9 in <module>', "[rank5]:  <no Python frame>"]
    dumps = read("\n".join(lines).encode())
    stacks = {dump.rank: dump for dump in dumps if isinstance(dump, StackDump)}
    assert main_functions(stacks[3]) == ["inner", "<module>"]
    assert main_functions(stacks[5]) == ["other"]
    deaths = [(event.rank, event.signal) for event in dumps if isinstance(event, LogEvent)]
    assert deaths == [(3, 11), (5, 11)]


def test_faulthandler_native_frames_are_not_taken_for_python() -> None:
    """The C stack that newer Pythons append belongs to no thread."""
    text = """Timeout (0:00:10)!
Thread 0x00007f1 [python3] (most recent call first):
  File "x.py", line 3 in f
  ...
Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x31 [0x55d]
"""
    assert [frame.line for frame in the_dump(read(text.encode())).threads[0].frames] == [3]


def gdb_listing(pid: int, threads: int) -> str:
    """A listing of ``threads`` threads, highest first."""
    return "\n".join(
        f'Thread {index} (Thread 0x7f{index} (LWP {pid + index - 1}) "python3"):\n#0  0x00007f in __poll (fds=0x1) at '
        f"../sysdeps/poll.c:29\n#1  <signal handler called>\n#2  c10d::Work::wait(std::chrono::ms) (this=0x5) from "
        f"/x/libtorch.so\n"
        f"#3  _PyEval_EvalFrameDefault (f=Frame 0x7f, for file /w/train.py, line 8, in step (x=1)) at ceval.c:1\n"
        for index in range(threads, 0, -1)
    )


def test_gdb_listings_of_two_processes_come_apart() -> None:
    """Without any banner the second listing begins where the thread numbers start again; places and names are read."""
    dumps = read((gdb_listing(100, 3) + "\n" + gdb_listing(200, 5)).encode())
    assert [(dump.pid, len(dump.threads)) for dump in dumps if isinstance(dump, StackDump)] == [(100, 3), (200, 5)]
    frames = the_dump(dumps[:1]).threads[0].frames
    assert [(one.function, one.file, one.line) for one in frames] == [
        ("__poll", "../sysdeps/poll.c", 29),
        ("<signal handler called>", "", 0),
        ("c10d::Work::wait(std::chrono::ms)", "/x/libtorch.so", 0),
        ("step", "/w/train.py", 8),
    ]


def test_process_table_columns_are_found_by_name() -> None:
    """Any column order with a header is understood, RANK= gives the rank, LOCAL_RANK= and --node_rank do not."""
    text = """USER         PID    PPID S STARTED                  WCHAN  COMMAND
root         7         1 T Sat Nov 21 10:47:17 2026 do_signal_stop LOCAL_RANK=1 RANK=5 python train.py --node_rank=2
root         8         1 D Sat Nov 21 10:47:17 2026 nfs_wait python train.py --node_rank 2 --local-rank=1
root         9         1 S Sat Nov 21 10:47:17 2026 -      python train.py
root        10         1 S Sat Nov 21 10:47:17 2026 -      python train.py
root         x         1 D damaged
"""
    records = read(text.encode())
    stopped, blocked, _, _ = sorted((one for one in records if isinstance(one, ProcessState)), key=lambda one: one.pid)
    assert (stopped.pid, stopped.state, stopped.wait_channel, stopped.rank) == (7, "T", "do_signal_stop", 5)
    assert (blocked.pid, blocked.state, blocked.wait_channel, blocked.rank) == (8, "D", "nfs_wait", None)
    assert [type(one) for one in records if not isinstance(one, ProcessState)] == [Unread]


def test_process_table_without_header_must_parse_perfectly() -> None:
    """Bare rows of the documented command are believed; one stray line makes the file somebody else's."""
    rows = b"    7 Tl   do_signal_stop                   1-02:03:04 python train.py\n    8 S    -    00:10 bash\n"
    records = {record.pid: record for record in read(rows, rank=4) if isinstance(record, ProcessState)}
    assert (records[7].elapsed_seconds, records[7].rank) == (93_784.0, 4)
    assert (records[8].wait_channel, records[8].rank) == (None, None)
    assert name_of(rows + b"hello\n") is None


def test_a_file_name_gives_its_rank_to_one_process_only() -> None:
    """A whole node's table in a file named after a rank must not make every process that rank."""
    rows = b"7 T do_signal_stop 10:00 python train.py\n8 S - 00:10 python other.py\n"
    assert [record.rank for record in read(rows, rank=4)] == [None, None]


def test_rows_of_others_are_capped() -> None:
    """A table of a thousand unrelated processes keeps the job's and few of the rest."""
    rows = "".join(f"{pid} S - 00:10 nginx\n" for pid in range(1, 1001)) + "5000 D nfs_wait 00:10 python train.py\n"
    records = read(rows.encode())
    assert len(records) == 201
    assert records[-1].pid == 5000  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data", [b"", b"hello\nworld\n", b"{}", b"[]", b"\x80\x02}q\x00.", b"Thread pool started (idle)\n"]
)
def test_other_content_is_nobodys(data: bytes) -> None:
    """What none of the tools wrote is not taken for theirs."""
    mine = {
        "pyspy_json",
        "pyspy_text",
        "faulthandler_text",
        "gdb_text",
        "process_table",
        "nccl_ras_text",
        "nccl_ras_json",
    }
    assert name_of(data) not in mine


@pytest.mark.parametrize("kind", ["pyspy_text", "faulthandler_text", "gdb_text", "process_table"])
def test_a_line_of_a_hundred_megabytes_is_survived(kind: str) -> None:
    """A line without end costs neither memory nor a crash, and what precedes it stands."""
    head = {
        "pyspy_text": b'Process 1: x\nThread 1 (idle): "MainThread"\n    f (a.py:1)\n',
        "faulthandler_text": b'Thread 0x1 (most recent call first):\n  File "a.py", line 1 in f\n',
        "gdb_text": b'Thread 1 (Thread 0x1 (LWP 5) "p"):\n#0  f () at a.c:1\n',
        "process_table": b"PID STAT COMMAND\n1 T python\n",
    }[kind]
    assert name_of(head) == kind
    assert isinstance(read(head + b"#0 (" * 5_000_000)[0], (StackDump, ProcessState))
