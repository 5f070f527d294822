"""Kernel lines of network cards' drivers, as rows: a card that is unwell, one that does not answer, a request that was refused.

A driver writes ``<driver> <PCI address> [<port>]: <complaint>``, RDMA's core ``infiniband <device>: <complaint>``. Formats: Linux
4.18 to 6.12 (mlx5, bnxt, irdma, efa, ena, ionic, hfi1, qed, mana), the kernel's transmit watchdog (``sch_generic.c``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from collectors.formats.kernel_log.gpu_lines import PCI
from collectors.records import pci_address

DRIVERS = (
    r"mlx4_\w{2,4}|bnxt_(?:en|re)|irdma|ice|i40e|efa|ena|ionic(?:_rdma)?|hfi1|qed\w{0,2}|cxgb4|iw_cxgb4|mana(?:_ib)?|gve|hns3|"
    r"hns_roce_\w{2,10}|erdma|enic|nfp"
)
_MLX5_NOISE = re.compile(
    r"ACCESS_REG|firmware version|enabling|Supported tc|E-Switch|MLX5E|bandwidth|renamed|Rate limit"
)
_NOISE = re.compile(
    r"(?i)retry|will try|falling back|not supported|link is|recover(?:ed|y (?:complete|succ))"
    r"|\bVPD\b|\bDDP package\b|\bLLDP\b|promiscuous mode forced on"  # at a boot, of what the card works without
)
_UNWELL = re.compile(
    r"compromised|[Ff]atal|assert_var|device state is internal error|synd 0x(?!0\b)|irisc not responding", re.IGNORECASE
)
_SILENT = re.compile(
    r"time(?:d )?[ -]?out|No done completion|not respond|no response|stuck|hung\b|heartbeat.{0,40}(?:lost|missed)",
    re.IGNORECASE,
)
_OF_MLX5 = re.compile(r"event\[error\]|[Cc]able error|[Ee]rror|failed|fail\b|High Temperature", re.IGNORECASE)
_REFUSED = re.compile(r"(?i)\b(?:failed|failure|fail|error|unable to|cannot|can't|could not|invalid)\b")


def _mlx5(found: re.Match[str]) -> dict[str, Any] | None:
    """Keep what a Mellanox NIC reports as wrong; ACCESS_REG failures are caused by monitoring tools and are dropped."""
    rest = found.string[found.start() :]
    if _MLX5_NOISE.search(rest):
        return None
    pci = re.search(PCI, rest)
    fields: dict[str, Any] = {"device": found["device"], "pci": pci_address(pci[1]) if pci else None}
    if re.search(r"insufficient power", rest, re.IGNORECASE):
        return {"event": "pcie_power", **fields}
    for severity, words in (("fatal", _UNWELL), ("silent", _SILENT), ("error", _OF_MLX5)):
        if words.search(rest):
            return {"event": "mlx5", "severity": severity, **fields}
    return {"event": "mlx5", "severity": "info", **fields} if "module event" in rest else None


def _card(found: re.Match[str]) -> dict[str, Any] | None:
    """Read a driver's complaint; what it goes on after is none."""
    said, named = found["said"], found.groupdict()
    if _NOISE.search(said):
        return None
    severity = "silent" if _SILENT.search(said) else "refused" if _REFUSED.search(said) else None
    pci = named.get("pci")
    device = named.get("device") or named.get("driver")
    return (
        {"event": "nic", "severity": severity, "device": device, "pci": pci_address(pci) if pci else None}
        if severity
        else None
    )


Read = Callable[[re.Match[str]], dict[str, Any] | None]
ROWS: tuple[tuple[tuple[str, ...], str, Read], ...] = (  # words, pattern, what it reads
    (("mlx5_",), r"(?:infiniband )?(?P<device>mlx5_\w{1,20}):?", _mlx5),
    (("infiniband ",), r"infiniband (?P<device>[\w.-]{1,32}): (?P<said>.{1,400})", _card),
    (
        (
            "mlx4_",
            "bnxt_",
            "irdma 0",
            "ice 0",
            "i40e 0",
            "efa 0",
            "ena 0",
            "ionic",
            "hfi1 0",
            "qed",
            "cxgb4 0",
            "mana",
            "gve 0",
            "hns",
            "erdma 0",
            "enic 0",
            "nfp 0",
        ),
        rf"(?P<driver>{DRIVERS}) (?P<pci>[0-9a-f]{{4}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7]):? (?P<said>.{{1,400}})",
        _card,
    ),
    (
        ("NETDEV WATCHDOG: ",),
        r"NETDEV WATCHDOG: (?P<device>[\w.-]{1,32}) \((?P<driver>[\w-]{1,20})\): (?P<said>transmit queue \d{1,5} timed out)",
        _card,
    ),
)
