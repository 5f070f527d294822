"""Records and bytes that mean harm: schema-valid records of every kind with extreme values, and mutants of valid blocks.

``Consumers`` is what a batch meets behind the intake, in one process: the intake's inspection, the lists, the window of samples,
the engine, a judgement, a bundle and a replay.
"""

from __future__ import annotations

import math
import struct
import weakref
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from analyzers.incidents.judgement import failed_analyzers, judge_cut
from analyzers.incidents.messages import EngineTick, Judge, Judged, Received
from analyzers.incidents.replay import ReplayCase, rejudge_cuts
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from analyzers.model.verdict import to_json
from collectors.formats import Input
from collectors.formats.bundle_file import read as read_bundle
from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    HASH_COLUMNS,
    OP_COLUMNS,
    OWN_COLUMNS,
    PG_STATUS_COLUMNS,
    RING_COLUMNS,
    STEP_COLUMNS,
    STRAGGLER_COLUMNS,
    TIMING_COLUMNS,
    AnyRecord,
    Members,
    Record,
    Samples,
    block,
    bundle,
)
from collectors.records.record import Damaged
from service.api.inspection import Broken, NotYours, TooMuch, inspect
from service.packaged_knowledge import load
from service.store.log import Stored
from service.store.models import Base
from service.store.observations import Observations
from service.store.window.tail import Tail

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS: tuple[type[Record], ...] = get_args(AnyRecord)
JOB, NODES, RANKS = "llama", ("gpu-0001", "gpu-0002", "gpu-0003"), 8
AT = 1_795_230_847.0
_COLUMNS = {
    "flight_recorder": FLIGHT_RECORDER_COLUMNS, "ring": RING_COLUMNS, "steps": STEP_COLUMNS,
    "collective_timings": TIMING_COLUMNS, "op_timings": OP_COLUMNS, "straggler_reports": STRAGGLER_COLUMNS,
}  # fmt: skip
_MORE_COLUMNS = {"own": ("timed", OWN_COLUMNS), "hashes": ("hashed", HASH_COLUMNS)}  # of a ring
_EDGES = ("10.0.0.1:4000>10.0.0.2:5000", "10.0.0.2:4000>10.0.0.1:5000", "10.0.0.1:1>10.0.0.1:2", ">", ":", "a:b>c")
_SCOPES = ("gpu", "socket", "infiniband", "cgroup", "pressure", "cpu", "dcgm", "x" * 90)
_METRICS = (
    "bytes_sent_total", "round_trip_us", "power_watts", "throttle_reasons_mask", "some_us_total", "throttled_us_total",
    "steal_ticks_total", "",
)  # fmt: skip
_WIDTHS = {"<i1": 1, "<i4": 4, "<i8": 8, "<f4": 4, "<f8": 8}
_TEXTS = (
    "", "x", "0", "llama", "gpu", "nccl:all_reduce", "nccl:send 0->1", "gloo:all_reduce", "default_pg", "0000:9b:00", "GPU-5a",
    "\x00", "\u202egnp", "\U0001f4a3", "a\nb", "-1", "9" * 40, "NaN", "R", "D", "T", "X", "Z", "xid", "traceback", "exit",
    "no_answer", "[[1,2]]", "/mnt/x", "train_step (train.py:12)\nmain (train.py:90)", "link_down",
    "watchdog_timeout", "bytes_sent_total", "stated", "ENOSPC", "cudaErrorIllegalAddress", "collective_behind", "seconds",
    "tflops", "relative_score", "below_individual", "megatron", "nvrx", "trainer", "rollout 1", "queue:q", "fenced", "1",
)  # fmt: skip
_NUMBERS = (0, 1, 2, 7, 13, 79, 149, 255, 4_095, 1 << 20, (1 << 30) - 1, (1 << 31) - 1, 1 << 40, (1 << 63) - 1)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


class Maker:
    """Makes records at random: each value is an ordinary one, a default, or at a bound of its type."""

    def __init__(self, random: Random, node: str = NODES[0], at: float = AT) -> None:
        self.random, self.node, self.at = random, node, at

    def record(self, kind: type[Record] | None = None) -> Record:
        """Return a record of a kind, as it comes out of a decoder; of a random one without."""
        chosen = kind or self.random.choice(KINDS)
        while True:
            fields = self._fields(chosen)
            try:
                made = chosen(**fields)
                (record,) = block.decode(block.encode([made]))
            except (ValueError, OverflowError):  # no valid record: bounds that fields have together
                continue
            return record

    def _fields(self, kind: type[Record]) -> dict[str, Any]:
        found = {}
        for name, hint in _hints(kind).items():
            required = name in ("event", "pid", "scope", "type", "id", "device", "state", "command", "reason")
            if required or self.random.random() < 0.6:
                found[name] = self._value(hint)
        random = self.random
        found["node"] = self.node
        if random.random() < 0.8:
            found |= {"job": JOB, "attempt": random.choice((1, 1, 1, 0, None)), "at": self.at + random.uniform(-60, 5)}
        if random.random() < 0.8:
            found["rank"] = random.choice((*range(RANKS), None, (1 << 30) - 1))
        if (types := _COLUMNS.get(str(kind.__struct_config__.tag))) is not None:
            found["count"] = count = random.choice((0, 1, 2, 5, 40))
            found["columns"] = {
                name: self._column(width, count) for name, width in types.items() if random.random() < 0.95
            }
        for name, (counted, types) in _MORE_COLUMNS.items():
            if name in found:
                found[counted] = count = random.choice((0, 1, 5))
                found[name] = {column: self._column(width, count) for column, width in types.items()}
        if "pg_status" in found:
            found["pg_status"] = {name: self._column(width, 2) for name, width in PG_STATUS_COLUMNS.items()}
        if kind is Samples:
            found |= self._samples()
        if "nodes" in found:
            found["nodes"] = (self.node,) * random.randrange(RANKS + 1)
        return found

    def _samples(self) -> dict[str, Any]:
        random = self.random
        type = random.choice(("<f4", "<i8"))
        devices, metrics, ticks = (random.randrange(4) for _ in range(3))
        instants = [random.choice((self.at + tick, math.nan, -math.inf, 1e300)) for tick in range(ticks)]
        return {
            "type": type, "scope": random.choice(_SCOPES),
            "devices": tuple(random.choice((*_EDGES, *_TEXTS)) for _ in range(devices)),
            "metrics": tuple(random.choice(_METRICS) for _ in range(metrics)),
            "ticks": b"".join(map(_float, instants)), "monotonic_ticks": b"",
            "values": random.randbytes(devices * metrics * ticks * _WIDTHS[type] + random.choice((0, 0, 0, 0, 3))),
        }  # fmt: skip

    def _column(self, kind: str, count: int) -> bytes:
        random, width = self.random, _WIDTHS[kind]
        form = random.random()
        if kind.startswith("<f"):
            values = (random.choice((0.0, 1.5, self.at, math.nan, math.inf, -1e308)) for _ in range(count))
            data = b"".join(map(_float, values))
        elif form < 0.2:
            data = random.randbytes(width * count)
        else:
            most = (1 << (8 * width - 1)) - 1
            some = (-1, 0, 1, 2, 3, most, -most - 1, min(most, int(self.at * 1e9)))
            data = b"".join(random.choice(some).to_bytes(width, "little", signed=True) for _ in range(count))
        return data if form < 0.95 else data[: random.randrange(len(data) + 1)]

    def _value(self, hint: Any) -> Any:
        random = self.random
        if get_origin(hint) is Annotated:
            return self._bounded(get_args(hint)[0], get_args(hint)[1])
        arguments = [one for one in get_args(hint) if one is not type(None)]
        if type(None) in get_args(hint):
            return None if random.random() < 0.2 else self._value(random.choice(arguments))
        if hint is Members:
            return Members.of(self._ranks())
        if hint is bool:
            return random.random() < 0.5
        if hint is bytes:
            return random.randbytes(random.choice((0, 8, 16)))
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return hint(**{name: self._value(inner) for name, inner in _hints(hint).items()})
        return random.choice(get_args(hint))  # a literal

    def _bounded(self, hint: Any, meta: msgspec.Meta) -> Any:
        random = self.random
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is tuple:
            return tuple(self._value(arguments[0]) for _ in range(random.choice((0, 1, 2, 3, 9))))
        if origin is dict:
            return {self._value(arguments[0]): self._value(arguments[1]) for _ in range(random.randrange(4))}
        if hint is str:
            return random.choice(_TEXTS) if random.random() < 0.95 else random.choice(_TEXTS) * 2_000
        if hint is int:
            wanted = random.choice(_NUMBERS) * random.choice((1, 1, 1, -1))
            return min(max(wanted, int(meta.ge or 0)), int(meta.le or 0))
        return random.choice((0.0, 1.5, -1.0, self.at, 1e-300, meta.le, meta.ge))

    def _ranks(self) -> list[int]:
        random = self.random
        return random.choice((
            [], list(range(RANKS)), list(range(RANKS)), [0, 1], [0, 0, 0], [7, 3], [(1 << 30) - 1], [random.randrange(1 << 20)],
        ))  # fmt: skip


def _float(value: float) -> bytes:
    return struct.pack("<d", value)


def with_body(body: bytes) -> bytes:
    """Return a block with a right header around any body."""
    return block.HEADER.pack(block.MAGIC, 0, zlib.crc32(body), len(body)) + body


def mutant(body: bytes, random: Random) -> bytes:
    """Return the body with some of its bytes changed, taken out, doubled or put in."""
    changed = bytearray(body)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        at, form = random.randrange(len(changed)), random.random()
        if form < 0.5:
            changed[at] = random.choice(
                (0x00, 0x7F, 0x80, 0x90, 0xA0, 0xC0, 0xCB, 0xCF, 0xD3, 0xFF, random.randrange(256))
            )
        elif form < 0.7:
            changed[at] ^= 1 << random.randrange(8)
        elif form < 0.8:
            del changed[at : at + random.choice((1, 1, 4))]
        elif form < 0.9:
            changed[at:at] = random.randbytes(random.choice((1, 4, 8)))
        else:
            length = random.choice((2, 4, 8))
            changed[at : at + length] = random.choice((b"\xff", b"\x80", b"\x00")) * length
        if not changed:
            return body
    return bytes(changed)


def valid_bodies(random: Random, count: int) -> Iterator[bytes]:
    """Yield bodies of valid blocks: the golden ones, and batches of random records."""
    for path in sorted(GOLDEN.glob("*.fhb")):
        yield bytes(block.body(path.read_bytes()))
    for _ in range(count):
        maker = Maker(random, random.choice(NODES))
        records = [maker.record() for _ in range(random.choice((1, 3, 12)))]
        yield bytes(block.body(block.encode(records)))


def empty_tables(url: str = "sqlite://") -> Session:
    """Return a session of an empty database."""
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    session = Session(engine)
    weakref.finalize(session, engine.dispose)  # Python 3.13 warns of a connection that nobody closes
    return session


@dataclass
class Consumers:
    """Everything behind the intake, and what went wrong there."""

    judge_every: int = 40  # batches
    counts: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    _knowledge: Knowledge = field(default_factory=load)
    _sequence: int = 0
    session: Session = field(default_factory=empty_tables)  # of the lists

    def __post_init__(self) -> None:
        """Begin with empty memories."""
        self._renew()

    def _renew(self) -> None:
        self._state, self._tail = EngineState(self._knowledge), Tail(600.0)
        self._observations, self._log = Observations(), list[tuple[Stored, tuple[Record, ...]]]()
        self._first = self._sequence

    def send(self, data: bytes, node: str | None = None) -> None:
        """Let a batch meet the intake, and if that takes it everything behind."""
        self.counts["sent"] += 1
        try:
            taken = self._inspected(data, node)
        except (Broken, TooMuch):
            self.counts["refused"] += 1
            return
        if taken is None:
            return
        self.counts["accepted"] += 1
        self._sequence += 1
        at = AT + self._sequence - self._first
        stored = Stored(self._sequence, taken, f"b{self._sequence}", at - 0.1, at, 1, data)
        decoded = self._tried("decode", lambda: block.decode_counting(data))
        if decoded is None:
            return
        self.counts["records"] += len(decoded.records)
        self.counts["malformed"] += decoded.malformed
        self._log.append((stored, tuple(decoded.records)))
        self._tried("lists", lambda: self._observations.note(self.session, stored, decoded.records))
        self._tried("samples", lambda: self._tail.add(taken, at, decoded.records))
        event = Received(
            sequence=stored.sequence, received_at=at, node=taken, records=tuple(decoded.records), sent_at=stored.sent_at
        )
        self._step(event, at)
        if len(self._log) >= self.judge_every:
            self._step(EngineTick(), at + 10.0)
            self._judge(at)
            self._renew()

    def _inspected(self, data: bytes, node: str | None) -> str | None:
        """Return whose the batch is: a mutant may name another of our nodes."""
        for name in (node,) if node is not None else ("gpu-0413", *NODES):
            try:
                self._tried(
                    "inspect", lambda name=name: inspect(data, name, most_records=100_000, largest_bytes=64 << 20)
                )
            except NotYours:
                continue
            return name
        self.counts["of others"] += 1
        return None

    def _step(self, event: Any, at: float) -> None:
        self._tried("step", lambda: self._judged_by(step(self._state, event, at)[1], at))
        for failure in self._state.failures:
            self.failures[f"{failure.what}: {failure.why}"] += 1
        self._state.failures.clear()

    def _judged_by(self, decided: Iterable[Any], at: float) -> None:
        for one in decided:
            if isinstance(one, Judge):
                judged = self._checked(one)
                self._judged_by(step(self._state, judged, at)[1], at)

    def _judge(self, at: float) -> None:
        """Judge all that came since the last time, as the running service, a replay and ``diagnose`` do."""
        nodes = tuple(sorted({stored.node for stored, _ in self._log}))
        cut = Cut(after=self._first, through=self._sequence, at=at, looks=2, nodes=len(nodes))
        batches = [
            Received(
                sequence=stored.sequence, received_at=stored.received_at, node=stored.node, records=records, sent_at=at
            )
            for stored, records in self._log
        ]
        case = ReplayCase("inc-1", JOB, 1, nodes)
        for judged in self._tried("replay", lambda: list(rejudge_cuts(case, [cut], batches, self._knowledge))) or ():
            self._weigh(judged)
        self._tried("bundle", self._through_a_bundle)

    def _checked(self, asked: Judge) -> Judged:
        judged = judge_cut(asked, self._knowledge)
        self._weigh(judged)
        return judged

    def _weigh(self, judged: Judged) -> None:
        self.counts["judgements"] += 1
        for name, why in failed_analyzers(judged):
            self.failures[f"judge {name}: {why}"] += 1
        for item in judged.verdict.missing:
            if "the judgement failed (" in item.what or "failed (" in item.what:
                self.failures[f"judge: {item.what[:200]}"] += 1
        self._tried("encode", lambda: (to_json(judged.verdict), msgspec.msgpack.encode(judged)))

    def _through_a_bundle(self) -> None:
        entries = [
            bundle.Batch(one.sequence, one.received_at, one.block, one.node, one.sent_at) for one, _ in self._log
        ]
        data = b"".join(bundle.write(bundle.Manifest(job=JOB), entries))
        self.counts["diagnosed"] += sum(1 for _ in read_bundle(Input("poison.fhz", BytesIO(data), data[:64])))

    def _tried(self, what: str, does: Callable[[], Any]) -> Any:
        try:
            return does()
        except (Broken, TooMuch, NotYours):
            raise
        except Damaged as error:
            self.failures[f"{what}: accepted and damaged: {error}"] += 1
        except Exception as error:
            self.failures[f"{what}: {type(error).__name__}: {error}"[:300]] += 1
        return None
