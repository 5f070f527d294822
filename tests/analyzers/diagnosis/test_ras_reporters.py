"""NCCL RAS live: one node's word accuses no other node's process, and an agent that sees its process alive knows better."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.diagnosis.ras.ras import analyze
from analyzers.knowledge import Knowledge
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import (
    Coverage,
    Members,
    Placement,
    ProcessState,
    RasCommunicator,
    RasPeerDead,
    RasRank,
    Record,
    of_sender,
)

NODES = ("a", "b", "c")
AT = 1_000.0


def accused(*batches: tuple[str, Sequence[Record]], later: dict[str, float] | None = None) -> set[str | None]:
    """Return the nodes and ranks that RAS accuses, of what these nodes sent, a while ``later`` where that is said."""
    placed = [
        (node, [Placement(at=AT, job="run", ranks=Members.of([rank]), nodes=(node,), pids=(100 + rank,), world_size=3)])
        for rank, node in enumerate(NODES)
    ]
    records = [one for node, sent in (*placed, *batches) for one in of_sender(sent, node, AT)]
    records += [one for node, by in (later or {}).items() for one in of_sender([Coverage(at=AT + by)], node, AT + by)]
    window = Window.build(records, live=True)
    found = list(analyze(window, infer(window), Knowledge()))
    return {f"{suspect.ranks or suspect.node}" for finding in found for suspect in finding.suspects}


def dead(host: str) -> RasPeerDead:
    """Return RAS's word that a process is dead."""
    return RasPeerDead(at=AT, job="run", host=host, pid=100 + NODES.index(host))


def communicator(**of_b: object) -> RasCommunicator:
    """Return a communicator in which the process on b is odd."""
    ranks = [RasRank(rank=rank, host=node, pid=100 + rank, counts={"AllReduce": 9}) for rank, node in enumerate(NODES)]
    ranks[1] = RasRank(**{"rank": 1, "host": "b", "pid": 101, "counts": {"AllReduce": 9}} | of_b)  # type: ignore[arg-type]
    return RasCommunicator(at=AT, job="run", hash="9f", size=3, ranks=tuple(ranks))


def test_one_nodes_word_accuses_no_other() -> None:
    """Of a dead process of another node, of a mute one, and of one that lags, one node's word is not enough."""
    assert accused(("a", [dead("b")])) == set()
    assert accused(("a", [communicator(missing=True, unresponsive=True, counts={})])) == set()
    assert accused(("a", [communicator(missing=True, dead=True, counts={})])) == set()


def test_two_nodes_or_its_own_do() -> None:
    """Two nodes say so, or the process's own node."""
    assert accused(("a", [dead("b")]), ("c", [dead("b")])) == {"(1,)"}
    assert accused(("b", [dead("b")])) == {"(1,)"}
    mute = communicator(missing=True, unresponsive=True, counts={})
    assert accused(("a", [mute]), ("c", [mute])) == {"(1,)"}


def test_an_agent_that_sees_it_alive_knows_better() -> None:
    """RAS lost a process that its node's agent sees running: RAS is wrong about the process; a mute one may well run."""
    alive = ProcessState(at=AT, job="run", rank=1, pid=101, state="S")
    mute = communicator(missing=True, unresponsive=True, counts={})

    assert accused(("a", [dead("b")]), ("c", [dead("b")]), ("b", [alive])) == set()
    assert accused(("a", [mute]), ("c", [mute]), ("b", [alive])) == {"(1,)"}


def test_a_node_whose_agent_is_heard_is_not_dead() -> None:
    """Its processes may all have ended: what is called dead by no process's name, or by one that is no rank's, is the node."""
    alive, ended = (ProcessState(at=AT, job="run", rank=1, pid=101, state=state) for state in "SX")
    for host in (RasPeerDead(at=AT, job="run", host="b"), RasPeerDead(at=AT, job="run", host="b", pid=999)):
        said = ("a", [host]), ("c", [host])
        assert accused(*said, later={"a": 60, "c": 60}) == {"b"}
        assert accused(*said, ("b", [alive]), later={"a": 60, "c": 60}) == set()
        assert accused(*said, ("b", [ended]), later={"a": 60, "b": 5, "c": 60}) == set()
        assert accused(*said, ("b", [ended]), later={"a": 5, "c": 5}) == set()  # nor yet silent
        assert accused(*said, ("b", [ended]), later={"a": 60, "c": 60}) == {"b"}


def test_files_have_no_senders() -> None:
    """A report that a person pasted into a file counts as it did."""
    window = Window.build([communicator(missing=True, dead=True, counts={})])
    found = list(analyze(window, infer(window), Knowledge()))

    assert [suspect.node for finding in found for suspect in finding.suspects] == ["b"]
