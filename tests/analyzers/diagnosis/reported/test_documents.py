"""Documents talk of faults: judged as if they were pasted logs, they name nobody and ask for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.knowledge import Knowledge
from service import packaged_knowledge
from tests.analyzers.diagnosis.reported.excerpts import verdict_on

REPOSITORY = Path(__file__).parents[4]
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    """The packaged tables."""
    return packaged_knowledge.load(None)


def test_this_project_s_documents_accuse_nobody(knowledge: Knowledge) -> None:
    """They hold Xids, tracebacks and lines of launchers in their sentences, tables and examples."""
    accused = {}
    for path in DOCUMENTS:
        verdict = verdict_on(path.read_text(encoding="utf-8"), knowledge)
        if verdict is not None and (verdict.culprits or verdict.action.kind != "none"):
            accused[path.name] = (verdict.cause, verdict.action.kind)

    assert len(DOCUMENTS) > 50
    assert accused == {}


def test_a_line_among_their_sentences_is_found(knowledge: Knowledge) -> None:
    """The control: the same reading names the GPU of a kernel's line that stands between them."""
    line = "[ 99.000001] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus.\n"
    verdict = verdict_on((REPOSITORY / "README.md").read_text(encoding="utf-8") + line, knowledge)

    assert verdict is not None
    assert verdict.cause == "machine"
