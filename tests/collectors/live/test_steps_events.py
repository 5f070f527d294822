"""What the collector of steps makes of tracebacks and of launchers' lines in the output that ranks share."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Readings
from collectors.live.steps import MOST_EVENTS, JobLogs
from collectors.records import STEP_COLUMNS, LogEvent, RoleState, Steps, Unread
from tests.collectors.live.test_steps import append
from tests.support.tailed_jobs import Node, column, of

TRACEBACK = """Traceback (most recent call last):
  File "/srv/job/train.py", line 80, in main
    collate(batch)
ValueError: sample 4711 has 33 tokens, more than the position table's 32
"""


def test_last_words_are_of_the_attempt_that_wrote_them(node: Node, tmp_path: Path) -> None:
    """A launcher has started the next attempt when the agent reads how the last one ended; what that prints is its own."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n", node.clock.at)
    node.rank(0, pid=100, output=log)
    collector = JobLogs(node.host)
    node.run(collector, "steps")
    append(log, f"[rank0]: {TRACEBACK}".replace("\n", "\n[rank0]: ").removesuffix("[rank0]: "), node.clock.at + 3.0)
    node.clock.at += 60.0
    again = replace(node.rank(0, pid=200, output=log), attempt=3, started_at=node.clock.at - 1.0)
    node.host.processes = (again,)

    ended = of(node.run(collector, "steps"), LogEvent)
    node.clock.at += 5.0
    append(log, "step 1 loss 0.4\n", node.clock.at)
    begun = of(node.run(collector, "steps"), Steps)

    assert [(event.exception, event.rank, event.attempt) for event in ended] == [("ValueError", 0, 2)]
    assert [one.attempt for one in begun] == [3]


def test_a_traceback_becomes_an_event_of_the_rank(node: Node, tmp_path: Path) -> None:
    """An exception in a rank's output is a LogEvent with rank, job, line and the time at which it was written."""
    log = tmp_path / "out.txt"
    append(log, "step 1 loss 0.5\n" + TRACEBACK, node.clock.at - 60)
    node.rank(1, output=log)

    (event,) = of(node.run(JobLogs(node.host), "steps"), LogEvent)

    assert (event.event, event.exception, event.rank, event.job) == ("traceback", "ValueError", 1, "llama-8b")
    assert (event.source, event.at, event.node) == (f"{log}:2", node.clock.at - 60, None)


def test_a_traceback_in_two_parts_is_one(node: Node, tmp_path: Path) -> None:
    """A traceback of which a run saw only the beginning is given once and whole, also when the rank has died since."""
    log = tmp_path / "out.txt"
    half = TRACEBACK.index("collate")
    append(log, "step 1 loss 0.5\n" + TRACEBACK[:half], node.clock.at)
    node.rank(1, output=log)
    collector = JobLogs(node.host)
    first = node.run(collector, "steps")
    append(log, TRACEBACK[half:], node.clock.at + 1)
    node.host.processes = ()

    second = node.run(collector, "steps")

    assert (len(of(first, Steps)), of(first, LogEvent)) == (1, [])
    (event,) = of(second, LogEvent)
    assert (event.exception, event.rank, event.source, len(event.frames)) == ("ValueError", 1, f"{log}:2", 1)
    assert [one for one in node.run(collector, "steps") if not isinstance(one, Readings)] == []


def test_a_line_of_no_rank_in_a_file_of_two_jobs_is_nobodys(node: Node, tmp_path: Path) -> None:
    """A batch script runs two jobs and a program of its own into one file: its exception is of neither."""
    log = tmp_path / "sweep.out"
    named = f"[rank1]: {TRACEBACK}".replace("\n", "\n[rank1]: ").removesuffix("[rank1]: ")
    append(log, f"step 1 loss 0.5\n{TRACEBACK}{named}", node.clock.at - 60)
    first, second = node.rank(0, pid=100, output=log), node.rank(1, pid=200, output=log)
    node.host.processes = (first, replace(second, job="other"))

    found = node.run(JobLogs(node.host), "steps")

    assert [(event.job, event.rank) for event in of(found, LogEvent)] == [("other", 1)]
    assert of(found, Steps) == []
    assert ["1 events are of other nodes or jobs" in one.reason for one in of(found, Unread)] == [True]


def test_a_rank_that_both_jobs_have_is_of_neither(node: Node, tmp_path: Path) -> None:
    """Each counts its ranks from 0."""
    log = tmp_path / "sweep.out"
    append(log, "[rank0]: step 1 loss 0.5\n", node.clock.at - 60)
    first, second = node.rank(0, pid=100, output=log), node.rank(0, pid=200, output=log)
    node.host.processes = (first, replace(second, job="other"))

    assert of(node.run(JobLogs(node.host), "steps"), Steps) == []


def test_a_launchers_word_names_the_rank_by_pid(node: Node, tmp_path: Path) -> None:
    """torchrun's line about a local rank in the output that it shares with its ranks is that rank's exit."""
    log = tmp_path / "job.out"
    append(log, "E1121 10:00:00.500000 4000 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
           "local_rank: 1 (pid: 4003) of binary: /usr/bin/python\n")  # fmt: skip
    node.process(3999, output=log, command="python\0-m\0torch.distributed.run\0train.py\0")
    for rank in (2, 3):
        node.rank(rank, parent=3999)

    (event,) = of(node.run(JobLogs(node.host), "steps"), LogEvent)

    assert (event.event, event.signal, event.rank, event.local_rank) == ("exit", 9, 3, 1)


def test_steps_under_torchruns_prefix_are_of_the_ranks_of_this_node(node: Node, tmp_path: Path) -> None:
    """A local rank is the rank of the process that has it here."""
    log = tmp_path / "job.out"
    append(log, "[default0]:step 1 loss 0.5\n[default1]:step 1 loss nan\n")
    node.process(3999, output=log, command="python\0-m\0torch.distributed.run\0train.py\0")
    for rank in (2, 3):
        node.rank(rank, parent=3999)

    found = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert [(record.rank, column(record, "nan", STEP_COLUMNS)) for record in found] == [(2, [0]), (3, [1])]


def test_steps_of_several_nodes_in_one_log_get_no_rank_of_this_node(node: Node, tmp_path: Path) -> None:
    """Under srun's label a local rank may be of any node; the series stay apart."""
    log = tmp_path / "job.out"
    append(log, "0: [default1]:step 1 loss 0.5\n1: [default1]:step 1 loss 0.25\n")
    node.rank(1, output=log)
    node.rank(2, output=log)

    found = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert [(record.rank, column(record, "loss", STEP_COLUMNS)) for record in found] == [(None, [0.5]), (None, [0.25])]


def test_only_launchers_are_heard_beside_the_ranks(node: Node, tmp_path: Path) -> None:
    """What a daemon that started the ranks writes about others is not taken for the job's log."""
    log = tmp_path / "daemon.log"
    append(log, TRACEBACK)
    node.process(3999, output=log, command="/usr/bin/supervisord\0")
    node.rank(2, parent=3999)
    collector = JobLogs(node.host)

    with pytest.raises(NothingToCollect):
        node.run(collector, "steps")


def test_another_nodes_end_is_not_laid_on_this_one(node: Node, tmp_path: Path) -> None:
    """srun's line about a task of another node is sent with its rank, and without a rank not at all."""
    log = tmp_path / "job.out"
    append(log, "srun: error: gpu-0007: task 9: Killed\nsrun: error: Node failure on gpu-0007\n")
    node.rank(0, output=log)

    found = node.run(JobLogs(node.host), "steps")

    assert [(event.rank, event.signal, event.node) for event in of(found, LogEvent)] == [(9, 9, None)]
    assert "1 events are of other nodes" in of(found, Unread)[0].reason


def test_a_shared_logs_launcher_accuses_no_node_of_anothers_process(node: Node, tmp_path: Path) -> None:
    """Where ranks of several nodes write into one file, torchrun's line about a pid that is not ours is not sent."""
    log = tmp_path / "job.out"
    append(log, "E1121 10:00:00.500000 4000 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
           "local_rank: 1 (pid: 7777) of binary: /usr/bin/python\n")  # fmt: skip
    node.rank(1, output=log)

    found = node.run(JobLogs(node.host), "steps")

    assert of(found, LogEvent) == []
    assert "1 events are of other nodes" in of(found, Unread)[0].reason


def test_an_ended_process_is_known_by_the_pid_in_its_container(node: Node, tmp_path: Path) -> None:
    """A launcher in a container names ended processes by its own numbers, when /proc no longer has them."""
    log = tmp_path / "job.out"
    append(log, "starting\n")
    dead, living = node.rank(2, output=log), node.rank(3, output=log)
    collector = JobLogs(node.host)
    node.run(collector, "steps")

    node.host.processes = (living,)
    shutil.rmtree(node.folder / "proc" / str(dead.pid))
    append(log, "E1121 10:00:00.500000 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) "
           f"local_rank: 0 (pid: {dead.pid % 100}) of binary: /usr/bin/python\n")  # fmt: skip
    (event,) = of(node.run(collector, "steps"), LogEvent)

    assert (event.event, event.signal, event.rank) == ("exit", 9, 2)


def test_a_flood_of_exceptions_is_reported(node: Node, tmp_path: Path) -> None:
    """Of a thousand different exceptions at once a bounded number is sent, and how many are not is reported."""
    log = tmp_path / "out.txt"
    functions = [f"main{chr(97 + n % 26)}{chr(97 + n // 26 % 26)}{n // 676}" for n in range(1000)]
    append(log, "".join(TRACEBACK.replace("main", function) for function in functions), node.clock.at - 60)
    node.rank(0, output=log)

    found = node.run(JobLogs(node.host), "steps")

    assert len(of(found, LogEvent)) == MOST_EVENTS
    assert f"{1000 - MOST_EVENTS} events are beyond" in of(found, Unread)[0].reason


def test_logs_of_other_ranks_are_left_to_their_node(node: Node) -> None:
    """Of a folder that all nodes share only the files of ranks that train here are read."""
    folder = node.folder / "files" / "srv"
    folder.mkdir()
    for rank in range(4):
        append(folder / f"rank{rank}.log", f"step {rank} loss 0.5\n")
    append(folder / "gpu-0002.log", "step 9 loss 0.5\n")
    node.options["steps"] = {"paths": ["/srv/*.log"]}
    node.rank(1)
    node.rank(2)

    found = of(node.run(JobLogs(node.host), "steps"), Steps)

    assert sorted((record.rank, record.step, record.job) for record in found) == [
        (1, 1, "llama-8b"),
        (2, 2, "llama-8b"),
    ]


@pytest.mark.parametrize(("running", "whose"), [(("next",), ["next"]), (("llama-8b", "next"), [])])
def test_a_configured_log_is_of_the_jobs_that_run(node: Node, running: tuple[str, ...], whose: list[str]) -> None:
    """One that ended before writes no more lines; of two that run the line may be either's."""
    folder = node.folder / "files" / "srv"
    folder.mkdir()
    node.options["steps"] = {"paths": ["/srv/*.log"]}
    first, second = node.rank(0, pid=100), replace(node.rank(0, pid=200), job="next")
    node.host.processes = (first,)
    append(folder / "before.log", "step 1 loss 0.5\n", node.clock.at - 600)
    collector = JobLogs(node.host)
    node.run(collector, "steps")
    node.host.processes = tuple(one for one in (first, second) if one.job in running)
    append(folder / "train.log", TRACEBACK, node.clock.at - 60)

    assert [event.job for event in of(node.run(collector, "steps"), LogEvent)] == whose


def test_a_process_s_own_log_tells_of_its_phase(node: Node, tmp_path: Path) -> None:
    """The newest phase of each part, with its beginning; what an actor's lines in another's log say is not its own."""
    log = tmp_path / "out.txt"
    append(
        log,
        "[2026-11-21 10:00:00] timer.py:24 - Timer train start\n(Rollout pid=9) Timer generate start\n",
        node.clock.at,
    )
    node.rank(3, output=log)
    collector = JobLogs(node.host)

    first = of(node.run(collector, "steps"), RoleState)
    append(log, "Timer train end (elapsed: 9.0s)\n", node.clock.at)
    second = of(node.run(collector, "steps"), RoleState)

    assert [(one.role, one.instance, one.rank, one.phase) for one in first + second] == [
        ("trainer", "3", 3, "train"),
        ("trainer", "3", 3, ""),
    ]
    assert first[0].phase_since is not None
