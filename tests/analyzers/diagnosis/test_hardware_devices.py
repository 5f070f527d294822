"""What the GPUs' own library tells an agent reaches the verdict: a lost GPU, an Xid, and whose GPU it is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

import analyzers.knowledge
from analyzers.diagnosis.hardware.hardware import analyze
from analyzers.knowledge import parse
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology, infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import Device, DeviceState, KernelEvent, Members, Placement, Record, Samples

FOLDER = Path(analyzers.knowledge.__file__).parent
KNOWLEDGE = parse({path.stem: path.read_text() for path in sorted(FOLDER.glob("*.toml"))})
AT = 1_790_000_000.0


def gpu(index: int, node: str = "gpu-0001") -> Device:
    """A GPU's names, as an agent sends them."""
    return Device(source="nvml", node=node, at=AT, type="gpu", id=f"GPU-{node}-{index}", index=index, pci=pci(index))


def pci(index: int) -> str:
    """The PCI address of a GPU."""
    return f"0000:{0x18 + 16 * index:02x}:00"


def state(index: int, word: str, seconds: float = 60.0, node: str = "gpu-0001", **more: object) -> DeviceState:
    """A GPU's change of state."""
    known = {"source": "nvml", "node": node, "at": AT + seconds, "text": "GPU is lost (15)", "pci": pci(index)}
    return DeviceState(**{**known, "device": f"GPU-{node}-{index}", "state": word, **more})  # type: ignore[arg-type]


def xid(code: int, index: int, seconds: float, source: str, **more: object) -> KernelEvent:
    """An Xid from the kernel's log or from the library."""
    known = {"event": "xid", "code": code, "pci": pci(index), "node": "gpu-0001", "at": AT + seconds, "source": source}
    return KernelEvent(**{**known, "text": f"Xid {code}", **more})  # type: ignore[arg-type]


def judged(records: Iterable[Record]) -> list[Finding]:
    """What the analyzer claims about these records."""
    window = Window.build(records)
    return list(analyze(window, infer(window), KNOWLEDGE))


def named(findings: Iterable[Finding]) -> list[tuple[str, str | None, str | None, tuple[int, ...]]]:
    """Kind, node, device and ranks of every suspect."""
    return [(one.kind, one.node, one.device, one.ranks) for finding in findings for one in finding.suspects]


def test_a_gpu_that_the_library_lost_is_named_without_any_kernel_log() -> None:
    """Eight GPUs of which one became lost: the verdict is that node and that GPU, and its restart, by this alone."""
    records = [*(gpu(index) for index in range(8)), *(state(index, "ok", 0) for index in range(8)), state(5, "lost")]

    verdict = judge(Window.build(records), Topology(), KNOWLEDGE)

    (culprit,) = verdict.culprits
    assert (culprit.id, culprit.devices) == ("gpu-0001", (pci(5),))
    assert (verdict.cause, verdict.symptom, verdict.action.kind) == ("machine", "hardware", "reboot_node")


@pytest.mark.parametrize(("seconds", "sources"), [(57, ["kmsg"]), (20, ["kmsg", "nvml"])])
def test_the_library_and_the_kernel_tell_of_one_loss(seconds: float, sources: list[str]) -> None:
    """The kernel's line and the library's state are one finding with one suspect; reported at one time they count once."""
    logged = xid(79, 5, seconds, "kmsg", event="off_bus")

    (finding,) = judged([gpu(5), logged, state(5, "lost", 60)])

    assert named([finding]) == [("device", "gpu-0001", pci(5), ())]
    assert [evidence.source for evidence in finding.suspects[0].evidence] == sources
    assert finding.onset == AT + seconds


@pytest.mark.parametrize("word", ["ok", "unreadable", "no_permission", "reset_required", "absent"])
def test_other_states_accuse_nobody(word: str) -> None:
    """A GPU that may not be read, or was taken away in an orderly manner, is no lost GPU."""
    assert judged([gpu(5), state(5, "ok", 0), state(5, word)]) == []


@pytest.mark.parametrize(
    ("words", "accused"),
    [("Unknown Error", True), ("Insufficient Permissions", False), ("Not Found", False)],
)
def test_a_gpu_that_nvidia_smi_lists_and_cannot_open_is_suspect(words: str, accused: bool) -> None:
    """The driver's unknown error names the GPU; a GPU that may not be opened accuses nobody, nor does one of an Xid again."""
    reported = DeviceState(
        device=pci(5), pci=pci(5), state="unreadable", node="gpu-0001",
        text=f"Unable to determine the device handle: {words}",
    )  # fmt: skip

    assert named(judged([reported])) == ([("device", "gpu-0001", pci(5), ())] if accused else [])
    assert len(judged([reported, reported, xid(79, 5, 0, "kmsg", event="off_bus")])) == 1


def test_a_loss_is_told_once_however_often_the_agent_starts() -> None:
    """An agent that starts three times beside a lost GPU adds no second loss; one after a recovery does."""
    again = [state(5, "lost", 60.0 + 100 * number) for number in range(3)]

    (finding,) = judged([gpu(5), *again])

    assert len(finding.suspects[0].evidence) == 1
    (finding,) = judged([gpu(5), *again, state(5, "ok", 400), state(5, "lost", 500)])
    assert len(finding.suspects[0].evidence) == 2


def test_a_state_without_an_address_takes_it_from_the_device() -> None:
    """Where the state names only the UUID, the device record of the same node gives the PCI address."""
    records = [gpu(5), gpu(5, "gpu-0002"), state(5, "lost", pci=None)]

    assert named(judged(records)) == [("device", "gpu-0001", pci(5), ())]


def test_an_xid_that_both_tell_counts_once() -> None:
    """The library's Xid 48, nine seconds after the log's, is the same; alone it is as good as the log's."""
    both = judged([gpu(3), xid(48, 3, 0, "kmsg"), xid(48, 3, 9, "nvml")])
    alone = judged([gpu(3), xid(48, 3, 9, "nvml")])

    assert named(both) == named(alone) == [("device", "gpu-0001", pci(3), ())]
    assert both[0].fault_class == alone[0].fault_class == "ecc_dbe"
    assert len(both[0].suspects[0].evidence) == 1


def test_all_gpus_lost_together_are_the_node() -> None:
    """Eight GPUs lost at one reading are one fault of the node, not eight of GPUs."""
    (finding,) = judged([*(gpu(index) for index in range(8)), *(state(index, "lost") for index in range(8))])

    assert (finding.suspects[0].kind, finding.suspects[0].node, len(finding.suspects)) == ("node", "gpu-0001", 1)


def test_two_lost_gpus_without_an_address_are_two() -> None:
    """GPUs that were lost before anybody knew their addresses are distinguished: two of them are the node's fault."""
    lost = [state(index, "lost", device=f"gpu{index}", pci=None) for index in (2, 5)]

    (finding,) = judged(lost)

    assert (finding.fault_class, finding.suspects[0].kind) == ("off_bus_many", "node")
    assert "2 GPUs" in finding.suspects[0].why


@pytest.mark.parametrize("by", ["uuid", "index", "process", "order"])
def test_the_rank_of_a_lost_gpu_is_known(by: str) -> None:
    """The placement's device, the process that NVML saw on the GPU, or the order of the GPUs say whose GPU was lost."""
    ranks = range(8, 16)
    devices = {
        "uuid": [f"GPU-gpu-0001-{7 - index}" for index in range(8)],
        "index": [str(7 - index) for index in range(8)],
    }
    placement = Placement(
        ranks=Members.of(ranks),
        nodes=("gpu-0001",) * 8,
        pids=tuple(range(4000, 4008)),
        devices=tuple(devices.get(by, ())),
    )
    records: list[Record] = [*(gpu(index) for index in range(8)), placement, state(5, "lost")]
    if by == "process":
        used = tuple(f"GPU-gpu-0001-{7 - index}/{4000 + index}" for index in range(8))
        records.append(Samples(node="gpu-0001", scope="gpu_process", devices=used))

    assert named(judged(records)) == [("device", "gpu-0001", pci(5), (13,) if by == "order" else (10,))]
