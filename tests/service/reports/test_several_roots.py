"""Where a verdict has several roots, each has its own time, and an action is only on what it is asked for."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict, instant
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import KernelEvent, LogEvent, Record
from service.packaged_knowledge import load
from service.reports import advice, story
from service.reports.instants import moment

AT = 1_790_000_000.0
LATER = AT + 86_400.0


def judged(records: Iterable[Record]) -> Verdict:
    """The verdict on these records."""
    window = Window.build(records)
    return judge(window, infer(window), load())


def xid(pci: str, at: float, node: str | None = None, code: int = 119) -> KernelEvent:
    """A GPU's system processor that did not answer."""
    return KernelEvent(source=f"k.log:{pci}", event="xid", code=code, pci=pci, at=at, node=node, text=f"Xid {code}")


def down(at: float | None, line: int) -> KernelEvent:
    """A port that went down."""
    return KernelEvent(
        source=f"s.log:{line}", event="link_down", device="ib6", node="n7", at=at, text="ib6: lost carrier"
    )


def test_each_root_has_its_own_time_and_the_reset_is_of_the_gpu() -> None:
    """A GPU's reset is asked for after its Xid; a port that flaps a day later is tested, and began a day later."""
    verdict = judged([xid("0000:9b:00", AT), *(down(LATER + second, second) for second in range(6))])
    lines = {line.who: line.when for line in story.headlines(verdict)}

    assert lines == {
        "Link n7/ib6": f"since {moment(instant(LATER))}",
        "Device 0000:9b:00": f"since {moment(instant(AT))}",
    }
    assert verdict.action.kind == "reset_gpu"
    assert verdict.action.devices == ("0000:9b:00",)
    assert "ib6" not in advice.what_to_do(verdict)


def test_two_gpus_of_one_fault_are_reset_together() -> None:
    """The table asks for the same of both: both are named."""
    verdict = judged([xid("0000:9b:00", AT, "n1"), xid("0000:1b:00", AT + 4000.0, "n2")])

    assert verdict.action.kind == "reset_gpu"
    assert set(verdict.action.nodes) == {"n1", "n2"}


def test_a_root_without_a_time_does_not_take_that_of_another_file() -> None:
    """What the platform said has no clock; the time of an event that is not what is named stays off its line."""
    ended = LogEvent(source="slurm.out:1", event="preempted", text="CANCELLED DUE TO PREEMPTION")
    verdict = judged([ended, xid("0000:9b:00", AT, code=31)])

    assert [line.who for line in story.headlines(verdict)][:1] == ["The platform around the job"]
    assert story.headlines(verdict)[0].when == ""
