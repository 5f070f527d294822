"""What one host of a job of roles says of instances that others run: it is left out, live and where the incident is judged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from analyzers.incidents.judgement import on_their_nodes
from analyzers.incidents.messages import Publish, Received
from analyzers.incidents.replay import rerun_engine
from collectors.records import DIRECTORY, Members, Placement, Record, RoleState
from service.packaged_knowledge import load
from tests.analyzers.incidents.test_role_stalls import (
    SEATS,
    START,
    TRAINED_SECONDS,
    batch,
    dead_engine,
    node_of,
    tool_call,
)

LIAR, ACCUSED = "n1", ("rollout", 2)
STORIES = {"its engine is dead": dead_engine, "all wait for it": tool_call}


def lies(at: float, story: str) -> Iterator[Record]:
    """Yield the story of all instances as the liar's agent would have read them."""
    for role, rank in SEATS:
        told = dict(STORIES[story](role, rank, at))
        if story == "all wait for it" and role == "rollout":
            told["waiting_for"] = "rollout 2" if rank != ACCUSED[1] else None
        instants = {name: START + told.pop(name) for name in ("phase_since", "waiting_since") if name in told}
        yield RoleState(
            job="rl", attempt=0, role=role, instance=str(rank), source=f"engines/{rank}", at=START + at, **instants, **told
        )  # fmt: skip


def sent(seconds: float, story: str) -> Iterator[Received]:
    """Yield what both agents send of a job that waits for a tool, and what one of them adds."""
    sequence = 0
    for tick in range(1, int(seconds // 10.0) + 1):
        for node in ("n0", "n1"):
            sequence += 1
            honest = batch(node, 10.0 * tick, TRAINED_SECONDS, {})
            more = lies(10.0 * tick, story) if node == LIAR else ()
            yield replace(honest, sequence=sequence, records=(*honest.records, *more))


@pytest.mark.parametrize("story", STORIES)
def test_a_host_names_no_instance_of_another(story: str) -> None:
    """One node says of a rollout on the other that it has work and does nothing, or that all wait for it: it is not named."""
    done = rerun_engine(list(sent(TRAINED_SECONDS + 400.0, story)), load())
    verdicts = [one.verdict for _, one in done if isinstance(one, Publish)]

    assert node_of(*ACCUSED) != LIAR
    for verdict in verdicts:
        assert [one for one in verdict.culprits if one.id == "n0" or (one.role == "rollout" and 2 in one.ranks)] == []


def test_an_instance_with_a_name_is_read_where_its_process_is() -> None:
    """The directory says which process it is, and a placement where that runs: another node's reading of it is left out."""
    placed = Placement(job="rl", node="n0", ranks=Members.of([0]), roles=("rollout",), nodes=("n0",), pids=(77,))
    stated = RoleState(job="rl", role="rollout", instance="left", node="n0", pid=77, source=DIRECTORY)
    own, others = (
        RoleState(job="rl", role="rollout", instance="left", node=node, source="engines") for node in ("n0", "n1")
    )

    kept = on_their_nodes([placed, stated, own, others])

    assert kept == [placed, stated, own]
