"""How `faulthound read` shows records to people: a row each, whatever they hold."""

from __future__ import annotations

import json
import os
from array import array
from pathlib import Path

from collectors.records import FlightRecorderDump, StackDump
from service.cli.record_rows import as_fields, as_row


def test_a_broken_dump_is_shown_and_not_a_crash() -> None:
    """Columns cut short, indices beyond the strings and impossible times are shown as far as they go."""
    dump = FlightRecorderDump(
        source="d\udcff", at=1e300, count=3, strings=("a",),
        columns={"record_id": array("q", [0, 1, 2]).tobytes()[:-3], "operation": array("i", [0, 9, -1]).tobytes(),
                 "state": b"\x00\x07\x01", "created_ns": array("q", [2**62] * 3).tobytes()},
    )  # fmt: skip
    fields = as_fields(dump)

    assert [entry.get("operation") for entry in fields["entries"]] == ["a", None]
    assert [entry["state"] for entry in fields["entries"]] == ["scheduled", "7"]
    assert json.loads(json.dumps(fields))["source"] == "d?"
    assert as_row(dump)[0] == "flight_recorder"


def test_the_time_of_a_file_is_marked(tmp_path: Path) -> None:
    """What states no time has its file's, which a copy has changed; a time that the text states is left as it is."""
    file = tmp_path / "ps.txt"
    file.touch()
    os.utime(file, (1_700_000_000.0,) * 2)

    def shown(at: float, place: str = ":3") -> str:
        return as_row(StackDump(source=f"{file}{place}", at=at))[1]

    assert shown(1_700_000_000.0) == shown(1_700_000_000.0, "") == "2023-11-14T22:13:20.000Z (file)"
    assert shown(1_700_000_001.0) == "2023-11-14T22:13:21.000Z"


def test_every_kind_of_record_can_be_shown() -> None:
    """No record kind is without a JSON form and a row."""
    from typing import get_args

    from msgspec.structs import fields

    from collectors.records import AnyRecord

    for kind in get_args(AnyRecord):
        required = {field.name: 1 if field.type is int else "x" for field in fields(kind) if field.required}
        record = kind(rank=1, source="s", **required)
        assert as_fields(record)["kind"] == as_row(record)[0]


def test_samples_are_shown_as_readings() -> None:
    """`faulthound read --json` gives a device's values under its name, a missing one as null, not as raw bytes."""
    from array import array

    from collectors.records import NOT_READ, Samples

    counters = array("q", [3, NOT_READ]).tobytes()
    ticks = array("d", [10.0, 20.0]).tobytes()
    record = Samples(scope="gpu", type="<i8", devices=("GPU-5a",), metrics=("ecc_total",), ticks=ticks, values=counters)

    fields = as_fields(record)

    assert fields["readings"] == {"GPU-5a": {"ecc_total": [3, None]}}
    assert fields["ticks"] == [10.0, 20.0]
    assert "values" not in fields
