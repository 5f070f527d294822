"""dcgm-exporter's text, from files and from a real socket: what is read, by whose name, and what bad text costs."""

from __future__ import annotations

import io
import re
import socket
import struct
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from collectors.files.parsers import dcgm as parser
from collectors.files.reading import read_paths
from collectors.formats import Input, recognise
from collectors.formats.dcgm import dcgm_text
from collectors.formats.dcgm.dcgm_text import read
from collectors.live import NothingToCollect, Readings, registry
from collectors.live import dcgm as live
from collectors.live.sources.host import Host
from collectors.records import NOT_READ, Device, KernelEvent, Record, Samples, Unread
from tests.support.bounds import in_time

AT = 1_790_000_000.0


def labels(gpu: int, name: str = "Hostname", **more: str) -> str:
    """The labels that the exporter gives a GPU."""
    known = {
        "gpu": str(gpu), "UUID": f"GPU-{gpu}", "pci_bus_id": f"00000000:{0x18 + gpu:02X}:00.0", "device": f"nvidia{gpu}",
        "modelName": "NVIDIA H100 80GB HBM3", name: "gpu-0001", "DCGM_FI_DRIVER_VERSION": "550.54.15", **more,
    }  # fmt: skip
    return ",".join(f'{key}="{value}"' for key, value in known.items())


def scraped(name: str = "Hostname") -> str:
    """What an exporter on a node with two GPUs says."""
    lines = []
    for metric, kind, values in (
        ("DCGM_FI_DEV_GPU_TEMP", "gauge", ("61", "92")),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", ("0.412", "0.000")),
        ("DCGM_FI_DEV_XID_ERRORS", "gauge", ("0", "79")),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", ("319159391771", "9007199254740993")),
    ):
        lines += [f"# HELP {metric} Something.", f"# TYPE {metric} {kind}"]
        lines += [f"{metric}{{{labels(gpu, name)}}} {value}" for gpu, value in enumerate(values)]
    return "\n".join(lines) + "\n"


def records(text: str | bytes, node: str | None = None) -> list[Record]:
    """What the reader gives for a text."""
    data = text.encode() if isinstance(text, str) else text
    return list(read(Input("metrics.prom", io.BytesIO(data), data[:65536], node=node, at=AT)))


def values(sample: Samples, metric: str) -> list[float]:
    """One metric of every device."""
    table: array[float] = array("q" if sample.type == "<i8" else "f", sample.values)
    return list(table[sample.metrics.index(metric) :: len(sample.metrics)])


@pytest.mark.parametrize("name", ["Hostname", "hostname"])
def test_a_saved_scrape_gives_devices_and_values_of_its_node(name: str) -> None:
    """The node comes from either form of the label, each GPU has its names, gauges and counters are exact."""
    first, second, gauges, counters = records(scraped(name), node="elsewhere")

    assert isinstance(first, Device)
    assert (first.node, first.id, first.index, first.pci) == ("gpu-0001", "GPU-0", 0, "0000:18:00")
    assert first.attributes == {"driver_version": "550.54.15"}
    assert isinstance(second, Device)
    assert isinstance(gauges, Samples)
    assert isinstance(counters, Samples)
    assert (gauges.scope, gauges.type, gauges.devices, gauges.node) == ("dcgm", "<f4", ("GPU-0", "GPU-1"), "gpu-0001")
    assert values(gauges, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE") == [pytest.approx(0.412), 0]
    assert values(counters, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")[0] == 319159391771
    assert struct.unpack("<d", gauges.ticks) == (AT,)


def test_the_last_xid_is_a_value_and_no_event() -> None:
    """The exporter repeats an old Xid for ever: it stays a sampled value, and no kernel event comes of it."""
    given = records(scraped())

    assert not [one for one in given if isinstance(one, KernelEvent)]
    gauges = next(one for one in given if isinstance(one, Samples) and one.type == "<f4")
    assert values(gauges, "DCGM_FI_DEV_XID_ERRORS") == [0, 79]


def test_a_file_of_many_nodes_is_told_apart() -> None:
    """A federated text has one table a node; a text without the label belongs to the node of its file."""
    many = "".join(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",hostname="n{number}"}} {number}\n' for number in range(3)
    )

    tables = [one for one in records(many) if isinstance(one, Samples)]

    assert [(one.node, values(one, "DCGM_FI_DEV_GPU_UTIL")) for one in tables] == [
        ("n0", [0]),
        ("n1", [1]),
        ("n2", [2]),
    ]
    (_, alone) = records('DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a"} 7\n', node="gpu-0009")
    assert alone.node == "gpu-0009"


def test_instances_counts_and_switches_keep_their_own_names() -> None:
    """A MIG instance, an Xid's count and a switch's port are devices and metrics of their own."""
    text = (
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels(0, GPU_I_ID='3', GPU_I_PROFILE='2g.20gb')}}} 0.5\n"
        f"DCGM_EXP_XID_ERRORS_COUNT{{{labels(0, xid='31', window_size_in_ms='300000')}}} 2\n"
        f"DCGM_EXP_XID_ERRORS_COUNT{{{labels(0, xid='79', window_size_in_ms='300000')}}} 1\n"
        'DCGM_FI_DEV_NVSWITCH_LINK_STATUS{nvlink="11",nvswitch="nvswitch2",hostname="gpu-0001"} 2\n'
    )

    (sample,) = [one for one in records(text) if isinstance(one, Samples)]

    assert sample.devices == ("GPU-0/3", "GPU-0", "nvswitch2/11")
    assert 'DCGM_EXP_XID_ERRORS_COUNT{xid="79"}' in sample.metrics
    assert values(sample, 'DCGM_EXP_XID_ERRORS_COUNT{xid="31"}')[1] == 2


@pytest.mark.parametrize(
    "line",
    [
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} warm',
        "DCGM_FI_DEV_GPU_TEMP{" + 'a="' + "x" * 20_000 + '"} 1',
        'DCGM_FI_DEV_GPU_TEMP{gpu="0",gpu="1"} 5',
        "DCGM_FI_DEV_\x00\x01{} 5",
        "DCGM_FI_DEV_GPU_TEMP{}} 5 5 5 5",
        'DCGM_FI_DEV_GPU_TEMP{=""} 5',
    ],
)
def test_a_damaged_line_costs_itself(line: str) -> None:
    """Whatever one line holds, the lines around it are read and the damage is counted once."""
    *rest, reported = records(f"{line}\n{scraped()}")

    assert [one for one in rest if not isinstance(one, Unread)] == records(scraped())
    assert isinstance(reported, Unread)
    assert (reported.outcome, reported.reason) == ("damaged", "1 lines are no series")


def test_values_that_are_none_leave_a_hole() -> None:
    """NaN, infinity and a count beyond 64 bits are no readings; their neighbours are."""
    text = (
        "# TYPE DCGM_FI_DEV_A counter\n"
        + "".join(
            f'DCGM_FI_DEV_A{{UUID="GPU-{number}"}} {value}\n'
            for number, value in enumerate(("NaN", "1e300", "+Inf", "5"))
        )
        + "".join(f'DCGM_FI_DEV_B{{UUID="GPU-{number}"}} {number}\n' for number in range(4))
    )

    counters = next(one for one in records(text) if isinstance(one, Samples) and one.type == "<i8")

    assert (counters.devices, values(counters, "DCGM_FI_DEV_A")) == (("GPU-3",), [5])


def test_series_and_cells_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text whose every line is a new device and a new metric is cut at the bound, and that is reported."""
    monkeypatch.setattr(dcgm_text, "CELLS_LIMIT", 10_000)
    text = "".join(f'DCGM_FI_DEV_{number}{{UUID="GPU-{number}"}} 1\n' for number in range(300))

    *_, sample, reported = records(text)

    assert isinstance(sample, Samples)
    assert len(sample.devices) * len(sample.metrics) <= 10_000
    assert isinstance(reported, Unread)
    assert (reported.outcome, reported.reason.partition(" ")[0]) == ("limit", "200")


def test_the_text_is_recognised_by_content(tmp_path: Path) -> None:
    """A scrape is known at any name, and nothing else is taken for one."""
    file = tmp_path / "anything"
    file.write_text(scraped())

    kinds = [type(one) for one in read_paths([file])]

    assert kinds == [Device, Device, Samples, Samples]
    for other in (b"# HELP nccl_bus_bandwidth_gbs x\nnccl_bus_bandwidth_gbs 1\n", b"the job prints DCGM_FI_DEV_X\n"):
        found = recognise(other, "anything")
        assert found is None or found.name != "dcgm_text"


@contextmanager
def exporter(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that answers one connection after another, as given; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    try:
                        connection.recv(65536)
                        answer(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/metrics"
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    """An answer of the exporter."""
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def collect(url: str, **options: object) -> Callable[[], list[object]]:
    """The collector on that address; a call is a run."""
    run = registry()["dcgm"].make(Host("gpu-0001", options={"dcgm": {"url": url, **options}}))
    return lambda: list(run(None))


def test_a_scrape_gives_readings_and_names_once() -> None:
    """The live collector gives the same values as the reader, its own node's, and the GPUs' names at the first run only."""
    with exporter(lambda connection: connection.sendall(http(scraped().encode()))) as url:
        run = collect(url)
        first, second = run(), run()

    devices = [one for one in first if isinstance(one, Device)]
    assert [(one.id, one.node, one.pci) for one in devices] == [
        ("GPU-0", None, "0000:18:00"),
        ("GPU-1", None, "0000:19:00"),
    ]
    assert [type(one) for one in second] == [Readings, Readings]
    gauges, counters = (one for one in second if isinstance(one, Readings))
    assert (gauges.scope, gauges.type, counters.type) == ("dcgm", "<f4", "<i8")
    assert [row[gauges.metrics.index("DCGM_FI_DEV_GPU_TEMP")] for row in gauges.values] == [61, 92]
    assert counters.values[0] == [319159391771]


def test_no_exporter_is_nothing_to_collect() -> None:
    """A port where nobody listens, and a server of other metrics, are no failures."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    with pytest.raises(NothingToCollect, match="no process listens"):
        collect(f"http://127.0.0.1:{free}/metrics")()
    other = http(b"# HELP node_load1 x\nnode_load1 0.3\n")
    with exporter(lambda connection: connection.sendall(other)) as url, pytest.raises(NothingToCollect, match="DCGM"):
        collect(url)()


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (http(b"", "503 Service Unavailable"), "503"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP"),
        (b"", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort", "995 bytes early"),
    ],
)
def test_a_broken_exporter_is_a_failure(answer: bytes, match: str) -> None:
    """An error, another protocol and an answer that is cut are failures with the address, and no half of a scrape."""
    with exporter(lambda connection: connection.sendall(answer)) as url, pytest.raises(OSError, match=match):
        collect(url)()


def test_an_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body beyond the bound, and a head or a body that drips for ever, end the run within its time."""
    monkeypatch.setattr(parser, "BODY_BYTES", 1 << 20)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"

    def pour(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(b"#" * 65536)

    def drip(connection: socket.socket, first: bytes = head) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(b"#")
            time.sleep(0.05)

    with exporter(pour) as url, pytest.raises(OSError, match="more than 1,048,576 bytes"):
        collect(url)()
    for first in (head, b"HTTP/1.1 200 OK\r\nX-Padding: ", b""):
        began = time.monotonic()
        with exporter(partial(drip, first=first)) as url, pytest.raises(OSError, match="timeout_seconds"):
            collect(url, timeout_seconds=0.4)()
        assert in_time(time.monotonic() - began, 5)


def test_a_wrong_address_says_what_a_right_one_is() -> None:
    """An option that is no address is refused with an example."""
    with pytest.raises(ValueError, match=re.escape(live.URL)):
        collect("127.0.0.1:9400")()


def test_a_hole_in_a_counter_s_table_is_marked() -> None:
    """Where one GPU lacks a counter that another has, the integer that stands for no reading is there."""
    text = (
        "# TYPE DCGM_FI_DEV_A counter\n# TYPE DCGM_FI_DEV_B counter\n"
        'DCGM_FI_DEV_A{UUID="GPU-0"} 1\nDCGM_FI_DEV_B{UUID="GPU-1"} 2\n'
    )

    (sample,) = [one for one in records(text) if isinstance(one, Samples)]

    assert list(array("q", sample.values)) == [1, NOT_READ, NOT_READ, 2]
