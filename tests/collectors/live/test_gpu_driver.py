"""The gpu collector where the driver is old, absent, exchanged, broken or does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from collectors.agent.runner import LimitExceeded
from collectors.agent.worker import Worker as AgentWorker
from collectors.agent.worker import WorkerFailed
from collectors.live import Readings
from collectors.live.sources.host import Host
from collectors.records import Device, DeviceState, Record, block
from tests.support.gpu_readings import NO_PERMISSION, THERMAL, UNKNOWN, kept, states, uuid
from tests.support.nvml_stub import REPOSITORY, Worker, build, column, of

pytestmark = pytest.mark.system

if sys.platform != "linux":
    pytest.skip("the stub is an ELF library", allow_module_level=True)


def test_a_driver_without_newer_calls_gives_the_rest(tmp_path: Path, proc: Path) -> None:
    """Symbols that an old driver lacks cost their values: throttling comes by its old name, energy is not there."""
    old = tmp_path / "old"
    old.mkdir()
    with Worker(tmp_path / "scenario", build(old, "-DOLD_DRIVER"), proc) as worker:
        worker.says("* gpus 8", f"1 throttle {THERMAL}")
        said = worker.run()

    assert set(states(said).values()) == {"ok"}
    assert column(said, "throttle_reasons_mask")[uuid(1)] == THERMAL
    assert set(column(said, "energy_millijoules_total").values()) == {None}
    assert set(column(said, "remapped_rows_pending").values()) == {None}
    assert set(column(said, "power_milliwatts").values()) == {70050}


def test_no_library_is_nothing_to_collect(tmp_path: Path, proc: Path) -> None:
    """A node without the driver's library has nothing to collect, run after run, and says what is missing."""
    with Worker(tmp_path / "scenario", None, proc) as worker:
        for _ in range(2):
            (said,) = worker.run()
            if said["kind"] != "NothingToCollect":
                pytest.skip("this machine has an NVIDIA driver of its own")
            assert "libnvidia-ml.so.1" in said["why"]


@pytest.mark.parametrize(
    ("code", "kind"), [(9, "NothingToCollect"), (18, "NothingToCollect"), (UNKNOWN, "RuntimeError")]
)
def test_a_driver_that_does_not_start_is_said_so(worker: Worker, code: int, kind: str) -> None:
    """An absent driver is quiet, a broken one a failure; either is asked again, and found once it is there."""
    worker.says(f"* init {code}", "* gpus 8")

    (said,) = worker.run()

    assert said["kind"] == kind
    worker.says("* gpus 8")
    assert len(of(worker.run(), "Device")) == 8


def test_an_exchanged_driver_is_opened_anew(worker: Worker) -> None:
    """When every call says that the library is not initialised, the next run starts it again."""
    worker.run()
    worker.says("* gpus 8", *(f"* fails:{call} 9" for call in EVERY_CALL))
    assert set(states(worker.run()).values()) == {"unreadable"}
    worker.says("* gpus 8")

    said = worker.run()

    assert len(of(said, "Device")) == 8
    assert set(states(said).values()) == {"ok"}


def test_a_driver_that_fails_as_a_whole_is_started_anew(worker: Worker) -> None:
    """A library that cannot even count its GPUs is one failure with its words, and is opened again at the next run."""
    worker.says(f"* fails:nvmlDeviceGetCount_v2 {UNKNOWN}")

    (said,) = worker.run()

    assert said["kind"] == "RuntimeError"
    assert "999" in said["why"]
    worker.says("* gpus 8")
    assert len(of(worker.run(), "Device")) == 8


def test_without_permission_the_state_says_so(worker: Worker) -> None:
    """A GPU whose every call is refused is neither ok nor lost."""
    worker.says("* gpus 2", f"1 fails:nvmlDeviceGetHandleByIndex_v2 {NO_PERMISSION}")

    assert states(worker.run()) == {uuid(0): "ok", "gpu1": "no_permission"}


def test_a_gpu_that_needs_a_reset_says_so(worker: Worker) -> None:
    """A call that asks for a reset makes the state reset_required, though others still answer."""
    worker.says("* gpus 2", "0 fails:nvmlDeviceGetPowerUsage 16")

    assert states(worker.run()) == {uuid(0): "reset_required", uuid(1): "ok"}


def test_a_library_elsewhere_is_found_by_option(library: Path, tmp_path: Path, proc: Path) -> None:
    """Option `library` names a driver that no search path leads to; a wrong one is nothing to collect, with the path."""
    for path, kind in ((library, "Device"), (tmp_path / "gone.so", "NothingToCollect")):
        with Worker(tmp_path / "scenario", None, proc, options={"library": str(path)}) as worker:
            worker.says("* gpus 1")
            said = worker.run()
        assert of(said, kind)
    assert "gone.so" in said[0]["why"]


def test_a_call_that_never_returns_costs_one_process(agents: AgentWorker, host: Host, tmp_path: Path) -> None:
    """A driver that hangs overruns the run's bound, its process is killed, and once it answers again a new one reads it."""
    scenario = tmp_path / "scenario"
    scenario.write_text("* gpus 8\n4 hangs:nvmlDeviceGetPowerUsage 1\n")

    with pytest.raises(LimitExceeded, match=r"4 s"):
        list(agents(None))

    scenario.write_text("* gpus 8\n")
    assert len([one for one in until_it_runs(agents, host) if isinstance(one, Device)]) == 8


@pytest.mark.system
def test_a_gpu_that_never_answers_is_left_out(agents: AgentWorker, host: Host, tmp_path: Path) -> None:
    """Where GPU 4 begins to hang, the second process ends at it too, and the third reads the other seven without it."""
    scenario = tmp_path / "scenario"
    scenario.write_text("* gpus 8\n")
    kept(agents, host)
    scenario.write_text("* gpus 8\n4 hangs:nvmlDeviceGetPowerUsage 1\n")

    assert [overran(agents, host) for _ in range(2)] == [True, True]
    yielded = until_it_runs(agents, host)

    (state,) = [one for one in yielded if isinstance(one, DeviceState) and one.state != "ok"]
    assert (state.device, state.pci, state.state) == (uuid(4), "0000:58:00", "unreadable")
    assert "did not return" in state.text
    gauges = next(one for one in yielded if isinstance(one, Readings))
    power = dict(
        zip(gauges.devices, (row[gauges.metrics.index("power_milliwatts")] for row in gauges.values), strict=True)
    )
    assert power == {uuid(index): None if index == 4 else 70050 for index in range(8)}


def overran(agents: AgentWorker, host: Host) -> bool:
    """Run, keeping cursors as the agent does, until a run overruns; False where one ends well."""
    for _ in range(50):
        try:
            kept(agents, host)
        except LimitExceeded:
            return True
        except WorkerFailed:
            time.sleep(0.2)
        else:
            return False
    raise AssertionError("no run came to anything within ten seconds")


def until_it_runs(agents: AgentWorker, host: Host) -> list[object]:
    """Run again until the wait after a killed process is over."""
    for _ in range(50):
        try:
            return kept(agents, host)
        except WorkerFailed:
            time.sleep(0.2)
    raise AssertionError("no run succeeded within ten seconds")


def test_a_lost_gpu_goes_all_the_way(agents: AgentWorker, tmp_path: Path) -> None:
    """What the agent's process reads of a GPU that becomes lost, shipped as a block, is the verdict of `diagnose`."""
    scenario = tmp_path / "scenario"
    scenario.write_text("* gpus 8\n")
    yielded = list(agents(None))
    scenario.write_text("* gpus 8\n5 lost 1\n")
    yielded += list(agents(None))
    shipped = [
        msgspec.structs.replace(one, node="gpu-0001", at=1_790_000_000.0 + place)
        for place, one in enumerate(yielded)
        if isinstance(one, Record)
    ]
    file = tmp_path / "records.fhblock"
    file.write_bytes(block.encode(shipped, pack=True))

    program = "from service.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "diagnose", "--json", str(file)],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )

    verdict = json.loads(done.stdout)
    assert (verdict["symptom"], verdict["cause"]) == ("hardware", "machine")
    (culprit,) = verdict["culprits"]
    assert (culprit["id"], culprit["devices"]) == ("gpu-0001", ["0000:68:00"])


EVERY_CALL = (
    "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature", "nvmlDeviceGetClockInfo", "nvmlDeviceGetPowerState", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetCurrPcieLinkGeneration", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetRemappedRows", "nvmlDeviceGetPcieReplayCounter", "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetFieldValues", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkErrorCounter",
)  # fmt: skip
