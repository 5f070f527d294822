"""The window of the last minutes against an obvious dictionary of readings."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.records import NOT_READ, KernelEvent, Samples
from service.store.window import grid
from service.store.window.tail import FUTURE_SECONDS, MOST_SCOPES, Tail

START = 1_763_700_000.0
WINDOW_SECONDS = 120.0
NAMES = ("power_watts", "gpu_percent", "replays_total", "ecc_total")
DEVICES = ("GPU-0", "GPU-1", "GPU-2")


def samples(
    at: list[float], devices: tuple[str, ...], metrics: tuple[str, ...], values: list[float], scope: str = "gpu"
) -> Samples:
    """Return a record of these values, device by device, metric by metric, tick by tick."""
    counter = metrics[0].endswith("_total")
    packed = array("q", [int(value) for value in values]) if counter else array("f", values)
    return Samples(
        scope=scope, type="<i8" if counter else "<f4", devices=devices, metrics=metrics,
        ticks=array("d", at).tobytes(), values=packed.tobytes(),
    )  # fmt: skip


@dataclass(frozen=True)
class Sent:
    """One tick of one node."""

    node: str
    at: float
    device: str
    metric: str
    value: int


def sent() -> st.SearchStrategy[list[Sent]]:
    """Draw what a few nodes send over some minutes, in any order, with gaps."""
    one = st.builds(
        Sent,
        st.sampled_from(["n0", "n1"]),
        st.integers(0, 30).map(lambda tick: START + 10.0 * tick + 3.5),
        st.sampled_from(DEVICES),
        st.sampled_from(NAMES),
        st.integers(0, 1000),
    )
    return st.lists(one, max_size=40)


@given(sent())
def test_the_window_is_what_was_sent(history: list[Sent]) -> None:
    """Every cell is the newest value sent for its tick, device and metric, and NaN where nothing was."""
    tail, known = Tail(WINDOW_SECONDS), {}
    history = sorted(history, key=lambda one: one.at)
    for one in history:
        tail.add(one.node, one.at, [samples([one.at], (one.device,), (one.metric,), [one.value])])
        known[one.node, one.device, one.metric, int(one.at // 10)] = float(one.value)
    until = max((one.at for one in history), default=START) // 10 * 10 + 10

    cube = tail.assemble("gpu", ["n0", "n1", "n2"], NAMES, until - WINDOW_SECONDS, until)

    assert cube.values.shape == (12, len(cube.devices), len(NAMES))
    for column, (node, device) in enumerate(cube.devices):
        for place, metric in enumerate(cube.metrics):
            expected = [known.get((node, device, metric, int(tick // 10)), math.nan) for tick in cube.ticks]
            np.testing.assert_array_equal(
                reported(metric, cube.values[:, column, place].tolist()),
                reported(metric, expected),
                f"{node} {device} {metric}",
            )


def reported(metric: str, series: list[float]) -> list[float]:
    """Return what a series tells: a gauge its values, a counter its growth since the first of them."""
    first = next((value for value in series if not math.isnan(value)), 0.0)
    return [value - first for value in series] if metric.endswith("_total") else series


def test_a_month_of_bytes_keeps_its_rate() -> None:
    """A counter far beyond what a float32 counts, growing by 50 GB a tick for an hour, gives that rate to 0.1 %."""
    tail, before, step = Tail(WINDOW_SECONDS), 3 * 10**16, 5 * 10**10
    for tick in range(360):
        at = START + 10 * tick
        record = samples([at], DEVICES[:1], ("rx_bytes_total",), [])
        value = array("q", [before + step * tick]).tobytes()
        tail.add("n0", at, [msgspec.structs.replace(record, values=value)])

    cube = tail.assemble("gpu", ["n0"], ["rx_bytes_total"], at - 100, at)

    np.testing.assert_allclose(np.diff(cube.values[:, 0, 0]), step, rtol=1e-3)


def test_what_was_not_read_is_nan() -> None:
    """The integer that stands for no reading does not become a number."""
    tail = Tail(WINDOW_SECONDS)

    tail.add("n0", START, [samples([START], DEVICES[:1], ("ecc_total",), [NOT_READ])])

    assert np.isnan(tail.assemble("gpu", ["n0"], None, START, START + 10).values).all()


def test_the_future_does_not_push_out_the_present() -> None:
    """A node whose clock is a day ahead loses its own readings, which are counted, and nobody else's."""
    tail = Tail(WINDOW_SECONDS)
    tail.add("n0", START, [samples([START], DEVICES[:1], NAMES[:1], [1.0])])

    tail.add("n0", START, [samples([START + 86_400], DEVICES[:1], NAMES[:1], [2.0])])
    tail.add("n0", START, [samples([START + FUTURE_SECONDS], DEVICES[:1], NAMES[:1], [3.0])])

    assert tail.left_out == 1
    assert tail.assemble("gpu", ["n0"], None, START, START + 10).values.tolist() == [[[1.0]]]


@pytest.mark.parametrize("wrong", [{"values": b"\0" * 3}, {"ticks": b"\0" * 9}, {"metrics": ("a", "b")}])
def test_wrong_bytes_are_counted(wrong: dict[str, object]) -> None:
    """Samples whose bytes do not have the shape that their names promise are left out; later ones are taken."""
    good = samples([START], DEVICES[:1], NAMES[:1], [1.0])
    fields = {name: getattr(good, name) for name in good.__struct_fields__} | wrong
    tail = Tail(WINDOW_SECONDS)

    tail.add("n0", START, [Samples(**fields), KernelEvent(event="xid"), good])

    assert tail.left_out == 1
    assert tail.assemble("gpu", ["n0"], None, START, START + 10).values.tolist() == [[[1.0]]]


def test_devices_that_left_make_room() -> None:
    """Edges between sockets come and go without bound in number; the window keeps those of its own minutes."""
    tail = Tail(WINDOW_SECONDS)
    some = grid.MOST_DEVICES // 4
    for minute in range(8):
        edges = tuple(f"edge-{minute}-{n}" for n in range(some))
        at = START + 60 * minute
        tail.add("n0", at, [samples([at], edges, ("rtt_seconds",), [1.0] * some, scope="socket")])

    newest = tail.assemble("socket", ["n0"], None, START + 420, START + 430)

    assert tail.left_out == 0
    assert {device for _, device in newest.devices} >= {f"edge-7-{n}" for n in range(some)}
    assert len(newest.devices) <= grid.MOST_DEVICES


def test_a_node_with_too_many_devices_costs_itself() -> None:
    """A sender that invents names is left out and counted; another node's readings stay."""
    tail = Tail(WINDOW_SECONDS)
    many = tuple(f"GPU-{n}" for n in range(grid.MOST_DEVICES + 1))

    tail.add("liar", START, [samples([START], many, NAMES[:1], [1.0] * len(many))])
    tail.add("n0", START, [samples([START], DEVICES[:1], NAMES[:1], [1.0])])

    assert tail.left_out == 1
    assert tail.assemble("gpu", ["liar", "n0"], None, START, START + 10).devices == (("n0", "GPU-0"),)


def test_silent_nodes_are_dropped() -> None:
    """A node that has sent nothing since the instant given takes no memory any more."""
    tail = Tail(WINDOW_SECONDS)
    tail.add("gone", START, [samples([START], DEVICES[:1], NAMES[:1], [1.0])])
    tail.add("here", START + 600, [samples([START + 600], DEVICES[:1], NAMES[:1], [1.0])])

    tail.drop(START + 300)

    assert tail.assemble("gpu", ["gone", "here"], None, START, START + 610).devices == (("here", "GPU-0"),)


def test_a_refused_metric_takes_no_device_along() -> None:
    """Samples with too many metrics leave nothing behind, not even their devices: what follows is taken up."""
    tail = Tail(WINDOW_SECONDS)
    tail.add("n0", START, [samples([START], DEVICES[:1], NAMES[:1], [1.0])])
    many = tuple(f"m{n}" for n in range(grid.MOST_METRICS))

    tail.add("n0", START, [samples([START], DEVICES[:2], many, [1.0] * 2 * len(many))])
    tail.add("n0", START, [samples([START], DEVICES[1:2], NAMES[:1], [2.0])])

    assert tail.left_out == 1
    assert tail.assemble("gpu", ["n0"], None, START, START + 10).values.tolist() == [[[1.0], [2.0]]]


@pytest.mark.parametrize(("devices", "metrics", "left_out"), [(128, 128, 0), (128, 129, 1), (129, 128, 1)])
def test_devices_times_metrics_are_bounded(devices: int, metrics: int, left_out: int) -> None:
    """A grid has 16,384 cells at most: two legal numbers may multiply to more memory than a node is worth."""
    tail = Tail(WINDOW_SECONDS)
    names = tuple(f"d{n}" for n in range(devices)), tuple(f"m{n}" for n in range(metrics))

    tail.add("liar", START, [samples([START], *names, [1.0] * devices * metrics)])

    assert tail.left_out == left_out


def test_scopes_are_bounded() -> None:
    """A node that invents scopes gets 24; those that it has go on, and another node has its own."""
    tail = Tail(WINDOW_SECONDS)
    one = DEVICES[:1], NAMES[:1], [1.0]
    for n in range(MOST_SCOPES + 5):
        tail.add("liar", START, [samples([START], *one, scope=f"s{n}")])

    tail.add("liar", START, [samples([START], *one, scope="s0")])
    tail.add("n0", START, [samples([START], *one)])

    assert tail.left_out == 5
    assert tail.assemble("gpu", ["n0"], None, START, START + 10).devices == (("n0", "GPU-0"),)
