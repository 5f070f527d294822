"""What verbs print on stdout: JSON, tables, lines and verdicts, the same everywhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from service.cli.speech import colored, speaks_unicode, terminal_width

if TYPE_CHECKING:
    from analyzers.model.verdict import Verdict


IDS = ("incident", "remediation")  # columns whose cells are copied: one that is broken over two lines cannot be


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    import msgspec

    print_document(msgspec.json.format(msgspec.json.encode(value)))


def print_document(document: bytes) -> None:
    """Print a JSON document. Nothing in it controls the terminal, and its values are the same."""
    from collectors.records.printable import printable_json

    sys.stdout.write(printable_json(document) + "\n")


def print_lines(lines: Iterable[str]) -> None:
    """Print each text as one line. It may come from elsewhere: nothing in it controls the terminal."""
    from collectors.records.printable import printable

    for line in lines:
        sys.stdout.write(printable(line).replace("\n", " ") + "\n")


def print_verdict(
    verdict: Verdict, *, no_color: bool = False, plan: tuple[str, str] | None = None, over: str = ""
) -> None:
    """Print a verdict for people; ``plan``: the kind of what is planned, and it in a sentence; ``over``: why it is past."""
    from service.reports import text

    shown = text.render(
        verdict, width=terminal_width(), color=colored(no_color), unicode=speaks_unicode(), plan=plan, over=over
    )
    sys.stdout.write(shown)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their column names; a pipe gets them unwrapped and without lines."""
    from collectors.records.printable import printable

    cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if sys.stdout.isatty():
        from rich.console import Console

        Console(highlight=False).print(rich_table(columns, cells))
        return
    encoding = sys.stdout.encoding or "ascii"
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")


def rich_table(columns: Sequence[str], cells: Iterable[Sequence[str]]) -> Any:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column in IDS)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    return table
