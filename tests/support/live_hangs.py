"""A hang as agents tell of it: four ranks on four nodes, three wait in a collective, one is somewhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import Frame, Members, Placement, ProcessState, Record, StackDump, Thread
from service.packaged_knowledge import load
from tests.support.hand_made import SCHEDULED, START_NS, call, dump, group

START = START_NS / 1e9
STEPS = 30  # one a second, before the hang
LOOKS = (50.0, 60.0)  # after the start: the agents are asked twice
TRAIN = (Frame("train", "/srv/train.py", 50), Frame("main", "/srv/train.py", 90))
REDUCE = (Frame("all_reduce", "/x/site-packages/torch/distributed/distributed_c10d.py", 3000), *TRAIN)
SPIN = (Frame("check_loss_scale", "/srv/train.py", 21), *TRAIN)
KNOWLEDGE = load()


def inside(*names: str, file: str = "/srv/train.py") -> tuple[Frame, ...]:
    """Return a stack of these functions, innermost first, called from the training loop."""
    return (*(Frame(name, file, 7) for name in names), *TRAIN)


@dataclass
class Hang:
    """Who holds the others up, and where it stands at each look."""

    culprits: Sequence[int] = (2,)
    stands: Sequence[tuple[Frame, ...]] = (SPIN, SPIN)  # at each look; () gives no stack
    state: str = "R"
    channel: str | None = None
    states_at: Sequence[float] = (40.0, 50.0, 60.0)
    silent: Sequence[int] = ()  # ranks whose nodes tell nothing but where they run
    launches_later: bool = False  # the culprit's newest dump has one operation more
    exit_code: int | None = None
    ranks: int = 4
    looks_at: Sequence[float] = LOOKS
    more: list[Record] = field(default_factory=list)

    def records(self) -> list[Record]:
        """Return all that the agents sent."""
        found: list[Record] = list(self.more)
        for rank in range(self.ranks):
            found.append(self._placement(rank))
            if rank not in self.silent:
                found += [*self._dumps(rank), *self._stacks(rank), *self._states(rank)]
        return found

    def _placement(self, rank: int) -> Record:
        return Placement(
            node=f"gpu-{rank}", job="llama", attempt=1, source="placement", at=START, boot_id="b", ranks=Members.of([rank]),
            nodes=(f"gpu-{rank}",), pids=(100 + rank,), world_size=self.ranks,
        )  # fmt: skip

    def _dumps(self, rank: int) -> Iterable[Record]:
        guilty = rank in self.culprits
        done = [call(step, at_s=float(step)) for step in range(1, STEPS + 1)]
        waits = [] if guilty else [call(STEPS + 1, SCHEDULED, at_s=STEPS + 1.0)]
        for number, at in enumerate(self.looks_at):
            later = [call(1, group="1", at_s=at - 1)] if guilty and self.launches_later and number else []
            everybody = [group("0", *range(self.ranks)), group("1", rank)]
            yield dump(
                rank, [*done, *waits, *later], everybody, node=f"gpu-{rank}", job="llama", attempt=1, pid=100 + rank,
                at=START + at, source=f"recorder/{100 + rank}",
            )  # fmt: skip

    def _stacks(self, rank: int) -> Iterable[Record]:
        for number, at in enumerate(self.looks_at):
            frames = self.stands[min(number, len(self.stands) - 1)] if rank in self.culprits else REDUCE
            for apart in (0.0, 3.0):
                if frames:
                    yield StackDump(
                        source=f"stacks/{100 + rank}", at=START + at + apart, boot_id="b", node=f"gpu-{rank}", job="llama",
                        attempt=1, rank=rank, tool="py-spy", pid=100 + rank,
                        threads=(Thread(frames=frames, main=True, name="MainThread"),),
                    )  # fmt: skip

    def _states(self, rank: int) -> Iterable[Record]:
        for at in self.states_at:
            guilty = rank in self.culprits
            yield ProcessState(
                source="process", at=START + at, boot_id="b", node=f"gpu-{rank}", job="llama", attempt=1, rank=rank,
                pid=100 + rank, state=self.state if guilty else "S", wait_channel=self.channel if guilty else None,
                cpu_seconds=at, exit_code=self.exit_code if guilty else None,
            )  # fmt: skip


def verdict(records: Iterable[Record], looks: int | None = 2, offsets: Mapping[str, float] | None = None) -> Verdict:
    """Judge as the engine does, at its n-th look; None as a reader of files does."""
    window = Window.build(records, offsets=offsets or {}, live=looks is not None)
    return judge(window, infer(window), KNOWLEDGE, rounds=looks)


def named(found: Verdict) -> list[int]:
    """Return the ranks that a verdict names."""
    return sorted(rank for culprit in found.culprits for rank in culprit.ranks)
