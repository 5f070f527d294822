"""The fault classes of hardware that works and is not well. By themselves they take no node from its job."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.model.fault_class import FaultClass

ADVICE = "its job goes on: test the node, best when the job has ended, and look at its cooling, power and seating"

SETTING = (
    "a setting and no fault: compare `nvidia-smi -q -d POWER,CLOCK` of both; `nvidia-smi -rac` resets applications clocks, "
    "`nvidia-smi -pl` the limit of power"
)


def rows() -> Iterator[FaultClass]:
    """Yield every row."""
    by = ("gray",)
    machine = (
        ("gray_throttled", "its clocks are lowered for heat or by its board, and its peers' are not"),
        ("gray_clocks", "its clock is below that of its peers under the same load"),
        ("gray_pcie", "its PCIe link runs below what it can, under load"),
        ("gray_memory", "errors of its GPU's memory grow, and its peers' do not"),
        ("gray_links", "errors on its links grow faster than its peers'"),
    )
    for name, words in machine:
        yield FaultClass(name, by, ("machine",), "probe", words, advice=ADVICE, traits=("gray",))
    yield FaultClass(
        "gray_port", by, ("network",), "probe", "a port of its node is down, slow or has errors, and its peers are not",
        traits=("gray",),
    )  # fmt: skip
    yield FaultClass(
        "gray_setting", by, ("platform",), "none", "a setting holds its clock below that of its peers", advice=SETTING,
        traits=("gray",),
    )  # fmt: skip
    yield FaultClass(
        "gray_even", by, ("none",), "none", "no GPU under load stands apart from its peers", traits=("job_may_run",)
    )
    yield FaultClass(
        "gray_undecided",
        by,
        ("unknown",),
        "none",
        "GPUs show what may be a fault, and nothing decides",
        traits=("gray",),
    )
