"""Simulated cases on disk: what is written is what the label says, and is judged as what was never written."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.cli.diagnose import judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.evaluation.labels import read_labels
from simulation.cases.slow_jobs import KINDS, draw_slow
from simulation.cases.writing import FAMILIES, write_cases
from tests.support.simulated_hangs import knowledge, run_seed


@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_is_written_with_a_label_that_can_be_read(family: str, tmp_path: Path) -> None:
    """Fourteen seeds in turn: every label is read, has files, and is of the simulator; both sorts of truth are there."""
    written = list(write_cases(tmp_path, family, range(14), 16))

    labels = read_labels(tmp_path, None)

    assert [label.name for label in labels] == [one.path for one in written]
    assert {label.origin for label in labels} == {"simulator"}
    assert all(any(path.rglob("*") if path.is_dir() else [path]) for label in labels for path in label.paths)
    assert {bool(label.culprits) for label in labels} == {True, False}


@pytest.mark.parametrize("seed", [2, 3, 16])
def test_a_written_hang_is_judged_as_its_records_are(seed: int, tmp_path: Path) -> None:
    """The verdict on the files names the culprits of the verdict on the simulator's records."""
    list(write_cases(tmp_path, "hang", range(seed, seed + 1), 32))
    (label,) = read_labels(tmp_path, None)

    verdict, _, _ = judged(label.paths, knowledge(), Hosts(), Speech(quiet=True), workers=1)

    _, _, expected = run_seed(seed, 32)
    assert [(one.kind, one.id, one.ranks) for one in verdict.culprits] == [
        (one.kind, one.id, one.ranks) for one in expected.culprits
    ]


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    """Two folders of one seed are equal byte for byte."""
    for family in FAMILIES:
        for name in ("one", "two"):
            list(write_cases(tmp_path / family / name, family, range(2), 16))
        files = {
            name: {
                path.relative_to(tmp_path / family / name): path.read_bytes()
                for path in (tmp_path / family / name).rglob("*") if path.is_file()
            }
            for name in ("one", "two")
        }  # fmt: skip
        assert files["one"] == files["two"]


def test_who_slows_no_job_is_no_culprit() -> None:
    """A worker or stage is a culprit where the job takes longer by it; a latent one may be named, and nothing be evicted."""
    labels = [draw_slow(seed, 64).label for seed in range(10 * len(KINDS))]
    latent = [label for label in labels if label.fault.startswith("latent")]

    assert latent
    assert all(label.masked and not label.culprits and label.cause == ("none",) for label in latent)
    slow = [label for label in labels if label.fault == "slow_worker"]
    assert len(slow) > len(labels) / 8
    assert all(label.culprits for label in slow)
    assert any(label.decidable for label in slow)
    assert any(not label.decidable for label in slow)
