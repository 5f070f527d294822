"""How far a failure went: a launcher's line about some ranks says nothing of the ranks that it leaves out."""

from __future__ import annotations

import io

import pytest

from analyzers.diagnosis.crash.crash import analyze
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.formats import Input
from collectors.formats.job_log import job_log
from collectors.records import Record
from tests.support.crash_claims import KNOWLEDGE, echo, named, only, raised

STEPS = "".join(f"step {step}: loss 2.{step} time 0.5s\n" for step in range(1, 9))


def read(text: str, source: str, rank: int | None = None) -> list[Record]:
    """Return the records of one file."""
    data = text.encode()
    return list(job_log.read(Input(source, io.BytesIO(data), data, rank=rank)))


def found(*files: list[Record]) -> Finding:
    """Return the one finding of a job without a host list."""
    window = Window.build([record for file in files for record in file])
    (finding,) = analyze(window, infer(window), KNOWLEDGE)
    return finding


def test_ranks_that_train_are_not_among_the_killed() -> None:
    """Half of the ranks report steps; the other half, on one node, was killed."""
    steps = [read(STEPS, f"rank{rank}.log", rank) for rank in range(8)]

    finding = found(*steps, read("srun: error: n2: tasks 8-15: Killed\n", "slurm.err"))

    assert finding.fault_class == "process_killed"
    assert {rank for suspect in finding.suspects for rank in suspect.ranks} == set(range(8, 16))


@pytest.mark.parametrize("closing", [0, 2])
def test_that_the_launcher_ends_the_others_shows_nothing_of_a_kill(closing: int) -> None:
    """torchrun ends the others whatever became of the first; steps from before show none that ran on."""
    ranks = "".join(f"[rank{rank}]: step {step} loss 2.5\n" for step in range(1, 9) for rank in range(4))
    said = "1117 12:00:00.5 9 torch/distributed/elastic/multiprocessing/api.py:900] "
    agent = f"W{said}Sending process {{}} closing signal SIGTERM\n"
    ended = f"E{said}failed (exitcode: -9) local_rank: 2 (pid: 83)\n"

    finding = found(read(ranks + "".join(agent.format(70 + one) for one in range(closing)) + ended, "train.log"))

    assert (finding.cause, finding.fault_class) == ("unknown", "killed_unexplained")


@pytest.mark.parametrize("death", ["Killed", "Out Of Memory"])
@pytest.mark.parametrize(("tasks", "all_ranks"), [("0-3", True), ("1-3", False), ("4-7", False)])
def test_a_rank_below_the_highest_that_nothing_shows_is_open(death: str, tasks: str, all_ranks: bool) -> None:
    """Numbers up to the highest are ranks of the job: one that no line names may have lived."""
    whole = found(read(f"srun: error: n2: tasks 0-3: {death}\n", "slurm.err"))

    finding = found(read(f"srun: error: n2: tasks {tasks}: {death}\n", "slurm.err"))

    assert (finding.suspects[0].why == whole.suspects[0].why) == all_ranks


@pytest.mark.parametrize(
    ("exception", "message", "fault_class"),
    [
        ("TypeError", "'NoneType' object is not subscriptable", "program_error"),
        ("KeyError", "'input_ids'", "program_error"),
        ("AssertionError", "", "program_error"),
        ("RayTaskError(IndexError)", "list index out of range", "program_error"),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (8x512 and 256x10)", "program_error"),
        ("RuntimeError", "Expected all tensors to be on the same device, but found cuda:0 and cpu", "program_error"),
        ("RuntimeError", "the sampler gave up", "exception_one_rank"),
        ("OSError", "[Errno 98] Address already in use", "port_in_use"),
        ("DistNetworkError", "cannot listen on port: 29500, code: -98, name: EADDRINUSE", "port_in_use"),
        ("OSError", "[Errno 24] Too many open files: '/data/part-1.tar'", "too_many_files"),
        ("RuntimeError", "received 0 items of ancdata", "too_many_files"),
        ("PermissionError", "[Errno 13] Permission denied: '/data/shard-3'", "exception_one_rank"),
    ],
)  # fmt: skip
def test_what_the_same_code_raises_again_has_a_class_of_its_own(exception: str, message: str, fault_class: str) -> None:
    """On one rank: what can pass at the next start is not in the lists."""
    finding = only([raised(2, exception, message), echo(0), echo(1), echo(3)])

    assert (finding.cause, finding.fault_class) == ("code", fault_class)


@pytest.mark.parametrize(
    ("exception", "on_some", "on_all"),
    [
        ("KeyError", "program_error", "program_error_everywhere"),
        ("RuntimeError", "exception_some_ranks", "exception_all_ranks"),
    ],
)
def test_a_programs_own_error_is_that_on_any_number_of_ranks(exception: str, on_some: str, on_all: str) -> None:
    """The same code raises it again, however many ranks raised it."""
    some = only([*(raised(rank, exception, "'x'") for rank in (0, 1)), *map(echo, range(2, 8))], 8)
    every = only([raised(rank, exception, "'x'") for rank in range(4)])

    assert (some.cause, some.fault_class) == ("code", on_some)
    assert (every.cause, every.fault_class) == ("code", on_all)


@pytest.mark.parametrize(
    ("message", "fault_class"),
    [
        ("[Errno 5] Input/output error: '/fs/a.tar'", "file_system_lapse"),
        ("[Errno 116] Stale file handle: '/fs/a.tar'", "file_system_lapse"),
        ("[Errno 121] Remote I/O error: '/fs/a.tar'", "file_system_lapse"),
        ("[Errno 107] Transport endpoint is not connected: '/fs/a.tar'", "file_system_lapse"),
        ("[Errno 28] No space left on device: '/fs/a.tar'", "file_system_error"),
        ("[Errno 122] Disk quota exceeded: '/fs/a.tar'", "file_system_error"),
        ("[Errno 30] Read-only file system: '/fs/a.tar'", "file_system_error"),
    ],
)
@pytest.mark.parametrize("ranks", [1, 4])
def test_what_a_file_system_does_not_answer_once_can_pass(message: str, fault_class: str, ranks: int) -> None:
    """A full one, and one that may only be read, meet each start."""
    finding = only([raised(rank, "OSError", message) for rank in range(ranks)])

    assert (finding.cause, finding.fault_class) == ("storage", fault_class)


@pytest.mark.parametrize(("reporter", "ranks"), [(1, (1, 3)), (9, (9,)), (None, ())])
def test_of_two_that_differ_the_first_to_print_it_is_not_alone(reporter: int | None, ranks: tuple[int, ...]) -> None:
    """Both are named where the numbers are the job's; in a smaller group the reporter has another number."""
    said = "Detected mismatch between collectives on ranks. Rank 1 is running collective: A, but Rank 3 is running collective: B"
    finding = only([raised(reporter, "RuntimeError", said)], 10)

    assert (finding.cause, finding.fault_class) == ("code", "desync")
    assert named(finding) == ranks
