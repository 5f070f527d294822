"""What the crash analyzer claims of a few events."""

from __future__ import annotations

from pathlib import Path

from analyzers.diagnosis.crash.crash import analyze
from analyzers.knowledge import Knowledge, parse
from analyzers.model.finding import Finding
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import LogEvent, Members, Placement, Record

_TABLES = Path(__file__).parents[2] / "analyzers" / "knowledge"
KNOWLEDGE: Knowledge = parse(
    {name: (_TABLES / f"{name}.toml").read_text(encoding="utf-8") for name in ("codes", "crash")}
)
ECHO = "[/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:27558. This is typically caused by"


def judged(records: list[Record], ranks: int = 4, nodes: dict[int, str] | None = None) -> list[Finding]:
    """Analyze the records in a job of so many ranks, one node each unless placed."""
    placed = nodes or {rank: f"node-{rank}" for rank in range(ranks)}
    placement = Placement(
        source="hosts.txt", ranks=Members.of(placed), nodes=tuple(placed.values()), world_size=len(placed)
    )
    window = Window.build([placement, *records])
    return list(analyze(window, infer(window), KNOWLEDGE))


def only(records: list[Record], ranks: int = 4, nodes: dict[int, str] | None = None) -> Finding:
    """The single finding of a story."""
    (finding,) = judged(records, ranks, nodes)
    return finding


def raised(rank: int | None, exception: str, message: str = "", *, line: int = 10, at: float | None = None) -> LogEvent:
    """A rank's traceback."""
    text = f"{exception}: {message}"
    source = f"rank{rank}.log:{line}"
    return LogEvent(source=source, rank=rank, at=at, event="traceback", exception=exception, message=message, text=text)


def echo(rank: int, at: float | None = None) -> LogEvent:
    """A rank that lost its connection."""
    return raised(rank, "RuntimeError", ECHO, at=at)


def named(finding: Finding) -> tuple[int, ...]:
    """All ranks that a finding points at."""
    return tuple(sorted(rank for suspect in finding.suspects for rank in suspect.ranks))


def said(name: str, rank: int | None = None, **fields: object) -> LogEvent:
    """Any other event."""
    return LogEvent(source=f"launch.log:{90 + (rank or 0)}", rank=rank, event=name, **fields)  # type: ignore[arg-type]


def died(
    rank: int, code: int, *, first: bool = False, event: str = "torchrun_failure", pid: int | None = None
) -> LogEvent:
    """The launcher's word of a rank's end."""
    signal = -code if code < 0 else None
    return LogEvent(
        source=f"launch.log:{rank + 1}", rank=rank, event=event, exit_code=code, signal=signal, first=first, pid=pid
    )
