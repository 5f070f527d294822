"""Dumps become the files that a job leaves: protocol-2 pickle or JSON, in the spelling of their version."""

from __future__ import annotations

import json
import pickle
from array import array
from typing import Any, Literal

from collectors.records import ARRAY_CODES, FLIGHT_RECORDER_COLUMNS, STATES, FlightRecorderDump

Format = Literal["pickle", "json"]
NAMES = ("_dump_{rank}", "nccl_trace_rank_{rank}", "comm_lib_trace_rank_{rank}", "nccl_trace_rank_{host}_{rank}")


def encode(dump: FlightRecorderDump, format: Format) -> bytes:
    """Spell one dump as PyTorch of its version does."""
    as_json = format == "json"
    document: dict[str, Any] = {
        "version": dump.version,
        "comm_lib_version" if dump.version == "2.10" else "nccl_version": dump.library_version,
        "pg_config": {
            group.name: {
                "name": group.name,
                "desc": group.description,
                "ranks": str(list(group.members.ranks())) if group.members else "[]",
            }
            for group in dump.groups
        },
        "pg_status": _status(dump, as_text=as_json),
    }
    entries = _entries(dump, as_json=as_json)
    if entries or not as_json:  # an empty recorder leaves the key out of its JSON
        document["entries"] = entries
    return json.dumps(document).encode() if as_json else pickle.dumps(document, protocol=2)


def _status(dump: FlightRecorderDump, *, as_text: bool) -> dict[str, dict[str, Any]]:
    columns = [array("q", dump.pg_status[name]) for name in ("pg_id", "enqueued", "started", "completed")]
    names = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    spell = str if as_text else int
    return {str(pg): dict(zip(names, map(spell, rest), strict=True)) for pg, *rest in zip(*columns, strict=True)}


def _entries(dump: FlightRecorderDump, *, as_json: bool) -> list[dict[str, Any]]:
    columns = {name: array(ARRAY_CODES[code], dump.columns[name]) for name, code in FLIGHT_RECORDER_COLUMNS.items()}
    descriptions = {group.name: (place, group.description) for place, group in enumerate(dump.groups)}
    text, unset = dump.strings, 0 if as_json else None
    entries = []
    for row in range(dump.count):
        values = {name: column[row] for name, column in columns.items()}
        group = text[values["group"]]
        place, description = descriptions[group]
        entry = {
            "record_id": values["record_id"],
            "pg_id": place,
            "process_group": [group, description] if as_json else (group, description),
            "thread_name": "python3",
            "thread_id": "140737353983808",
            "collective_seq_id": values["collective_seq"],
            "p2p_seq_id": values["p2p_seq"],
            "op_id": values["op_id"],
            "profiling_name": text[values["operation"]],
            "time_created_ns": values["created_ns"],
            "input_sizes": json.loads(text[values["input_sizes"]]),
            "input_dtypes": _dtypes(text[values["dtypes"]]),
            "output_sizes": json.loads(text[values["output_sizes"]]),
            "output_dtypes": _dtypes(text[values["dtypes"]]),
            "state": STATES[values["state"]],
            "time_discovered_started_ns": values["started_ns"] if values["started_ns"] >= 0 else unset,
            "time_discovered_completed_ns": values["completed_ns"] if values["completed_ns"] >= 0 else unset,
            "retired": bool(values["retired"]),
            "timeout_ms": values["timeout_ms"],
            "is_p2p": bool(values["is_p2p"]),
        }
        if dump.version == "2.4":
            del entry["thread_name"], entry["thread_id"]
        entries.append(entry)
    return entries


def _dtypes(text: str) -> list[str]:
    return [text] if text else []
