"""Incidents as stories: what a simulated cluster does, in a few words a line, and below ``----`` the verdict.

    job tp=2 pp=2 dp=2              a job of the simulator's, in its Shape's own words; pause=2s, style=mesh, batched=no
    fault never_entered rank=5 at=dp/_all_gather_base    a fault where rank 5 first does that in the last step but one;
                                    at= takes dimension/operation, transfer, compute, dataloader or start
    recording timing=on version=2.4 the recorder's settings, in its Recording's own words
    place 2 a node                  which node hosts which rank, in order; "place none" forgets it
    dump 90s after                  a snapshot so long after everything stood still (60 s after, unless stated otherwise)
    dump at 50%                     a snapshot in the middle of the run; several lines are several snapshots
    without 3 7                     ranks whose dumps are lost; "without nobody" brings them back
    cut 3                           a rank whose dump's last entries are lost
    processes 5=T                   a process table of all ranks, this one stopped
    stacks 5=loader                 stacks of all ranks: this one in its data loader, the others in a collective
    verdict                         judge, and print

A story goes on from block to block: what was said above still holds. Lines that begin with # are for the reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar, get_args

import msgspec

from analyzers.model.topology import infer
from analyzers.model.verdict import Culprit, Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    FlightRecorderDump,
    Frame,
    Members,
    Placement,
    ProcessState,
    Record,
    StackDump,
    Thread,
)
from service.packaged_knowledge import load
from simulation.execution import Job, Trace, execute
from simulation.faults import Fault, FaultKind
from simulation.programs import Kind, Operation, Shape
from simulation.recorder import Recording, dumps
from simulation.schedule import build_programs

SECOND = 1_000_000_000
C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
STACKS = {
    "loader": Frame("Loader.__next__", "/srv/train.py", 28),
    "loop": Frame("check_loss_scale", "/srv/train.py", 21),
    "collective": Frame("all_reduce", C10D, 3000),
}


T = TypeVar("T", Shape, Recording)


class Nonsense(ValueError):
    """A line of a story says nothing that the stage knows."""


@dataclass
class Block:
    """A few lines of a story, the number of their first, and what is expected of them."""

    line: int
    said: list[str]
    expected: list[str] = field(default_factory=list)


def blocks(text: str) -> list[Block]:
    """Split a story: what is said, ``----``, what is expected up to an empty line."""
    found, said, expecting = [], list[str](), False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "----":
            found.append(Block(number - len(said), said))
            said, expecting = [], True
        elif expecting and line:
            found[-1].expected.append(line)
        else:
            expecting = False
            if line or said:
                said.append(line)
    if any(said):
        raise Nonsense(f"the last lines expect nothing: close them with ---- ({said[0]!r})")
    return found


def reported(found: list[Block]) -> str:
    """Write a story back."""
    return "\n".join("\n".join([*block.said, "----", *block.expected, ""]) for block in found)


@dataclass
class Stage:
    """What a story has said so far."""

    shape: Shape = field(default_factory=Shape)
    faults: list[tuple[FaultKind, int, str]] = field(default_factory=list)
    recording: Recording = field(default_factory=lambda: Recording(()))
    ranks_a_node: int = 0
    snapshots: list[str] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)
    states: dict[int, str] = field(default_factory=dict)
    stacks: dict[int, str] = field(default_factory=dict)

    def perform(self, block: Block) -> list[str]:
        """Do what a block says; return what it prints."""
        printed: list[str] = []
        for number, line in enumerate(block.said, block.line):
            verb, *words = line.split() or ["#"]
            action = None if verb.startswith("#") else getattr(self, f"say_{verb}", None)
            if action is None and not verb.startswith("#"):
                raise Nonsense(f"line {number}: no such command: {verb!r}; see tests/support/stories.py")
            try:
                printed += (action(words) or []) if action else []
            except (AttributeError, KeyError, IndexError, StopIteration, TypeError, ValueError) as failure:
                raise Nonsense(f"line {number}: {line!r} cannot be done ({failure!r})") from failure
        return printed

    def say_job(self, words: list[str]) -> None:
        """Take another job; its faults and snapshots are to be reported anew."""
        vars(self).update(vars(Stage(shape=_set(Shape(), words))))

    def say_fault(self, words: list[str]) -> None:
        """Let something go wrong."""
        options = dict(word.split("=") for word in words[1:])
        kind: FaultKind = get_args(FaultKind)[get_args(FaultKind).index(words[0])]
        for rank in _ranks(options["rank"]):
            self.faults.append((kind, rank, options.get("at", "start")))

    def say_recording(self, words: list[str]) -> None:
        """Set the recorder."""
        self.recording = _set(self.recording, words)

    def say_place(self, words: list[str]) -> None:
        """Place so many ranks a node."""
        self.ranks_a_node = 0 if words == ["none"] else int(words[0])

    def say_dump(self, words: list[str]) -> None:
        """Take a snapshot."""
        self.snapshots.append(" ".join(words))

    def say_without(self, words: list[str]) -> None:
        """Lose dumps."""
        self.recording = replace(
            self.recording, without=frozenset() if words == ["nobody"] else frozenset(map(int, words))
        )

    def say_cut(self, words: list[str]) -> None:
        """Cut dumps short."""
        self.cut = set(map(int, words))

    def say_processes(self, words: list[str]) -> None:
        """Show a process table."""
        self.states = dict.fromkeys(range(self.shape.world), "S") | {int(w[:-2]): w[-1] for w in words}

    def say_stacks(self, words: list[str]) -> None:
        """Show stacks."""
        pairs = (word.split("=") for word in words)
        self.stacks = dict.fromkeys(range(self.shape.world), "collective") | {int(rank): name for rank, name in pairs}

    def say_verdict(self, _words: list[str]) -> list[str]:
        """Judge what was recorded."""
        window = Window.build(self.records())
        return list(printed(judge(window, infer(window), load())))

    def records(self) -> Iterator[Record]:
        """Run the job and yield what it leaves."""
        faults = [Fault(kind, rank, self._place(rank, at)) for kind, rank, at in self.faults]
        trace = execute(Job.of(self.shape, faults), faults)
        gone = frozenset(fault.rank for fault in faults if fault.kind == "gone")
        recording = replace(self.recording, without=self.recording.without | gone)
        world = self.shape.world
        for number, snapshot in enumerate(self.snapshots or ["60s after"]):
            at_ns = _instant(trace, snapshot)
            for dump in dumps(trace, replace(recording, dumped_at_ns=(at_ns,) * world)):
                named = msgspec.structs.replace(dump, source=f"dumps/{number}/_dump_{dump.rank}")
                yield _shortened(named) if dump.rank in self.cut else named
        if self.ranks_a_node:
            nodes = tuple(f"gpu-{rank // self.ranks_a_node:04d}" for rank in range(world))
            yield Placement(source="hosts.txt", ranks=Members.of(range(world)), nodes=nodes, world_size=world)
        for rank, state in self.states.items():
            yield ProcessState(
                source=f"ps:{rank + 2}", rank=rank, pid=100 + rank, state=state, command="python train.py"
            )
        for rank, name in self.stacks.items():
            frames = (STACKS[name], Frame("train", "/srv/train.py", 50))
            thread = Thread(frames=frames, main=True, name="MainThread")
            yield StackDump(source=f"stacks/{rank}.json", rank=rank, pid=100 + rank, tool="py-spy", threads=(thread,))

    def _place(self, rank: int, at: str) -> int:
        """Find where in a rank's program a fault strikes: in the last step but one, or at the first launch of all."""
        operations = build_programs(self.shape)[self.shape.coordinate(rank, "pp")].operations
        if at == "start":
            return next(i for i, o in enumerate(operations) if o.kind in (Kind.COLLECTIVE, Kind.TRANSFER))
        step = operations[-1].step - 1
        return next(i for i, o in enumerate(operations) if o.step == step and _is(o, at))


def _is(operation: Operation, at: str) -> bool:
    dimension, _, name = at.partition("/")
    if name:
        return (operation.dimension, operation.name) == (dimension, f"nccl:{name}")
    return {
        "transfer": operation.kind is Kind.TRANSFER,
        "compute": operation.kind is Kind.COMPUTE,
        "dataloader": operation.name == "dataloader",
        "step": operation.name == "step",
    }[at]


def _set(value: T, words: list[str]) -> T:
    """Set fields by name: numbers, on and off, words; ``pause=2s`` sets ``pause_ns``."""
    changes: dict[str, object] = {}
    kinds = {one.name: one for one in fields(value)}
    for word in words:
        name, _, text = word.partition("=")
        if text.endswith("s") and text[:-1].isdigit():
            changes[kinds[f"{name}_ns"].name] = int(text[:-1]) * SECOND
        elif text in ("on", "yes", "off", "no"):
            changes[kinds[name].name] = text in ("on", "yes")
        else:
            changes[kinds[name].name] = type(getattr(value, name))(text)
    return replace(value, **changes)  # type: ignore[arg-type]


def _ranks(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _instant(trace: Trace, snapshot: str) -> int:
    number, _, word = snapshot.removeprefix("at ").partition(" ")
    if number.endswith("%"):
        return trace.idle_at * int(number[:-1]) // 100
    if word != "after" or not number.endswith("s"):
        raise ValueError("say `dump 90s after` or `dump at 50%`")
    return trace.idle_at + int(number[:-1]) * SECOND


def _shortened(dump: FlightRecorderDump) -> FlightRecorderDump:
    """Lose the last third of a dump's entries, as a file that was cut does."""
    count = 2 * dump.count // 3
    widths = {name: int(kind[-1]) for name, kind in FLIGHT_RECORDER_COLUMNS.items()}
    columns = {name: data[: count * widths[name]] for name, data in dump.columns.items()}
    return msgspec.structs.replace(dump, count=count, columns=columns, pg_status={}, truncated=True)


def printed(verdict: Verdict) -> Iterator[str]:
    """Print what a story expects: who, why in a sentence, whom it cost, what to do, and what would tell more."""
    classes = {root.root: root.fault_class for root in verdict.roots}
    yield f"{verdict.symptom}  cause {verdict.cause}" + ("  abstained" if verdict.abstained else "")
    for culprit in verdict.culprits:
        yield f"culprit {_named(culprit)}  {classes[culprit.root]}  {culprit.probability:.2f}"
        yield f"  {culprit.why}"
    if verdict.victims.count:
        yield f"victims {verdict.victims.count}: {verdict.victims.ranks}"
    yield from (f"rejected {one.kind} {one.id}: {one.why}" for one in verdict.rejected)
    yield from (f"missing {one.what}" for one in verdict.missing)
    whom = ", ".join([*verdict.action.nodes, *(f"rank {rank}" for rank in verdict.action.ranks)])
    yield f"action {verdict.action.kind} {whom}".rstrip() + f": {verdict.action.why}"


def _named(culprit: Culprit) -> str:
    ranks = ", ".join(map(str, culprit.ranks))
    return f"{culprit.kind} {culprit.id}" + (
        f" (rank {ranks})" if culprit.kind in ("node", "device", "group", "stage") else ""
    )


def play(path: Path, *, rewrite: bool = False) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield each block's line, what it printed and what was expected; with ``rewrite``, write down what it printed."""
    found = blocks(path.read_text(encoding="utf-8"))
    stage = Stage()
    for block in found:
        said = stage.perform(block)
        if not rewrite:
            yield block.line, said, block.expected
        block.expected = said
    if rewrite:
        path.write_text(reported(found), encoding="utf-8")
