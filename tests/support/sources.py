"""The project's Python files, each parsed once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files below these folders of the repository."""
    for folder in folders:
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a file's syntax tree."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
