"""Verdicts and windows made by hand, for the tests of what a person gets to see."""

from __future__ import annotations

from array import array

from analyzers.model.topology import ProcessGroup, Topology
from analyzers.model.verdict import (
    Action,
    Coverage,
    Culprit,
    EvidenceItem,
    FirstSymptom,
    Missing,
    Rejected,
    Root,
    Verdict,
    Victims,
)
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, Frame, Group, KernelEvent, Members, Record, StackDump, Thread

ONSET = "2026-11-21T03:14:07.120Z"
BEGAN_AT = 1_795_230_847.12  # 2026-11-21T03:14:07.120Z
STATES = {"scheduled": 0, "completed": 2}


def hang() -> Verdict:
    """One rank of one node never entered; 4,095 wait."""
    return Verdict(
        symptom="hang",
        cause="machine",
        abstained=False,
        version="0.1.0",
        knowledge="sha256:0f3a",
        job="llama-405b",
        attempt=3,
        onset="2026-11-21T03:14:07.120Z",
        dump_skew_seconds=0.8,
        roots=(Root(root="r1", cause="machine", fault_class="never_entered", calibration="simulator", n=5000),),
        culprits=(
            Culprit(
                root="r1", kind="node", id="gpu-0413", ranks=(3304,), role="trainer", probability=0.97,
                why="rank 3304 never entered all_reduce 881 of tp_413, and everybody else waits for it", evidence=("e1", "e2"),
            ),
        ),
        suspects=(
            Culprit(root="r1", kind="node", id="gpu-0413", ranks=(3304,), probability=0.97),
            Culprit(root="r1", kind="node", id="gpu-0007", ranks=(7,), probability=0.01),
        ),
        first_symptom=FirstSymptom(text="ranks 3305-3311 wait in all_reduce 881 of tp_413", rank=3305, at=ONSET),
        victims=Victims(count=4095, ranks="0-3303,3305-4095", chains=("7 → 15 → 3304",)),
        rejected=(Rejected(kind="node", id="gpu-0007", why="it waits for rank 3304 itself"),),
        evidence=(
            EvidenceItem(id="e1", text="7 of 8 members entered all_reduce 881 of tp_413; rank 3304 ended with 880",
                         source="dumps/_dump_3304:tp_413 seq 880", analyzer="hang", at="2026-11-21T03:14:07.120Z"),
            EvidenceItem(id="e2", text="its main thread stands in DataLoader.__next__, alone among 4,096",
                         source="stacks/rank_3304.json", analyzer="stacks"),
        ),
        missing=(
            Missing(what="no flight-recorder dump from ranks 3305-3306"),
            Missing(what="no kernel log of gpu-0007", matters=False),
        ),
        action=Action(kind="evict", nodes=("gpu-0413",), why="One node holds up 4,095 ranks.", expected_loss_gpu_hours=3.2),
        coverage=Coverage(ranks_expected=4096, ranks_seen=4094, sources={"flight_recorder": 4094, "stacks": 512},
                          other_attempts=("1", "2"), unread=("dumps/core: not recognised",)),
    )  # fmt: skip


def two_ranks() -> Verdict:
    """Two culprits of one root, with no host known."""
    return Verdict(
        symptom="hang", cause="machine", abstained=False, onset="2026-11-21T03:14:07.120Z",
        roots=(Root(root="r1", cause="machine", fault_class="completion_lost"),),
        culprits=tuple(
            Culprit(root="r1", kind="rank", id=str(rank), ranks=(rank,), probability=0.9, why="its completions stopped")
            for rank in (9, 14)
        ),
        victims=Victims(count=14, ranks="0-8,10-13,15"),
        action=Action(kind="evict", ranks=(9, 14)),
        coverage=Coverage(ranks_expected=16, ranks_seen=16, sources={"flight_recorder": 16}),
    )  # fmt: skip


def undecided() -> Verdict:
    """A hang that names nobody and says what would decide."""
    return Verdict(
        symptom="hang", cause="unknown", abstained=True,
        suspects=(
            Culprit(root="r1", kind="group", id="pp_3", ranks=(12, 13, 14, 15), probability=0.6, why="all of them stand still"),
            Culprit(root="r1", kind="code", id="code", probability=0.2),
        ),
        missing=(Missing(what="stacks of ranks 12-15 would split them"),),
        coverage=Coverage(ranks_expected=16, ranks_seen=16, sources={"flight_recorder": 16}),
    )  # fmt: skip


def healthy() -> Verdict:
    """A running job."""
    return Verdict(
        symptom="healthy", cause="none", abstained=False,
        coverage=Coverage(ranks_expected=8, ranks_seen=8, sources={"flight_recorder": 16}),
    )  # fmt: skip


def megatron(
    tp: int, pp: int, dp: int, *, culprit: int, silent: tuple[int, ...] = (), entries: int = 20
) -> tuple[Window, Topology]:
    """A job in which one rank never enters an all-reduce of its tensor-parallel group, and its neighbours wait."""
    world = tp * pp * dp
    place = {rank: {"pp": rank // (tp * dp), "dp": rank // tp % dp, "tp": rank % tp} for rank in range(world)}
    groups: dict[str, list[int]] = {}
    for rank, at in place.items():
        groups.setdefault(f"tp_{rank // tp}", []).append(rank)
        groups.setdefault(f"dp_{at['pp']}_{at['tp']}", []).append(rank)
        groups.setdefault(f"pp_{at['dp']}_{at['tp']}", []).append(rank)
    members = {name: Members.of(ranks) for name, ranks in groups.items()}
    sick = place[culprit]
    records: list[Record] = []
    for rank, at in place.items():
        if rank in silent:
            continue
        own = {"tp": f"tp_{rank // tp}", "dp": f"dp_{at['pp']}_{at['tp']}", "pp": f"pp_{at['dp']}_{at['tp']}"}
        last = None
        if rank != culprit:
            if own["tp"] == f"tp_{culprit // tp}":
                last = ("tp", "nccl:all_reduce")
            elif at["dp"] == sick["dp"]:
                near = pp - 1 if at["pp"] > sick["pp"] else 0
                last = ("pp", f"nccl:recv {at['pp']}<-{at['pp'] - 1 if near else at['pp'] + 1}")
            else:
                last = ("dp", "nccl:reduce_scatter")
        records.append(_dump(rank, own, members, last, entries))
    watched = {culprit, *range(0, world, max(1, world // 12))} - set(silent)
    records += [stack(rank, "__next__" if rank == culprit else "wait") for rank in watched]
    records.append(
        KernelEvent(
            source="kern.log:8", at=BEGAN_AT - 40, event="aer", text="pcieport 0000:9b:00.0: AER: corrected error"
        )
    )
    topology = Topology(
        tuple(range(world)),
        {rank: f"gpu-{rank // 8:04}" for rank in range(world)},
        tuple(ProcessGroup(f"{name}/{_crc(members[name])}", name, "", name.partition("_")[0], tuple(ranks))
              for name, ranks in groups.items()),
        place,
    )  # fmt: skip
    return Window.build(records), topology


def stack(rank: int, function: str, file: str = "torch/utils/data/dataloader.py") -> StackDump:
    """A process whose main thread stands in one function of a training step."""
    frames = (Frame(function, file, 700), Frame("train_step", "pretrain.py", 80), Frame("<module>", "pretrain.py", 200))
    thread = Thread(frames=frames, name="MainThread", main=True, owns_gil=function == "__next__")
    return StackDump(
        source=f"stacks/rank_{rank}.json",
        at=BEGAN_AT + 90,
        rank=rank,
        pid=1000 + rank,
        threads=(thread,),
        tool="py-spy",
    )


def _crc(members: Members) -> str:
    import zlib

    return f"{zlib.crc32(members.data):08x}"


def _dump(
    rank: int, own: dict[str, str], members: dict[str, Members], last: tuple[str, str] | None, entries: int
) -> FlightRecorderDump:
    strings = (
        *own.values(),
        "nccl:all_reduce",
        "nccl:reduce_scatter",
        last[1] if last else "",
        "[[2048, 1, 5120]]",
        "BFloat16",
    )
    rows = [(0, 3, 861 + n, 2, 0) for n in range(entries)] + [(1, 4, 40, 2, 0)]
    if last:
        group = list(own).index(last[0])
        rows.append((group, 5, {"tp": 861 + entries, "dp": 41, "pp": 0}[last[0]], 0, last[0] == "pp"))
    count = len(rows)
    created = [int((BEGAN_AT - 1 + 0.02 * n) * 1e9) for n in range(count - 1)] + [
        int((BEGAN_AT + rank % 97 * 0.01) * 1e9)
    ]
    return FlightRecorderDump(
        source=f"dumps/_dump_{rank}", rank=rank, version="2.10", at=BEGAN_AT + 60, strings=strings, count=count,
        groups=tuple(Group(name, "", members[name]) for name in own.values()),
        columns={
            "record_id": array("q", range(count)).tobytes(),
            "group": array("i", [row[0] for row in rows]).tobytes(),
            "operation": array("i", [row[1] for row in rows]).tobytes(),
            "collective_seq": array("q", [row[2] for row in rows]).tobytes(),
            "state": array("b", [row[3] for row in rows]).tobytes(),
            "is_p2p": array("b", [int(row[4]) for row in rows]).tobytes(),
            "retired": array("b", [int(row[3] == 2) for row in rows]).tobytes(),
            "created_ns": array("q", created).tobytes(),
            "input_sizes": array("i", [6] * count).tobytes(),
        },
    )  # fmt: skip
