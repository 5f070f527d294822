"""docs/security.md claims nothing that no test holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "security.md"
LIST = re.compile(r"^(?:It|They) cannot\n\n((?:- .*\n)+)", re.MULTILINE)
ROW = re.compile(r"^- (?P<claim>.+?)(?:: (?P<test>\S+))?$", re.MULTILINE)
TEST = re.compile(r"`(?P<file>tests/[\w/]+\.py)::(?P<name>test_\w+)`")


def functions_of(file: Path) -> set[str]:
    """The tests that a file has."""
    return {node.name for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


def test_each_claim_names_a_test_that_exists() -> None:
    """Each line of what a party cannot do has one test, which is there."""
    page = PAGE.read_text(encoding="utf-8")
    lists = LIST.findall(page)
    rows = [row for found in lists for row in ROW.finditer(found)]
    assert len(lists) == len(re.findall(r"^(?:It|They) cannot$", page, re.MULTILINE))
    assert len(rows) > 20

    missing = []
    for row in rows:
        named = TEST.fullmatch(row["test"] or "")
        file = REPOSITORY / named["file"] if named else None
        if named is None or file is None or not file.is_file() or named["name"] not in functions_of(file):
            missing.append(row["claim"])
    assert missing == []
