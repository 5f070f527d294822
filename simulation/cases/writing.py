"""Many simulated incidents below one folder, and ``labels.toml`` beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from simulation.cases.hangs import write_hang
from simulation.cases.labels import CaseLabel, document
from simulation.cases.slow_jobs import write_slow

FAMILIES: Mapping[str, Callable[[Path, int, int], CaseLabel]] = {"hang": write_hang, "slow": write_slow}


def write_cases(folder: Path, family: str, seeds: range, most_ranks: int) -> Iterator[CaseLabel]:
    """Write a case a seed, yield each when it is written; the labels stand at the end, when all are."""
    labels = []
    for seed in seeds:
        label = FAMILIES[family](folder / f"{family}-{most_ranks}-{seed}", seed, most_ranks)
        labels.append(label)
        yield label
    (folder / "labels.toml").write_text(document(labels), encoding="utf-8")
