"""The engine's steps, written as scripts in ``engine_steps/``; ``--rewrite`` writes down what it does today, for review."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.engine_script import play

SCRIPTS = sorted((Path(__file__).parents[2] / "engine_steps").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_engine_does_what_the_script_says(script: Path, monkeypatch: pytest.MonkeyPatch, rewrite: bool) -> None:
    """What the engine asks, judges, publishes and closes, and when, is as written below ``----``."""
    for said, expected in play(script, monkeypatch, rewrite=rewrite):
        assert said == expected, f"{script.name}: run with --rewrite to see the change as a diff"
