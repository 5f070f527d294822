"""The Xid tables as typed answers: what a code means, how an NVLink line is decided, which action a fault class asks for.

Pure views of two documents, ``xid`` and ``nvlink5`` (see docs/xid.md). A code or class that the tables do not know is
answered with "unknown" and no action: no node is evicted for a number alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from analyzers.knowledge import Knowledge

Action = Literal["evict", "reset_gpu", "reboot_node", "probe", "none"]
Role = Literal["primary", "sympathetic", "application", "informational", "unused"]

NVLINK5 = range(144, 151)
CHANNEL_RESET = 43
GUIDED = {"_then_reboot": "reboot_node", "_then_reset": "reset_gpu", "_then_drain": "reset_gpu"}
"""Suffixes of a fault class: an Xid 154 on the same GPU named the recovery that the fault needs. To drain: let what runs end."""

_RANK: tuple[Action, ...] = ("none", "probe", "reset_gpu", "reboot_node", "evict")
_WORST = ("ignore", "xid_154_eval", "reset_gpu")
_SPECIFIC = re.compile(r"(xid|sxid)_(\d+)")


@dataclass(frozen=True, slots=True)
class Xid:
    """One code. ``now`` and ``later`` are the vendor's immediate and investigatory resolutions."""

    code: int
    now: str = "unknown"
    later: str = ""
    role: Role = "unused"
    means: str = "a code that the table does not know"
    strength: float = 0.0
    action: Action = "none"
    advice: str = ""
    after: frozenset[int] = frozenset()  # application Xids whose consequence it is where it follows them


@dataclass(frozen=True, slots=True)
class Nvlink5:
    """How one line with an Xid from 144 to 150 is decided, and by what: "registers", "severity" or "nothing"."""

    resolution: str
    later: str = ""
    unit: str = ""
    subcode: int | None = None
    layout: str = ""
    decided_by: str = "nothing"


def xid(knowledge: Knowledge, code: int) -> Xid:
    """Look one code up."""
    table = knowledge.table("xid")
    row = _mapping(_mapping(table.get("codes")).get(str(code)))
    if not row:
        return Xid(code)
    now = str(row.get("now", "unknown"))
    asked = row.get("action", _mapping(table.get("resolution")).get(now, "none"))
    return Xid(
        code,
        now,
        str(row.get("later", "")),
        cast("Role", row.get("role", "unused")),
        str(row.get("means", "")),
        float(row.get("strength", 0.0)),
        _action(asked),
        str(row.get("advice", "")),
        frozenset(after) if isinstance(after := row.get("after"), list) else frozenset(),
    )


def advice_for(fault_class: str, knowledge: Knowledge) -> str:
    """Return what a person does about an Xid that asks for nothing to be done to its node; "" where no row says."""
    found = _SPECIFIC.fullmatch(fault_class)
    return xid(knowledge, int(found[2])).advice if found is not None and found[1] == "xid" else ""


def action_for(fault_class: str, knowledge: Knowledge, otherwise: str = "none") -> Action:
    """Return what a hardware event asks for: evict, reset_gpu, reboot_node, probe or none. ``otherwise``: if no table has it."""
    for suffix, asked in GUIDED.items():
        if fault_class.endswith(suffix):
            return _worse(action_for(fault_class.removesuffix(suffix), knowledge, otherwise), _action(asked))
    table = knowledge.table("xid")
    classes = _mapping(table.get("fault_class"))
    if fault_class in classes:
        return _action(classes[fault_class])
    if fault_class.startswith("nvlink5_"):
        return "reset_gpu" if fault_class.endswith("_fatal") else "none"
    if (found := _SPECIFIC.fullmatch(fault_class)) is None:
        return _action(otherwise)
    return xid(knowledge, int(found[2])).action if found[1] == "xid" else _action(classes.get("sxid", "none"))


def nvlink74(knowledge: Knowledge, status: Sequence[int]) -> str:
    """Sort an Xid 74's registers: seating, ecc, signal, repeated, sympathetic, threshold, ignore, or unknown.

    The most telling kind that any set bit belongs to wins; a set bit that no kind lists makes it unknown at least.
    """
    kinds = _mapping(knowledge.table("xid").get("nvlink74"))
    seen = {_kind_of_bit(kinds, number, bit) for number, value in enumerate(status, 1) for bit in _bits(value)}
    order = ("seating", "ecc", "signal", "repeated", "unknown", "sympathetic", "threshold", "ignore")
    return next((kind for kind in order if kind in seen), "unknown" if not any(status) else "ignore")


def nvlink5(knowledge: Knowledge, code: int, unit: str | None, severity: str | None, status: Sequence[int]) -> Nvlink5:
    """Decide a line of an Xid from 144 to 150 by its registers, else by its severity word.

    Where the word contradicts the row the word holds: some rows' severity depends on how the system is set up.
    """
    document = knowledge.table("nvlink5")
    by_word = _mapping(document.get("severity")).get(severity or "")
    decided = _by_registers(document, code, unit, status)
    if decided is None:
        return Nvlink5(str(by_word or "unknown"), unit=unit or "", decided_by="severity" if by_word else "nothing")
    row_severity, answer = decided
    if by_word and row_severity and ("nonfatal" in row_severity) != (severity == "nonfatal"):
        return Nvlink5(str(by_word), answer.later, answer.unit, answer.subcode, answer.layout, "severity")
    return answer


def _by_registers(
    document: Mapping[str, Any], code: int, unit: str | None, status: Sequence[int]
) -> tuple[str, Nvlink5] | None:
    if len(status) < 2:
        return None
    intrinfo, error_status = status[0], status[1]
    for name, layout, row_unit in _units(document, code, unit, intrinfo):
        low, high = _mapping(document.get("layout")).get("subcode", (20, 25))
        subcode = _field(intrinfo, low, high)
        rows = [_row(row) for row in _matching_rows(row_unit, subcode, error_status)]
        if not rows:
            continue
        worst = max(rows, key=lambda row: _WORST.index(row[0]) if row[0] in _WORST else -1)
        resolution, later, severity = worst
        if _raised(row_unit, layout, intrinfo, error_status):
            resolution, severity = "reset_gpu", "fatal"
        return severity, Nvlink5(resolution, later, name, subcode, layout, "registers")
    return None


def _units(
    document: Mapping[str, Any], code: int, unit: str | None, intrinfo: int
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield the units this line may mean: by the registers first, then by the name printed in the line."""
    layout = _mapping(document.get("layout"))
    v1_number = _field(intrinfo, *layout.get("v1_xid_bits", (0, 4)))
    v1_unit = _field(intrinfo, *layout.get("v1_unit_bits", (5, 9)))
    v2_unit = _field(intrinfo, *layout.get("v2_unit_bits", (0, 6)))
    is_v1 = v1_number == _mapping(layout.get("v1_xid")).get(str(code))
    named: list[tuple[str, str, Mapping[str, Any]]] = []
    for name, row in _mapping(document.get("units")).items():
        if row.get("xid") != code:
            continue
        if is_v1 and row.get("v1") == v1_unit:
            yield name, "v1", row
        elif row.get("v2") == v2_unit:
            yield name, "v2", row
        elif unit and unit.upper() in (str(other).upper() for other in row.get("names", ())):
            named.append((name, "", row))
    yield from named


def _matching_rows(unit: Mapping[str, Any], subcode: int, error_status: int) -> list[Sequence[str]]:
    rows, by = _mapping(unit.get("rows")), unit.get("by")
    if by == "any":
        return [rows["any"]] if "any" in rows else []
    if by == "subcode":
        return [rows[str(subcode)]] if str(subcode) in rows else []
    values = {int(key, 16): row for key, row in rows.items()}
    if error_status in values or by == "value":
        return [values[error_status]] if error_status in values else []
    return [row for value, row in values.items() if value & error_status]


def _raised(unit: Mapping[str, Any], layout: str, intrinfo: int, error_status: int) -> bool:
    bit = _mapping(unit.get("raised_by")).get(layout)
    masks = [int(key, 16) for key in unit.get("raised", ())]
    return bit is not None and bool(intrinfo >> int(bit) & 1) and any(mask & error_status for mask in masks)


def _row(row: Sequence[str]) -> tuple[str, str, str]:
    resolution, later, severity = (*row, "", "", "")[:3]
    return resolution, later, severity


def _kind_of_bit(kinds: Mapping[str, Any], register: int, bit: int) -> str:
    return next((kind for kind, bits in kinds.items() if bit in bits.get(str(register), ())), "unknown")


def _bits(value: int) -> list[int]:
    return [bit for bit in range(32) if value >> bit & 1]


def _field(value: int, low: int, high: int) -> int:
    return value >> low & ((1 << high - low + 1) - 1)


def _worse(one: Action, other: Action) -> Action:
    return max(one, other, key=_RANK.index)


def _action(value: object) -> Action:
    """Accept an action of a table, a site's included; a word that is none of ours asks for a probe, never for more."""
    return cast("Action", value) if value in get_args(Action) else "probe"


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
