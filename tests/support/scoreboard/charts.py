"""Charts of docs/scoreboard.md as Mermaid text, which the usual viewers of Markdown draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def slow_charts(traces: dict[str, Any], judgement: dict[str, Any]) -> str:
    """Return the section on slow jobs: from how much on a slow worker is named, and what judging takes, by ranks."""
    slowed = {float(times): found for times, found in traces["healed_and_one_slowed"].items()}
    limit = _line(
        "one worker of a real trace slowed: named, %",
        "times as long",
        [f"{times:g}" for times in slowed],
        [100 * found["named"] / found["n"] for found in slowed.values()],
    )
    sizes = judgement["sizes"]
    seconds = _line(
        "ten minutes of operations judged: seconds of a processor",
        "ranks",
        [f"{one['ranks']:,}" for one in sizes],
        [one["processor_seconds"] for one in sizes],
    )
    last = sizes[-1]
    return (
        "\n## Slow jobs: the least that is named, and what judging takes\n\n"
        f"By `{traces['command']}` ([`slow_traces.json`](measured/slow_traces.json), {next(iter(slowed.values()))['n']} cases a "
        f"point, no innocent worker named) and `{judgement['command']}`\n"
        f"([`slow_judgement.json`](measured/slow_judgement.json)): {last['operations']:,} operations of {last['ranks']:,} ranks "
        f"in {last['processor_seconds']:.1f} s, {last['peak_mb'] / 1000:.1f} GB at most.\n\n{limit}\n{seconds}"
    )


def _line(title: str, axis: str, names: Sequence[str], values: Sequence[float]) -> str:
    places = ", ".join(f'"{name}"' for name in names)
    points = ", ".join(f"{value:.4g}" for value in values)
    return f'```mermaid\nxychart-beta\n  title "{title}"\n  x-axis "{axis}" [{places}]\n  line [{points}]\n```\n'
