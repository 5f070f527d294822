"""``once``: every collector once, in parallel, each within its bound, and the printing of what they read."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from collectors.agent.agent import chosen, run_of
from collectors.agent.packing import ARRAY_CODES, seal
from collectors.agent.run_output import Stamp
from collectors.agent.runner import Outcome, Runner
from collectors.agent.segment import Entry
from collectors.agent.settings import Settings
from collectors.live import registry
from collectors.live.sources.host import Host
from collectors.records import NOT_READ, Members, Record, Samples, Unread, block
from collectors.records.prepared import prepare_types

GRACE_SECONDS = 1.0  # beyond a collector's own bound
_NOT_SHOWN = frozenset({"kind", "node", "boot_id", "monotonic_at", "at", "columns", "strings", "threads", "groups"})


class _Entries(list[Entry]):
    def add(self, entry: Entry, *, urgent: bool = False) -> None:  # noqa: ARG002 (an EntrySink's)
        self.append(entry)


def run_once(settings: Settings) -> tuple[list[Record], list[Outcome]]:
    """Run every collector once; return the records, and each collector's outcome."""
    host = Host(node=settings.node, roots=settings.roots, options=settings.options)
    stamp, entries = Stamp(host), _Entries()
    runners = [
        Runner(collector, run_of(collector), host, stamp, entries, collector.every_seconds)
        for collector in chosen(settings, registry()).values()
    ]
    outcomes: dict[str, Outcome] = {}
    prepare_types()

    def run(runner: Runner) -> None:
        outcomes[runner.collector.name] = runner.run_once(None)

    threads = [threading.Thread(target=run, args=(runner,), daemon=True) for runner in runners]
    for thread in threads:
        thread.start()
    started_at = time.monotonic()
    for runner, thread in zip(runners, threads, strict=True):
        name, limit_seconds = runner.collector.name, runner.collector.limit_seconds
        thread.join(max(0.0, started_at + limit_seconds + GRACE_SECONDS - time.monotonic()))
        if thread.is_alive():
            outcomes.setdefault(name, Outcome(name, "overran", f"still going after its bound of {limit_seconds:g} s"))
    sealed = seal(list(entries), settings.node)
    records = block.decode(sealed.data) if sealed.data else []
    return records, [outcomes[runner.collector.name] for runner in runners]


def as_json(record: Record) -> bytes:
    """Return a record as one JSON object; a sample's columns as numbers, other columns in base64."""
    form: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain)
    if isinstance(record, Samples):
        for name, code in (("ticks", "d"), ("monotonic_ticks", "d"), ("values", ARRAY_CODES[record.type])):
            form[name] = array(code, getattr(record, name)).tolist()
    return msgspec.json.encode(form)


def _plain(value: Any) -> Any:
    if isinstance(value, Members):
        return list(value.ranks())
    raise TypeError(f"a record holds a {type(value).__name__}")


def as_text(record: Record, characters: int = 160) -> str:
    """Return a record as one line: its kind and its main fields; samples as one line for each device, uncut."""
    if isinstance(record, Samples):
        return "\n".join(_sample_lines(record))
    form: dict[str, Any] = msgspec.to_builtins(record, enc_hook=_plain, builtin_types=(bytes,))
    shown = (
        f"{name}={value}" for name, value in form.items() if name not in _NOT_SHOWN and not isinstance(value, bytes)
    )
    text = f"{form['kind']:<16} {' '.join(shown)}"
    # The reason of an Unread ends with what to do about it: it is not cut.
    return text if len(text) <= characters or isinstance(record, Unread) else f"{text[: characters - 1]}…"


def _sample_lines(samples: Samples) -> Iterator[str]:
    """Yield each device with its newest readings, without those that were not read."""
    values, ticks = array(ARRAY_CODES[samples.type], samples.values), len(samples.ticks) // 8
    newest = iter(values[ticks - 1 :: ticks])
    for device in samples.devices:
        read = zip(samples.metrics, newest, strict=False)
        shown = (f"{metric}={value:g}" if samples.type == "<f4" else f"{metric}={value}" for metric, value in read
                 if value != NOT_READ and not math.isnan(value))  # fmt: skip
        yield f"{'samples':<16} {' '.join(part for part in (samples.scope, device, *shown) if part)}"


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the outcome of each collector, one a line."""
    return "\n".join(f"{one.name:<12} {one.kind:<8} {one.records:6d}  {one.text}".rstrip() for one in outcomes)
