"""What the engine published over a simulated fleet is judged again from a bundle; and the engine itself runs over an export."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from analyzers.incidents.messages import EngineInstruction, Open, Publish, Received
from analyzers.incidents.replay import rerun_engine
from analyzers.model.verdict import to_json
from analyzers.verdict.build import VERSION
from collectors.records import Members, Placement, block, bundle
from collectors.records.bundle import Batch, Manifest, Published
from service.cli.comparison import Comparison
from service.cli.recording import Recording
from simulation.live.fleet import Delivery, Fleet
from simulation.live.scene_list import BEGAN_AT, Scene, healthy_day, play
from tests.support.command_line import faulthound
from tests.support.simulated_fleet import Drive, knowledge

SEED = 1
FAULTS = ("spin", "sigstop", "exception", "dead_node")


class Kept(Drive):
    """A drive that keeps the log, and what the engine stored."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet, naive=False)
        self.log: list[Delivery] = []
        self.opened: dict[str, Open] = {}
        self.published: list[tuple[float, Publish]] = []

    def _received(self, delivery: Delivery) -> None:
        self.log.append(delivery)
        super()._received(delivery)

    def _carry_out(self, instruction: EngineInstruction, now: float) -> None:
        if isinstance(instruction, Open):
            self.opened[instruction.incident.id] = instruction
        elif isinstance(instruction, Publish):
            self.published.append((now, instruction))
        super()._carry_out(instruction, now)

    def versions(self, incident: str) -> list[tuple[float, Publish]]:
        """Return an incident's versions."""
        return [one for one in self.published if one[1].incident == incident]


def driven(kind: str, seed: int = SEED, ahead_seconds: float = 0.0) -> tuple[Kept, Scene]:
    """Let an engine watch a scene; of the nodes' clocks every second one may be ahead."""
    scene = play(kind, seed)
    ahead = {node: ahead_seconds * (place % 2) for place, node in enumerate(scene.job.nodes)}
    drive = Kept(Fleet([scene.job], seed, BEGAN_AT, ahead_seconds=ahead))
    drive.run(scene.until)
    return drive, scene


def exported(drive: Kept, id: str, path: Path) -> Path:
    """Write an incident as the service exports it."""
    opened, versions = drive.opened[id], drive.versions(id)
    incident = opened.incident
    nodes = tuple(dict.fromkeys([*incident.nodes, *sorted(one.node for one in drive.log)]))
    cuts = [msgspec.to_builtins(one.cut) for _, one in versions]
    manifest = Manifest(
        job=incident.job or "", attempt=incident.attempt,
        incident=bundle.Incident(
            id=id, kind=incident.kind, job=incident.job, attempt=incident.attempt, after=incident.after,
            opened_at=incident.opened_at, nodes=nodes, cuts=tuple(cuts),
        ),
    )  # fmt: skip
    leading = [Batch(0, incident.opened_at, block.encode(opened.context, pack=True))]
    documents = [
        Published(
            version=one.version,
            at=at,
            cut=cut,
            knowledge=knowledge().hash,
            program=VERSION,
            document=to_json(one.verdict),
        )
        for (at, one), cut in zip(versions, cuts, strict=True)
    ]
    path.write_bytes(b"".join(bundle.write(manifest, [*documents, *leading, *batches(drive, incident.after)])))
    return path


def batches(drive: Kept, after: int = 0) -> Iterator[Batch]:
    """Yield the log's batches as they were sent."""
    for one in drive.log:
        if one.sequence > after:
            data = block.encode(one.records, pack=True)
            yield Batch(one.sequence, one.received_at, data, one.node, one.sent_at)


@pytest.mark.system
@pytest.mark.parametrize("ahead_seconds", [0.0, 10.0])
@pytest.mark.parametrize("kind", FAULTS)
def test_every_published_version_is_judged_to_the_same_bytes(kind: str, ahead_seconds: float, tmp_path: Path) -> None:
    """The engine kept hours of evidence and replay has the incident's batches only: every version comes out the same."""
    drive, _scene = driven(kind, ahead_seconds=ahead_seconds)
    found = 0

    for id, opened in drive.opened.items():
        if opened.incident.job is None or not drive.versions(id):
            continue
        recording = Recording.opened(exported(drive, id, tmp_path / f"{id}.fhz"))
        comparison = Comparison.of(recording, knowledge(), float("inf"), None, None)
        assert [one.same for one in comparison.versions] == [True] * len(drive.versions(id))
        found += len(comparison.versions)

    assert found >= 1


@pytest.mark.parametrize("kind", ["spin", "sigstop"])
def test_an_export_is_run_through_the_engine(kind: str, tmp_path: Path) -> None:
    """A span of the log without any incident in it gives the incident that the engine opens, and its culprit."""
    drive, scene = driven(kind)
    path = tmp_path / "export.fhz"
    path.write_bytes(b"".join(bundle.write(Manifest(job=scene.job.name), batches(drive))))
    node = scene.truth.nodes[0]

    right = faulthound("replay", path, "--expect", f"culprit=node:{node}")
    wrong = faulthound("replay", path, "--quiet", "--expect", "culprit=node:nobody")

    assert (right.returncode, wrong.returncode) == (0, 1)
    assert "the engine opens 1 incident\n" in right.stdout


@pytest.mark.parametrize("declared", [True, False])
def test_an_exported_declaration_counts_in_the_engine(declared: bool, tmp_path: Path) -> None:
    """A stranger claims every rank before the job begins: only with the declared rank map the verdict names the culprit."""
    drive, scene = driven("spin")
    job, number = scene.job, scene.job.attempts[0].number
    ranks = range(job.world)
    claim = Placement(job=job.name, attempt=number, ranks=Members.of(ranks), nodes=("stranger",) * job.world)
    honest = list(batches(drive))
    lies = (Batch(1, BEGAN_AT + 30.0 * n, block.encode([claim]), "stranger") for n in range(100))
    last = max(one.received_at for one in honest)  # a stranger that reports alone after it would make the others silent
    reported = sorted(
        [*(one for one in lies if one.received_at <= last), *honest],
        key=lambda one: (one.received_at, one.node != "stranger"),
    )
    word = msgspec.structs.replace(
        claim, source=bundle.DECLARATION, nodes=tuple(job.node_of(rank) for rank in ranks), world_size=job.world
    )
    leading = [Batch(0, BEGAN_AT, block.encode([word]))] if declared else []
    entries = [*leading, *(dataclasses.replace(one, sequence=place) for place, one in enumerate(reported, 1))]
    path = tmp_path / "export.fhz"
    path.write_bytes(b"".join(bundle.write(Manifest(job=job.name), entries)))

    done = faulthound("replay", path, "--expect", f"culprit=node:{scene.truth.nodes[0]}")

    assert done.returncode == (0 if declared else 1), done.stdout


def test_a_healthy_export_evicts_nobody(tmp_path: Path) -> None:
    """Half an hour of a healthy job may open an incident, on its first checkpoint for one, and proposes to replace nobody."""
    scene = healthy_day(SEED, hours=0.5)
    drive = Kept(Fleet([scene.job], SEED, BEGAN_AT))
    drive.run(scene.until)
    path = tmp_path / "export.fhz"
    path.write_bytes(b"".join(bundle.write(Manifest(job=scene.job.name), batches(drive))))

    done = faulthound("replay", path, "--json")
    reported = msgspec.json.decode(done.out)

    assert done.returncode == 0
    assert reported["damage"] == []
    actions = {version["action"] for incident in reported["incidents"] for version in incident["versions"]}
    assert actions <= {"none", "probe"}
    assert all(incident["closed_because"].startswith("the job moves again") for incident in reported["incidents"])


def test_nothing_gives_nothing() -> None:
    """Without a batch no time passes, and nothing is wanted."""
    assert list(rerun_engine(iter(()), knowledge())) == []
    assert list(rerun_engine([Received(sequence=1, received_at=BEGAN_AT, node="n", records=())], knowledge())) == []
