"""Stacks of processes whose ranks no record gives: compared under numbers of their own, and named by their processes.

People paste `py-spy dump` of every process of a job, and no name of a file gives a rank. Where some of them wait in
communication, the others of the same program are compared with them as ranks are. A launcher, a worker of a loader and
another program beside them run other code, and are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.model.frames import FrameRules, normal, place, training_thread
from analyzers.model.standings import WAITING
from analyzers.model.topology import Topology
from analyzers.model.verdict import TAKES_NODES, Culprit, Verdict, Victims
from analyzers.model.window import Window
from collectors.records import Frame, StackDump

PROCESS = "process "
NAMED = frozenset({"rank", "code", "data", "storage"})
"""Kinds of culprits that need no group of ranks."""
LOADS = "data_loader"
_WORKER = "_worker_loop"  # of torch's loader: forked, it has the frames of its trainer
_RANKS = re.compile(r"\b([Rr])anks? (\d{1,7}(?:-\d{1,7})?(?:(?:, ?| and )\d{1,7}(?:-\d{1,7})?)*)(?!\d)")
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")
MOST_NAMED = 8


def numbered(
    window: Window, topology: Topology, knowledge: Knowledge
) -> tuple[list[StackDump], tuple[str, ...]] | None:
    """Return the stacks of one program's processes, numbered from 0 on, and their names.

    None where ranks are known, where no process waits in communication, or only one is of its program.
    """
    stacks = [one for one in window.records_of(StackDump) if one.parent_pid is None and one.threads]
    if window.live or window.parts or topology.ranks or len(stacks) < 2 or any(one.rank is not None for one in stacks):
        return None
    rules = window.once(FrameRules.of, knowledge)
    mains = [(one, *training_thread(one, rules)) for one in stacks if _name(one) is not None]
    frames = {id(one): thread.frames if thread is not None else () for one, thread, _ in mains}
    waiting = [frames[id(one)] for one, _, duty in mains if duty.name in WAITING]
    kept = [
        one for one, _, duty in mains
        if duty.name in WAITING or duty.name == LOADS or any(_of_one_program(frames[id(one)], other) for other in waiting)
    ]  # fmt: skip
    kept = [one for one in kept if not any(frame.function == _WORKER for frame in frames[id(one)])]
    names = tuple(dict.fromkeys(filter(None, map(_name, kept))))
    if not waiting or len(names) < 2:
        return None
    return [msgspec.structs.replace(one, rank=names.index(str(_name(one)))) for one in kept], names


def by_process(verdict: Verdict, names: tuple[str, ...], before: Verdict) -> Verdict | None:
    """Return a verdict on numbered stacks with the processes' names; None where it names nothing that a process can be."""
    kinds = {one.kind for one in verdict.culprits}
    if verdict.symptom != "hang" or not kinds or not kinds <= NAMED or verdict.action.kind in TAKES_NODES:
        return None
    said = msgspec.convert(_in_words(msgspec.to_builtins(verdict), names), Verdict)
    return msgspec.structs.replace(
        said, culprits=_unnumbered(said.culprits, names), suspects=_unnumbered(said.suspects, names), victims=Victims(),
        coverage=before.coverage, missing=(*said.missing, *before.missing[1:]),
        action=msgspec.structs.replace(said.action, ranks=()),
    )  # fmt: skip


def _name(one: StackDump) -> str | None:
    """Name a process by its PID, or by its main thread, whose number on Linux is the same; None where neither is given."""
    main = next((thread.os_thread_id for thread in one.threads if thread.main), None)
    number = one.pid if one.pid is not None else main
    return None if number is None else f"{PROCESS}{number}" + (f" of {one.node}" if one.node else "")


def _of_one_program(one: Iterable[Frame], other: Iterable[Frame]) -> bool:
    """Whether the outer frames of two stacks are the same down to a function that is not of Python's own library."""
    for mine, theirs in zip(reversed(tuple(one)), reversed(tuple(other)), strict=False):
        if normal(mine) != normal(theirs):
            return False
        if not _is_of_python(mine):
            return True
    return False


def _is_of_python(frame: Frame) -> bool:
    root = place(frame.file).split("/", 1)[0]
    return root.removesuffix(".py") in sys.stdlib_module_names or root.startswith("<")


def _in_words(value: Any, names: tuple[str, ...]) -> Any:
    """Return a document in which every text names processes instead of ranks."""
    if isinstance(value, str):
        return _RANKS.sub(lambda found: _called(found, names), value)
    if isinstance(value, Mapping):
        return {key: _in_words(of, names) for key, of in value.items()}
    return [_in_words(of, names) for of in value] if isinstance(value, list | tuple) else value


def _called(said: re.Match[str], names: tuple[str, ...]) -> str:
    spans = [(int(low), int(high or low)) for low, high in _SPAN.findall(said[2])]
    found = [name for low, high in spans for name in names[low : high + 1]]
    if not found:
        return said[0]
    many = ", ".join(name.removeprefix(PROCESS) for name in found) if len(found) <= MOST_NAMED else ""
    text = found[0] if len(found) == 1 else f"processes {many}" if many else f"{len(found)} processes"
    return text.capitalize() if said[1] == "R" else text


def _unnumbered(named: Iterable[Culprit], names: tuple[str, ...]) -> tuple[Culprit, ...]:
    """Return culprits or suspects with the names of their processes, and no rank."""
    return tuple(
        msgspec.structs.replace(
            one, ranks=(), id=" and ".join(names[rank] for rank in one.ranks) if one.kind == "rank" else one.id
        )
        for one in named
    )
