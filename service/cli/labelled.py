"""Labelled cases of folders, diagnosed one after the other: what ``evaluate`` counts and ``learn`` learns from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from service.cli.speech import Speech
from service.client import UserError

if TYPE_CHECKING:
    from analyzers.knowledge import Knowledge
    from analyzers.model.topology import Topology
    from analyzers.model.verdict import Verdict
    from service.evaluation.labels import Label


@dataclass(frozen=True, slots=True)
class Judged:
    """A labelled case and its verdict. ``why``: the reason why there is none."""

    label: Label
    verdict: Verdict | None
    topology: Topology | None
    seconds: float
    why: str = ""


def load_knowledge(path: Path | None) -> Knowledge:
    """Return the packaged knowledge with a site's rows laid over it."""
    from service import packaged_knowledge

    try:
        return packaged_knowledge.load(path)
    except ValueError as problem:
        raise UserError(str(problem)) from None


def read_cases(folder: Path, labels: Path | None) -> list[Label]:
    """Return the labelled cases at and below a folder; ``labels``: the only file of labels."""
    from service.evaluation.labels import LabelError, read_labels

    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: name the one that holds the labelled cases")
    try:
        return read_labels(folder, labels)
    except LabelError as problem:
        raise UserError(str(problem)) from None


def judge_cases(cases: Sequence[Label], knowledge: Knowledge, workers: int | None, speech: Speech) -> Iterator[Judged]:
    """Diagnose each case, with a progress bar."""
    with speech.progress("cases") as progress:
        for number, label in enumerate(cases, 1):
            yield _judged(label, knowledge, workers)
            if progress is not None:
                progress(number, len(cases))


def _judged(label: Label, knowledge: Knowledge, workers: int | None) -> Judged:
    from service.cli.diagnose import judged
    from service.cli.hosts import Hosts

    begun = time.perf_counter()
    try:
        hosts = Hosts.given(label.hosts, label.ranks_per_node)
        verdict, _, topology = judged(label.paths, knowledge, hosts, Speech(quiet=True), workers=workers)
    except UserError as problem:
        return Judged(label, None, None, time.perf_counter() - begun, str(problem))
    except ValueError as problem:
        raise UserError(f"case {label.name}: {problem}") from None
    return Judged(label, verdict, topology, time.perf_counter() - begun)
