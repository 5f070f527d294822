"""The command line with made-up reading and judging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from analyzers.model.verdict import Verdict
from analyzers.verdict import judge as judging
from collectors.files import reading
from collectors.records import Record
from tests.support.faulthound_process import AN_EVENT, NOT_READ
from tests.support.sample_verdicts import two_ranks


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Replace reading and judging; what was asked of them is in the returned dictionary, whose verdict can be set."""
    seen: dict[str, object] = {"verdict": two_ranks(), "records": [AN_EVENT, NOT_READ]}

    def read_paths(paths: Iterable[Path], **options: object) -> Iterator[Record]:
        seen.update(paths=list(paths), **options)
        yield from seen["records"]  # type: ignore[misc]

    def judge(window: object, topology: object, knowledge: object) -> Verdict:
        seen.update(window=window, topology=topology, knowledge=knowledge)
        return seen["verdict"]  # type: ignore[return-value]

    monkeypatch.setattr(reading, "read_paths", read_paths)
    monkeypatch.setattr(judging, "judge", judge)
    return seen


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Return a folder that exists."""
    return str(tmp_path)
