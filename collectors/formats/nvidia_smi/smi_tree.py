"""``nvidia-smi -q`` as text or XML, taken apart: per log and GPU the values by their path of headings.

Both forms give the same shape: ("ecc_errors", "volatile", "dram_uncorrectable") → "4". The names differ between text, XML
and driver versions; who reads a value knows them all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from collectors.formats import Damaged

Path = tuple[str, ...]

FIELDS_LIMIT = 4000  # of one GPU; a driver of 2026 gives some 300
PROCESSES_LIMIT = 4096  # of one GPU
GPUS_LIMIT = 4096  # of one log
LOGS_LIMIT = 10_000  # of one file, as `nvidia-smi -l` writes them
DEPTH_LIMIT = 32
TEXT_CHARACTERS = 200
LINE_CHARACTERS = 500
CHUNK_BYTES = 1 << 16

_LINE = re.compile(r"( *)(\S[^:]{0,200}?) *(?:: ?(.*))?$")
_GPU = re.compile(r"GPU (?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$")
_NO_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:GPU *\d{0,4}:? *)?"
    r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]): *(.{1,200})"
)


@dataclass(slots=True)
class SmiGpu:
    """One GPU of one log. ``trouble``: why it has no values, in the tool's words."""

    address: str
    values: dict[Path, str] = field(default_factory=dict)
    processes: list[dict[str, str]] = field(default_factory=list)
    trouble: str = ""

    def get(self, *paths: Path) -> str | None:
        """Return the first of these that the log has."""
        return next((self.values[path] for path in paths if path in self.values), None)


@dataclass(slots=True)
class SmiLog:
    """One log: what stands above the GPUs, and the GPUs in their order."""

    head: dict[str, str] = field(default_factory=dict)
    gpus: list[SmiGpu] = field(default_factory=list)


def _name(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text[:TEXT_CHARACTERS].lower()).strip("_")


def text_logs(lines: Iterable[str]) -> Iterator[SmiLog]:
    """Yield each log of a text as its end is reached."""
    log, logs = SmiLog(), 0
    path: list[tuple[int, str]] = []  # the headings above a line, each with its indentation
    for line in (line[:LINE_CHARACTERS] for line in lines):
        if "NVSMI LOG" in line:
            if log.gpus and (logs := logs + 1) <= LOGS_LIMIT:
                yield log
            log, path = SmiLog(), []
        elif (lost := _NO_HANDLE.search(line)) and len(log.gpus) < GPUS_LIMIT:
            log.gpus.append(SmiGpu(lost[1], trouble=lost[2].strip()))
        elif _GPU.match(line.rstrip()) and len(log.gpus) < GPUS_LIMIT:
            log.gpus.append(SmiGpu(line.split()[1]))
            path = []
        elif found := _LINE.match(line):
            _take(log, path, len(found[1]), _name(found[2]), found[3])
    if log.gpus and logs < LOGS_LIMIT:
        yield log


def _take(log: SmiLog, path: list[tuple[int, str]], indent: int, name: str, value: str | None) -> None:
    while path and path[-1][0] >= indent:
        path.pop()
    if len(path) < DEPTH_LIMIT:
        path.append((indent, name))
    if value is None:
        return
    value = value.strip()[:TEXT_CHARACTERS]
    if not log.gpus:
        log.head.setdefault(name, value)
    else:
        _put(log.gpus[-1], tuple(step for _, step in path), value)


def _put(gpu: SmiGpu, path: Path, value: str) -> None:
    """Set a value; those of processes are kept a process, which "Process ID" or an element of its own begins."""
    if path[0] == "processes" and len(path) > 1:
        if path[-1] in ("process_id", "pid") and len(gpu.processes) < PROCESSES_LIMIT:
            gpu.processes.append({})
        if gpu.processes:
            gpu.processes[-1].setdefault("pid" if path[-1] == "process_id" else path[-1], value)
    elif len(gpu.values) < FIELDS_LIMIT:
        gpu.values.setdefault(path, value)


def xml_logs(stream: BinaryIO) -> Iterator[SmiLog]:
    """Yield the log of an XML document; raise Damaged where it is none any more, after what came before."""
    from xml.parsers import expat

    reading = _Xml()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reading.start
    parser.EndElementHandler = reading.end
    parser.CharacterDataHandler = reading.text
    parser.EntityDeclHandler = reading.refuse  # nvidia-smi declares none; entities are how XML is made to explode
    reason = ""
    try:
        while chunk := stream.read(CHUNK_BYTES):
            parser.Parse(chunk, False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = f"the XML ends being XML at byte {parser.CurrentByteIndex:,}: {error}"
    except Damaged as error:
        reason = str(error)
    if reading.log.gpus:
        yield reading.log
    if reason:
        raise Damaged(reason)


class _Xml:
    """Follows the elements: <nvidia_smi_log>, <gpu id="…">, and the values below."""

    def __init__(self) -> None:
        self.log = SmiLog()
        self._path: list[str] = []
        self._text = ""
        self._inner = False  # the element has elements in it: its own text is white space

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._path) >= DEPTH_LIMIT:
            raise Damaged(f"elements nest deeper than {DEPTH_LIMIT}: nvidia-smi wrote no such file")
        if name == "gpu" and len(self._path) == 1 and len(self.log.gpus) < GPUS_LIMIT:
            self.log.gpus.append(SmiGpu(attributes.get("id", "")[:TEXT_CHARACTERS]))
        self._path.append(_name(name))
        self._text, self._inner = "", False

    def text(self, text: str) -> None:
        if len(self._text) < TEXT_CHARACTERS:
            self._text += text[:TEXT_CHARACTERS]

    def end(self, name: str) -> None:
        del name
        value = self._text.strip()[:TEXT_CHARACTERS]
        if not self._inner and len(self._path) == 2:
            self.log.head.setdefault(self._path[1], value)
        elif not self._inner and len(self._path) > 2 and self._path[1] == "gpu" and self.log.gpus:
            _put(self.log.gpus[-1], tuple(self._path[2:]), value)
        self._path.pop()
        self._inner = True

    def refuse(self, name: str, *declared: Any) -> None:
        del declared
        raise Damaged(f"it declares the XML entity {name[:50]!r}, which nvidia-smi never does: it is not read further")
