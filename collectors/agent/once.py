"""Every collector once, side by side, each within its bound: what this node shows now."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from collectors.agent.agent import chosen, run_of
from collectors.agent.gathering import Stamp
from collectors.agent.runner import Outcome, Runner
from collectors.agent.sealing import seal
from collectors.agent.segment import Entry
from collectors.agent.settings import Settings
from collectors.live import registry
from collectors.live.sources.host import Host
from collectors.records import NOT_READ, Members, Record, Samples, Unread, block

GRACE_SECONDS = 1.0  # beyond a collector's own bound
_CODES = {"<f4": "f", "<i8": "q"}


class _Entries:
    """Keeps what the collectors yield, in memory."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def add(self, entry: Entry, *, urgent: bool = False) -> None:  # noqa: ARG002 (nothing waits here)
        """Keep an entry."""
        with self._lock:
            self._entries.append(entry)

    def taken(self) -> list[Entry]:
        """Return what has come."""
        with self._lock:
            return list(self._entries)


def look(settings: Settings) -> tuple[list[Record], list[Outcome]]:
    """Run every collector once; return the records, and what became of each collector."""
    host = Host(node=settings.node, roots=settings.roots, options=settings.options)
    stamp, entries = Stamp(host), _Entries()
    runners = [
        Runner(collector, run_of(collector), host, stamp, entries, collector.every_seconds)
        for collector in chosen(settings, registry()).values()
    ]
    outcomes: dict[str, Outcome] = {}

    def run(runner: Runner) -> None:
        outcomes[runner.collector.name] = runner.run_once(None)

    threads = [threading.Thread(target=run, args=(runner,), daemon=True) for runner in runners]
    for thread in threads:
        thread.start()
    started_at = time.monotonic()
    for runner, thread in zip(runners, threads, strict=True):
        bound = runner.collector.limit_seconds + GRACE_SECONDS
        thread.join(max(0.0, started_at + bound - time.monotonic()))
        if thread.is_alive():
            text = f"still going after its bound of {runner.collector.limit_seconds:g} s"
            outcomes.setdefault(runner.collector.name, Outcome(runner.collector.name, "overran", text))
    sealed = seal(entries.taken(), settings.node)
    records = block.decode(sealed.data) if sealed.data else []
    return records, [outcomes[runner.collector.name] for runner in runners]


def as_json(record: Record) -> bytes:
    """Return a record as one JSON object; a sample's columns as numbers, other columns in base64."""
    form: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain)
    if isinstance(record, Samples):
        for name, code in (("ticks", "d"), ("monotonic_ticks", "d"), ("values", _CODES[record.type])):
            form[name] = array(code, getattr(record, name)).tolist()
    return msgspec.json.encode(form)


def _plain(value: Any) -> Any:
    if isinstance(value, Members):
        return list(value.ranks())
    raise TypeError(f"a record holds a {type(value).__name__}")


def as_text(record: Record, characters: int = 160) -> str:
    """Return a record as one line: its kind, and the fields that tell the most of it; samples a line a device, uncut."""
    if isinstance(record, Samples):
        return "\n".join(_sample_lines(record))
    form: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain, builtin_types=(bytes,))
    shown = (f"{name}={value}" for name, value in form.items() if name not in _UNTOLD and not isinstance(value, bytes))
    text = f"{form['kind']:<16} {' '.join(shown)}"
    # Why something was not read ends with what to do about it: that must not be what is cut.
    return text if len(text) <= characters or isinstance(record, Unread) else f"{text[: characters - 1]}…"


def _sample_lines(samples: Samples) -> Iterator[str]:
    """Yield each device with its newest readings; what was not read is left out."""
    values, ticks = array(_CODES[samples.type], samples.values), len(samples.ticks) // 8
    newest = iter(values[ticks - 1 :: ticks])
    for device in samples.devices:
        read = zip(samples.metrics, newest, strict=False)
        shown = (f"{metric}={value:g}" if samples.type == "<f4" else f"{metric}={value}" for metric, value in read
                 if value != NOT_READ and not math.isnan(value))  # fmt: skip
        yield f"{'samples':<16} {' '.join(part for part in (samples.scope, device, *shown) if part)}"


_UNTOLD = frozenset({"kind", "node", "boot_id", "monotonic_at", "at", "columns", "strings", "threads", "groups"})


def table(outcomes: Iterable[Outcome]) -> str:
    """Return what became of each collector, one a line."""
    return "\n".join(f"{one.name:<12} {one.kind:<8} {one.records:6d}  {one.text}".rstrip() for one in outcomes)
