"""Ticks become columns without a value moving, and readings that are not what they claim are refused."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.packing import encode_tick, pack_ticks
from collectors.agent.segment import SampleTick
from collectors.live import Readings
from collectors.records import NOT_READ, Samples

DEVICES = st.lists(st.sampled_from(["gpu0", "gpu1", "gpu2", "gpu3"]), unique=True, max_size=4)
METRICS = ("energy_millijoules_total", "pcie_replays_total", "ecc_errors_total")


def counters(devices: list[str], values: list[list[int | None]], at: float) -> SampleTick:
    """One tick of counters."""
    return encode_tick(Readings("gpu", devices, METRICS, values, "<i8", at), "gpu", at, at - 1000.0, "boot")


def value(samples: Samples, device: str, metric: str, tick: int) -> int:
    """Look one value up, the slow way that the record's docstring gives."""
    values = array("q", samples.values)
    count = len(samples.ticks) // 8
    row = samples.devices.index(device) * len(samples.metrics) + samples.metrics.index(metric)
    return values[row * count + tick]


@given(st.lists(DEVICES, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_every_value_is_where_the_record_says(series: list[list[str]], random: object) -> None:
    """Whichever devices come and go between ticks, each value is found at (device, metric, tick), the others are absent."""
    ticks, expected = [], {}
    for number, devices in enumerate(series):
        values = [[number * 100 + len(device) + column for column in range(3)] for device in devices]
        ticks.append(counters(devices, values, 1000.0 + number))  # type: ignore[arg-type]
        for device, row in zip(devices, values, strict=True):
            expected |= {(device, metric, number): one for metric, one in zip(METRICS, row, strict=True)}

    (samples,) = pack_ticks(ticks)

    assert array("d", samples.ticks).tolist() == [1000.0 + number for number in range(len(series))]
    assert array("d", samples.monotonic_ticks).tolist() == [float(number) for number in range(len(series))]
    for device in samples.devices:
        for metric in METRICS:
            for number in range(len(series)):
                assert value(samples, device, metric, number) == expected.get((device, metric, number), NOT_READ)


def test_devices_that_come_and_go_do_not_fill_the_memory() -> None:
    """A hundred ticks of 256 connections each that were never seen before take four times their values, not a hundred."""
    row = [[1, 2, 3]] * 256
    ticks = [counters([f"{at}:{number}" for number in range(256)], row, 1000.0 + at) for at in range(100)]

    packed = pack_ticks(ticks)

    assert sum(len(samples.values) for samples in packed) <= 4 * sum(len(tick.values) for tick in ticks)
    assert [value(packed[0], "2:7", METRICS[1], tick) for tick in range(3)] == [NOT_READ, NOT_READ, 2]
    ats = [at for samples in packed for at in array("d", samples.ticks)]
    assert ats == [1000.0 + at for at in range(100)]


def test_a_scope_s_gauges_and_counters_are_two_records() -> None:
    """Gauges and counters of one scope, and another list of metrics, are records of their own, in order of coming."""
    gauges = Readings("gpu", ["gpu0"], ["power_watts"], [[301.5]])
    ticks = [encode_tick(gauges, "gpu", 5.0, 1.0, None), counters(["gpu0"], [[1, 2, 3]], 5.0)]

    assert [(one.type, one.metrics) for one in pack_ticks(ticks)] == [("<f4", ("power_watts",)), ("<i8", METRICS)]


def test_what_was_not_read_is_absent() -> None:
    """None, NaN and what int64 cannot hold stand as the absent value, never as a number."""
    tick = counters(["gpu0"], [[None, 1 << 63, float("nan")]], 5.0)  # type: ignore[list-item]
    gauge = encode_tick(Readings("gpu", ["gpu0"], ["power_watts"], [[None]]), "gpu", 5.0, 1.0, None)

    assert array("q", tick.values).tolist() == [NOT_READ] * 3
    assert math.isnan(array("f", gauge.values)[0])


@pytest.mark.parametrize(
    "readings",
    [
        Readings("gpu", ["a"], ["x"], [[1.0, 2.0]]),
        Readings("gpu", ["a", "b"], ["x"], [[1.0]]),
        Readings("gpu", ["a", "a"], ["x"], [[1.0], [2.0]]),
        Readings("gpu", ["a"], [7], [[1.0]]),  # type: ignore[list-item]
        Readings("gpu", ["a"], ["x"], [["much"]]),  # type: ignore[list-item]
        Readings("gpu", ["a"], ["x"], [[1.0]], "<f8"),  # type: ignore[arg-type]
        Readings("gpu", [str(number) for number in range(1000)], [str(number) for number in range(1000)], []),
    ],
)
def test_readings_that_do_not_fit_are_refused(readings: Readings) -> None:
    """Readings whose shape, names, type or size are not what they claim raise ValueError and pack nothing."""
    with pytest.raises(ValueError, match=r"\w"):
        encode_tick(readings, "gpu", 5.0, 1.0, None)
