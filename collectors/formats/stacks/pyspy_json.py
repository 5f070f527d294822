"""py-spy's ``dump --json``: an array of threads, innermost frame first; arrays of several processes may follow each other.

Layout seen with py-spy 0.4.3: ``pid, thread_id, thread_name, os_thread_id, active, owns_gil, frames[], process_info``.
With ``--nonblocking`` on a stopped process ``thread_name`` is null. Threads are decoded one at a time, so that a cut-off
file still gives the threads before the cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from collectors.formats import Input, reader
from collectors.formats.stacks.stack_building import StackBuilder, ThreadBuilder, frame
from collectors.records import Record, Unread

MAX_BYTES = 64 << 20
_HEAD = re.compile(rb'\A\s*\[?\s*\{[^\[]*"(?:thread_id|os_thread_id|owns_gil)"')
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def _sniff(head: bytes, _source: str) -> int:
    if not _HEAD.match(head[:4096]):
        return 0
    return 95 if b'"frames"' in head else 60


@reader(
    "pyspy_json",
    made_by="py-spy dump --json --nonblocking --pid PID",
    gives="where each Python thread of a process is",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one stack dump per process and array."""
    data = input.stream.read(MAX_BYTES + 1)
    text = data[:MAX_BYTES].decode("utf-8", "replace")
    builders: dict[tuple[int, int | None], StackBuilder] = {}
    problem: Unread | None = None
    for array, offset, thread in _threads(text):
        if isinstance(thread, str):
            problem = Unread(source=input.source, reason=thread, outcome="damaged", offset=offset)
            break
        _add(builders, input, array, thread)
    for builder in builders.values():
        yield builder.build()
    if len(data) > MAX_BYTES:
        reason = f"more than {MAX_BYTES} bytes of py-spy JSON: the rest is not read, split the file by process"
        problem = Unread(source=input.source, reason=reason, outcome="limit", offset=MAX_BYTES)
    if problem is not None:
        yield problem


def _threads(text: str) -> Iterator[tuple[int, int, dict[str, Any] | str]]:
    """Yield (number of the array, offset, thread) and, where decoding stops, the reason in place of the thread."""
    position, array = 0, 0
    while True:
        position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]  # matches the empty string too
        if position >= len(text):
            return
        if text[position] in "[]":
            array += text[position] == "["
            position += 1
            continue
        try:
            thread, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield (
                array,
                position,
                f"py-spy JSON is cut or broken at character {position} ({error}): take the dump again",
            )
            return
        if not isinstance(thread, dict) or not isinstance(thread.get("frames", []), list):
            yield array, position, f"character {position} starts no py-spy thread: what follows is not read"
            return
        yield array, position, thread
        position = end


def _add(builders: dict[tuple[int, int | None], StackBuilder], input: Input, array: int, raw: dict[str, Any]) -> None:
    pid = _integer(raw.get("pid"))
    builder = builders.get((array, pid))
    if builder is None:
        source = f"{input.source}:{len(builders) + 1}" if builders else input.source
        info = raw.get("process_info")
        info = info if isinstance(info, dict) else {}
        parent = info.get("parent")
        builder = builders[array, pid] = StackBuilder(
            "py-spy",
            source,
            at=input.at,
            node=input.node,
            rank=input.rank,
            pid=pid,
            parent_pid=_integer(parent.get("pid")) if isinstance(parent, dict) else None,
            command=_text(info.get("command_line")) or "",
        )
    thread = builder.begin(
        ThreadBuilder(
            name=_text(raw.get("thread_name")),
            os_thread_id=_integer(raw.get("os_thread_id")),
            active=_flag(raw.get("active")),
            owns_gil=_flag(raw.get("owns_gil")),
        )
    )
    for one in raw.get("frames", []):
        if isinstance(one, dict):
            file = _text(one.get("filename")) or _text(one.get("short_filename")) or ""
            thread.add(frame(_text(one.get("name")) or "", file, _integer(one.get("line")) or 0))


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
