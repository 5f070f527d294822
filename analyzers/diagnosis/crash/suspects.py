"""Whom a row of the table of causes names: the processes that failed alike, their nodes, or what they share."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from analyzers.diagnosis.crash.failures import Failure, last_name, said_by
from analyzers.model.finding import Evidence, Suspect

MAX_EVIDENCE = 12
MAX_REJECTED = 8
LEAST_STRENGTH = 0.05
_DIFFERS = re.compile(r"\bRank (\d{1,7}) is running collective\b")
"""Both ranks that torch's wrapper compares."""


def crash_row(group: Sequence[Failure], spread: str) -> str:
    """Return the row of the table that a signal has to itself; "" for one that says nothing of its cause."""
    signals = {failure.event.signal for failure in group if failure.event}
    if signals == {signal.SIGBUS}:
        return "bus_all" if spread == "all" else "bus_some" if len(group) > 1 else "bus"
    return "trapped" if signals and signals <= {signal.SIGFPE, signal.SIGILL} else ""


def fault_class_of(group: Sequence[Failure], row: Mapping[str, Any], table: Mapping[str, Any]) -> str:
    """Return the fault class of a row; of its own for what an environment lacks, what can pass, and a program's own error."""
    if group[0].kind == "file_system" and all(_can_pass(failure, table) for failure in group):
        return "file_system_lapse"
    if group[0].kind == "exit" and all(_is_chosen(failure) for failure in group):
        return "left_by_itself"
    if group[0].kind == "service" and all(says(failure, table.get("access_words", ())) for failure in group):
        return "access_refused"
    if group[0].kind != "user":
        return str(row["class"])
    if all(_raised(failure) in table.get("not_installed", ()) for failure in group):
        return "not_installed"
    if not all(_is_raised_again(failure, table) for failure in group):
        return str(row["class"])
    return "program_error_everywhere" if row["class"] == "exception_all_ranks" else "program_error"


def _is_chosen(failure: Failure) -> bool:
    """Whether it left with a code that a program gives: from 128 on a shell's codes stand for signals."""
    code = failure.event.exit_code if failure.event is not None else None
    return code is not None and 0 < code < 128


def _can_pass(failure: Failure, table: Mapping[str, Any]) -> bool:
    """Whether a file system may answer at the next try: by its words, it is neither full nor read-only."""
    return says(failure, table.get("file_system_lapses", ()))


def says(failure: Failure, any_of: Sequence[str]) -> bool:
    """Whether what a process said holds one of these words, which are in lower case."""
    said = said_by(failure.event) if failure.event is not None else ""
    return any(words in said for words in any_of)


def _raised(failure: Failure) -> str:
    """Return the last name of what a process raised, of ``RayTaskError(ValueError)`` what its task did; "": nothing."""
    exception = (failure.event.exception or "") if failure.event is not None else ""
    return last_name(exception.rpartition("(")[2].rstrip(")"))


def _is_raised_again(failure: Failure, table: Mapping[str, Any]) -> bool:
    """Whether the same code raises it again on the same data: by its name or its words."""
    return _raised(failure) in table.get("program_errors", ()) or says(failure, table.get("program_words", ()))


def suspects_of(group: Sequence[Failure], row: Mapping[str, Any], spread: str, strength: float) -> tuple[Suspect, ...]:
    """Return whom a row of the table names for a group of processes that failed alike, each with its evidence."""
    why = str(row["why"])
    kind = row["suspect"]
    if kind == "none":
        return ()
    if kind == "node" and all(failure.node for failure in group):
        return _nodes(group, why, strength)
    if kind == "node":
        kind = "link"  # no line says of which node it is: one of the ends
    if kind != "rank" or spread == "all":
        ranks = tuple(sorted({rank for failure in group for rank in _ranks_of(failure)}))
        nodes = {failure.node for failure in group}
        shown = tuple(evidence for failure in group for evidence in _shown(failure))[:MAX_EVIDENCE]
        one_node = next(iter(nodes)) if len(nodes) == 1 and spread != "all" and kind != "link" else None
        ranks = () if kind == "link" else ranks  # the one that reports a link is at one of its ends, and no culprit
        said = why.format(what=group[0].what())
        local = group[0].local if len(group) == 1 and kind == "code" else ""
        return (
            Suspect(kind=kind, strength=strength, why=said, ranks=ranks, node=one_node, evidence=shown, name=local),
        )
    return tuple(
        Suspect(
            kind=_kind(failure, str(row["cause"])),
            strength=strength,
            why=why.format(what=failure.what()) + (f" ({failure.local})" if failure.node and failure.local else ""),
            ranks=() if failure.rank is None else (failure.rank,),
            node=failure.node,
            name="" if failure.node else failure.local,
            evidence=failure.evidence(),
        )
        for failure in group
    )


def _shown(failure: Failure) -> tuple[Evidence, ...]:
    """Return the line that decided, and the kernel's own where it killed the process."""
    killed = {event.source for _, event in failure.classified if event.event == "oom_kill"}
    return tuple(one for number, one in enumerate(failure.evidence()) if number == 0 or one.source in killed)


def _ranks_of(failure: Failure) -> set[int]:
    """Return the ranks that a failure is about: of two that differ, the one that reports it is only the first that saw it.

    Within a smaller group the numbers may be its own: they count where the reporter's is the job's.
    """
    own = set() if failure.rank is None else {failure.rank}
    if failure.kind != "mismatch" or failure.event is None:
        return own
    named = {int(rank) for rank in _DIFFERS.findall(failure.event.message or failure.event.text)}
    return named if own <= named and own else own


def _kind(failure: Failure, cause: str) -> Literal["rank", "node"]:
    """A machine's fault is a node's, also where no line gives its name; of an unknown process nothing else can be named."""
    unnamed = failure.rank is None and not failure.local and cause == "machine"
    return "node" if unnamed or (failure.rank is None and failure.node is not None) else "rank"


def _nodes(group: Sequence[Failure], why: str, strength: float) -> tuple[Suspect, ...]:
    """Return one suspect a node: the report is of the machine, not of the rank that printed it."""
    by_node: dict[str, Failure] = {}
    for failure in group:
        by_node.setdefault(failure.node or "", failure)
    return tuple(
        Suspect(kind="node", strength=strength, why=why.format(what=one.what()), node=node, evidence=one.evidence())
        for node, one in sorted(by_node.items())
    )


def rejected(victims: Sequence[Failure], group: Sequence[Failure]) -> tuple[Suspect, ...]:
    """Return victims that logged an error, with why it accuses no rank; the launcher's first comes first."""
    spoke = sorted((failure for failure in victims if failure.event is not None), key=lambda each: not each.first)
    whys = {"echo": "an echo: its error only shows that a peer or the network stopped answering",
            "terminated": "its launcher ended it after another had failed" if group else "it was ended from outside"}  # fmt: skip
    return tuple(
        Suspect(
            kind="rank", strength=LEAST_STRENGTH, ranks=(failure.rank,), evidence=failure.evidence()[:1],
            why=whys.get(failure.kind, "it ended without a reason of its own, after another had given one"),
        )
        for failure in spoke[:MAX_REJECTED]
        if failure.rank is not None
    )  # fmt: skip
