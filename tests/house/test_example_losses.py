"""The shipped incident, a real hung gloo pipeline, with parts of it lost: the answer stays right or becomes a set."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from service.packaged_knowledge import load

CULPRIT = 3
RANKS = range(8)


def judged(repository: Path, scratch: Path, *lost: str) -> tuple[frozenset[int], Verdict]:
    """Diagnose a copy without the files that match; return who is named, and the verdict."""
    shutil.copytree(repository / "examples" / "hung_job", scratch, ignore=shutil.ignore_patterns(*lost))
    window = Window.build(read_paths([scratch]))
    verdict = judge(window, infer(window), load())
    return frozenset(rank for culprit in verdict.culprits for rank in culprit.ranks), verdict


@pytest.mark.parametrize("rank", RANKS)
def test_with_a_dump_lost_the_stacks_still_pick_the_culprit(repository: Path, tmp_path: Path, rank: int) -> None:
    """Whoever's flight-recorder dump is lost, the one who stands outside communication is named."""
    named, _ = judged(repository, tmp_path / "job", f"fr_rank{rank}.json")

    assert named == {CULPRIT}


@pytest.mark.parametrize("rank", RANKS)
def test_with_a_dump_and_all_stacks_lost_the_set_holds_the_culprit(repository: Path, tmp_path: Path, rank: int) -> None:
    """Gloo records no sends: the idle ranks are a set to probe, which holds the culprit and says what would split it."""
    named, verdict = judged(repository, tmp_path / "job", f"fr_rank{rank}.json", "stacks_*", "ps.txt")

    assert named >= {CULPRIT}
    assert len(named) < len(RANKS)
    assert verdict.action.kind == "probe"
    assert verdict.missing


def test_stacks_alone_suspect_and_do_not_evict(repository: Path, tmp_path: Path) -> None:
    """A minority stack is a suspect: it is named, and probed."""
    named, verdict = judged(repository, tmp_path / "job", "fr_*", "ps.txt")

    assert named == {CULPRIT}
    assert verdict.action.kind == "probe"
