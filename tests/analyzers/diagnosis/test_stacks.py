"""The stacks analyzer: who stands outside communication, and when stacks say nothing."""

from __future__ import annotations

import itertools
import random

import pytest

from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.diagnosis.stacks.voting import fail_slow
from analyzers.knowledge import parse
from analyzers.model.finding import Finding
from analyzers.model.frames import FrameRules, is_user_code, normal
from analyzers.model.standings import stack_groups
from analyzers.model.topology import ProcessGroup, Topology
from analyzers.model.window import Window
from collectors.records import Frame, StackDump, Thread
from tests.support.stack_claims import C10D, KNOWLEDGE, STACKS, TRAIN, analyzed, dump, live, suspects

RULES = FrameRules.from_knowledge(KNOWLEDGE)


def job(*stacks: str, shape: Topology | None = None) -> list[Finding]:
    """Analyze a job whose rank i has the i-th stack."""
    return analyzed(*(dump(rank, stack) for rank, stack in enumerate(stacks)), shape=shape)


@pytest.mark.parametrize(
    ("stack", "fault_class", "cause"),
    [
        ("compute", "stuck_compute", "machine"),
        ("loader", "stuck_data_loader", "data"),
        ("torch_loader", "stuck_data_loader", "data"),
        ("native_loader", "stuck_data_loader", "data"),
        ("import", "stuck_importing", "machine"),
        ("checkpoint", "stuck_checkpoint", "machine"),
        ("storage", "stuck_storage", "machine"),
        ("compile", "stuck_compile", "machine"),
        ("exception", "stuck_exception", "code"),
    ],
)
@pytest.mark.parametrize("culprit", range(4))
def test_the_one_outside_communication_is_picked_with_its_reason(
    stack: str, fault_class: str, cause: str, culprit: int
) -> None:
    """Three of four wait for gradients, one does something else: that one, as a narrowing, with the reason."""
    (found,) = job(*(stack if rank == culprit else "gradient" for rank in range(4)))
    assert (suspects([found]), found.fault_class, found.cause, found.narrows) == ([culprit], fault_class, cause, True)
    assert found.suspects[0].strength > 0.6
    assert found.suspects[0].why.endswith("while 3 others wait in communication")
    assert "train.py" in found.suspects[0].why
    assert found.suspects[0].evidence[0].source == f"rank_{culprit}.json"


def test_a_call_that_holds_the_interpreter_lock_is_told_apart() -> None:
    """GIL owned and not on a CPU: stuck in a C call; owned and on a CPU: a loop."""
    others = [dump(rank, "gradient", gil=False, active=False) for rank in range(3)]
    (held,) = analyzed(*others, dump(3, "compute", gil=True, active=False))
    (loop,) = analyzed(*others, dump(3, "compute", gil=True, active=True))
    assert (held.fault_class, loop.fault_class) == ("stuck_gil", "stuck_compute")


def test_another_thread_may_hold_the_lock_while_the_main_one_seems_to_wait() -> None:
    """The main thread stands in a collective like all others, but cannot come back from it: its process is the suspect."""
    holder = Thread(frames=(Frame("native_call", "/srv/ext.py", 3),), owns_gil=True, active=False)
    main = Thread(frames=STACKS["gradient"], main=True, owns_gil=False)
    dumps = [dump(rank, "gradient") for rank in range(3)]
    (found,) = analyzed(*dumps, dump(3, "gradient", threads=(main, holder)))
    assert (suspects([found]), found.fault_class) == ([3], "stuck_gil")
    assert "native_call" in found.suspects[0].why


def test_a_pipeline_on_gloo_is_decided_by_its_stacks() -> None:
    """Send, recv and all_reduce all wait; the one rank in its own code is picked, and two if there are two."""
    (found,) = job("all_reduce", "recv", "all_reduce", "compute", "all_reduce", "send", "all_reduce", "send")
    assert (suspects([found]), found.narrows) == ([3], True)
    (two,) = job("all_reduce", "recv", "compute", "compute", "all_reduce", "send", "all_reduce", "send")
    assert suspects([two]) == [2, 3]
    assert two.suspects[0].strength < found.suspects[0].strength


def test_two_ranks_outside_are_both_at_fault_only_if_nothing_else_explains_it() -> None:
    """Two loops that hold the lock in no common group are two culprits; a line that may wait for the device is not."""
    shape = pipeline()
    waits = [dump(rank, "gradient") for rank in range(16) if rank not in {5, 10, 12, 13}]

    def together(first: int, second: int, gil: bool | None) -> bool:
        rest = [dump(rank, "gradient") for rank in {5, 10, 12, 13} - {first, second}]
        pair = [dump(rank, "compute", gil=gil, active=True) for rank in (first, second)]
        (found,) = analyzed(*waits, *rest, *pair, shape=shape)
        assert suspects([found]) == [first, second]
        return found.together

    assert together(5, 10, gil=True)
    assert not together(5, 10, gil=None)
    assert not together(12, 13, gil=True)


def pipeline(machines: int = 16, per_machine: int = 1) -> Topology:
    """PP 4 and DP 4 over 16 machines, consecutive machines in one pipeline group; with two ranks a machine, TP 2."""
    ranks = tuple(range(machines * per_machine))
    nodes = {rank: f"m{rank // per_machine:02}" for rank in ranks}
    groups = [ProcessGroup("world", "world", "", "world", ranks)]
    for replica, lane in itertools.product(range(4), range(per_machine)):
        members = tuple((replica * 4 + stage) * per_machine + lane for stage in range(4))
        groups.append(ProcessGroup(f"pp{replica}{lane}", "pp", "", "pp", members))
    for stage, lane in itertools.product(range(4), range(per_machine)):
        members = tuple((replica * 4 + stage) * per_machine + lane for replica in range(4))
        groups.append(ProcessGroup(f"dp{stage}{lane}", "dp", "", "dp", members))
    if per_machine > 1:
        groups += [
            ProcessGroup(f"tp{machine}", "tp", "", "tp", (machine * 2, machine * 2 + 1)) for machine in range(machines)
        ]
    return Topology(ranks, nodes, tuple(groups))


@pytest.mark.parametrize("per_machine", [1, 2])
def test_the_golden_case_names_the_pipeline_group(per_machine: int) -> None:
    """0–11 in gradient sync, 12–13 in irecv, 14 in isend, 15 in all-gather: machines 12–15, a set and not a verdict."""
    stacks = ["gradient"] * 12 + ["irecv", "irecv", "isend", "all_gather"]
    (found,) = job(*(stack for stack in stacks for _ in range(per_machine)), shape=pipeline(16, per_machine))
    (suspect,) = found.suspects
    assert (suspect.kind, suspect.ranks) == ("group", tuple(range(12 * per_machine, 16 * per_machine)))
    assert (found.fault_class, found.together, suspect.strength <= 0.5) == ("outlier_group", False, True)


def test_outliers_that_share_no_group_name_nobody() -> None:
    """Waits elsewhere without a common group are no suspicion: they may be ahead."""
    stacks = ["gradient"] * 14 + ["irecv", "isend"]
    shape = pipeline()
    assert job(*stacks, shape=Topology(shape.ranks, shape.nodes, shape.groups[:1])) == []


@pytest.mark.parametrize("stack", ["gradient", "all_reduce", "recv", "store", "item"])
def test_when_all_wait_alike_there_is_no_suspect(stack: str) -> None:
    """A device hang: all stacks agree, and no rank is named."""
    assert suspects(job(*[stack] * 8)) == []


def test_a_rank_in_another_collective_is_only_mentioned() -> None:
    """One of four in all_gather, the others in all_reduce: a weak narrowing, as the minority may be the one ahead."""
    (found,) = job("all_reduce", "all_gather", "all_reduce", "all_reduce")
    assert (suspects([found]), found.fault_class, found.narrows, found.cause) == ([1], "desync", True, "code")
    assert found.suspects[0].strength <= 0.3
    assert job("all_reduce", "all_gather") == []
    assert job("all_reduce", "all_gather", "all_reduce", "all_gather") == []


@pytest.mark.parametrize(
    ("stack", "cause"),
    [
        ("storage", "storage"),
        ("checkpoint", "storage"),
        ("compile", "code"),
        ("compute", "unknown"),
        ("loader", "data"),
    ],
)
def test_the_same_stack_on_every_rank_is_no_machine(stack: str, cause: str) -> None:
    """All ranks alike outside communication: storage, data or code, and no rank is named."""
    (found,) = job(*[stack] * 4)
    assert (found.fault_class, found.cause, suspects([found])) == ("same_stack", cause, [])


def test_all_that_gave_stacks_are_not_all_ranks() -> None:
    """Seven of eight stand in their loaders: what the eighth does is not known, and is not said."""
    seven = [dump(rank, "torch_loader") for rank in range(7)]
    (whole,) = analyzed(*seven)
    (part,) = analyzed(*seven, shape=Topology(tuple(range(8))))
    assert whole.suspects[0].why.startswith("all 7 ranks stand in ")
    assert part.suspects[0].why.startswith("all 7 ranks that gave stacks (of 8) stand in ")


def test_all_in_one_line_of_code_is_no_claim_until_a_second_look() -> None:
    """One look may have met healthy ranks at work: it names nothing. Frozen stacks or a held lock make it the code."""
    (once,) = job(*["compute"] * 4)
    (twice,) = analyzed(
        *(dump(rank, "compute", at=at, source=f"{at}:{rank}") for rank in range(4) for at in (1.0, 9.0))
    )
    assert (once.symptom, once.cause, once.suspects, len(once.missing)) == ("unknown", "unknown", (), 1)
    assert (twice.symptom, twice.suspects[0].strength > 0.5) == ("hang", True)


def test_files_waited_for_on_several_machines_are_the_storage() -> None:
    """Two of eight ranks in file operations: on two machines the storage, on one machine that machine's ranks."""
    stacks = ["storage" if rank in {1, 6} else "gradient" for rank in range(8)]
    (spread,) = job(*stacks, shape=Topology(tuple(range(8)), {rank: f"n{rank // 4}" for rank in range(8)}))
    assert (spread.cause, suspects([spread])) == ("storage", [])
    (single,) = job(*stacks, shape=Topology(tuple(range(8)), dict.fromkeys(range(8), "n0")))
    assert (single.cause, suspects([single])) == ("machine", [1, 6])


def test_most_ranks_at_one_line_of_their_own_count_as_waiting() -> None:
    """Without native frames a wait on the device looks like user code: the rank that stands elsewhere is picked."""
    (found,) = job("item", "item", "item", "item", "item", "gradient", "loader", "item")
    assert (suspects([found]), found.fault_class) == ([6], "stuck_data_loader")
    (assumed,) = job("item", "item", "loader", "item")
    assert assumed.suspects[0].strength < found.suspects[0].strength
    assert "in communication" not in assumed.suspects[0].why


def test_a_moving_job_gives_nothing_and_a_frozen_one_more() -> None:
    """Two snapshots: waits that moved clear everyone, waits that stand make the suspect stronger."""
    first = [dump(rank, "compute" if rank == 2 else "gradient", at=1.0, line=10) for rank in range(4)]
    same = [dump(rank, "compute" if rank == 2 else "gradient", at=11.0, line=10) for rank in range(4)]
    moved = [dump(rank, "compute" if rank == 2 else "all_reduce", at=11.0, line=12) for rank in range(4)]
    assert analyzed(*first, *moved) == []
    (once,) = analyzed(*first)
    (twice,) = analyzed(*first, *same)
    assert twice.suspects[0].strength > once.suspects[0].strength


@pytest.mark.parametrize("outside", ["compute", "loader", "checkpoint"])
def test_one_that_left_a_wait_in_round_after_round_does_hold_others_up(outside: str) -> None:
    """Its own small collectives go on. Rounds: three earlier looks outside are enough."""
    rounds = [
        live(rank, outside if rank == 2 and at % 40 else "all_reduce", 40.0 + at)
        for start in (0, 40, 80, 120)
        for at in (start, start + 3)
        for rank in range(4)
    ]
    for count, culprits in ((8, []), (16, []), (24, []), (32, [2])):
        assert suspects(analyzed(*rounds[:count])) == culprits


@pytest.mark.parametrize(("before", "culprits"), [("all_reduce", []), ("compute", [2])])
def test_a_rank_that_has_just_left_a_wait_holds_nobody_up_yet(before: str, culprits: list[int]) -> None:
    """An agent's two looks of one round: what all waited for has come to rank 2, and the others are about to see it."""
    round_ = [live(rank, before if rank == 2 else "all_reduce", 1.0) for rank in range(4)]
    round_ += [live(rank, "compute" if rank == 2 else "all_reduce", 4.0) for rank in range(4)]
    assert suspects(analyzed(*round_)) == culprits


def test_loader_workers_are_helpers_and_tell_what_they_do() -> None:
    """Child processes never stand for their rank; what they do is part of the reason."""
    worker = Thread(frames=STACKS["storage"], main=True)
    child = dump(1, "storage", pid=7, parent_pid=101, threads=(worker,), source="rank_1.txt:30")
    (found,) = analyzed(dump(0, "gradient"), dump(1, "torch_loader"), child, dump(2, "gradient"))
    assert (suspects([found]), found.fault_class) == ([1], "stuck_data_loader")
    assert "child processes: 1 storage" in found.suspects[0].why


def test_gradients_are_followed_into_the_autograd_thread() -> None:
    """The main thread waits for backward; what the autograd thread does in user code is what the rank does."""
    main = Thread(frames=STACKS["gradient"], main=True)
    frames = (Frame("spin", "/srv/ops.py", 4), Frame("apply", "/x/site-packages/torch/autograd/function.py", 311))
    dumps = [dump(rank, "gradient") for rank in range(3)]
    (found,) = analyzed(*dumps, dump(3, "gradient", threads=(main, Thread(frames=frames))))
    assert suspects([found]) == [3]
    assert "spin" in found.suspects[0].why


def test_a_rank_known_only_by_pid_is_found() -> None:
    """A dump without a rank belongs to the rank whose pid it has."""
    nameless = dump(3, "compute", rank=None, source="x")
    known = dump(3, "gradient", tool="gdb", source="y", at=None)
    (found,) = analyzed(*(dump(rank, "gradient") for rank in range(3)), nameless, known)
    assert suspects([found]) == [3]


def test_nothing_or_one_rank_gives_nothing() -> None:
    """Without somebody to compare with there is no finding."""
    assert analyzed() == []
    assert job("loader") == []
    assert analyzed(StackDump(rank=0), StackDump(rank=1, threads=(Thread(),))) == []


def test_without_rules_nothing_is_claimed() -> None:
    """Knowledge that lacks the table of duties makes every line look like the user's own: no claim then."""
    dumps = tuple(dump(rank, "compute") for rank in range(4))
    assert list(analyze(Window(records=dumps), Topology(tuple(range(4))), parse({}))) == []


def test_a_healthy_job_in_mixed_duties_gives_no_strong_finding() -> None:
    """A running job met at any moment, most of it at work, accuses nobody for sure and never several at once."""
    choose = random.Random(7)
    for _ in range(200):
        weights = {"compute": 5, "item": 2, "gradient": 2, "all_reduce": 1, "loader": 1}
        stacks = choose.choices(list(weights), list(weights.values()), k=16)
        for found in job(*stacks):
            assert found.narrows or found.suspects[0].strength < 0.5
            assert found.narrows is False or len(found.suspects) <= 8


def test_order_of_records_does_not_matter() -> None:
    """The same dumps in another order give the same findings."""
    whose = [(rank, "loader" if rank == 5 else "gradient") for rank in range(8)]
    dumps = [dump(rank, stack, at=at, source=f"{rank}:{at}") for rank, stack in whose for at in (1, 2)]
    assert analyzed(*dumps) == analyzed(*reversed(dumps))


def test_groups_for_a_report_are_largest_first() -> None:
    """A report shows who stands with whom."""
    dumps = tuple(dump(rank, "loader" if rank == 5 else "gradient") for rank in range(8))
    groups = stack_groups(Window(records=dumps), Topology(tuple(range(8))), KNOWLEDGE)
    assert [group.ranks for group in groups] == [(0, 1, 2, 3, 4, 6, 7), (5,)]
    assert str(groups[0]).startswith("7 ranks 0-4,6-7: waiting gradient, ")


@pytest.mark.parametrize(
    ("stack", "duty"),
    [
        ((Frame("barrier", C10D), Frame("save_checkpoint", "/srv/c.py")), "waiting_collective"),
        ((Frame("__getitem__", "torch/nn/modules/container.py"), TRAIN), ""),
        ((Frame("read_sample", "/srv/x.py"), Frame("fetch", "torch/utils/data/_utils/fetch.py"), TRAIN), "data_loader"),
        ((Frame("my_hook", "/srv/x.py"), Frame("_engine_run_backward", "torch/autograd/graph.py")), ""),
        ((Frame("recv_bytes", "multiprocessing/connection.py"), TRAIN), "process_wait"),
        ((Frame("checkpoint", "torch/utils/checkpoint.py"), Frame("forward", "/home/dataset/model.py")), ""),
        ((Frame("__poll", "poll.c"), Frame("c10d::ProcessGroupGloo::Work::wait(int)", "torch.so")), "waiting_collective"),
        ((Frame("clock_nanosleep", "libc.so.6"), Frame("time_sleep", "libpython3.11.so"), TRAIN), "sleeping"),
        ((Frame("_communicate", "/src/megatron/core/pipeline_parallel/p2p_communication.py"), TRAIN), "waiting_p2p"),
        ((Frame("synchronize", "/x/site-packages/torch/cuda/__init__.py"), TRAIN), "waiting_device"),
        ((Frame("wait", "/job/faulthound_probe.py"), Frame("all_reduce", C10D), TRAIN), "waiting_collective"),
    ],
)  # fmt: skip
def test_duties_come_from_the_innermost_rule_that_fits(stack: tuple[Frame, ...], duty: str) -> None:
    """A barrier in a checkpoint waits, in the probe's wrapper too; user code in backward works; a container loads no data."""
    assert RULES.duty(stack).name == duty


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (Frame("f", "/opt/a/lib/python3.11/site-packages/torch/x.py", 3), "f (torch/x.py)"),
        (Frame("wait", "/usr/lib/python3.11/threading.py", 3), "wait (threading.py)"),
        (Frame("step", "/job/812345/node7/src/train.py", 9), "step (src/train.py)"),
        (Frame("c10d::F<int, A<b> >::wait(std::map<int, int>&)", "/x/libtorch.so"), "c10d::F::wait (x/libtorch.so)"),
        (Frame("poll@plt", ""), "poll ()"),
        (Frame("0x7f35dde4524a", "libc.so.6"), ""),
        (Frame("_PyEval_EvalFrameDefault", "ceval.c"), ""),
        (Frame("main", "train.py", 3), "main (train.py)"),
    ],
)
def test_normalised_frames_do_not_depend_on_the_machine(frame: Frame, text: str) -> None:
    """Lines, addresses, arguments, templates and installation paths are gone."""
    assert normal(frame) == text


def test_user_code_is_neither_torch_nor_the_standard_library() -> None:
    """Short names as py-spy's text prints them are distinguished too."""
    assert is_user_code(TRAIN)
    assert is_user_code(Frame("f", "train.py"))
    others = ("threading.py", "torch/a.py", "libc.so.6", "", "/usr/lib/python3.11/os.py")
    assert not any(is_user_code(Frame("f", file)) for file in others)


def rounds(*degraded: int) -> list[dict[int, tuple[str, ...]]]:
    """Voting rounds in which these ranks of the pipeline job stand apart."""
    return [{rank: ("late",) if rank == one else ("usual",) for rank in range(16)} for one in degraded]


def test_fail_slow_voting_names_the_group_flagged_in_most_rounds() -> None:
    """Outliers wander through one pipeline group for five rounds: that group; another group in one round does not matter."""
    shape = pipeline()
    shape = Topology(shape.ranks, shape.nodes, tuple(group for group in shape.groups if group.dimension != "dp"))
    vote = fail_slow(rounds(12, 13, 15, 12, 3), shape)
    assert vote is not None
    assert (vote.group.members, vote.flags, vote.rounds) == ((12, 13, 14, 15), 4, 5)


def test_fail_slow_voting_abstains() -> None:
    """Too few rounds, a tie, no outlier, no dominant stack, or one rank that two equal groups share: no answer."""
    shape = pipeline()
    without_dp = Topology(shape.ranks, shape.nodes, tuple(group for group in shape.groups if group.dimension != "dp"))
    assert fail_slow(rounds(12, 13, 14, 15), without_dp) is None
    assert fail_slow(rounds(12, 3, 13, 2, 12, 3), without_dp) is None
    assert fail_slow([dict.fromkeys(range(16), ("usual",))] * 5, without_dp) is None
    assert fail_slow([{rank: (str(rank),) for rank in range(16)}] * 5, without_dp) is None
    assert fail_slow(rounds(12, 12, 12, 12, 12), shape) is None
    assert fail_slow([], shape) is None
