"""mcelog's reports: one severity each, by its words or its status register."""

from __future__ import annotations

from collectors.formats.kernel_log.mcelog import HEADINGS, REPORT_LINES, severity


def _severities(*lines: str) -> list[str]:
    found, left = [], 0
    for line in lines:
        said, left = severity(line, left)
        found += [said] if said else []
    return found


def test_a_report_gives_its_severity_once() -> None:
    """By the first of its lines that says it; the next report gives its own."""
    report = (
        HEADINGS[0],
        "MCE 0",
        "Uncorrected error",
        "Processor context corrupt",
        "STATUS fa00000000400405 MCGSTATUS 0",
    )

    assert _severities(*report) == ["uncorrected"]
    assert _severities(*report, HEADINGS[0], "Corrected error") == ["uncorrected", "corrected"]


def test_the_status_register_has_it_too() -> None:
    """Bit 61."""
    assert _severities(HEADINGS[1], "STATUS b200000000070f0f MCGSTATUS 4") == ["uncorrected"]
    assert _severities(HEADINGS[1], "STATUS 8c00004000010090 MCGSTATUS 0") == ["corrected"]


def test_outside_of_a_report_the_words_say_nothing() -> None:
    """Nor far below its heading."""
    assert _severities("Uncorrected error") == []
    assert _severities(HEADINGS[0], *["x"] * REPORT_LINES, "Uncorrected error") == []
