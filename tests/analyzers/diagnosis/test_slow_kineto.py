"""Traces of torch.profiler of several ranks: which kind of slowness, and who; of a host that computes, and of devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from collectors.files.reading import read_paths
from collectors.formats.traces.kineto.gathered import KinetoSpans
from service.reports.story import headlines
from service.reports.text import render
from tests.support.kineto_traces import KinetoJob
from tests.support.op_traces import judged

ON = pytest.mark.parametrize("device", [False, True], ids=["host", "device"])


def named(verdict: Verdict) -> list[tuple[int, ...]]:
    """Return the ranks of each culprit."""
    return [one.ranks for one in verdict.culprits]


@ON
@pytest.mark.parametrize("rank", [0, 3, *(pytest.param(rank, marks=pytest.mark.acceptance) for rank in (1, 2))])
def test_a_slow_rank_is_named_with_its_machine(tmp_path: Path, device: bool, rank: int) -> None:
    """Wherever it is; the ranks that communicate longest are those that wait for it."""
    verdict = KinetoJob(device=device, times={rank: 1.5}).verdict(tmp_path / "t")
    assert (verdict.symptom, verdict.cause, named(verdict)) == ("slow", "machine", [(rank,)])
    assert verdict.action.nodes == (f"gpu-{rank:04d}",)


@ON
@pytest.mark.parametrize(
    ("slow", "who"), [((2,), "Rank 2 (node gpu-0001) slows"), ((2, 3), "Node gpu-0001 (ranks 2-3) slows")]
)
def test_a_rank_beside_a_sound_one_is_said_before_its_node(
    tmp_path: Path, device: bool, slow: tuple[int, ...], who: str
) -> None:
    """Of a node whose other rank is as fast as all the others it is not said that it is slow, and it is tested as before."""
    job = KinetoJob(world=8, ranks_a_node=2, device=device, times=dict.fromkeys(slow, 1.5))
    verdict = job.verdict(tmp_path / "t")

    assert str(headlines(verdict)[0]).startswith(who)
    assert (verdict.culprits[0].kind, verdict.culprits[0].ranks_on_node) == ("node", 2)
    assert verdict.action.nodes == ("gpu-0001",)


@ON
def test_what_a_slow_rank_costs_is_in_hours_of_gpus_only_where_there_are_some(tmp_path: Path, device: bool) -> None:
    """A trace whose profiler found no device is of a job of processors: neither GPUs nor their tests are spoken of."""
    verdict = KinetoJob(device=device, times={2: 1.5}).verdict(tmp_path / "t")
    said = " ".join(render(verdict).split())

    assert ("GPU hours a day (4 ranks, a GPU each)" in said, "dcgmi" in said) == (device, device)
    assert ("rank hours a day (4 ranks)" in said, "GPU" in said) == (not device, device)
    assert verdict.coverage.has_gpus is device


@pytest.mark.parametrize("read", [1, 3])
def test_how_many_of_the_jobs_ranks_were_read_is_said(tmp_path: Path, read: int) -> None:
    """Each rank's trace states the size of the job: the answer says of how many it knows nothing."""
    verdict = KinetoJob(times={0: 1.5}).verdict(tmp_path / "t", without=range(read, 4))

    assert f"{read} of 4 ranks seen" in render(verdict)


def test_the_longest_communication_is_a_victims() -> None:
    """Who looks for the longest collective accuses an innocent rank, every time."""
    for rank in range(4):
        traces = KinetoJob(times={rank: 1.5}).ranks()
        waited = {
            one: sum(event["dur"] for event in trace["traceEvents"] if event["name"].startswith("gloo"))
            for one, trace in traces.items()
        }
        assert min(waited, key=lambda one: waited[one]) == rank
        assert max(waited, key=lambda one: waited[one]) != rank


@ON
def test_clocks_that_differ_change_nothing(tmp_path: Path, device: bool) -> None:
    """Only a rank's own times are compared."""
    skewed = KinetoJob(device=device, times={1: 1.5}, offset_seconds={0: 300.0, 1: -7.0, 3: 5_000.0})
    plain = KinetoJob(device=device, times={1: 1.5})
    found, expected = skewed.verdict(tmp_path / "skewed"), plain.verdict(tmp_path / "plain")
    assert (named(found), found.action.kind) == (named(expected), expected.action.kind) == ([(1,)], "probe")


@ON
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_raises_no_alarm(tmp_path: Path, device: bool, seed: int) -> None:
    """Nor one whose loader or Python code takes a while on all ranks alike."""
    alike = dict.fromkeys(range(4), 15.0)
    job = KinetoJob(
        device=device, seed=seed, jitter=0.02, loader=alike if seed == 1 else {}, extra=alike if seed else {}
    )
    verdict = job.verdict(tmp_path / "t")
    assert (verdict.symptom, verdict.action.kind) == ("healthy", "none")


@ON
@pytest.mark.parametrize("rank", [0, 2])
def test_a_slow_loader_is_told_and_no_machine_is(tmp_path: Path, device: bool, rank: int) -> None:
    """The rank that it is of is shown."""
    verdict = KinetoJob(device=device, loader={rank: 30.0}).verdict(tmp_path / "t")
    assert ([one.fault_class for one in verdict.roots], named(verdict)) == (["slow_loader"], [(rank,)])
    assert (verdict.cause, verdict.action.kind) == ("storage", "none")


def test_code_that_one_rank_alone_runs_is_not_called_its_machines_fault(tmp_path: Path) -> None:
    """On the host its operations outside of that are as fast as the others'."""
    verdict = KinetoJob(extra={2: 40.0}).verdict(tmp_path / "t")
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")
    assert "rank 2" in verdict.evidence[0].text


def test_a_host_that_lets_its_device_wait_is_told_and_not_for_its_loader(tmp_path: Path) -> None:
    """A loader that takes half a millisecond of forty does not explain them."""
    verdict = KinetoJob(device=True, extra={2: 40.0}).verdict(tmp_path / "t")
    assert ([one.fault_class for one in verdict.roots], named(verdict)) == (["slow_host"], [(2,)])
    assert verdict.action.kind == "probe"


@ON
def test_of_two_ranks_none_is_named(tmp_path: Path, device: bool) -> None:
    """Which of them is slow a third one would show."""
    verdict = KinetoJob(world=2, device=device, times={1: 1.5}).verdict(tmp_path / "t")
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")


@ON
def test_a_rank_that_is_not_waited_for_is_latent(tmp_path: Path, device: bool) -> None:
    """It computes longer and the others load longer: no step would be shorter without it."""
    loads = {0: 5.0, 2: 5.0, 3: 5.0}
    verdict = KinetoJob(device=device, jitter=0.002, times={1: 1.06}, usual_loader=0.1, loader=loads).verdict(
        tmp_path / "t"
    )
    assert (verdict.symptom, verdict.action.kind) == ("healthy", "none")
    assert any("rank 1" in one.why and "does not wait for it" in one.why for one in verdict.rejected)


@ON
@pytest.mark.parametrize("absent", [0, 1, 3])
def test_without_a_ranks_file_nothing_is_said_more_boldly(tmp_path: Path, device: bool, absent: int) -> None:
    """Without the slow rank's nothing is called healthy: it may be the one that the others wait for."""
    job = KinetoJob(device=device, times={1: 1.5})
    whole, part = job.verdict(tmp_path / "whole"), job.verdict(tmp_path / "part", without=[absent])
    assert (part.coverage.ranks_expected, part.coverage.sources) == (4, {"op_timings": 3})
    if absent == 1:
        assert (part.symptom, part.abstained, part.action.kind) == ("unknown", True, "none")
        assert "rank 1" in part.missing[0].what
    else:
        assert named(part) == [(1,)]
        assert part.culprits[0].probability < whole.culprits[0].probability
        assert part.action.kind == "probe"


@ON
@pytest.mark.parametrize("collective", ["send", "all_to_allv"])
def test_ranks_whose_work_may_differ_are_not_named(tmp_path: Path, device: bool, collective: str) -> None:
    """Stages that the trace does not name, and experts that get unlike numbers of tokens."""
    verdict = KinetoJob(device=device, times={1: 1.5}, collective=collective).verdict(tmp_path / "t")
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")


@pytest.mark.parametrize("kernel", ["void fused_moe_kernel<bf16>", "cutlass::GemmGrouped", "triton_grouped_gemm_0"])
def test_a_rank_whose_kernels_are_of_experts_may_get_more_tokens(tmp_path: Path, kernel: str) -> None:
    """Their names show it where their exchange does not."""
    folder = KinetoJob(device=True, times={1: 1.5}).write(tmp_path / "t")
    for file in folder.iterdir():
        file.write_text(file.read_text().replace("ampere_bf16_gemm", kernel))
    verdict = judged(read_paths([folder]))
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")


def test_stages_that_the_groups_show_are_not_compared_with_one_another(tmp_path: Path) -> None:
    """The ranks of the second stage have more layers."""
    groups = tuple(
        {"pg_name": str(first), "pg_desc": "mesh_pp", "ranks": [first, first + 4]} for first in range(4)
    )  # fmt: skip
    uneven = dict.fromkeys(range(4, 8), 1.4)
    job = KinetoJob(world=8, device=True, collective="send", groups=groups, times=uneven)
    assert job.verdict(tmp_path / "even").action.kind == "none"
    slow = KinetoJob(world=8, device=True, collective="send", groups=groups, times=uneven | {6: 2.1})
    assert named(slow.verdict(tmp_path / "slow")) == [(6,)]


@pytest.mark.parametrize("seed", range(4))
def test_where_steps_vary_much_a_slow_rank_is_shown_or_named(tmp_path: Path, seed: int) -> None:
    """Twelve steps that vary by a tenth do not prove it, and do not show that the job is healthy."""
    verdict = KinetoJob(steps=12, jitter=0.1, seed=seed, times={1: 1.6}).verdict(tmp_path / "t")
    assert verdict.symptom == "slow"
    assert "rank 1" in verdict.evidence[0].text
    assert named(verdict) in ([], [(1,)])


def test_traces_of_two_runs_are_not_compared(tmp_path: Path) -> None:
    """Their steps have the same numbers, and the jobs may differ."""
    KinetoJob().write(tmp_path / "first")
    KinetoJob(times={1: 1.5}).write(tmp_path / "second")
    verdict = judged(read_paths([tmp_path]))
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("unknown", True, "none")
    assert "two runs" in verdict.missing[0].what


def test_two_steps_decide_nothing(tmp_path: Path) -> None:
    """What is long once may have been an accident."""
    verdict = KinetoJob(steps=2, times={1: 1.5}).verdict(tmp_path / "t")
    assert (verdict.abstained, verdict.action.kind) == (True, "none")
    assert "more steps" in verdict.missing[0].what


def test_kernels_of_userbuffers_are_communication() -> None:
    """Those of Transformer Engine wait for their peers."""
    found = KinetoSpans()
    for at, name in enumerate(("kuserbuffers_pushrecv", "userbuffers_fp16_sum_inplace_gpu_rr", "ampere_bf16_gemm")):
        found.add({"ph": "X", "cat": "kernel", "name": name, "ts": 2.0 * at, "dur": 1.0})
    assert (len(found.device_communication.merged()), len(found.kernels.merged())) == (2, 1)
