"""The information about types that msgspec makes at first use is made before threads use it."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from collectors.records import LogEvent, Record, RoleState, block, prepared


def test_every_struct_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds of records, kinds of kinds, and what is defined later: a decoder is made of each, once."""

    class Later(msgspec.Struct):
        entries: list[LogEvent] = []

    class Latest(Later):
        number: int = 0

    made: list[type] = []
    decoding = SimpleNamespace(Decoder=made.append)
    monkeypatch.setattr(prepared, "msgspec", SimpleNamespace(Struct=msgspec.Struct, msgpack=decoding))

    assert prepared.prepare_types() == len(made) == len(set(made))
    assert {LogEvent, RoleState, Later, Latest} <= set(made)
    assert {one.__struct_config__.tag for one in made if issubclass(one, Record)} >= block.KNOWN_KINDS
