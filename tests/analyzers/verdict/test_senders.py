"""Which agents a finding rests on: by the records that its evidence names; files have none, and a doubt leaves it open."""

from __future__ import annotations

from dataclasses import replace

from analyzers.model.finding import Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from analyzers.verdict.senders import one_voice, with_senders
from collectors.records import LogEvent, of_sender

SHAPE = Topology((0, 1), {0: "a", 1: "b"})


def finding(*shown: Evidence) -> Finding:
    """Return a claim against rank 1 that shows this."""
    accused = Suspect(kind="rank", strength=0.9, why="it failed", ranks=(1,), evidence=shown)
    return Finding(
        analyzer="crash", family="log", symptom="crash", cause="machine", fault_class="device_fault", suspects=(accused,)
    )  # fmt: skip


def senders(*shown: Evidence, received: bool = True) -> frozenset[str]:
    """Return the senders of such a claim, where node a has sent a line."""
    line = LogEvent(source="train.log:7", at=5.0, event="node_failure")
    records = of_sender([line], "a", 6.0) if received else [replace_node(line)]
    (found,) = with_senders([finding(*shown)], Window(records=tuple(records)), SHAPE)
    return found.senders


def replace_node(line: LogEvent) -> LogEvent:
    """Return a line of a file that was collected on node a."""
    return LogEvent(source=line.source, at=line.at, event=line.event, node="a")


def test_evidence_is_traced_to_its_records() -> None:
    """By source and instant, else by the rank whose record it is; one that is neither leaves all of it open."""
    line, of_b = Evidence(text="a line", source="train.log:7", at=5.0), Evidence(text="its own", rank=1)

    assert senders(line) == {"a"}
    assert senders(line, of_b) == {"a", "b"}
    assert senders(line, replace(line, at=9.0)) == frozenset()
    assert senders(line, received=False) == frozenset()


def test_one_voice_is_one_other_agents() -> None:
    """Not that of the accused itself, not those of two, and not one that is unknown."""
    a, b = frozenset("a"), frozenset("b")

    assert one_voice(a, a, "b")
    assert not one_voice(a, a, "a")
    assert not one_voice(a, b, "b")
    assert not one_voice(a, frozenset(), "b")
