"""A record as plain fields for JSON, and as one row for people; a dump's columns become its entries."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from analyzers.model.ranges import ranges
from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    PG_STATUS_COLUMNS,
    STATES,
    FlightRecorderDump,
    Members,
    Placement,
    Record,
    Samples,
    StackDump,
    Steps,
)
from service.cli.record_columns import decoded, rows, values
from service.reports.instants import rfc3339

DUMP_HEAD = ("group", "seq", "operation", "state", "created", "sizes")
STEP_VALUES = ("seconds", "loss", "gradient_norm", "tokens_per_second", "samples_per_second", "tflops")
STEP_HEAD = ("step", "time", "seconds", "loss", "norm", "tokens/s", "samples/s", "TFLOP/s")
_LINE = re.compile(r":\d+$")  # after the path in a source
_TEXTS = ("group", "operation", "input_sizes", "output_sizes", "dtypes", "frames")
_INSTANTS = ("created_ns", "started_ns", "completed_ns", "timeout_ms")
_ORDER = ("kind", "source", "at", "time", "node", "rank")


def as_fields(record: Record, limit: int | None = None) -> dict[str, Any]:
    """Return the record's own fields, common ones first, with ``time`` (RFC 3339) beside ``at``; unset ones are left out."""
    fields = _dump(record, limit) if isinstance(record, FlightRecorderDump) else _plain(record, limit)
    if record.at is not None:
        fields["time"] = rfc3339(record.at)
    fields.update((name, _clean(value)) for name, value in fields.items() if isinstance(value, str))
    return {name: fields[name] for name in sorted(fields, key=lambda name: _ORDER.index(name) if name in _ORDER else 9)}


def as_row(record: Record) -> tuple[str, ...]:
    """Return kind, time, node, rank, a summary and the source."""
    kind = str(record.__struct_config__.tag)
    at = "" if record.at is None else rfc3339(record.at) + (" (file)" if record.at == _modified_at(record) else "")
    rank = "" if record.rank is None else str(record.rank)
    return (kind, at, record.node or "", rank, _summary(record), record.source)


def _modified_at(record: Record) -> float | None:
    """Return when the file of a record was written, which stands for what states no time; None in an archive."""
    try:
        return Path(_LINE.sub("", record.source)).stat().st_mtime
    except (OSError, ValueError):
        return None


def entry_table(record: Record, limit: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the head and rows of a table of the newest entries of a dump, or of steps; no rows for any other record."""
    if isinstance(record, Steps):
        return STEP_HEAD, [_step_row(entry) for entry in newest(_step_entries(record), limit)]
    if not isinstance(record, FlightRecorderDump):
        return DUMP_HEAD, []
    return DUMP_HEAD, [
        (
            entry.get("group", ""),
            str(entry.get("collective_seq", "")),
            entry.get("operation", ""),
            entry.get("state", ""),
            rfc3339(entry["created_ns"] / 1e9) if "created_ns" in entry else "",
            entry.get("input_sizes", ""),
        )
        for entry in _entries(record, limit)
    ]


def newest(entries: Sequence[dict[str, Any]], limit: int | None) -> Sequence[dict[str, Any]]:
    """Return the newest entries; all without a limit."""
    return entries if limit is None else entries[max(0, len(entries) - limit) :]


def _step_entries(record: Steps) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = (decoded(record) or {}).get("entries", [])
    return entries


def _step_row(entry: dict[str, Any]) -> tuple[str, ...]:
    time = rfc3339(entry["at"]) if "at" in entry else ""
    values = (f"{entry[name]:.4g}" if name in entry else "" for name in STEP_VALUES)
    return (str(entry.get("step", "")), time, *values)


def _steps_summary(record: Steps) -> str:
    """Return which steps there are, with the median seconds of one and the first and last loss."""
    entries = _step_entries(record)
    numbers = [entry["step"] for entry in entries if "step" in entry]
    seconds = [entry["seconds"] for entry in entries if "seconds" in entry]
    losses = [entry["loss"] for entry in entries if "loss" in entry]
    known = [
        f"{record.count:,} step{'s' if record.count != 1 else ''} ({record.told_by})",
        f"{numbers[0]:,} to {numbers[-1]:,}" if numbers else "without numbers",
        f"{median(seconds):.4g} s a step (median)" if seconds else "no seconds a step",
        f"loss {losses[0]:.4g} to {losses[-1]:.4g}" if losses else "no loss",
    ]
    return ", ".join(known)


def _summary(record: Record) -> str:
    if isinstance(record, Steps):
        return _steps_summary(record)
    if isinstance(record, FlightRecorderDump):
        unfinished = sum(state != 2 for state in _column(record, "state"))
        cut = ", cut short" if record.truncated else ""
        return f"{record.count:,} entries, {unfinished:,} unfinished, {len(record.groups)} groups, version {record.version}{cut}"
    if isinstance(record, StackDump):
        innermost = next((thread.frames[0].function for thread in record.threads if thread.frames), "no frames")
        threads = f"{len(record.threads)} thread{'s' if len(record.threads) != 1 else ''}"
        return f"{threads}, pid {record.pid}, {innermost} ({record.tool})"
    if isinstance(record, Placement):
        return f"{len(set(record.nodes))} nodes for {len(record.nodes)} ranks"
    if isinstance(record, Samples):
        return f"{record.scope}: {len(record.devices)} devices × {len(record.metrics)} metrics × {len(record.ticks) // 8} ticks"
    fields = msgspec.to_builtins(record, enc_hook=_members)
    columns = {"columns", "strings", "groups", "hashes", "own"}
    common = {*Record.__struct_fields__, "kind", "text", "frames", "ranks", *columns}
    named = [f"{name}={_short(value)}" for name, value in fields.items() if name not in common]
    return " ".join([*named, _short(fields.get("text", ""))]).strip()


def _short(value: object, most: int = 120) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _plain(record: Record, limit: int | None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_members)
    if (meant := decoded(record)) is not None:
        raw = ("columns", "strings", "ticks", "monotonic_ticks", "values")
        fields = {name: value for name, value in fields.items() if name not in raw} | meant
    if isinstance(record, Steps):
        fields["entries"] = list(newest(fields["entries"], limit))
    return fields


def _dump(record: FlightRecorderDump, limit: int | None) -> dict[str, Any]:
    fields = {
        name: getattr(record, name)
        for name in record.__struct_fields__
        if name not in ("columns", "strings", "pg_status")
    }
    fields = {name: value for name, value in fields.items() if value not in (None, "", (), False)}
    fields["kind"] = "flight_recorder"
    fields["count"] = record.count
    fields["groups"] = [
        {"name": _clean(group.name), "description": _clean(group.description)}
        | ({"ranks": ranges(group.members.ranks())} if group.members is not None else {})
        for group in record.groups
    ]
    fields["pg_status"] = list(rows(record.pg_status, PG_STATUS_COLUMNS))
    fields["entries"] = list(_entries(record, limit))
    return fields


def _entries(record: FlightRecorderDump, limit: int | None) -> Iterator[dict[str, Any]]:
    for row in newest(list(rows(record.columns, FLIGHT_RECORDER_COLUMNS)), limit):
        entry: dict[str, Any] = {}
        for name, value in row.items():
            if name in _TEXTS:
                if 0 <= value < len(record.strings):
                    text = _clean(record.strings[value])
                    entry[name] = text.split("\n") if name == "frames" else text
            elif name == "state":
                entry[name] = STATES[value] if 0 <= value < len(STATES) else str(value)
            elif name in ("retired", "is_p2p"):
                entry[name] = bool(value)
            elif not (value == -1 and name in _INSTANTS):
                entry[name] = value
        yield entry


def _column(record: FlightRecorderDump, name: str) -> array[int]:
    return values(record.columns.get(name, b""), FLIGHT_RECORDER_COLUMNS[name])


def _members(value: object) -> object:
    if isinstance(value, Members):
        return list(value.ranks())
    raise NotImplementedError(f"{type(value).__name__} has no JSON form: give it one in service/cli/record_rows.py")


def _clean(text: str) -> str:
    """Replace lone surrogates (undecodable bytes of a file's name), which UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
