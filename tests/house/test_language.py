"""User-visible text uses plain words: no banned phrase in help, messages, templates or pages of docs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sources import REPOSITORY, sources

BANNED = (
    "told", "tell", "tells", "somebody", "nobody", "whoever", "anybody", "be gone", "what there is",
    "need be", "need not", "of late", "rhythm, and twice", "twice what one step", "knock at the door", "happenings",
    "sightings", "caretaker", "hindrance", "say so",
)  # fmt: skip
"""Each has a plain word: reports, an operator, no rank, the sender, ended, a blocker, a timeline entry (CONTRIBUTING.md)."""
PHRASE = re.compile(r"(?<![\w./_-])(" + "|".join(map(re.escape, BANNED)) + r")(?![\w_-])", re.IGNORECASE)
PACKAGES = ("collectors", "analyzers", "service", "simulation", "faulthound", "migrations")
PAGES = sorted(
    str(path.relative_to(REPOSITORY))
    for path in (
        REPOSITORY / "README.md",
        *(REPOSITORY / "docs").glob("*.md"),
        *(REPOSITORY / "service").rglob("*.html"),
    )
)
JSON_NAMES = frozenset({"hindrances", "unheard"})  # of public documents; they stay


def found(text: str) -> list[str]:
    """Return the banned phrases in a text; code in backticks and JSON paths are not prose."""
    prose = re.sub(r"`[^`]*`|\.[a-z_]+(\[\])?", " ", text)
    return [match[0] for match in PHRASE.finditer(prose) if match[0].lower() not in JSON_NAMES]


def strings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file: its string constants of several words."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def descriptions(value: object) -> Iterator[str]:
    """Yield the summaries and descriptions of a JSON document."""
    if isinstance(value, dict):
        yield from (value[key] for key in ("summary", "description", "title") if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from descriptions(item)


def test_messages_and_help_are_plain() -> None:
    """No string of the product, docstrings included, holds a banned phrase."""
    wrong = [
        f"{path.relative_to(REPOSITORY)}:{line}: {phrase!r} in {text[:80]!r}"
        for path in sources(*PACKAGES)
        for line, text in strings(path)
        for phrase in found(text)
    ]

    assert wrong == []


def test_the_api_document_is_plain() -> None:
    """No summary or description of the OpenAPI document holds a banned phrase."""
    document = json.loads((REPOSITORY / "docs" / "openapi.json").read_text(encoding="utf-8"))
    texts = list(descriptions(document))

    assert len(texts) > 100
    assert [f"{phrase!r} in {text[:80]!r}" for text in texts for phrase in found(text)] == []


def test_a_description_is_searched_wherever_it_stands() -> None:
    """A banned phrase is found in a description within a list within a schema."""
    nested = {"paths": {"/v1/x": {"get": {"parameters": [{"description": "Somebody is told."}]}}}}

    assert [phrase for text in descriptions(nested) for phrase in found(text)] == ["Somebody", "told"]


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_plain(name: str) -> None:
    """No line of a template or a page of docs holds a banned phrase."""
    prose = (REPOSITORY / name).read_text(encoding="utf-8")
    if name != "docs/cli.md":  # its blocks are the help
        prose = re.sub(r"^```.*?^```", "", prose, flags=re.MULTILINE | re.DOTALL)

    assert [f"{phrase!r} in {line[:80]!r}" for line in prose.splitlines() for phrase in found(line)] == []
