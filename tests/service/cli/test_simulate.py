"""`faulthound simulate`: what it writes is evaluated as labelled; it overwrites nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli import run


def test_what_is_written_is_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hangs and slow jobs, each with labels; `evaluate` counts all of them, and none of them as real."""
    out = tmp_path / "cases"
    assert run(["simulate", "--out", str(out), "--cases", "3", "--ranks", "16", "--seed", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"3 cases of {name} in {out / name}" for name in ("hang", "slow")]

    assert run(["evaluate", str(out), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [(row["origin"], row["n"], row["innocent_machines"]) for row in document["total"]] == [("simulator", 6, 0)]


def test_one_case_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case's folder is what `diagnose` reads; --family writes that family alone."""
    assert run(["simulate", "--out", str(tmp_path), "--family", "slow", "--cases", "1", "--ranks", "16"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["slow"]
    capsys.readouterr()

    assert run(["diagnose", str(tmp_path / "slow"), "--json"]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["coverage"]["sources"]


@pytest.mark.parametrize("ranks", ["8", "1000", "32768", "0", "-16"])
def test_a_size_that_no_job_has_is_named(ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the value and those that are allowed; nothing is written."""
    assert run(["simulate", "--out", str(tmp_path / "cases"), "--ranks", ranks]) == 2

    assert f"--ranks {ranks} is no power of two that can be simulated; allowed: 16, 32, 64" in capsys.readouterr().err
    assert not (tmp_path / "cases").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that holds anything is refused, and so is a file."""
    kept = tmp_path / "kept.txt"
    kept.write_text("mine", encoding="utf-8")

    assert run(["simulate", "--out", str(tmp_path)]) == 2
    assert run(["simulate", "--out", str(kept)]) == 2

    assert "is not empty: name a new folder" in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8") == "mine"
