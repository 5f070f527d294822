"""Hardware that is not well in a running job: the agents' readings of GPUs are compared in the verdict on a slow job."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from analyzers.incidents.messages import Open, Publish
from analyzers.incidents.replay import rerun_engine
from analyzers.model.verdict import Verdict
from service.packaged_knowledge import load
from tests.support.gray_fleet import Change, GrayFleet, named, nothing, on
from tests.support.watched_jobs import START, WatchedJob

BEGAN = 1_200.0


def verdicts(change: Change, times: float = 1.4, gpus: tuple[int, int] = (8, 8)) -> list[Verdict]:
    """Return the verdicts on a job whose steps become longer, with readings of each node's GPUs each ten seconds."""
    job = WatchedJob(law=lambda step, noise: noise.uniform(0.98, 1.02) * (times if step > BEGAN else 1.0))
    fleets = [GrayFleet(reports=1, change=change, names=("n0", "n1"), gpus=count) for count in gpus]
    healthy = [replace(fleet, change=nothing) for fleet in fleets]
    given = []
    for batch in job.batches(0.0, BEGAN + 600.0):
        at, node = batch.received_at - START, int(batch.node[1:])
        read = (fleets if at > BEGAN else healthy)[node].samples(node, batch.received_at - 1.0)
        records = (*batch.records, *read, *(fleets[node].devices(node) if at < 30.0 else ()))
        given.append(
            msgspec.structs.replace(
                batch, records=tuple(msgspec.structs.replace(one, node=batch.node) for one in records)
            )
        )
    done = [one for _, one in rerun_engine(given, load())]
    assert times > 1.0 or not any(isinstance(one, Open) for one in done)
    return [one.verdict for one in done if isinstance(one, Publish)]


def test_a_gpu_on_fewer_lanes_is_named_and_tested() -> None:
    """Its link has half its lanes since the steps are longer, and no other GPU's: its node is tested, not evicted."""
    *_, last = verdicts(on(1, 3, width=8))

    assert [(kind, id) for kind, id, _ in named(last)] == [("node", "n1")]
    assert [root.fault_class for root in last.roots] == ["gray_pcie"]
    assert (last.action.kind, last.action.nodes) == ("probe", ("n1",))
    assert any("a step takes" in one.text for one in last.evidence)


@pytest.mark.parametrize("change", [nothing, lambda *_place: {"width": 8}], ids=["healthy", "all of them"])
def test_what_all_gpus_show_names_none(change: Change) -> None:
    """GPUs that are well, or all alike, name nobody."""
    found = verdicts(change)

    assert found
    assert all(one.culprits == () and one.action.kind == "none" for one in found)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_one_node_is_no_measure_of_another(count: int) -> None:
    """A node that invents sixteen GPUs with higher clocks has those of the job's other node, which has few, not named."""
    slower: Change = lambda node, _gpu, _report: {"clock": 1400, "power": 300.0} if node == 1 else {}  # noqa: E731
    for verdict in verdicts(slower, gpus=(16, count)):
        assert named(verdict) == []


def test_it_opens_nothing_by_itself() -> None:
    """A job whose steps are as before has no incident for a GPU that is not well."""
    assert verdicts(on(1, 3, width=8), times=1.0) == []
