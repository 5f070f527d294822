"""User-visible text uses plain words: no banned phrase in help, messages, templates or pages of docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BANNED = (
    "told", "tell", "tells", "somebody", "nobody", "whoever", "anybody", "be gone", "is gone", "are gone", "what there is",
    "need be", "need not", "of late", "rhythm, and twice", "twice what one step", "knock at the door", "happenings",
    "sightings", "caretaker", "hindrance", "say so",
)  # fmt: skip
"""Each has a plain word: reports, an operator, no rank, the sender, ended, a blocker, a timeline entry (CONTRIBUTING.md)."""
PHRASE = re.compile(r"(?<![\w./_-])(" + "|".join(map(re.escape, BANNED)) + r")(?![\w_-])", re.IGNORECASE)
CLEAN_SOURCES = (
    "analyzers/diagnosis", "analyzers/knowledge", "analyzers/model", "analyzers/verdict",
    "service/adapters", "service/cli", "service/client.py", "service/pages", "service/reports",
)  # fmt: skip
"""Rooms whose strings are held to it so far."""
CLEAN_TEMPLATES = tuple(
    str(path.relative_to(REPOSITORY))
    for room in ("pages", "reports")
    for path in (REPOSITORY / "service" / room).glob("*.html")
)
CLEAN_PAGES = ("docs/cli.md",)
JSON_NAMES = frozenset({"hindrances", "unheard"})  # of public documents; they stay


def found(text: str) -> list[str]:
    """Return the banned phrases in a text; code in backticks and JSON paths are not prose."""
    prose = re.sub(r"`[^`]*`|\.[a-z_]+(\[\])?", " ", text)
    return [match[0] for match in PHRASE.finditer(prose) if match[0].lower() not in JSON_NAMES]


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string constants of a file that users may see: no names of fields, and docstrings of verbs alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def sources() -> Iterator[Path]:
    """Yield the Python files of the rooms that are clean."""
    for name in CLEAN_SOURCES:
        path = REPOSITORY / name
        yield from sorted(path.rglob("*.py")) if path.is_dir() else [path]


def test_messages_and_help_are_plain() -> None:
    """No string of these rooms, docstrings included, holds a banned phrase."""
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}: {phrase!r} in {text[:80]!r}"
        for path in sources()
        for line, text in strings(path)
        for phrase in found(text)
    ]

    assert wrong == []


@pytest.mark.parametrize("name", [*CLEAN_TEMPLATES, *CLEAN_PAGES])
def test_pages_are_plain(name: str) -> None:
    """No line of a template or a page of docs holds a banned phrase."""
    lines = (REPOSITORY / name).read_text(encoding="utf-8").splitlines()

    assert [f"{number}: {phrase!r}" for number, line in enumerate(lines, 1) for phrase in found(line)] == []
