"""A log that states no year is dated by its file's time, and the verdict says so once."""

from __future__ import annotations

import io

from analyzers.model.topology import infer
from analyzers.model.verdict import Missing
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input
from collectors.formats.kernel_log import kernel_log
from service import packaged_knowledge

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
JANUARY = 1_767_312_000.0  # 2 January 2026


def years(*lines: str) -> list[Missing]:
    """Return what a verdict over one kernel log, written in January, says of its year."""
    data = "\n".join(lines).encode()
    window = Window.build(list(kernel_log.read(Input("kern.log", io.BytesIO(data), data, at=JANUARY))))
    return [one for one in judge(window, infer(window), packaged_knowledge.load(None)).missing if "year" in one.what]


def test_an_assumed_year_is_stated_once() -> None:
    """However many lines: with the year that was taken, and as evidence that the answer rests on."""
    (one,) = years(f"Dec 31 23:58:00 h1 kernel: {XID}", f"Dec 31 23:59:00 h1 kernel: {XID}")

    assert "the year of kern.log: its lines state none, and 2025 is assumed" in one.what
    assert one.matters


def test_a_stated_year_is_not_assumed() -> None:
    """A log whose stamps are whole has nothing to say of it."""
    assert years(f"2025-12-31T23:58:00+00:00 h1 kernel: {XID}") == []
