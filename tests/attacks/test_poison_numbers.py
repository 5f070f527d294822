"""Numbers at the end of their range: a loss may be any float, and none makes an analyzer fail or warn."""

from __future__ import annotations

import struct

from analyzers.incidents.messages import EngineTick, Received
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import FlightRecorderDump, Members, Placement, ProcessState, Record, Ring, Steps
from service.packaged_knowledge import load

AT, ROWS = 1_795_230_847.0, 60


def steps(rank: int, values: list[float]) -> Steps:
    """Return steps whose loss and norm are these numbers in turn."""
    chosen = [values[row % len(values)] for row in range(ROWS)]
    columns = {
        "step": struct.pack(f"<{ROWS}q", *range(ROWS)),
        "at": struct.pack(f"<{ROWS}d", *(AT + row for row in range(ROWS))),
        "loss": struct.pack(f"<{ROWS}d", *chosen),
        "gradient_norm": struct.pack(f"<{ROWS}d", *reversed(chosen)),
    }
    return Steps(
        rank=rank, node="n0", job="llama", attempt=1, told_by="probe", count=ROWS, columns=columns, at=AT + ROWS
    )


def test_losses_at_the_end_of_the_range() -> None:
    """The largest floats, infinities and denormals in every order: a verdict, in which no analyzer failed."""
    large, endless = 1.7e308, float("inf")
    extremes = [[large, -large], [5e-324, large], [endless, 1.0], [1.0, *[large] * 58], [*[large] * 59, endless]]
    for values in extremes:
        records: list[Record] = [steps(rank, values) for rank in range(2)]
        window = Window.build(records, live=True)
        verdict = judge(window, infer(window), load(), rounds=2)
        assert not [item.what for item in verdict.missing if "failed (" in item.what]

        state = EngineState(load())
        placed = Placement(
            job="llama", attempt=1, node="n0", ranks=Members.of([0, 1]), nodes=("n0", "n0"), world_size=2
        )
        batch = Received(sequence=1, received_at=AT + ROWS, node="n0", records=(placed, *records))
        step(state, batch, AT + ROWS)
        step(state, EngineTick(), AT + ROWS + 10.0)
        assert state.failures == []


def test_an_end_before_1970() -> None:
    """An instant may be negative: a process that ended then has ended, and the crash analyzer reads it."""
    ended = ProcessState(pid=7, rank=0, node="n0", job="llama", state="X", signal=9, at=-5.0, started_at=-1e10)
    window = Window.build([ended], live=True)
    verdict = judge(window, infer(window), load(), rounds=2)

    assert not [item.what for item in verdict.missing if "failed (" in item.what]


def test_a_dump_of_gloo_whose_instants_are_cut() -> None:
    """A column that ends inside a value costs the instants, and not the window: the rank's ring is still beside the dump."""
    columns = {
        "entered_ns": bytes(8),
        "left_ns": bytes(8),
        "group": bytes(4),
        "collective_seq": bytes(8),
        "p2p_seq": bytes(8),
    }
    columns |= {"operation": bytes(4), "bytes": bytes(8), "step": bytes(8), "phase": bytes(4)}
    ring = Ring(rank=0, node="n0", backend="gloo", at=AT, count=1, columns=columns, strings=("gloo:send 0->1",))
    cut = FlightRecorderDump(
        rank=0,
        node="n0",
        at=AT,
        count=1,
        strings=("gloo:send 0->1",),
        columns={"record_id": bytes(8), "created_ns": bytes(11)},
    )
    window = Window.build([ring, cut], live=True)

    assert [dump.rank for dump in window.dumps] == [0]
