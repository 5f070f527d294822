"""A killed process costs its machine only where nothing else explains the kill, and where the loss says so.

From what agents tell of the ends, through the verdict, to the plan.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.incidents.evidence import Evidence
from analyzers.model.topology import infer
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.model.window import Window
from analyzers.remediation.plan import Costs, Plan, Situation, choose_plan
from analyzers.verdict.action import NOT_PROVEN
from analyzers.verdict.judge import judge
from collectors.records import KernelEvent, LogEvent, Members, Placement, ProcessState, Record
from service.packaged_knowledge import load

KNOWLEDGE = load()
COSTS = Costs.from_knowledge(KNOWLEDGE)
NODES = tuple(f"gpu{number}" for number in range(4))
KILL, TERMINATE = 9, 15


def lived(rank: int, at: float, oom_kills: int | None = 0) -> ProcessState:
    """A rank as an agent saw it run."""
    return ProcessState(
        source="process", job="llama-7", attempt=0, rank=rank, pid=100 + rank, node=NODES[rank], at=at, boot_id=f"boot {rank}",
        state="S", started_at=10.0, oom_kills_total=oom_kills,
    )  # fmt: skip


def ended(rank: int, at: float, signal: int | None = None, oom_kills: int | None = None, **how: object) -> ProcessState:
    """Its end."""
    return replace(lived(rank, at, oom_kills), state="X", signal=signal, **how)


def judged(*records: Record, dumb: bool = False) -> Verdict:
    """The verdict on a job of four nodes; ``dumb``: nobody counts what the kernels kill for memory."""
    placement = Placement(
        source="placement", job="llama-7", attempt=0, ranks=Members.of(range(4)), nodes=NODES, pids=tuple(range(100, 104))
    )  # fmt: skip
    seen = [lived(rank, 90.0, None if dumb else 3) for rank in range(4)]
    window = Window.build([placement, *seen, *records], live=True)
    return judge(window, infer(window), KNOWLEDGE, rounds=1)


def planned(verdict: Verdict, nodes: int = 4, **more: object) -> Plan:
    """The plan for a job on so many nodes."""
    return choose_plan(verdict, Situation(nodes=tuple(f"gpu{number}" for number in range(nodes)), **more), COSTS)  # type: ignore[arg-type]


def answered(first: float = 100.1) -> list[ProcessState]:
    """How srun ends the other ranks after one has died: by SIGTERM, at once."""
    return [ended(rank, first + rank / 100, TERMINATE) for rank in (0, 2, 3)]


def test_one_kill_that_was_not_for_memory_proves_nothing_of_its_machine() -> None:
    """Its kernel has killed nothing for memory: who did is unknown, and a small job is restarted as it is."""
    verdict = judged(ended(1, 100.0, KILL, 3), *answered())

    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("crash", "machine", "probe")
    assert [(one.id, one.probability) for one in verdict.culprits] == [("gpu1", 0.75)]
    assert planned(verdict).kind == "reattempt"


def test_where_nobody_counts_the_loss_decides() -> None:
    """Named with 0.75: 64 nodes that stand still again cost more than one that may be well, four do not."""
    verdict = judged(ended(1, 100.0, KILL), *answered(), dumb=True)
    large, small = planned(verdict, 64), planned(verdict, 4)

    assert (verdict.action.kind, verdict.culprits[0].probability) == ("probe", 0.75)
    assert (large.kind, large.nodes, large.probability) == ("evict", ("gpu1",), 0.75)
    assert small.kind == "reattempt"
    assert "taking gpu1 out" in small.why


def test_the_minimum_and_the_shards_hold_for_it_too() -> None:
    """A job that may not lose a node, or whose shards have no other holder, keeps it: it is restarted as it is."""
    verdict = judged(ended(1, 100.0, KILL, 3), *answered())
    assert planned(verdict, 4, minimum_nodes=4, spares=0).kind == "reattempt"
    assert planned(verdict, 4, holders={"gpu1": ("gpu1",)}).kind == "reattempt"


OOM_LINE = KernelEvent(
    source="kmsg", node="gpu1", at=99.9, event="oom_kill", pid=101, process="python", text="oom-kill: task=python"
)
OOM_WORD = LogEvent(
    source="job.log:7", job="llama-7", rank=1, node="gpu1", event="oom_kill", signal=KILL, text="Detected 1 oom_kill event"
)  # fmt: skip


def test_a_look_between_the_kill_and_the_end_hides_no_want_of_memory() -> None:
    """Much memory takes seconds to be given back: the count had moved before the last look already, and counts as moved."""
    dying = lived(1, 98.0, 4)
    assert planned(judged(dying, ended(1, 100.0, KILL, 4), *answered()), 512).kind != "evict"
    alone = judged(lived(1, 98.0, 4), ended(1, 100.0, KILL, 4), *answered(), dumb=True)
    assert alone.culprits[0].probability == 0.75  # nobody looked before that: nothing is known


def test_a_process_that_took_minutes_to_go_was_perhaps_killed_for_memory() -> None:
    """The count moved more than a minute before the end: that nothing was killed for memory is said of nobody."""
    looks = [lived(1, float(at), 3 if at < 25 else 4) for at in range(10, 100, 10)]
    verdict = judged(*looks, ended(1, 100.0, KILL, 4), *answered(), dumb=True)
    assert [(one.id, one.probability) for one in verdict.culprits] == [("gpu1", 0.75)]


def test_a_running_engine_keeps_the_looks_from_before_the_count_moved() -> None:
    """Of each process it keeps the newest looks only, but as many again with another count: forty seconds are not too long."""
    evidence = Evidence()
    looks = [lived(1, float(at), 3 if at < 60 else 4) for at in range(10, 100, 10)]
    for sequence, row in enumerate([*looks, ended(1, 100.0, KILL, 4)], 1):
        evidence.add(sequence, [row])
    verdict = judged(*(record for _, _, record in evidence.since(0)), *answered(), dumb=True)
    assert verdict.cause == "code"


@pytest.mark.parametrize(("moved_at", "end_at"), [(5.0, 100.0), (20.0, 300.0)])
def test_a_kill_that_cannot_have_been_of_this_process_excuses_no_node(moved_at: float, end_at: float) -> None:
    """The count moved before the process began, or more than three minutes before its end: it was another that was killed."""
    looks = [lived(1, moved_at - 1.0, 3), *(lived(1, at, 4) for at in (moved_at + 6.0, end_at - 10.0))]
    verdict = judged(*looks, ended(1, end_at, KILL, 4), *answered(end_at + 0.1), dumb=True)
    assert [(one.id, one.probability) for one in verdict.culprits] == [("gpu1", 0.75)]


@pytest.mark.parametrize(
    "story",
    [
        [ended(1, 100.0, KILL, 4), *answered()],
        [ended(1, 100.0, KILL, 3), *answered(), OOM_LINE],
        [ended(1, 100.0, KILL, 3), *answered(), OOM_WORD],
        [ended(rank, 100.0 + rank / 10, KILL, 3) for rank in range(4)],
        [ended(rank, 100.0 + rank / 10, TERMINATE) for rank in range(4)],
        [ended(1, 102.0, KILL, 3), *answered(100.0)],
        [ended(1, 130.0, KILL, 3), *answered(100.0)],
        [ended(0, 100.0, KILL, 3), ended(1, 100.1, KILL, 3), ended(2, 100.2, TERMINATE), ended(3, 100.3, TERMINATE)],
        [ended(1, 100.0, exit_code=1), *answered()],
        [ended(1, 100.0, oom_kills=4, exit_code=137), *answered()],
        [ended(1, 100.0, 11), *answered()],
    ],
    ids=[
        "the kernel counted one more", "the kernel's log says so", "slurm says so", "all killed at once", "all asked to go",
        "asked to go, and killed as it did not", "so, with Slurm's usual patience", "ranks of two nodes", "an exit code",
        "a shell's word of a kill for memory", "a crash in native code",
    ],
)  # fmt: skip
@pytest.mark.parametrize("nodes", [4, 512])
def test_what_is_no_machine_keeps_its_node(story: list[Record], nodes: int) -> None:
    """Short of memory, ended by somebody, left by its own word: no node goes, however large the job."""
    assert planned(judged(*story), nodes).kind != "evict"


def test_a_node_that_tells_of_another_s_rank_takes_nobody_out() -> None:
    """Two nodes say that rank 1 is theirs, and one of them that it was killed: whose word holds must be found out first."""
    liar = replace(ended(1, 100.0, KILL, 3), node="gpu3", boot_id="boot 3", pid=777)
    claim = Placement(
        source="placement", job="llama-7", attempt=0, ranks=Members.of([1]), nodes=("gpu3",), pids=(777,), node="gpu3",
    )  # fmt: skip
    own = Placement(
        source="placement", job="llama-7", attempt=0, ranks=Members.of([1]), nodes=("gpu1",), pids=(101,), node="gpu1",
    )  # fmt: skip
    verdict = judged(liar, claim, own)

    assert verdict.action.kind != "evict"
    assert planned(verdict, 512).kind == "none"


def suspected(
    probability: float = 0.75, symptom: str = "crash", nodes: tuple[str, ...] = ("gpu1",), why: str = NOT_PROVEN
) -> Verdict:
    """A verdict that wants these looked at first."""
    entries = tuple(
        Culprit(root=f"r{number}", kind="node", id=node, probability=probability) for number, node in enumerate(nodes)
    )
    return Verdict(
        symptom=symptom, cause="machine", abstained=False, culprits=entries, suspects=entries,
        roots=tuple(Root(root=one.root, cause="machine", fault_class="process_killed") for one in entries),
        action=Action(kind="probe", nodes=nodes, why=why),
    )  # fmt: skip


def test_only_doubt_about_one_dead_process_is_weighed() -> None:
    """Who lives may be looked at again, several share a cause elsewhere, any other reason to wait holds: none is touched."""
    assert planned(suspected(), 64).nodes == ("gpu1",)
    for other in (
        suspected(symptom="hang"),
        suspected(nodes=("gpu1", "gpu2")),
        suspected(why="gpu1 and gpu3 each say that rank 1 is theirs: one of them tells of another's"),
        suspected(probability=0.69),
        replace(suspected(), cause="unknown"),
        replace(suspected(), abstained=True),
    ):
        assert planned(other, 64).kind == "none"
