"""Hashes of parameters: what the probe writes in real DDP jobs, and whom `faulthound diagnose` names by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors import faulthound_probe
from collectors.formats.probe_ring import NEWEST_HASHES, parse
from tests.support.command_line import faulthound
from tests.support.needs import needs_torch
from tests.support.probed_runs import start

STEPS, ODD_STEP = 16, 9  # of the job
REAL = pytest.mark.system


def diagnosed(folder: Path, case: str, ranks: int = 4, **variables: str) -> dict[str, Any]:
    """Run the job with a hash after every step, and return the verdict on the rings that its ranks left."""
    needs_torch("real jobs cannot be started")
    ended = start(folder, "replicas", ranks, CASE=case, FAULTHOUND_PROBE_HASH="1", **variables)
    assert [one.returncode for one in ended] == [0] * ranks, ended[0].stderr[-2000:]
    rings = sorted(folder.glob("rank*.ring"))
    for ring in rings:
        image = parse(ring.read_bytes())
        assert ([step for _, step, _, _ in image.hashes], image.swallowed) == (list(range(1, STEPS + 1)), 0)
    verdict: dict[str, Any] = json.loads(faulthound("diagnose", *rings, "--json").stdout)
    return verdict


def accused(verdict: dict[str, Any]) -> list[int]:
    """Return the ranks that a verdict names."""
    return sorted(rank for culprit in verdict["culprits"] for rank in culprit["ranks"])


@REAL
@pytest.mark.parametrize(("culprit", "ranks"), [(2, 4), (0, 3)])
def test_a_flipped_bit_of_one_rank_is_its_rank_s(tmp_path: Path, culprit: int, ranks: int) -> None:
    """The rank is named, to be tested and not evicted, from the step of the flip on."""
    verdict = diagnosed(tmp_path, "flip", ranks, CULPRIT=str(culprit))

    assert (accused(verdict), verdict["symptom"], verdict["cause"]) == ([culprit], "numeric", "machine")
    assert verdict["action"]["kind"] == "probe"
    assert f"from step {ODD_STEP} on" in verdict["first_symptom"]["text"]


@REAL
def test_of_two_replicas_both_are_to_be_tested(tmp_path: Path) -> None:
    """Nothing shows which of the two is right."""
    verdict = diagnosed(tmp_path, "flip", 2, CULPRIT="1")

    assert (accused(verdict), verdict["action"]["kind"]) == ([0, 1], "probe")
    assert verdict["culprits"][0]["kind"] == "group"


@REAL
@pytest.mark.parametrize("case", ["sound", "anew", "shards", "restores"])
def test_replicas_that_may_differ_accuse_no_rank(tmp_path: Path, case: str) -> None:
    """Running statistics of each rank's own, new parameters on all, shards, and a rank that was behind and has caught up."""
    verdict = diagnosed(tmp_path, case)

    assert (verdict["symptom"] in ("unknown", "healthy"), verdict["culprits"]) == (True, [])


@REAL
def test_replicas_that_all_go_apart_are_the_program_s(tmp_path: Path) -> None:
    """Every rank trains on its own from a step on: no rank and no machine is named."""
    verdict = diagnosed(tmp_path, "local")

    assert (accused(verdict), verdict["cause"], verdict["action"]["kind"]) == ([], "code", "none")
    assert [culprit["kind"] for culprit in verdict["culprits"]] == ["code"]


@REAL
def test_hashing_is_off_unless_asked_for(tmp_path: Path) -> None:
    """Without a number a ring has no hash; with it every N-th step has one, and results are the same to the last bit."""
    needs_torch("real jobs cannot be started")
    printed = [start(tmp_path, "train", ranks=2, FAULTHOUND_PROBE_HASH=every) for every in ("", "3")]

    assert len({one.stdout for run in printed for one in run}) == 1
    assert {one.returncode for run in printed for one in run} == {0}
    start(tmp_path, "replicas", 2, CASE="sound", FAULTHOUND_PROBE_HASH="x")
    assert parse((tmp_path / "rank0.ring").read_bytes()).hashes == ()
    start(tmp_path, "replicas", 2, CASE="sound", FAULTHOUND_PROBE_HASH="5")
    assert [step for _, step, _, _ in parse((tmp_path / "rank0.ring").read_bytes()).hashes] == [5, 10, 15]


@REAL
def test_every_bit_of_every_kind_of_parameter_counts(tmp_path: Path) -> None:
    """Of odd sizes, half precision, strided and one byte wide: any bit that flips makes another hash, and back the same."""
    needs_torch("tensors cannot be made")
    import torch

    ring = faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1)
    tensors = [
        torch.randn(7, 3), torch.randn(4, 4).to(torch.bfloat16), torch.randn(6, 5).t(), torch.randn(3, dtype=torch.float64),
        torch.randn(9)[1:], torch.ones(5, dtype=torch.int8), torch.randn(3, dtype=torch.complex64), torch.empty(0),
    ]  # fmt: skip
    optimizer = torch.optim.SGD([torch.nn.Parameter(one, requires_grad=False) for one in tensors], lr=0.1)
    parameters = faulthound_probe._Parameters(torch, ring, 1)
    parameters.optimizers.setdefault(optimizer)

    def hashed() -> int:
        parameters.take(1)
        return parse((tmp_path / "1.ring").read_bytes()).hashes[-1][3]

    before = hashed()
    found = set()
    for tensor in optimizer.param_groups[0]["params"]:
        for bit in (0, 8 * tensor.element_size() - 1) if tensor.numel() else ():
            word = (
                tensor.detach().as_strided((1,), (1,), tensor.storage_offset() + tensor.numel() - 1).view(torch.uint8)
            )
            word[bit // 8] ^= 1 << bit % 8
            found.add(hashed())
            word[bit // 8] ^= 1 << bit % 8
            assert hashed() == before
    assert len(found - {before}) == 14


@REAL
def test_a_parameter_that_cannot_be_read_ends_the_hashing_alone(tmp_path: Path) -> None:
    """One failure is counted, and the probe stays on."""
    needs_torch("tensors cannot be made")
    import torch

    parameters = faulthound_probe._Parameters(torch, faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1), 1)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.empty(4, device="meta"))], lr=0.1)
    parameters.optimizers.setdefault(optimizer)

    with pytest.raises((RuntimeError, NotImplementedError)):
        parameters.take(1)
    parameters.take(2)
    assert parse((tmp_path / "1.ring").read_bytes()).hashes == ()


def test_a_ring_keeps_its_newest_hashes_and_its_names(tmp_path: Path) -> None:
    """A light reading has the newest; names never run into the hashes; an earlier probe's ring, whose names did, has none."""
    ring = faulthound_probe.Ring(str(tmp_path / "1.ring"), 0, 1)
    for step in range(1, 1001):
        ring.hash(step, 10**9 + step, step)
    for number in range(200):
        ring.name(f"{number}{'x' * 400}")
    data = bytearray(Path(ring.path).read_bytes())
    whole, light = parse(data), parse(data, most=64)

    assert [one[1] for one in whole.hashes] == list(range(1001 - faulthound_probe.HASHES, 1001))
    assert [one[1] for one in light.hashes] == list(range(1001 - NEWEST_HASHES, 1001))
    assert (light.record().hashed, light.hashes[-1][3]) == (NEWEST_HASHES, 1000)
    data[faulthound_probe.NAMES_AT : faulthound_probe.NAMES_AT + 4] = faulthound_probe.NAMES_BYTES.to_bytes(4, "little")
    assert parse(data).hashes == ()
