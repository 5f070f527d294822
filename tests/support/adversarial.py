"""Inputs that make a careless parser slow, built from the parser's own patterns, and the measure of how its time grows.

Each input is ``head + unit * n``. Heads and units are sampled from the compiled patterns of the parser's modules: for every
unbounded repeat of a pattern, what leads to it and then what it repeats, so that the match almost succeeds everywhere. To these
come whole and nearly whole matches, in one line and as lines, and runs of single characters.
"""

from __future__ import annotations

import itertools
import re
import resource
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from re import _compiler, _constants, _parser
from types import FrameType, ModuleType
from typing import Any

from collectors.records import Damaged

PROBES = " a1\"{[(\t,.:-=/\\x|'#<\x1b0Z_"
RUNS = (
    "{",
    "[",
    "(",
    '"',
    "\\",
    " ",
    "\t",
    "1",
    "a",
    ",",
    ":",
    "-",
    '"\\',
    '{"',
    "[rank1]: ",
    "\r",
    "\x1b[",
    "a b ",
    "1:",
    "|",
)
MANY = 50  # a repeat of at least so many is unbounded here
VARIANTS = 4  # characters of one repeat that are tried


@dataclass(frozen=True)
class Case:
    """One input: ``head`` and then ``unit`` as often as fits; ``lines``: it comes again in every line."""

    name: str
    head: str
    unit: str
    lines: int = 0  # characters of a line; 0: one line

    def text(self, size: int) -> bytes:
        """Return the input with about so many bytes."""
        length = self.lines or size
        line = (self.head + self.unit * max(1, (length - len(self.head)) // max(1, len(self.unit))))[: max(length, 1)]
        return line.encode() if not self.lines else ((line + "\n") * max(1, size // (len(line) + 1))).encode()


def cases(modules: list[str]) -> list[Case]:
    """Return the inputs for a parser whose patterns are in these modules."""
    found = {(one.head, one.unit, one.lines): one for one in _all(modules)}
    return list(found.values())


def _all(modules: list[str]) -> Iterator[Case]:
    for run in RUNS:
        yield Case(f"run of {run!r}", "", run)
        yield Case(f"lines of {run!r}", "", run, 2)
    seen = set[str]()
    for name in modules:
        for pattern in _patterns(import_module(name)):
            text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
            if text not in seen:
                seen.add(text)
                yield from _of_pattern(f"{name.rpartition('.')[2]} {text[:60]!r}", text, pattern.flags)


def _patterns(module: ModuleType) -> Iterator[re.Pattern[Any]]:
    waiting: list[Any] = [value for name, value in vars(module).items() if not name.startswith("__")]
    for _ in range(100_000):
        if not waiting:
            return
        one = waiting.pop()
        if isinstance(one, re.Pattern):
            yield one
        elif isinstance(one, list | tuple | set | frozenset):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, str) and 3 < len(one) < 80 and "\n" not in one:
            waiting.append(re.compile(re.escape(one)))  # a word that the parser looks for


def _of_pattern(name: str, text: str, flags: int) -> Iterator[Case]:
    tree = _parser.parse(text, flags & (re.IGNORECASE | re.DOTALL | re.MULTILINE | re.VERBOSE))
    whole = _sample(tree.data, tree.state)
    for part in dict.fromkeys((whole, whole[:-1], whole[: len(whole) // 2])):
        if part:
            yield Case(f"{name}: {part[:20]!r} again", "", part)
            yield Case(f"{name}: lines of {part[:20]!r}", "", part, len(part))
    for head, unit in itertools.islice(_pumps(tree.data, tree.state, ""), 24):
        yield Case(f"{name}: {unit!r} after {head[-20:]!r}", head, unit)
        yield Case(f"{name}: {unit!r} after {head[-20:]!r}, again", "", head + unit * 8)
        yield Case(f"{name}: lines of {unit!r} after {head[-20:]!r}", head, unit, 4000)


def _pumps(nodes: list[Any], state: Any, head: str) -> Iterator[tuple[str, str]]:
    """Yield (what leads to it, what it repeats) for each unbounded repeat."""
    for op, value in nodes:
        if op in _REPEATS:
            _, most, inner = value
            if most >= MANY:
                for unit in _units(inner.data, state):
                    yield head, unit
            yield from _pumps(inner.data, state, head)
        elif op is _constants.SUBPATTERN:
            yield from _pumps(value[3].data, state, head)
        elif op is _constants.ATOMIC_GROUP:
            yield from _pumps(value.data, state, head)
        elif op is _constants.BRANCH:
            for branch in value[1]:
                yield from _pumps(branch.data, state, head)
        head += _sample([(op, value)], state)


_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)


def _units(nodes: list[Any], state: Any) -> list[str]:
    if len(nodes) == 1 and nodes[0][0] in _SINGLE:
        return _characters(nodes[0], state)[:VARIANTS]
    return [_sample(nodes, state)] if _sample(nodes, state) else []


_SINGLE = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)


def _characters(node: Any, state: Any) -> list[str]:
    if node[0] is _constants.LITERAL:
        return [chr(node[1])]
    pattern = _compiler.compile(_parser.SubPattern(state, [node]))
    return [one for one in PROBES if pattern.match(one)] or [
        one for one in map(chr, range(32, 127)) if pattern.match(one)
    ]


def _sample(nodes: list[Any], state: Any) -> str:
    """Return a text that the nodes match, with each repeat as seldom as it may be, and at least once."""
    parts = []
    for op, value in nodes:
        if op in _SINGLE:
            parts.append((_characters((op, value), state) or [""])[0])
        elif op in _REPEATS:
            least, most, inner = value
            parts.append(_sample(inner.data, state) * max(least, min(most, 1)))
        elif op is _constants.SUBPATTERN:
            parts.append(_sample(value[3].data, state))
        elif op is _constants.ATOMIC_GROUP:
            parts.append(_sample(value.data, state))
        elif op is _constants.BRANCH:
            parts.append(_sample(value[1][0].data, state))
    return "".join(parts)


class TooLong(Exception):
    """A parser took more CPU time than any linear one."""


def cpu_seconds(parse: Callable[[bytes], object], data: bytes, most_seconds: float) -> float:
    """Return the processor time that one call takes; ``most_seconds`` where it was ended there."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, end)
    began = _used()
    signal.setitimer(signal.ITIMER_PROF, most_seconds)
    try:
        parse(data)
    except TooLong:
        return most_seconds
    except (Damaged, ValueError, IndexError):  # a refusal is an answer too; only its time counts here
        pass
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return _used() - began


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Growth:
    """The processor time of one input at a size and at four times that size."""

    case: str
    size: int
    seconds: float
    of_four: float

    @property
    def ratio(self) -> float:
        """Return how many times longer four times the input takes: about 4 where time is linear, 16 where it is quadratic."""
        return self.of_four / max(self.seconds, 1e-4)


LEAST_SECONDS = 0.1  # less is noise and the start of things
MOST_RATIO = 8.0
LEAST_MOST_SECONDS, MOST_SECONDS_A_MEGABYTE = 1.0, 16.0


def growth(parse: Callable[[bytes], object], case: Case, size: int) -> Growth:
    """Measure one input; a suspicious measure is made again, as the machine may have been busy."""
    most = _most_seconds(size)
    best = Growth(
        case.name, size, cpu_seconds(parse, case.text(size), most), cpu_seconds(parse, case.text(4 * size), most)
    )
    if is_quadratic(best):
        again = cpu_seconds(parse, case.text(4 * size), most)
        best = Growth(
            case.name, size, max(best.seconds, cpu_seconds(parse, case.text(size), most)), min(best.of_four, again)
        )
    return best


def is_quadratic(found: Growth) -> bool:
    """Return whether the time grew faster than the input, or is more than any linear parser takes."""
    too_long = found.of_four >= _most_seconds(found.size)
    return too_long or (found.of_four > LEAST_SECONDS and found.ratio > MOST_RATIO)


def _most_seconds(size: int) -> float:
    return LEAST_MOST_SECONDS + MOST_SECONDS_A_MEGABYTE * 4 * size / (1 << 20)


def scan(parse: Callable[[bytes], object], chosen: list[Case], sizes: list[int]) -> list[Growth]:
    """Measure each input at each size and at four times it; return the growths."""
    return [growth(parse, case, size) for case in chosen for size in sizes]
