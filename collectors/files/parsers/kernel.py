"""Lines of the kernel's log: they hold names that processes and control groups chose."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec

from collectors.formats import Input
from collectors.formats.kernel_log.kernel_log import Parser
from collectors.records import block


def parse(lines: list[tuple[int, str]], state: bytes, source: str, node: str, end: bool) -> list[Any]:  # noqa: FBT001 (over a pipe)
    """Return the events as (index of the line, block), and what the next call needs.

    That is: the last index at which no event waited for its stack, the parser's state, whether an event waits now.
    ``state``: what the last call returned, empty at first. ``end``: an event that still waits for its stack comes without it.
    """
    parser = _restored(state, Input(source=source, stream=io.BytesIO(), head=b"", node=node))
    found: list[tuple[int, bytes]] = []
    settled = -1
    for index, (number, line) in enumerate(lines):
        found += [(index, block.encode([event])) for event in parser.feed(number, line)]
        if parser.hung is None:
            settled = index
    if end and parser.hung is not None:
        found += [(len(lines), block.encode([event])) for event in parser.end()]
        settled = len(lines)
    return [found, settled, _kept(parser), parser.hung is not None]


def _kept(parser: Parser) -> bytes:
    kept = {field.name: getattr(parser, field.name) for field in fields(parser) if field.name != "input"}
    return msgspec.msgpack.encode(kept)


def _restored(state: bytes, input: Input) -> Parser:
    types = get_type_hints(Parser)
    kept = msgspec.msgpack.decode(state) if state else {}
    return Parser(input, **{name: msgspec.convert(value, types[name]) for name, value in kept.items()})
