"""What a verdict lists as rejected is nothing that it names."""

from __future__ import annotations

import pytest

from analyzers.model.finding import Suspect
from analyzers.model.verdict import Culprit
from analyzers.verdict.candidates import Correlation
from analyzers.verdict.explain import rejected_by

NODE = Culprit(root="r1", kind="node", id="gpu-0002", ranks=(4, 5), devices=("GPU-5a",), probability=0.9)


def rejected(*suspects: Suspect, culprit: Culprit = NODE) -> list[tuple[str, str]]:
    """Return kind and name of what is listed."""
    return [(one.kind, one.id) for one in rejected_by(Correlation(rejected=list(suspects)), (culprit,))]


@pytest.mark.parametrize(
    "suspect",
    [
        Suspect(kind="rank", strength=0.5, why="it waits for rank 7", ranks=(4,)),
        Suspect(kind="rank", strength=0.5, why="it waits for rank 7", ranks=(4,), node="gpu-0002"),
        Suspect(kind="group", strength=0.5, why="they wait for rank 7", ranks=(4, 5)),
        Suspect(kind="node", strength=0.5, why="its peers are as late", node="gpu-0002"),
        Suspect(kind="device", strength=0.5, why="its counters are well", device="GPU-5a", node="gpu-0002"),
    ],
    ids=["rank", "rank and its node", "some of its ranks", "node", "device"],
)
def test_what_is_named_is_not_rejected(suspect: Suspect) -> None:
    """A culprit under another kind or name is the same rank, node or device."""
    assert rejected(suspect) == []


@pytest.mark.parametrize(
    "suspect",
    [
        Suspect(kind="rank", strength=0.5, why="it waits for rank 4", ranks=(6,), node="gpu-0003"),
        Suspect(kind="group", strength=0.5, why="two of them wait for the others", ranks=(4, 5, 6, 7)),
        Suspect(kind="code", strength=0.5, why="its peers run the same code", ranks=(4,)),
        Suspect(kind="link", strength=0.5, why="its counters are well", node="gpu-0002", name="mlx5_0"),
    ],
    ids=["another rank", "a larger group", "its code", "its link"],
)
def test_another_suspect_stays_rejected(suspect: Suspect) -> None:
    """That the code of the named rank is not the cause, or its link, is an alternative that was rejected."""
    assert len(rejected(suspect)) == 1


def test_a_rank_to_look_at_is_not_rejected_beside_its_code() -> None:
    """Code that names its rank, and that rank rejected as a machine: the code is named, the machine was the alternative."""
    code = Culprit(root="r1", kind="code", id="code", ranks=(4,), probability=0.9)
    machine = Suspect(kind="node", strength=0.5, why="its peers raise the same", ranks=(4,), node="gpu-0002")
    rank = Suspect(kind="rank", strength=0.5, why="it waits for rank 7", ranks=(4,))

    assert rejected(machine, rank, culprit=code) == [("node", "gpu-0002")]
