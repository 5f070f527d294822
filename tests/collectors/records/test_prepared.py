"""The information about types that msgspec makes at first use is made before threads use it."""

from __future__ import annotations

import gc

import msgspec

from collectors.records import LogEvent, Record, RoleState, block
from collectors.records.prepared import prepare_types


def test_every_struct_is_prepared() -> None:
    """Kinds of records, kinds of kinds, and what is defined later."""
    gc.collect()  # classes of other tests are not counted once and missed then

    class Later(msgspec.Struct):
        entries: list[LogEvent] = []

    before = prepare_types()

    class Latest(Later):
        number: int = 0

    assert {LogEvent, RoleState} <= {*Record.__subclasses__()}
    assert prepare_types() == before + 1
    assert {one.__struct_config__.tag for one in Record.__subclasses__()} >= block.KNOWN_KINDS
