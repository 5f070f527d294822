"""An incident as the service exports it: four ranks on four nodes, the last of which never enters; two verdicts of it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Judge
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict, to_json
from analyzers.verdict.build import VERSION
from collectors.records import Device, LogEvent, Members, Placement, Record, block, bundle
from collectors.records.bundle import Batch, Manifest, Published
from service.packaged_knowledge import load
from tests.support.hand_made import SCHEDULED, call, calls, dump, group

JOB, ID, AT = "llama-8b", "inc-4e0000000001", 1_795_230_847.0
NODES = tuple(f"gpu-000{number}" for number in range(1, 5))
CONTEXT: tuple[Record, ...] = tuple(
    Placement(
        node=node, at=AT - 300, source="placement", job=JOB, attempt=1, ranks=Members.of([rank]), nodes=(node,), world_size=4
    )
    for rank, node in enumerate(NODES)
)  # fmt: skip
CUTS = (
    Cut(after=100, through=102, at=AT + 6, looks=1, nodes=4),
    Cut(after=100, through=106, at=AT + 16, looks=2, nodes=4),
)


def dump_of(rank: int, at: float) -> Record:
    """Return a rank's dump: all but the last wait in the eighth all-reduce, which the last never entered."""
    entries = calls(5, 6, 7) if rank == 3 else (*calls(5, 6, 7), call(8, SCHEDULED))
    return dump(
        rank, entries, [group("0", 0, 1, 2, 3)], node=NODES[rank], job=JOB, attempt=1, at=at, source="flight_recorder"
    )


def records() -> dict[int, tuple[float, str, list[Record]]]:
    """Return sequence → (received_at, node, records) of the log: the last of them is after every cut."""
    late = LogEvent(
        event="traceback", node=NODES[0], job=JOB, attempt=1, rank=0, at=AT + 40, text="RuntimeError: too late"
    )
    other = Device(node=NODES[1], at=AT - 5, source="gpu", type="gpu", id="GPU-5a", index=0)
    return {
        101: (AT + 1, NODES[0], [dump_of(0, AT + 1)]),
        102: (AT + 2, NODES[1], [dump_of(1, AT + 2), other]),
        103: (AT + 11, NODES[2], [dump_of(2, AT + 11)]),
        104: (AT + 11.2, NODES[3], [dump_of(3, AT + 11.2)]),
        105: (AT + 11.5, NODES[0], [dump_of(0, AT + 11.5)]),
        106: (AT + 12, NODES[1], [dump_of(1, AT + 12)]),
        107: (AT + 40, NODES[0], [late]),
    }


def verdict_of(cut: Cut) -> Verdict:
    """Return what these records come to, without the engine's selection: so few are all kept."""
    inside = [record for sequence, (_, _, own) in records().items() if sequence <= cut.through for record in own]
    return judge_cut(Judge(incident=ID, cut=cut, records=(*CONTEXT, *inside), attempt=1), load()).verdict


def published(cuts: Iterable[Cut] = CUTS, *, program: str = VERSION) -> list[Published]:
    """Return the versions as the service published them, a second after each cut."""
    return [
        Published(
            version=number, at=cut.at + 1, cut=msgspec.to_builtins(cut), knowledge=load().hash, program=program,
            document=to_json(verdict_of(cut)),
        )
        for number, cut in enumerate(cuts, 1)
    ]  # fmt: skip


def manifest(plan: str | None = None) -> Manifest:
    """Return what the bundle says of itself. ``plan``: the kind of what was planned for the incident."""
    incident = bundle.Incident(
        id=ID, kind="hang", job=JOB, attempt=1, after=100, opened_at=AT, nodes=NODES,
        cuts=tuple(msgspec.to_builtins(cut) for cut in CUTS), plan=plan,
    )  # fmt: skip
    return Manifest(job=JOB, attempt=1, since=AT - 180, until=AT + 60, nodes=NODES, version=VERSION, incident=incident)


def batches() -> list[Batch]:
    """Return the batches as they stand in the log, the context before them."""
    context = Batch(0, AT - 300, block.encode(CONTEXT, pack=True))
    return [context] + [
        Batch(sequence, received_at, block.encode(own, pack=True), node, received_at - 0.1)
        for sequence, (received_at, node, own) in records().items()
    ]


def write(path: Path, entries: Iterable[Batch | Published] | None = None, plan: str | None = None) -> Path:
    """Write the bundle of these entries, of all without any."""
    chosen: Iterable[Batch | Published] = [*published(), *batches()] if entries is None else entries
    path.write_bytes(b"".join(bundle.write(manifest(plan), chosen)))
    return path
