"""The collectors' tests parse in their own process: what crosses the pipe is the same, and no process is started."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec
import pytest

from collectors.files.apart import PARSING_SECONDS, Apart, ParsingFailed
from collectors.records import Damaged


def _here(_apart: Apart, parser: str, *arguments: Any, seconds: float = PARSING_SECONDS, source: str = "") -> Any:
    assert seconds > 0
    assert source or parser == "kernel"  # of which no line is left out
    given = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments))
    try:
        found = import_module(f"collectors.files.parsers.{parser}").parse(*given)
    except Damaged as error:
        raise ParsingFailed(str(error)) from error
    except Exception as error:
        raise ParsingFailed(f"{type(error).__name__}: {error}") from error
    return msgspec.msgpack.decode(msgspec.msgpack.encode(found))


@pytest.fixture(autouse=True)
def parsed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse in this process."""
    monkeypatch.setattr(Apart, "parse", _here)
