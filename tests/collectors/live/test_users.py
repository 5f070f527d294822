"""A user of a node whose process names another user's job: it is of a job of its own."""

from __future__ import annotations

from pathlib import Path

from collectors.live.sources.process_table import ProcessTable
from tests.support.process_rows import scanned
from tests.support.process_tree import ProcessTree

JOB = {"FAULTHOUND_JOB": "llama", "WORLD_SIZE": 4}
POD = "0::/kubepods.slice/kubepods-pod0123.slice/cri-x.scope\n"


def add(
    tree: ProcessTree, pid: int, rank: int, uid: int, *, start: int = 1_000, groups: str = "0::/user.slice\n"
) -> None:
    """Put a rank's process of a user into the tree."""
    tree.add(pid, environment={**JOB, "RANK": rank}, start=start, control_groups=groups)
    (tree.root / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")


def jobs(table: ProcessTable) -> dict[int, str | None]:
    """Return each process's job."""
    return {one.pid: one.job for one in scanned(table)}


def test_a_second_users_process_is_of_another_job(tmp_path: Path) -> None:
    """The first user's ranks keep the job's name, though the stranger has more of them; it stays so when one ends."""
    tree = ProcessTree(tmp_path)
    add(tree, 100, 0, 1_000)
    add(tree, 101, 1, 1_000)
    table = ProcessTable(tmp_path)
    assert jobs(table) == {100: "llama", 101: "llama"}

    for pid in range(50, 54):
        add(tree, pid, pid - 50, 65_534, start=900)
    assert jobs(table) == {100: "llama", 101: "llama"} | dict.fromkeys(range(50, 54), "llama@uid65534")
    tree.remove(100)
    assert jobs(table)[101] == "llama"


def test_a_control_group_goes_before_age(tmp_path: Path) -> None:
    """A stranger that waited for the job has it no longer once the job comes in its pod."""
    tree = ProcessTree(tmp_path)
    add(tree, 50, 0, 65_534)
    table = ProcessTable(tmp_path)
    assert jobs(table) == {50: "llama"}

    add(tree, 100, 0, 0, start=2_000, groups=POD)
    assert jobs(table) == {50: "llama@uid65534", 100: "llama"}
