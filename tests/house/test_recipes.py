"""The recipes of CONTRIBUTING.md work as written: their blocks, applied to a copy of the product, add a working part."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRODUCT = ("collectors", "analyzers", "service", "simulation", "faulthound", "migrations", "docs", "pyproject.toml")
FAULTHOUND = "from faulthound import main; main()"
AGENT = "from faulthound import agent; agent()"


def recipe(title: str) -> str:
    """Return the section of CONTRIBUTING.md under this heading."""
    found = re.search(rf"^### \S {title}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no recipe {title!r}"
    return found[1]


def follow(title: str, folder: Path) -> Path:
    """Copy the product into the folder and do what the recipe says; return the copy."""
    copy = folder / "checkout"
    copy.mkdir()
    for name in PRODUCT:
        origin = REPOSITORY / name
        if origin.is_dir():
            shutil.copytree(origin, copy / name, ignore=shutil.ignore_patterns("__pycache__", "measured"))
        elif origin.exists():
            shutil.copy(origin, copy / name)
    for kind, block in re.findall(r"^```(\w+)\n(.*?)^```", recipe(title), re.MULTILINE | re.DOTALL):
        if kind == "diff":
            subprocess.run(["git", "apply", "--recount", "-"], cwd=copy, input=block, text=True, check=True)
        elif path := re.match(r"(?:# |<!-- |\{# )(\S+/\S+\.\w+)", block):
            (copy / path[1]).parent.mkdir(parents=True, exist_ok=True)
            (copy / path[1]).write_text(block, encoding="utf-8")
    return copy


def run(copy: Path, program: str, *arguments: str | Path, code: int = 0) -> str:
    """Run a Python program of the copy, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], cwd=copy, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "100", "NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == code, f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_file_of_a_recipe_has_a_place() -> None:
    """The folders and pages that the recipes name exist."""
    named = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## Recipes")[2].partition("\n## ")[0], re.MULTILINE)

    assert named
    missing = [path for path in named if not (REPOSITORY / path.partition("NAME")[0].rpartition("/")[0]).is_dir()]
    assert missing == []
    assert [path for path in named if "NAME" not in path and not (REPOSITORY / path).exists()] == []


def test_a_reader(tmp_path: Path) -> None:
    """A reader is one file: its format is listed, recognised and judged."""
    copy, report = follow("A reader", tmp_path), tmp_path / "report.txt"
    report.write_text("LAUNCH REPORT\nrank=3 host=gpu-0007 signal=9\nrank=4 host=gpu-0008 signal=15\n")

    listed = run(copy, FAULTHOUND, "formats")
    read = run(copy, FAULTHOUND, "read", report)
    verdict = run(copy, FAULTHOUND, "diagnose", report, "--json")

    assert "our-launcher --report" in listed
    assert "exit" in read
    assert "gpu-0007" in read
    assert json.loads(verdict)["symptom"] == "crash"


def test_a_live_collector(tmp_path: Path) -> None:
    """A collector is one file: the agent runs it by its name."""
    copy = follow("A live collector", tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("4711.5 9000.0\n")
    settings = ("--state", tmp_path / "state", "--path", f"proc={tmp_path / 'proc'}")

    printed = run(copy, AGENT, "once", "--collectors", "uptime", *settings)

    assert "up_seconds=4711.5" in printed
