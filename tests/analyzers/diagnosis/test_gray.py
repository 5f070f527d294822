"""Which GPU works and is not well, or that none stands apart: reports of healthy nodes, changed in one thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analyzers.diagnosis.gray.names import MASK, UTIL
from analyzers.diagnosis.gray.readings import UNKNOWN, DeviceReadings
from analyzers.diagnosis.gray.under_load import measured
from analyzers.model.verdict import Verdict
from collectors.files.reading import read_paths
from tests.support.gray_day import FAULTS, GrayDay
from tests.support.gray_fleet import (
    A100,
    BRAKE,
    CLOCK_SETTING,
    HOT,
    IDLE,
    POWER_CAP,
    SLOWDOWN,
    WARM,
    Change,
    GpuState,
    GrayFleet,
    both,
    named,
    on,
    pci,
    verdict_on,
)

OVERHEATED = {"reasons": frozenset({SLOWDOWN, HOT}), "clock": 1110, "temperature": 88, "power": 420.0}
HERE = [("node", "gpu-0001", (pci(3),))]
IDLE_CHANGES = {
    name: getattr(IDLE, name) for name in ("load", "clock", "temperature", "power", "generation", "reasons")
}
TOOLS = pytest.mark.parametrize("tool", ["smi", "dcgm", "nvml"])


def classes(verdict: Verdict) -> list[str]:
    """The classes of the verdict's roots."""
    return [root.fault_class for root in verdict.roots]


def growing(name: str, an_hour: float, base: int = 0) -> Change:
    """One GPU's count grows from report to report, of a minute each."""
    return lambda node, gpu, report: {name: base + round(an_hour / 60 * report)} if (node, gpu) == (1, 3) else {}


POSITIVES: dict[str, tuple[Change, str]] = {
    "hot": (on(1, 3, **OVERHEATED), "gray_throttled"),
    "since a while": (on(1, 3, 2, **OVERHEATED), "gray_throttled"),
    "power brake": (on(1, 3, reasons=frozenset({SLOWDOWN, BRAKE}), clock=900), "gray_throttled"),
    "by the driver": (on(1, 3, reasons=frozenset({WARM}), clock=1400), "gray_throttled"),
    "eight lanes": (on(1, 3, width=8), "gray_pcie"),
    "an earlier generation": (on(1, 3, generation=3), "gray_pcie"),
    "a lower clock": (on(1, 3, clock=1200, power=400.0), "gray_clocks"),
    "uncorrectable errors": (growing("uncorrected", 60), "gray_memory"),
    "corrected errors": (growing("corrected", 600), "gray_memory"),
    "remapped rows": (growing("remapped", 30), "gray_memory"),
    "replays": (growing("replays", 6000), "gray_links"),
}  # fmt: skip


@TOOLS
@pytest.mark.parametrize("case", POSITIVES)
def test_the_one_that_is_not_well_is_named_and_tested(case: str, tool: str) -> None:
    """Its node and its address are named, its machine is the cause, and no more is asked for than a test."""
    change, fault_class = POSITIVES[case]
    verdict = GrayFleet(change=change).verdict(tool)
    assert (named(verdict), classes(verdict)) == (HERE, [fault_class])
    assert (verdict.symptom, verdict.cause) == ("hardware", "machine")
    assert (verdict.action.kind, verdict.action.nodes) == ("probe", ("gpu-0001",))
    assert verdict.culprits[0].probability <= 0.8


SETTINGS: dict[str, Change] = {
    "a lower limit of power": on(1, 3, limit=400.0, power=398.0, clock=1200, reasons=frozenset({POWER_CAP})),
    "applications clocks": on(1, 3, clock=1200, power=400.0, reasons=frozenset({CLOCK_SETTING})),
}


@TOOLS
@pytest.mark.parametrize("case", SETTINGS)
def test_a_setting_is_no_fault_of_the_machine(case: str, tool: str) -> None:
    """What its operator set is stated with the commands that show and reset it, and is no surer than an unexplained clock."""
    verdict = GrayFleet(change=SETTINGS[case]).verdict(tool)
    assert (classes(verdict), verdict.cause, verdict.action.kind) == (["gray_setting"], "platform", "none")
    unexplained = GrayFleet(change=on(1, 3, clock=1200, power=400.0)).verdict(tool)
    assert verdict.culprits[0].probability <= unexplained.culprits[0].probability
    assert "nvidia-smi -rac" in verdict.action.why


def test_gpus_under_load_of_which_none_stands_apart_are_healthy() -> None:
    """Not where none was under load, or too few were: then nothing was compared."""
    verdict = GrayFleet().verdict()
    assert (verdict.symptom, verdict.action.kind) == ("healthy", "none")
    assert "16 GPUs under load" in verdict.evidence[0].text
    assert GrayFleet(change=lambda _node, _gpu, _report: IDLE_CHANGES).verdict().symptom == "unknown"


@pytest.mark.parametrize(("name", "tool"), [("crc", "dcgm"), ("recoveries", "dcgm"), ("crc", "nvml")])
def test_nvlink_errors_that_grow_on_one_gpu(name: str, tool: str) -> None:
    """dcgm-exporter counts them a GPU, NVML a link."""
    verdict = GrayFleet(change=growing(name, 1200)).verdict(tool)
    assert (named(verdict), classes(verdict)) == (HERE, ["gray_links"])


def every(**changes: object) -> Change:
    """All GPUs alike."""
    return lambda *_place: changes


NEGATIVES: dict[str, Change] = {
    "healthy": every(),
    "an idle GPU": on(1, 3, **IDLE_CHANGES),
    "all idle but one": lambda node, gpu, _report: {} if (node, gpu) == (1, 3) else IDLE_CHANGES,
    "all idle": every(**IDLE_CHANGES),
    "all at the power limit": every(reasons=frozenset({POWER_CAP}), clock=1400, power=699.0),
    "one at the power limit": on(1, 3, reasons=frozenset({POWER_CAP}), clock=1400, power=699.0),
    "all hot": every(temperature=90),
    "all hot and slow": every(**OVERHEATED),
    "one hot and as fast": on(1, 3, temperature=91),
    "half of them hot and slow": lambda _node, gpu, _report: OVERHEATED if gpu % 2 else {},
    "the same slot of each node": lambda _node, gpu, _report: OVERHEATED if gpu == 7 else {},
    "one reading of one": lambda *place: OVERHEATED if place == (1, 3, 4) else {},
    "its newest reading only": lambda *place: OVERHEATED if place == (1, 3, 5) else {},
    "all with eight lanes": every(width=8),
    "eight lanes are its most": on(1, 3, width=8, width_max=8),
    "half with eight lanes": lambda _node, gpu, _report: {"width": 8} if gpu < 4 else {},
    "generation 1 at idle": on(1, 3, load=0, generation=1),
    "another model": on(1, 3, model=A100, clock=1155, limit=400.0, power=300.0, generation=4, generation_max=4),
    "half of another model": lambda _node, gpu, _report: (
        {"model": A100, "clock": 1155, "generation": 4} if gpu < 4 else {}
    ),
    "errors of its lifetime": on(1, 3, uncorrected_ever=900, remapped=12),
    "errors of long ago": on(1, 3, corrected=4000, uncorrected=3, replays=90_000, remapped=4),
    "corrected errors in one burst": on(1, 3, 3, corrected=500),
    "few corrected errors": growing("corrected", 30),
    "replays on all": lambda node, gpu, report: {"replays": 100 * report + gpu},
    "the count began anew": lambda node, gpu, report: {"replays": 9_000_000 if report < 3 else 0} if gpu == 3 else {},
    "a little slower": on(1, 3, clock=1700),
    "less to do": on(1, 3, load=60, clock=1300),
}


@TOOLS
@pytest.mark.parametrize("case", NEGATIVES)
def test_no_gpu_that_does_not_stand_apart_is_named(case: str, tool: str) -> None:
    """What is idle, shared, over, of another model or long ago accuses none."""
    verdict = GrayFleet(change=NEGATIVES[case]).verdict(tool)
    assert named(verdict) == []
    assert verdict.action.kind == "none"


LEFT_OUT = {
    "no load": ("Utilization", "GPU                               :"), "no models": ("Product Name",),
    "no masks and no clocks": ("Slowdown", "SM  "),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_OUT)
def test_less_evidence_names_none(what: str) -> None:
    """Without what a comparison needs there is none."""
    assert named(GrayFleet(change=on(1, 3, **OVERHEATED), left_out=LEFT_OUT[what]).verdict()) == []


@pytest.mark.parametrize("gpus", [1, 2, 3])
def test_too_few_peers_and_no_past_name_none(gpus: int) -> None:
    """A GPU beside one or two others, and so since its first reading."""
    for changes in (OVERHEATED, {"width": 8}, {"clock": 1000, "power": 300.0}):
        verdict = GrayFleet(nodes=1, gpus=gpus, change=on(0, 0, **changes)).verdict()
        assert named(verdict) == []
        assert verdict.abstained


@pytest.mark.parametrize("gpus", [1, 2])
def test_its_own_past_stands_for_peers(gpus: int) -> None:
    """It ran well for an hour, and has not since."""
    for changes in (OVERHEATED, {"width": 8}):
        fleet = GrayFleet(nodes=1, gpus=gpus, reports=40, change=on(0, 0, 25, **changes))
        assert named(fleet.verdict()) == [("node", "gpu-0000", (pci(0),))]
    both_gpus = GrayFleet(nodes=1, gpus=2, reports=40, change=lambda _node, _gpu, at: OVERHEATED if at >= 25 else {})
    assert named(both_gpus.verdict()) == []


def test_one_report_names_a_link_and_what_is_throttled_and_slow() -> None:
    """A single report has no past and no share: a link stays as it is, and lowered clocks that are low are no accident."""
    for changes in ({"width": 8}, OVERHEATED):
        assert named(GrayFleet(reports=1, change=on(1, 3, **changes)).verdict()) == HERE
    resting = both(on(1, 3, **IDLE_CHANGES), lambda *place: {"load": 90, **OVERHEATED} if place == (1, 3, 2) else {})
    assert named(GrayFleet(change=resting).verdict()) == []
    accident = GrayFleet(reports=1, change=on(1, 3, reasons=frozenset({SLOWDOWN, HOT}))).verdict()
    assert named(accident) == []
    assert [item.what for item in accident.missing if "may be an accident" in item.what]
    assert named(GrayFleet(reports=1, change=on(1, 3, clock=1200, power=400.0)).verdict()) == []


def test_a_node_whose_gpus_are_all_held_down_is_named_beside_three_that_are_not() -> None:
    """A power supply or a fan of the node; of two nodes alike, what they share."""

    def held(*nodes: int) -> Change:
        return lambda node, _gpu, _report: {"reasons": frozenset({BRAKE}), "clock": 900} if node in nodes else {}

    assert named(GrayFleet(nodes=4, change=held(2)).verdict()) == [("node", "gpu-0002", ())]
    for nodes in ((2, 3), (1, 2, 3)):
        assert named(GrayFleet(nodes=8, change=held(*nodes)).verdict()) == []
    assert named(GrayFleet(nodes=2, change=held(1)).verdict()) == []


def test_two_signs_of_one_gpu_are_one_culprit() -> None:
    """They agree, and still evict none."""
    verdict = GrayFleet(change=on(1, 3, width=8, **OVERHEATED)).verdict()
    assert named(verdict) == HERE
    assert verdict.culprits[0].probability == 0.8
    assert verdict.action.kind == "probe"


def test_files_of_several_nodes_are_compared(tmp_path: Path) -> None:
    """A file a node, named after it, as an operator collects them."""
    folder = GrayFleet(reports=3, change=on(1, 3, **OVERHEATED)).write(tmp_path)
    verdict = verdict_on(list(read_paths([str(folder)])))
    assert named(verdict) == HERE
    assert "1110 MHz" in verdict.culprits[0].why


def naive(fleet: GrayFleet) -> set[tuple[int, int]]:
    """A control: a fixed bound on temperature and clock, on the newest report."""
    newest = {
        (node, gpu): fleet.state(node, gpu, fleet.reports - 1)
        for node in range(fleet.nodes)
        for gpu in range(fleet.gpus)
    }
    return {place for place, state in newest.items() if state.temperature > 85 or state.clock < 1300}


def test_fixed_bounds_do_worse(capsys: pytest.CaptureFixture[str]) -> None:
    """A bound on temperature and clock misses links and errors, and accuses idle, capped and other GPUs."""
    right = {"naive": 0, "gray": 0}
    cases = [(change, {(1, 3)}) for change, _ in POSITIVES.values()] + [
        (change, set()) for change in NEGATIVES.values()
    ]
    for change, guilty in cases:
        fleet = GrayFleet(change=change)
        culprits = named(fleet.verdict())
        right["naive"] += naive(fleet) == guilty
        right["gray"] += (culprits == HERE) if guilty else not culprits
    with capsys.disabled():
        print(f"\ngray hardware: {right} of {len(cases)}")
    assert right["gray"] == len(cases)
    assert right["naive"] < 0.6 * len(cases)


def test_another_state_of_the_fleet_changes_nothing() -> None:
    """The same GPU is named where clocks, models and loads are others."""
    base = replace(GpuState(), model=A100, clock=1260, limit=400.0, power=380.0, generation=4, generation_max=4)
    verdict = GrayFleet(base=base, change=on(1, 3, reasons=frozenset({HOT}), clock=800)).verdict()
    assert named(verdict) == HERE


HEALTHY_DAYS, FAULTY_DAYS = 60, 6


def test_drawn_days_name_no_healthy_gpu_and_nearly_every_faulty_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Silicon that differs, jobs of several kinds, single readings of heat, bursts of errors, and pauses."""
    healthy = [named(GrayDay(seed).fleet.verdict("nvml")) for seed in range(HEALTHY_DAYS)]
    days = [GrayDay(seed, fault) for fault in FAULTS for seed in range(FAULTY_DAYS)]
    found = [
        (named(day.fleet.verdict("nvml")), [("node", day.fleet.name(day.guilty[0]), (pci(day.guilty[1]),))])
        for day in days
    ]
    right = sum(culprits == guilty for culprits, guilty in found)
    with capsys.disabled():
        print(f"\ngray hardware: {right} of {len(days)} drawn faults right, {sum(map(bool, healthy))} healthy named")
    assert not any(healthy)
    assert all(culprits in ([], guilty) for culprits, guilty in found)
    assert right >= 0.95 * len(days)


@pytest.mark.parametrize("damaged", [-1.0, 1e300, float(1 << 53), float("inf")])
def test_a_number_that_is_no_mask_of_reasons_lowers_no_clock(damaged: float) -> None:
    """A cast of it would set any bit, by the processor: GPUs that are under load stay so, without a reason."""
    ticks = np.arange(5.0)
    columns = {MASK: np.full(5, damaged), UTIL: np.full(5, 99.0)}
    now = measured(DeviceReadings("gpu-0001", "3", UNKNOWN, "samples", True, ticks, columns)).now
    assert now.readings == 5
    assert np.isnan(now.lowered)
    assert not now.reason


def at(reports: str, **changes: object) -> Change:
    """Change one GPU in the reports that are marked: ``x..`` in the first of three."""
    return lambda *place: changes if place[:2] == (1, 3) and reports[place[2]] == "x" else {}


SIGNS = {"hot": OVERHEATED, "eight lanes": {"width": 8}, "a lower clock": {"clock": 1200, "power": 400.0}}


@TOOLS
@pytest.mark.parametrize("sign", SIGNS)
def test_what_two_newest_readings_no_longer_show_is_past(sign: str, tool: str) -> None:
    """It is said as over, with since when, and asks for no test; one sound reading ends nothing."""
    verdict = GrayFleet(change=at("xxxx..", **SIGNS[sign])).verdict(tool)
    assert (named(verdict), verdict.symptom, verdict.action.kind) == ([], "unknown", "none")
    (text,) = (item.text for item in verdict.evidence)
    assert {"were", "was", "ran"} & set(text.split())
    assert "no longer" in text
    assert "newest 2 readings" in text
    assert any("comes back" in item.what for item in verdict.missing)
    assert named(GrayFleet(change=at("xxxxx.", **SIGNS[sign])).verdict(tool)) == HERE


def test_what_comes_and_goes_is_not_over() -> None:
    """Two sound readings at the end are as those between."""
    assert named(GrayFleet(reports=9, change=at("xxx.xxx..", **OVERHEATED)).verdict()) == HERE
