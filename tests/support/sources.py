"""The project's Python files, each parsed once at most: patterns find in a second what a parser finds in ten."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
A_NAME = r"[\w.]+(?: as \w+)?"
AN_IMPORT = re.compile(rf"^[ \t]*(?:from ([\w.]+) import\b|import ({A_NAME}(?:, *{A_NAME})*) *(?:#.*)?$)", re.MULTILINE)


def sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files below these folders of the repository."""
    for folder in folders:
        yield from sorted((REPOSITORY / folder).rglob("*.py"))


@cache
def statements(path: Path) -> tuple[ast.AST, ...]:
    """Return every statement of a file, nested ones included; expressions, which are ten times as many, are left out."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            below = getattr(node, part, None)
            if isinstance(below, list):
                waiting += below
        found.append(node)
    return tuple(found)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a file, nested ones included."""
    return (node for node in statements(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def imports_in(text: str) -> Iterator[str]:
    """Yield the full names of the modules that a text imports, late imports included."""
    for imported, listed in AN_IMPORT.findall(text):
        if imported:
            yield imported
        yield from (name.split()[0] for name in listed.split(",") if name.strip())
