"""A table for people on stdout; a pipe gets the same rows, unwrapped and without lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from service.reports.text import printable


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows below their column names. Cells are foreign text: nothing in them steers the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
    if not sys.stdout.isatty():
        encoding = sys.stdout.encoding or "ascii"
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells):
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)
