"""NCCL Inspector: what its lines and its metrics become, from files and beside a running job."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from collectors.files.reading import read_paths
from collectors.formats.nccl.inspector_prometheus import gather
from collectors.live import NothingToCollect, Readings
from collectors.live.inspector import BEHIND_BYTES, MOST_OPERATIONS, Inspector
from collectors.records import TIMING_COLUMNS, CollectiveTimings, Record, Samples, Unread
from tests.support.tailed_jobs import Node, column, of

PROMETHEUS = """# HELP nccl_bus_bandwidth_gbs NCCL bus bandwidth
# TYPE nccl_bus_bandwidth_gbs gauge
nccl_bus_bandwidth_gbs{version="v5.1",slurm_job_id="unknown",node="gpu-0001",gpu="GPU0",comm_name="DP Group 0",\
n_nodes="1",nranks="4",collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"} 678.263
nccl_collective_exec_time_microseconds{version="v5.1",slurm_job_id="unknown",node="gpu-0001",gpu="GPU0",\
comm_name="DP Group 0",n_nodes="1",nranks="4",collective="AllReduce",message_size="4-5GB",algo_proto="Ring_ll"} 9498.47
nccl_p2p_exec_time_microseconds{version="v5.1",node="gpu-0002",gpu="GPU0",comm_name="PP",nranks="4",\
p2p_operation="Send",message_size="512-513MB"} 1154.87
"""


def operation(sequence: int, rank: int = 2, name: str = "AllReduce", **more: Any) -> dict[str, Any]:
    """Return one line's object, as format 4.0 has it."""
    return {
        "header": {"id": "0x7f8c496ae9f661", "rank": rank, "n_ranks": 8, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "rec_mechanism": "profiler_plugin",
                     "dump_timestamp_us": 1795240800500000, "hostname": "gpu-0001", "pid": 4002},
        "coll_perf": {"coll": name, "coll_sn": sequence, "coll_msg_size_bytes": 1 << 20, "coll_exec_time_us": 2000,
                      "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 277.2, "coll_busbw_gbs": 485.5, **more},
    }  # fmt: skip


PAIR = {
    "header": {"id": "0xaa", "rank": 0, "n_ranks": 2, "nnodes": 1, "comm_name": "PP"},
    "metadata": {"inspector_output_format_version": "v5.1", "dump_timestamp_us": 1795240801000000, "hostname": "gpu-0001"},
    "p2p_perf": {"p2p": "Recv", "p2p_sn": 4, "p2p_peer": 1, "p2p_msg_size_bytes": 64, "p2p_exec_time_us": 12.5},
}  # fmt: skip


def lines(*objects: object) -> str:
    """Return objects as JSON lines."""
    return "".join(json.dumps(each) + "\n" for each in objects)


def timings(records: list[Record]) -> list[CollectiveTimings]:
    """Return the timings among records."""
    return [record for record in records if isinstance(record, CollectiveTimings)]


def test_lines_become_columns(tmp_path: Path) -> None:
    """A file gives a record a communicator, in seconds and bytes a second, with start times where they are verbose."""
    trace = {"coll_start_ts": 1752867229235059, "coll_stop_ts": 1752867229235064, "kernel_events": [{"channel_id": 0}]}
    path = tmp_path / "gpu-0001-pid4002.log"
    path.write_text(lines(operation(7), operation(8, name="AllGather", event_trace_ts=trace), PAIR))

    first, pair = timings(list(read_paths([path])))

    assert (first.communicator, first.communicator_rank, first.size, first.pid) == ("0x7f8c496ae9f661", 2, 8, 4002)
    assert (first.node, first.rank, first.at, first.count) == ("gpu-0001", None, 1795240800.5, 2)
    values = {name: column(first, name, TIMING_COLUMNS) for name in TIMING_COLUMNS}
    assert [first.strings[int(code)] for code in values["operation"]] == ["AllReduce", "AllGather"]
    assert (values["sequence"], values["seconds"], values["bytes"]) == ([7, 8], [0.002, 0.002], [1 << 20, 1 << 20])
    assert values["bus_bytes_per_second"] == [485.5e9, 485.5e9]
    assert values["started_ns"] == [-1, 1752867229235059000]
    assert (pair.strings, column(pair, "seconds", TIMING_COLUMNS)) == (("Recv 0<-1",), [12.5e-6])


def test_damaged_lines_cost_themselves(tmp_path: Path) -> None:
    """Cut, wild and foreign lines are counted in one record, and the operations around them are read."""
    path = tmp_path / "a.jsonl"
    wild = operation(1 << 70)
    path.write_text(lines(operation(1)) + '{"header": {"id"\n' + lines(wild, [1], operation(2)) + "[" * 3000 + "\n")

    found = list(read_paths([path]))

    (one,) = timings(found)
    assert column(one, "sequence", TIMING_COLUMNS) == [1, 2]
    (reported,) = [record for record in found if isinstance(record, Unread)]
    assert reported.reason == "4 lines are no operation of NCCL Inspector"


def marker(count: int, id: str = "0xd1", rank: int = 5, pairs: int = 0, **more: int) -> dict[str, Any]:
    """Return the line with which format 4.3 begins what it writes of a communicator."""
    return {
        "header": {"id": id, "comm_name": "unknown", "rank": rank, "n_ranks": 8, "nnodes": 2},
        "metadata": {"inspector_output_format_version": "v4.3", "git_rev": "", "rec_mechanism": "nccl_profiler_interface",
                     "dump_timestamp_us": 1795240807250000, "hostname": "gpu-0007", "pid": 611},
        "dump_stats": {"coll_records": count, "coll_dropped_total": 9, "p2p_records": pairs, "p2p_dropped_total": 0, **more},
    }  # fmt: skip


def bare(sequence: int, **more: Any) -> dict[str, Any]:
    """Return an operation as format 4.3 writes it, without a word of whose it is."""
    own = operation(sequence, **more)["coll_perf"]
    return {"coll_perf": {**own, "coll_algo": "RING", "coll_proto": "LL128"}}


def whose(found: list[CollectiveTimings]) -> dict[str, list[float]]:
    """Return the sequence numbers of each communicator."""
    return {each.communicator: column(each, "sequence", TIMING_COLUMNS) for each in found}


def test_lines_behind_a_marker_are_its_communicators(tmp_path: Path) -> None:
    """Since format 4.3 the communicator, host and process stand in the marker alone; other kinds of lines count with its own."""
    pair = {"p2p_perf": {"p2p": "Send", "p2p_sn": 11, "p2p_peer": 6, "p2p_msg_size_bytes": 64, "p2p_exec_time_us": 7,
                         "p2p_timing_source": "kernel_gpu"}}  # fmt: skip
    path = tmp_path / "gpu-0007-pid611.log"
    proxy = {"proxy_trace": {"record_type": "proxy_op", "record_sn": 1, "rank": 5}}
    path.write_text(
        lines(marker(2, pairs=1, proxy_records=1), bare(31), bare(32), pair, proxy, marker(1, "0xd2", 0), bare(9))
    )

    found = list(read_paths([path]))

    assert [record for record in found if isinstance(record, Unread)] == []
    assert whose(timings(found)) == {"0xd1": [31, 32, 11], "0xd2": [9]}
    first = timings(found)[0]
    assert (first.communicator_rank, first.size, first.pid, first.node, first.at) == (
        5,
        8,
        611,
        "gpu-0007",
        1795240807.25,
    )
    assert first.strings == ("AllReduce", "Send 5->6")


def test_an_operation_without_a_marker_is_nobodys(tmp_path: Path) -> None:
    """A line before any marker, or beyond the count of the newest, is given to no communicator, and that is reported."""
    path = tmp_path / "a.log"
    cut = json.dumps(marker(2, "0xd3"))[:40] + "\n"
    path.write_text(lines(bare(1), marker(2), bare(2)) + '{"coll_perf": {"coll"\n' + cut + lines(bare(4), bare(5)))

    found = list(read_paths([path]))

    assert whose(timings(found)) == {"0xd1": [2]}
    assert [record.reason.partition(" have")[0] for record in found if isinstance(record, Unread)] == [
        "3 operations", "2 lines are no operation of NCCL Inspector",
    ]  # fmt: skip


def test_what_the_plugin_overwrote_is_reported(tmp_path: Path) -> None:
    """Operations that its rings had no room for are missing, and no rank is late for it."""
    path = tmp_path / "a.log"
    path.write_text(lines(marker(1, coll_dropped_since_last_dump=512, p2p_dropped_since_last_dump=3), bare(600)))

    (reported,) = [record for record in read_paths([path]) if isinstance(record, Unread)]

    assert reported.reason == "515 operations are not here: the plugin overwrote them before it wrote them"


@pytest.mark.parametrize("printed", ['"nan"', "inf", "-nan"])
def test_an_operation_that_took_no_time_is_read(tmp_path: Path, printed: str) -> None:
    """The plugin prints its bandwidth as C prints it, which is no JSON: the operation is kept, without a bandwidth."""
    path = tmp_path / "a.jsonl"
    path.write_text(lines(operation(3, coll_exec_time_us=0)).replace("485.5", printed).replace("277.2", printed))

    (found,) = timings(list(read_paths([path])))

    assert column(found, "seconds", TIMING_COLUMNS) == [0.0]
    assert math.isnan(column(found, "bus_bytes_per_second", TIMING_COLUMNS)[0])


def test_prometheus_text_becomes_samples(tmp_path: Path) -> None:
    """Each node's means come as gauges under the plugin's names, a device a series of labels."""
    path = tmp_path / "nccl.prom"
    path.write_text(PROMETHEUS + "nccl_bus_bandwidth_gbs{broken 1\n")

    found = list(read_paths([path]))

    first, second = [record for record in found if isinstance(record, Samples)]
    assert (first.node, second.node, first.scope) == ("gpu-0001", "gpu-0002", "nccl")
    assert first.devices == ("GPU0/DP Group 0/AllReduce/4-5GB/Ring_ll/4",)
    assert first.metrics == ("nccl_bus_bandwidth_gbs", "nccl_collective_exec_time_microseconds")
    assert second.devices == ("GPU0/PP/Send/512-513MB/4",)
    assert [record.reason for record in found if isinstance(record, Unread)] == ["1 lines are no series"]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """Return a node with two ranks whose plugin writes into a folder that all nodes share."""
    node = Node(tmp_path / "node")
    folder = tmp_path / "nccl-inspector-12"
    folder.mkdir()
    for rank in (2, 3):
        log = folder / f"pod-7-pid{rank}.log"
        log.touch()
        node.rank(rank)
        (node.folder / "proc" / str(4000 + rank) / "fd" / "17").symlink_to(log)
    (folder / "pod-8-pid2.log").write_text(lines(operation(99)))
    return node


def log_of(node: Node, rank: int) -> Path:
    """Return the file that a rank's plugin writes."""
    return (node.folder / "proc" / str(4000 + rank) / "fd" / "17").readlink()


def test_a_running_jobs_operations_are_tailed(node: Node) -> None:
    """New operations come once, under the rank that has the log open; another node's log in the folder is not read."""
    collector = Inspector(node.host)
    log_of(node, 2).write_text(lines(operation(1), operation(2)))
    first = of(node.run(collector, "inspector"), CollectiveTimings)
    with log_of(node, 2).open("a") as file:
        file.write(lines(operation(3)))
    log_of(node, 3).write_text(lines(operation(3, rank=3)))

    second = of(node.run(collector, "inspector"), CollectiveTimings)

    assert [(each.rank, each.job, each.attempt, each.node, each.count) for each in first] == [
        (2, "llama-8b", 2, None, 2)
    ]
    assert sorted((each.rank, column(each, "sequence", TIMING_COLUMNS)) for each in second) == [(2, [3]), (3, [3])]
    assert node.run(collector, "inspector") == []


def test_a_marker_holds_over_runs_and_a_restart_of_the_agent(node: Node) -> None:
    """Lines that come after their marker was read are its communicator's; beyond bytes that were left out they are nobody's."""
    log_of(node, 2).write_text(lines(marker(3), bare(1)))
    first = of(node.run(Inspector(node.host), "inspector"), CollectiveTimings)
    with log_of(node, 2).open("a") as file:
        file.write(lines(bare(2)))
    second = of(node.run(Inspector(node.host), "inspector"), CollectiveTimings)
    with log_of(node, 2).open("a") as file:
        many = [one for sequence in range(BEHIND_BYTES // 400) for one in (marker(1), bare(sequence))]
        file.write(lines(*many, bare(4)))

    last = node.run(Inspector(node.host), "inspector")

    assert [whose([each]) for each in (*first, *second)] == [{"0xd1": [1]}, {"0xd1": [2]}]
    assert {each.communicator for each in of(last, CollectiveTimings)} == {"0xd1"}
    assert any("have no marker" in each.reason for each in of(last, Unread))


def test_what_comes_at_the_jobs_end_is_read(node: Node) -> None:
    """A plugin that writes only at teardown is read after its process has gone."""
    collector = Inspector(node.host)
    node.run(collector, "inspector")
    log_of(node, 2).write_text(lines(operation(1)))
    node.host.processes = ()

    (found,) = of(node.run(collector, "inspector"), CollectiveTimings)

    assert (found.rank, found.job) == (2, "llama-8b")


def test_ranks_keep_the_same_operations(node: Node) -> None:
    """Of too many operations a bounded number is sent, by their sequence, so that those of two ranks still join."""
    log_of(node, 2).write_text(lines(*(operation(sequence) for sequence in range(1, 2001))))
    log_of(node, 3).write_text(lines(*(operation(sequence, rank=3) for sequence in range(1, 1001))))

    found = {each.rank: each for each in of(node.run(Inspector(node.host), "inspector"), CollectiveTimings)}

    assert (found[2].every, found[2].written, found[3].every, found[3].written) == (8, 2000, 4, 1000)
    assert max(each.count for each in found.values()) <= MOST_OPERATIONS
    both = set(column(found[2], "sequence", TIMING_COLUMNS)) & set(column(found[3], "sequence", TIMING_COLUMNS))
    assert both == set(range(8, 1001, 8))


def test_a_flood_is_bounded_and_told(node: Node) -> None:
    """Of eight megabytes at once the newest are read, and how many bytes were not is reported."""
    with log_of(node, 2).open("w") as file:
        text = lines(operation(5))
        file.write(text * (8_000_000 // len(text)))
        file.write(lines(operation(1024)))

    found = node.run(Inspector(node.host), "inspector")

    (reported,) = of(found, Unread)
    left_out = int(reported.reason.split(" ")[0].replace(",", ""))
    assert left_out >= log_of(node, 2).stat().st_size - BEHIND_BYTES
    assert column(of(found, CollectiveTimings)[0], "sequence", TIMING_COLUMNS)[-1] == 1024


def test_this_nodes_means_are_read(node: Node) -> None:
    """Prometheus files give readings of this node's series alone, and none once nobody writes them any more."""
    folder = node.folder / "files" / "textfiles"
    folder.mkdir()
    (folder / "nccl_GPU0.prom").write_text(PROMETHEUS)
    os.utime(folder / "nccl_GPU0.prom", (node.clock.at, node.clock.at))
    node.options["inspector"] = {"folders": ["/textfiles"]}
    collector = Inspector(node.host)

    (readings,) = [each for each in node.run(collector, "inspector") if isinstance(each, Readings)]
    node.clock.at += 600

    assert (readings.scope, readings.type, readings.values) == ("nccl", "<f4", [[678.263, 9498.47]])
    assert node.run(collector, "inspector") == []


def test_metrics_that_share_no_series_take_no_memory(tmp_path: Path) -> None:
    """A file whose every line names another GPU and another metric has as many cells as the bound, not their product."""
    text = [f'nccl_p2p_{number}{{gpu="{number}"}} 1' for number in range(4000)]

    series = gather(text, 10_000)

    assert sum(len(row) for table in series.tables for row in table.rows()) == 10_000
    assert series.over == 3900


def test_a_job_cannot_lead_the_agent_elsewhere(node: Node) -> None:
    """In a folder that the job names, a link out of it is not followed and a pipe that nobody writes not waited for."""
    folder = node.folder / "files" / "named"
    folder.mkdir()
    outside = node.folder / "outside.prom"
    outside.write_text(PROMETHEUS)
    os.utime(outside, (node.clock.at, node.clock.at))
    (folder / "a.prom").symlink_to(outside)
    os.mkfifo(folder / "b.prom")
    node.rank(0, labels={"NCCL_INSPECTOR_DUMP_DIR": "/named"})

    assert node.run(Inspector(node.host), "inspector") == []


def test_a_job_without_the_plugin_is_nothing_to_collect(tmp_path: Path) -> None:
    """Without the plugin the run is quiet, not a failure."""
    node = Node(tmp_path)
    node.rank(0)
    collector = Inspector(node.host)

    with pytest.raises(NothingToCollect, match="NCCL Inspector"):
        node.run(collector, "inspector")
