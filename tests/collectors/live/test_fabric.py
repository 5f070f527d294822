"""Ports, interfaces and the job's connections, from fixture trees and from real sockets in networks of their own."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from collectors.live import NothingToCollect, Readings, Yielded
from collectors.live.fabric import Fabric
from collectors.live.sources.host import Host, Roots
from collectors.live.sources.reporting import AGAIN_SECONDS
from collectors.live.sources.sockets import connections, networks, socket_inodes
from collectors.records import Device, Unread
from tests.support.host_tree import Clock

# One rank: a connection to itself over loopback, over which it sends the given number of bytes; then it waits to be ended.
RANK = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
left = int(sys.argv[1])
while left:
    client.sendall(bytes(min(left, 8192)))
    got = min(left, 8192)
    left -= got
    while got:
        got -= len(peer.recv(got))
print("%s:%d>%s:%d" % (*client.getsockname(), *client.getpeername()), flush=True)
sys.stdin.read()
"""


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write a tree of small files."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content + "\n")


def port(root: Path, device: str, number: int = 1, **counters: int) -> None:
    """A port of InfiniBand as the kernel shows it; the values are those of a healthy H100 node."""
    place = f"class/infiniband/{device}/ports/{number}"
    write(
        root,
        {
            f"class/infiniband/{device}/fw_ver": "28.39.1002",
            f"class/infiniband/{device}/hca_type": "MT4129",
            f"{place}/state": "4: ACTIVE",
            f"{place}/phys_state": "5: LinkUp",
            f"{place}/rate": "400 Gb/sec (4X NDR)",
            f"{place}/link_layer": "InfiniBand",
            f"{place}/gid_attrs/ndevs/0": "ib0",
            f"{place}/counters/port_rcv_errors": "14",
            f"{place}/counters/port_xmit_wait": "2489603687",
            f"{place}/counters/port_rcv_data": "9007199254740993",
            f"{place}/hw_counters/out_of_sequence": "3",
            f"{place}/hw_counters/lifespan": "10",
            **{f"{place}/counters/{name}": str(value) for name, value in counters.items()},
        },
    )
    bus = root / "devices/pci0000:98/0000:9b:00.0"
    bus.mkdir(parents=True, exist_ok=True)
    (root / f"class/infiniband/{device}/device").symlink_to(bus)


def interface(root: Path, name: str, **more: str) -> None:
    """A network interface as the kernel shows it."""
    place = f"class/net/{name}"
    files = {"operstate": "up", "carrier": "1", "speed": "100000", "carrier_changes": "2", "mtu": "9000"}
    counters = {"statistics/rx_bytes": "123", "statistics/tx_dropped": "4"}
    write(root, {f"{place}/{file}": content for file, content in {**files, **counters, **more}.items()})


def node(root: Path, **options: object) -> Host:
    """A node whose files lie below a folder, and on which nothing trains."""
    (root / "proc").mkdir(exist_ok=True)
    return Host("gpu-0001", Roots(proc=root / "proc", sys=root / "sys"), Clock(), {"fabric": options})


def run(collector: Fabric) -> list[Yielded]:
    """One run."""
    return list(collector(None))


def rows(found: list[Yielded], scope: str) -> dict[str, dict[str, float]]:
    """What one tick reads: device → metric → value, readings that are absent left out."""
    (tick,) = [one for one in found if isinstance(one, Readings) and one.scope == scope]
    assert tick.type == "<i8"
    return {
        device: {metric: value for metric, value in zip(tick.metrics, values, strict=True) if value is not None}
        for device, values in zip(tick.devices, tick.values, strict=True)
    }


def devices(found: list[Yielded]) -> dict[str, Device]:
    """The devices of a run by their id."""
    return {one.id: one for one in found if isinstance(one, Device)}


def test_a_port_is_sent_as_the_kernel_counts_it(tmp_path: Path) -> None:
    """State, rate and every counter, also one above 2^53, which no float holds; data keeps its unit of four bytes."""
    port(tmp_path / "sys", "mlx5_0")

    found = run(Fabric(node(tmp_path)))

    assert rows(found, "infiniband") == {
        "mlx5_0/1": {
            "state": 4,
            "physical_state": 5,
            "rate_megabits_per_second": 400_000,
            "port_rcv_errors_total": 14,
            "port_xmit_wait_total": 2_489_603_687,
            "port_rcv_data_words_total": 9_007_199_254_740_993,
            "out_of_sequence_total": 3,
        }
    }
    device = devices(found)["mlx5_0/1"]
    assert (device.type, device.pci, device.name) == ("infiniband", "0000:9b:00", "MT4129")
    assert device.attributes["firmware"] == "28.39.1002"
    assert device.attributes["rate"] == "400 Gb/sec (4X NDR)"
    assert device.attributes["interface"] == "ib0"


def test_ports_need_not_have_the_same_counters(tmp_path: Path) -> None:
    """A counter that only one port has is no reading of the other, not a zero."""
    port(tmp_path / "sys", "mlx5_0", symbol_error=7)
    port(tmp_path / "sys", "mlx5_bond_0")

    found = rows(run(Fabric(node(tmp_path))), "infiniband")

    assert found["mlx5_0/1"]["symbol_error_total"] == 7
    assert "symbol_error_total" not in found["mlx5_bond_0/1"]


@pytest.mark.parametrize("garbage", ["", "no number", "9" * 30, "-", "\0\0", "N/A (no PMA)", "¹²"])
def test_a_counter_that_is_no_number_is_no_reading(tmp_path: Path, garbage: str) -> None:
    """Whatever a driver writes, the other counters of the port are read."""
    port(tmp_path / "sys", "mlx5_0")
    write(tmp_path / "sys/class/infiniband/mlx5_0/ports/1", {"counters/port_rcv_errors": garbage, "rate": garbage})

    found = rows(run(Fabric(node(tmp_path))), "infiniband")["mlx5_0/1"]

    assert "port_rcv_errors_total" not in found
    assert "rate_megabits_per_second" not in found
    assert found["out_of_sequence_total"] == 3


def test_interfaces_are_read_and_those_of_containers_are_not(tmp_path: Path) -> None:
    """Loopback and veth pairs are left out by default; an option names others, and then only those."""
    for name in ("eth0", "lo", "veth12ab", "cali9"):
        interface(tmp_path / "sys", name)

    found = run(Fabric(node(tmp_path)))

    assert rows(found, "network") == {
        "eth0": {
            "operstate": 6,
            "carrier": 1,
            "speed_megabits_per_second": 100_000,
            "carrier_changes_total": 2,
            "rx_bytes_total": 123,
            "tx_dropped_total": 4,
        }
    }
    assert devices(found)["eth0"].attributes == {"mtu_bytes": "9000"}
    assert set(rows(run(Fabric(node(tmp_path, skip_interfaces=["eth*"]))), "network")) == {"lo", "veth12ab", "cali9"}


def test_a_bond_shows_its_members(tmp_path: Path) -> None:
    """Which interfaces it joins, and of each whether its link is up and how often it failed."""
    root = tmp_path / "sys"
    interface(root, "bond0", **{"bonding/slaves": "eth0 eth1", "bonding/mode": "802.3ad 4"})
    member = {"bonding_slave/link_failure_count": "5", "bonding_slave/mii_status": "down"}
    interface(root, "eth0", **member)
    (root / "class/net/eth0/master").symlink_to(root / "class/net/bond0")

    found = run(Fabric(node(tmp_path)))

    assert rows(found, "network")["eth0"]["bond_link_failures_total"] == 5
    assert rows(found, "network")["eth0"]["bond_link_up"] == 0
    assert devices(found)["eth0"].attributes["bond"] == "bond0"
    assert devices(found)["bond0"].attributes["bond_members"] == "eth0 eth1"


def test_a_device_is_said_once_then_when_it_changes_and_hourly(tmp_path: Path) -> None:
    """What a port is does not travel with each of its ticks."""
    port(tmp_path / "sys", "mlx5_0")
    host = node(tmp_path)
    collector = Fabric(host)

    assert set(devices(run(collector))) == {"mlx5_0/1"}
    assert devices(run(collector)) == {}
    write(tmp_path / "sys/class/infiniband/mlx5_0/ports/1", {"rate": "200 Gb/sec (2X NDR)"})
    assert devices(run(collector))["mlx5_0/1"].attributes["rate"] == "200 Gb/sec (2X NDR)"
    host.clock.at += AGAIN_SECONDS  # type: ignore[attr-defined]
    assert set(devices(run(collector))) == {"mlx5_0/1"}


def test_ports_beyond_the_bound_are_reported_once(tmp_path: Path) -> None:
    """Of seventy interfaces 64 are read, and one record says that six are not."""
    for number in range(70):
        interface(tmp_path / "sys", f"eth{number}")
    collector = Fabric(node(tmp_path))

    found = run(collector)

    assert len(rows(found, "network")) == 64
    assert [one.reason for one in found if isinstance(one, Unread)] == ["6 ports are not read (bound 64)"]
    assert not [one for one in run(collector) if isinstance(one, Unread)]


def test_a_node_without_links_or_training_has_nothing_to_collect(tmp_path: Path) -> None:
    """It says where it looked."""
    with pytest.raises(NothingToCollect, match=r"no port or interface below .*/class"):
        run(Fabric(node(tmp_path)))


def test_a_connection_has_what_the_kernel_knows_of_it() -> None:
    """Both ends of a real connection: who sent how much to whom, what lies unread, and the same round trip as ss shows."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        client, peer = socket.create_connection(server.getsockname()), server.accept()[0]
        with closing(client), closing(peer):
            client.sendall(bytes(100_000))
            peer.recv(40_000, socket.MSG_WAITALL)
            mine = socket_inodes(Path("/proc/self"))

            found = {one.edge: one for one in connections(None) if one.inode in mine}

            there = "{}:{}>{}:{}".format(*client.getsockname(), *client.getpeername())
            back = "{}:{}>{}:{}".format(*peer.getsockname(), *peer.getpeername())
            assert {there, back} <= set(found)
            assert found[there].readings["bytes_sent_total"] == 100_000
            assert found[there].readings["retransmits_total"] == 0
            assert found[back].readings["bytes_received_total"] == 100_000
            assert found[back].readings["receive_queue_bytes"] == 60_000
            assert not found[there].leaves_the_node
            if shutil.which("ss"):
                command = ["ss", "-tinH", "sport", "=", f":{client.getsockname()[1]}"]
                shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                round_trip = float(re.findall(r"\brtt:([\d.]+)/", shown)[0])  # milliseconds
                assert found[there].readings["round_trip_us"] == pytest.approx(round_trip * 1000, abs=1)


def test_an_ipv6_connection_is_named_as_logs_name_it() -> None:
    """Brackets around an IPv6 address; an IPv4 address that was mapped into IPv6 is the IPv4 address."""
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with closing(socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)) as server:
        number = server.getsockname()[1]
        six, four = (socket.create_connection((address, number)) for address in ("::1", "127.0.0.1"))
        six_port, four_port = six.getsockname()[1], four.getsockname()[1]
        with closing(six), closing(four):
            edges = {one.edge for one in connections(None)}

    assert f"[::1]:{six_port}>[::1]:{number}" in edges
    assert f"127.0.0.1:{number}>127.0.0.1:{four_port}" in edges  # the server's end, an IPv6 socket


@contextmanager
def rank(number: int, send_bytes: int, *enter: str) -> Iterator[tuple[int, str]]:
    """A process that trains, by its environment, and has a connection; (pid, edge) once it has sent."""
    world = {"RANK": str(number), "WORLD_SIZE": "64", "LOCAL_RANK": "0", "FAULTHOUND_JOB": f"fabric-{os.getpid()}"}
    process = subprocess.Popen(
        [*enter, sys.executable, "-u", "-c", RANK, str(send_bytes)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": os.environ["PATH"], **world},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 30)[0], "the rank has not sent within 30 s"
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def alone(root: Path, pid: int, **options: object) -> Host:
    """This machine as if nothing but that process ran on it: other jobs of the machine are not the test's."""
    proc = root / "proc"
    proc.mkdir()
    for name in ("self", str(pid)):
        (proc / name).symlink_to(Path("/proc") / name)
    host = Host("gpu-0001", Roots(proc=proc), options={"fabric": options})
    assert [one.pid for one in host.training()] == [pid]
    return host


def test_the_edges_of_a_rank_have_its_number(tmp_path: Path) -> None:
    """A connection is sent with the rank and pid that hold it; those of other processes are not sent."""
    with rank(37, 50_000) as (pid, edge), closing(socket.create_server(("127.0.0.1", 0))) as server:
        stranger = socket.create_connection(server.getsockname())
        with closing(stranger):
            found = rows(run(Fabric(alone(tmp_path, pid))), "socket")

    assert found[edge]["rank"] == 37
    assert found[edge]["pid"] == pid
    assert found[edge]["bytes_sent_total"] == 50_000
    assert "{1}>{0}".format(*edge.split(">")) in found
    assert len(found) == 2


def test_edges_beyond_the_bound_are_reported(tmp_path: Path) -> None:
    """With room for one of a connection's two ends one is sent, and a record says that one is left out."""
    with rank(38, 50_000) as (pid, _edge):
        host = alone(tmp_path, pid, edges=1)

        found = run(Fabric(host))

    assert len(rows(found, "socket")) == 1
    assert [one.reason for one in found if isinstance(one, Unread)] == [
        "1 connections of training processes are left out, those with the fewest bytes (bound 1)"
    ]


@pytest.mark.system
def test_a_rank_in_a_network_of_its_own_is_asked_there_and_its_losses_are_seen(tmp_path: Path) -> None:
    """In a pod's network, behind a link that drops, the edge has the retransmits; the agent stays in its own network."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip", "tc"))):
        pytest.skip("a network of its own needs root, unshare, ip and tc")
    lossy = 'ip link set lo mtu 1500 up && tc qdisc add dev lo root tbf rate 8mbit burst 3000 limit 4000 && exec "$@"'
    enter = ("unshare", "--net", "sh", "-c", lossy, "sh")
    if subprocess.run([*enter, "true"], capture_output=True).returncode != 0:
        pytest.skip("this kernel has no network namespaces, or no token bucket filter")
    before = Path("/proc/self/ns/net").readlink()
    with rank(39, 400_000, *enter) as (pid, edge):
        assert networks([Path(f"/proc/{pid}")], Path("/proc/self")) == [Path(f"/proc/{pid}/ns/net")]

        found = rows(run(Fabric(alone(tmp_path, pid))), "socket")

    assert found[edge]["rank"] == 39
    assert found[edge]["bytes_sent_total"] >= 400_000
    assert found[edge]["retransmits_total"] > 0
    assert found[edge]["bytes_retransmitted_total"] > 0
    assert Path("/proc/self/ns/net").readlink() == before


def test_a_network_that_may_not_be_entered_costs_the_others_nothing(tmp_path: Path) -> None:
    """The run fails and says so, after it has yielded the ports and the connections that it could see."""
    with rank(40, 1000) as (pid, edge), rank(41, 1000) as (elsewhere, _edge):
        host = alone(tmp_path, pid)
        shown = tmp_path / "proc" / str(elsewhere)
        (shown / "ns").mkdir(parents=True)
        (shown / "ns/net").symlink_to("net:[1]")
        for name in ("cmdline", "environ", "fd", "stat", "status"):
            (shown / name).symlink_to(Path("/proc") / str(elsewhere) / name)
        found: list[Yielded] = []

        with pytest.raises(FileNotFoundError):
            found.extend(Fabric(Host("gpu-0001", host.roots))(None))

    assert rows(found, "socket")[edge]["rank"] == 40


def test_a_rank_that_is_gone_costs_nothing(tmp_path: Path) -> None:
    """A process that ended between the scan and the run has no sockets, and no network to ask but the agent's own."""
    assert socket_inodes(tmp_path / "4242") == set()
    assert networks([tmp_path / "4242"], Path("/proc/self")) == [None]
