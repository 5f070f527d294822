"""Progress bars that a job alone writes: which of them is the training's, and what of them is read while they grow."""

from __future__ import annotations

from pathlib import Path

from collectors.live.sources.tailing import MOST_LINE_BYTES
from collectors.live.steps import JobLogs
from collectors.records import STEP_COLUMNS, Steps
from tests.collectors.live.test_steps import append
from tests.support.tailed_jobs import Node, column, of


def bar(done: int, total: int, of: str = "", unit: str = "10.0it/s, loss=2.3") -> str:
    """An update as tqdm writes it."""
    before = f"{of}: " if of else ""
    return f"\r{before}{100 * done // total:3d}%|{'█' * (done * 10 // total):10s}| {done}/{total} [00:12<01:28, {unit}]"


class Read:
    """A log of rank 3, and the steps that each reading of it gives."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.log, self.collector = node, folder / "out.txt", JobLogs(node.host)
        append(self.log, "", node.clock.at)
        node.rank(3, output=self.log)

    def steps(self, *texts: str) -> list[int]:
        """Write, then read."""
        self.node.clock.at += 5.0
        append(self.log, "".join(texts), self.node.clock.at)
        found = of(self.node.run(self.collector, "steps"), Steps)
        assert {(one.rank, one.job, one.told_by) for one in found} <= {(3, "llama-8b", "bar")}
        assert all(column(one, "at", STEP_COLUMNS) == [self.node.clock.at] for one in found)
        return [number for one in found for number in column(one, "step", STEP_COLUMNS)]


def test_a_bar_alone_gives_steps(node: Node, tmp_path: Path) -> None:
    """No line ever ends. The newest update may still be written, or belong to what is printed behind it."""
    read = Read(node, tmp_path)
    assert read.steps(*(bar(done, 1000) for done in range(50))) == [48]
    assert read.steps(*(bar(done, 1000) for done in range(50, 100))) == [98]
    assert read.steps() == []


def test_seconds_for_a_step_and_a_description_of_training(node: Node, tmp_path: Path) -> None:
    """As of slow jobs, and of Lightning."""
    read = Read(node, tmp_path)
    assert read.steps(*(bar(done, 90, "Epoch 0", "1.52s/it, v_num=0") for done in (1, 2, 3))) == [2]


def test_other_bars_are_not_the_trainings(node: Node, tmp_path: Path) -> None:
    """Data sets, downloads, shards, a sanity check, and an evaluation, which has no description, within the training."""
    read = Read(node, tmp_path)
    others = [("Map", "900 examples/s"), ("Downloading", "12MB/s"), ("Loading checkpoint shards", "1.2it/s"),
              ("Sanity Checking DataLoader 0", "9.1it/s"), ("tokenizing", "88it/s")]  # fmt: skip
    for of_other, unit in others:
        assert read.steps(*(bar(done, 50, of_other, unit) for done in range(50))) == []
    assert read.steps(bar(10, 500), bar(11, 500), bar(12, 500)) == [11]
    assert read.steps(*(bar(done, 40) for done in range(41))) == [12]  # what was held of the training before
    assert read.steps(bar(13, 500), bar(14, 500)) == [13]


def test_the_next_epoch_goes_on_counting(node: Node, tmp_path: Path) -> None:
    """Each has a bar of its own; an agent that starts anew knows how many there were."""
    read = Read(node, tmp_path)
    assert read.steps(bar(99, 100, "Epoch 1"), bar(100, 100, "Epoch 1"), "\n") == [100]
    read.collector = JobLogs(node.host)
    assert read.steps(bar(1, 100, "Epoch 2"), bar(2, 100, "Epoch 2"), bar(3, 100, "Epoch 2")) == [102]


def test_a_line_that_never_ends_is_given_in_parts(node: Node, tmp_path: Path) -> None:
    """With carriage returns or without: what is read of it stays bounded."""
    read = Read(node, tmp_path)
    assert read.steps("x" * (3 * MOST_LINE_BYTES)) == []
    assert read.steps("\r" * MOST_LINE_BYTES, bar(7, 100), bar(8, 100)) == [7]
