"""What the hardware analyzer claims of the lines of a kernel log."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

import analyzers.knowledge
from analyzers.diagnosis.hardware.hardware import analyze
from analyzers.knowledge import Knowledge, parse
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.formats import Input
from collectors.formats.kernel_log.kernel_log import read
from collectors.records import Record

FOLDER = Path(analyzers.knowledge.__file__).parent
KNOWLEDGE = parse({name: (FOLDER / f"{name}.toml").read_text() for name in ("xid", "nvlink5")})
NOW = 1_790_000_000.0


def log(*lines: str, node: str | None = "n1", name: str = "kern.log") -> list[Record]:
    """The records of a kernel log made of these lines."""
    data = "\n".join(lines).encode()
    return list(read(Input(source=name, stream=io.BytesIO(data), head=data[:65536], node=node, at=NOW)))


def judge(
    records: Iterable[Record], topology: Topology | None = None, knowledge: Knowledge = KNOWLEDGE
) -> list[Finding]:
    """What the analyzer claims about these records."""
    return list(analyze(Window.build(records), topology or Topology(), knowledge))


def stamped(second: int, text: str, host: str) -> str:
    """A syslog line with a full stamp."""
    return f"2026-09-21T10:{second // 60:02d}:{second % 60:02d}+00:00 {host} kernel: {text}"


def named(findings: Iterable[Finding]) -> list[tuple[str, str | None, str | None]]:
    """Kind, node and device of every suspect."""
    return [(suspect.kind, suspect.node, suspect.device) for finding in findings for suspect in finding.suspects]
