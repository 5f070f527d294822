"""The ports of a node: InfiniBand and RoCE below /sys/class/infiniband, network interfaces below /sys/class/net.

Counters are sent as the kernel has them, since boot or since the driver was loaded: the totals of a healthy port are not
zero. The kernel's names are kept, with ``_total`` appended; InfiniBand counts data in words of four bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from collectors.live.sources.system_files import names, number, text
from collectors.records import Device

PORTS_LIMIT = 64  # of InfiniBand, and as many interfaces; a node has sixteen at most
COUNTERS_LIMIT = 160  # of one port
SKIPPED_INTERFACES = (  # those of containers and virtual machines: the job's traffic crosses a real one too
    "lo", "veth*", "docker*", "br-*", "cali*", "cilium*", "lxc*", "flannel*", "cni*", "tunl*", "kube-*", "nodelocaldns*",
    "ifb*", "dummy*", "virbr*", "vnet*", "tap*",
)  # fmt: skip
OPERATING_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
"""The numbers of ``operstate``: RFC 2863's states in the kernel's order, up is 6."""

_WORDS = {name: f"{name}_words_total" for name in (
    "port_rcv_data", "port_xmit_data", "unicast_rcv_data", "unicast_xmit_data", "port_rcv_data_64", "port_xmit_data_64",
)}  # fmt: skip
_PCI = re.compile(r"([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})\.[0-7]$")
_RATE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/sec")
_SETTINGS = frozenset({"lifespan"})  # no counter, though among them: how long the driver caches them, ms

Row = dict[str, int]
Found = tuple[dict[str, Row], list[Device], int]
"""Readings by port, the ports as devices, and how many ports were left out."""


def infiniband(root: Path) -> Found:
    """Return the readings of every InfiniBand and RoCE port, by "mlx5_0/1"."""
    folder = root / "class/infiniband"
    places = [(name, port) for name in names(folder) for port in names(folder / name / "ports")]
    rows = {f"{name}/{port}": _port(folder / name / "ports" / port) for name, port in places[:PORTS_LIMIT]}
    devices = [_channel_adapter(folder / name, port) for name, port in places[:PORTS_LIMIT]]
    return rows, devices, len(places[PORTS_LIMIT:])


def network(root: Path, skipped: Sequence[str] = SKIPPED_INTERFACES) -> Found:
    """Return the readings of every network interface that no pattern skips."""
    folder = root / "class/net"
    found = [
        name
        for name in names(folder)
        if (folder / name / "statistics").is_dir() and not any(fnmatchcase(name, pattern) for pattern in skipped)
    ]
    rows = {name: _interface(folder / name) for name in found[:PORTS_LIMIT]}
    return rows, [_card(folder / name) for name in found[:PORTS_LIMIT]], len(found[PORTS_LIMIT:])


def _read(values: dict[str, int | None]) -> Row:
    return {name: value for name, value in values.items() if value is not None}


def _counters(folder: Path) -> Iterator[tuple[str, int | None]]:
    for name in names(folder)[:COUNTERS_LIMIT]:
        if name not in _SETTINGS:
            yield _WORDS.get(name, f"{name}_total"), number(folder / name)


def _port(folder: Path) -> Row:
    """Return one port's readings. ``state`` 4 is active, ``physical_state`` 5 is up, as the kernel numbers them."""
    rate = _RATE.match(text(folder / "rate") or "")  # "2.5 Gb/sec (1X SDR)", "400 Gb/sec (4X NDR)"
    megabits = round(float(rate[1]) * 1000) if rate else None
    states = {"state": number(folder / "state"), "physical_state": number(folder / "phys_state")}
    counted = {**dict(_counters(folder / "hw_counters")), **dict(_counters(folder / "counters"))}
    return _read({**states, "rate_megabits_per_second": megabits, **counted})


def _interface(folder: Path) -> Row:
    state = text(folder / "operstate") or ""
    rates = {
        "operstate": OPERATING_STATES.index(state) if state in OPERATING_STATES else None,
        "carrier": number(folder / "carrier"),
        "speed_megabits_per_second": number(folder / "speed"),
        "carrier_changes_total": number(folder / "carrier_changes"),
        "bond_link_failures_total": number(folder / "bonding_slave/link_failure_count"),
        "bond_link_up": {"up": 1, "down": 0}.get(text(folder / "bonding_slave/mii_status") or ""),
    }
    return _read({**rates, **dict(_counters(folder / "statistics"))})


def _channel_adapter(folder: Path, port: str) -> Device:
    place = folder / "ports" / port
    attributes = {
        "firmware": text(folder / "fw_ver"),
        "board": text(folder / "board_id"),
        "guid": text(folder / "node_guid"),
        "rate": text(place / "rate"),
        "link_layer": text(place / "link_layer"),
        "interface": text(place / "gid_attrs/ndevs/0"),
        "numa_node": text(folder / "device/numa_node"),
    }
    name = text(folder / "hca_type") or ""
    return Device(
        type="infiniband", id=f"{folder.name}/{port}", pci=_pci(folder), name=name, attributes=_present(attributes)
    )


def _card(folder: Path) -> Device:
    master = folder / "master"
    attributes = {
        "driver": _target(folder / "device/driver"),
        "mtu_bytes": text(folder / "mtu"),
        "numa_node": text(folder / "device/numa_node"),
        "bond": _target(master) if (master / "bonding").is_dir() else None,
        "bond_mode": text(folder / "bonding/mode"),
        "bond_members": text(folder / "bonding/slaves"),
        "infiniband": " ".join(names(folder / "device/infiniband")),
    }
    return Device(type="ethernet", id=folder.name, pci=_pci(folder), name=folder.name, attributes=_present(attributes))


def _present(attributes: dict[str, str | None]) -> dict[str, str]:
    return {name: value[:200] for name, value in attributes.items() if value}


def _target(link: Path) -> str | None:
    """Return the last part of a link's target; None where there is no link."""
    try:
        return link.readlink().name or None
    except OSError:
        return None


def _pci(folder: Path) -> str | None:
    """Return "0000:9b:00" of a PCI device, in the form of ``KernelEvent.pci``."""
    found = _PCI.match(_target(folder / "device") or "")
    return found[1] if found else None
