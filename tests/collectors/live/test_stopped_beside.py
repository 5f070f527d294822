"""Stopped processes beside the ranks: of their users, and none that a person has suspended."""

from __future__ import annotations

from pathlib import Path

from collectors.live.sources.host import Host, Roots
from collectors.live.sources.stopped_beside import MOST_STOPPED, stopped_beside
from tests.support.process_tree import ProcessTree

RANK = {"RANK": 0, "WORLD_SIZE": 2, "TORCHELASTIC_RUN_ID": "rl"}


def add(tree: ProcessTree, pid: int, parent: int, *, state: str = "T", user: int = 1000, **more: object) -> None:
    """Add a process of a user."""
    tree.add(pid, parent, state=state, **more)  # type: ignore[arg-type]
    (tree.root / str(pid) / "status").write_text(f"Uid:\t{user}\t{user}\t{user}\t{user}\n")


def test_a_stopped_process_of_the_ranks_user_is_reported(tmp_path: Path) -> None:
    """Neither those of other users, nor launchers and children of a rank, nor one that runs, nor one at a terminal."""
    tree = ProcessTree(tmp_path / "proc")
    add(tree, 10, 1, name="bash")
    add(tree, 11, 10, name="torchrun")
    add(tree, 20, 11, state="S", environment=RANK)
    add(tree, 21, 20)
    add(tree, 22, 21)
    add(tree, 30, 10)
    add(tree, 31, 10, user=1001)
    add(tree, 32, 10, state="S")
    add(tree, 33, 10, name="vim")
    stat = tree.root / "33" / "stat"
    head, _, tail = stat.read_text().rpartition(") ")
    fields = tail.split()
    fields[4] = "34816"
    stat.write_text(f"{head}) {' '.join(fields)}\n")
    found = list(stopped_beside(Host("n0", Roots(proc=tree.root))))
    assert [(one.pid, one.state, one.command, one.rank) for one in found] == [(30, "T", "python", None)]


def test_without_ranks_none_is_reported(tmp_path: Path) -> None:
    """No job runs here: whose processes are stopped is no one's affair."""
    tree = ProcessTree(tmp_path / "proc")
    add(tree, 30, 1)
    assert list(stopped_beside(Host("n0", Roots(proc=tree.root)))) == []


def test_the_number_is_bounded(tmp_path: Path) -> None:
    """A node on which all is stopped is shown by some of it."""
    tree = ProcessTree(tmp_path / "proc")
    add(tree, 20, 1, state="S", environment=RANK)
    for pid in range(100, 100 + 2 * MOST_STOPPED):
        add(tree, pid, 1)
    assert len(list(stopped_beside(Host("n0", Roots(proc=tree.root))))) == MOST_STOPPED
