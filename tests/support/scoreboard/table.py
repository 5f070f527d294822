"""docs/scoreboard.md, made from docs/measured/scoreboard.json: ``python -m tests.support.scoreboard.table``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.bench.measure import REPOSITORY
from tests.support.scoreboard.charts import slow_charts
from tests.support.scoreboard.peers import WORDS

PAGE, MEASURED = REPOSITORY / "docs" / "scoreboard.md", REPOSITORY / "docs" / "measured"
DOCUMENT = MEASURED / "scoreboard.json"
DOCUMENTS = (DOCUMENT, *(MEASURED / f"{name}.json" for name in ("calibration", "slow_traces", "slow_judgement")))
BASIS = {"real": "Real cases", "simulator": "Simulated cases"}
HEAD = """\
# Scoreboard

The same labelled cases, answered by Faulthound, by naive rules and by peers' methods that were written anew from their papers
and programs. [evaluate](evaluate.md) states what each column counts; real and simulated cases are never summed. For example:

```
make scoreboard
```

This page is made from [`scoreboard.json`](measured/scoreboard.json) (commit {commit}, {day}, {processor}) by
`python -m tests.support.scoreboard.table`.
"""
COLUMNS = (
    "answered by",
    "cases",
    "top-1",
    "exact",
    "class",
    "abstained",
    "wrong",
    "false evictions",
    "innocent machines",
)
SCORE_COLUMNS = (
    "cases", "culprits", "stated", "guilty", "Brier (base rate)", "log loss (base rate)", "ECE (95 %)", "0.9 and more: guilty",
)  # fmt: skip
_WHICH = ("first", "all")
FAULT_COLUMNS = ("fault", "cases", "decidable", "top-1", "exact", "class", "abstained", "wrong", "false evictions")


def page(
    document: dict[str, Any], calibration: dict[str, Any], slow_traces: dict[str, Any], slow_judgement: dict[str, Any]
) -> str:
    """Return the page. ``calibration``: of more simulated cases, by ``tests.acceptance.calibration``."""
    parts = [
        HEAD.format(
            commit=document["commit"][:12], day=document["measured_at"][:10], processor=document["machine"]["processor"]
        )
    ]
    for origin, heading in BASIS.items():
        parts.append(f"\n## {heading}\n\n{document['rests_on'][origin]}\n")
        for family, rows in document["answers"][origin].items():
            first = "hangs, by their dumps" if family == "hang" else "slow jobs, by traces of their operations"
            parts.append("\n" + _table((f"{first}: answered by", *COLUMNS[1:]), map(_method_cells, rows)))
    parts.append("\n## Faulthound, by fault\n\nSimulated cases.\n\n")
    parts.append(_table(FAULT_COLUMNS, map(_fault_cells, document["by_fault"])))
    parts.append(
        "\n## Faulthound, by scale\n\nSimulated cases; median seconds of reading and judging, on one core beside other work.\n\n"
    )
    parts.append(_table(("ranks", *FAULT_COLUMNS[1:], "s/case"), map(_scale_cells, document["by_scale"])))
    parts.append(
        "\n## Calibration\n\nOf the cases above, as that commit stated them.\n\n"
        + "\n\n".join(_calibration(document["calibration"]))
        + "\n"
    )
    parts += [_learned(calibration), slow_charts(slow_traces, slow_judgement)]
    return "".join(parts)


def _learned(document: dict[str, Any]) -> str:
    """Return what learning changed: strengths alone (before), and as stated."""
    named = "; ".join(
        f"*{name}*: {found['of']} ({found['cases']:,} cases)" for name, found in document["populations"].items()
    )
    head = (
        f"\n### Before and after learning\n\nBy `{document['command']}` "
        f"([`calibration.json`](measured/calibration.json), commit {document['commit'][:12]}, "
        f"{document['measured_at'][:10]}).\n{named}.\n"
        "*Before* are strengths alone, *after* what is [learned](learn.md) from other seeds, with less noise.\n\n"
    )
    rows = [
        (name, which, when, *_score_cells(found[which][when]))
        for name, found in document["populations"].items()
        for which in _WHICH
        for when in ("before", "after")
    ]
    return head + _table(SCORE_COLUMNS, rows)


def _score_cells(found: dict[str, Any]) -> tuple[str, ...]:
    (low, high), sure = found["ece_95"], found["sure"]
    return (
        f"{found['right']['count']:,} of {found['right']['n']:,}", f"{found['brier']:.4f} ({found['brier_base']:.4f})",
        f"{found['log_loss']:.4f} ({found['log_loss_base']:.4f})", f"{found['ece']:.4f} ({low:.4f} to {high:.4f})",
        f"{sure['count']:,} of {sure['n']:,}, at least {sure['low_95']:.3f}",
    )  # fmt: skip


def _table(columns: tuple[str, ...], rows: Any) -> str:
    lines = [columns, tuple("---" for _ in columns), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _share(part: dict[str, Any]) -> str:
    return f"{part['count']:,} of {part['n']:,}" if part["n"] else "–"


def _method_cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = f"**{row['method']}**" if row["method"] == "Faulthound" else WORDS[row["method"]]
    return (
        name, f"{row['n']:,}", _share(row["first_right"]), _share(row["exact"]), _share(row["class_right"]),
        f"{row['abstained']['count']:,}", f"{row['wrong']['count']:,}", f"{row['false_evictions']['count']:,}",
        f"{row['innocent_machines']:,}",
    )  # fmt: skip


def _fault_cells(row: dict[str, Any], name: str = "fault") -> tuple[str, ...]:
    return (
        row[name].replace("_", " "), f"{row['n']:,}", f"{row['exact']['n']:,}", _share(row["first_right"]),
        _share(row["exact"]), _share(row["class_right"]), f"{row['abstained']['count']:,}", f"{row['wrong']['count']:,}",
        f"{row['false_evictions']['count']:,}",
    )  # fmt: skip


def _scale_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (*_fault_cells(row, "scale"), f"{row['seconds_median']:.2f}")


def _calibration(document: dict[str, Any]) -> Iterator[str]:
    for origin, found in document.items():
        right, sure, (low, high) = found["right"], found["sure"], found["ece_95"]
        bins = ", ".join(f"{one['stated']:.2f} → {one['right']:.2f} ({one['n']:,})" for one in found["bins"])
        yield (
            f"{BASIS[origin]}: of {right['n']:,} first culprits {right['count']:,} are guilty. Brier score "
            f"{found['brier']:.4f} (base rate {found['brier_base']:.4f}), log loss {found['log_loss']:.4f} (base rate "
            f"{found['log_loss_base']:.4f}),\nexpected calibration error {found['ece']:.4f} (95 %: {low:.4f} to "
            f"{high:.4f}). Of {sure['n']:,} stated with 0.9 and more {sure['count']:,} are guilty\n(95 %: at least "
            f"{sure['low_95']:.3f}). Stated → guilty (cases): {bins}."
        )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(*documents()), encoding="utf-8")


def documents() -> tuple[dict[str, Any], ...]:
    """Return what the page is made of, in the order of ``page``."""
    return tuple(json.loads(document.read_text(encoding="utf-8")) for document in DOCUMENTS)


if __name__ == "__main__":
    main()
