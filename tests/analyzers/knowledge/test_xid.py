"""The Xid tables decide as the vendor says, row by row, and a site can override them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import analyzers.knowledge
from analyzers.knowledge import Knowledge, parse, xids

FOLDER = Path(analyzers.knowledge.__file__).parent
UNUSED = 63


def documents() -> dict[str, str]:
    """The packaged tables as text."""
    return {name: (FOLDER / f"{name}.toml").read_text() for name in ("xid", "nvlink5")}


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    """The packaged tables, parsed."""
    return parse(documents())


def vendor(name: str) -> list[dict[str, str | None]]:
    """The rows of the vendor's own table, read where it lies."""
    root = os.environ.get("FAULTHOUND_CORPUS")
    if not root:
        pytest.skip("FAULTHOUND_CORPUS is not set: the vendor's table is not compared")
    return [json.loads(line) for line in (Path(root) / "xid" / name).read_text().splitlines()]


SAME = {  # the vendor's words that ours shorten
    "IGNORE (sympathetic)": "ignore_sympathetic",
    "Solo: RESTART_FM\nNot Solo: IGNORE (follow other Xid)": "workflow_xid_45",
    "N/A Informational only regarding another Xid": "informational",
    "CHECK_APP/CUDA": "check_app",
    "REPORT_ISSUE (if seen >1 per day)": "report_issue_if_daily",
    "INVESTIGATE_SW/USER": "investigate_sw_user",
}


def word(text: str | None) -> str:
    """A vendor's resolution in the spelling of our table."""
    return SAME.get(text, text.lower()) if text else ""


def test_every_code_is_decided_as_the_vendor_says(knowledge: Knowledge) -> None:
    """All 172 rows have the vendor's immediate and investigatory resolution; 63 are codes that nothing reports."""
    rows = vendor("xid_catalog_nvidia.jsonl")
    answers = [xids.xid(knowledge, int(str(row["Code"]))) for row in rows]
    ours = [(answer.now, answer.later) for answer in answers]
    theirs = [
        (word(row["Resolution Bucket (Immediate Action)"]), word(row["Resolution Bucket (Investigatory Action)"]))
        for row in rows
    ]
    assert ours == theirs
    assert len(ours) == 172
    unused = [answer for answer, row in zip(answers, rows, strict=True) if row["Description"] == "Unused"]
    assert len(unused) == UNUSED
    assert {(answer.role, answer.action) for answer in unused} == {("unused", "none")}


def test_our_action_deviates_from_the_vendor_only_where_the_table_says_so(knowledge: Knowledge) -> None:
    """A row's action follows its resolution's, except for the listed deviations, each with a reason and a docs row."""
    table = knowledge.table("xid")
    differing = {code for code, row in table["codes"].items() if "action" in row}
    assert differing == set(table["deviations"]) == {"167"}
    page = (FOLDER.parents[1] / "docs" / "xid.md").read_text()
    assert all(f"Xid {code}" in page for code in differing)
    assert all(code in page for code in ("2025-10-29", table["source"]["url"]))


def test_no_code_evicts_that_the_vendor_lets_stay(knowledge: Knowledge) -> None:
    """Ignored, restarted, unused and unknown codes ask nothing of the machine."""
    for row in vendor("xid_catalog_nvidia.jsonl"):
        if row["Resolution Bucket (Immediate Action)"] in {"IGNORE", "RESTART_APP", "CONTACT_SUPPORT", "XID_154"}:
            assert xids.action_for(f"xid_{row['Code']}", knowledge) == "none", row["Code"]
    assert xids.action_for("xid_4711", knowledge) == "none"


def _registers(row: dict[str, str | None], pattern: str | None) -> tuple[int, int] | None:
    if pattern is None:
        return None
    status = (row["Error Status (hex)"] or "0x0").split("/")[0]
    return int(pattern.replace("-", "0"), 2), int(status, 16)


@pytest.mark.parametrize("layout", ["V1", "V2"])
@pytest.mark.parametrize("fill", [0, 0b1110 << 26], ids=["plain", "high bits set"])
def test_every_nvlink5_row_is_decided_as_the_vendor_says(knowledge: Knowledge, layout: str, fill: int) -> None:
    """All 95 rows, in both register layouts, with and without the severity word, give the vendor's resolution."""
    rows = vendor("nvlink5_144_150.jsonl")
    assert len(rows) == 95
    for row in rows:
        code, pattern = int(str(row["Xid"])), next(text for key, text in row.items() if key.startswith(f"({layout}"))
        registers = _registers(row, pattern)
        assert registers is not None
        status = (registers[0] | fill, registers[1], 0, 0, 0)
        name = str(next(text for key, text in row.items() if key.startswith("Subcode"))).split("/")[0]
        severity = str(row["Severity (for items with '*' please see Customer User Guide tab)"])
        said = severity.strip("*?").lower().replace("-", "")
        for spoken in (None, said):
            decided = xids.nvlink5(knowledge, code, name, spoken, status)
            assert decided.resolution == word(row["Resolution Bucket (Data Center Recovery Action)"]), row
            assert decided.later == word(row["Resolution Bucket (Investigatory Action)"]), row
            assert decided.decided_by == "registers"


@pytest.mark.parametrize("layout", ["V1", "V2"])
def test_a_fault_that_could_not_be_kept_local_asks_for_a_reset(knowledge: Knowledge, layout: str) -> None:
    """The second pattern that three rows have raises their resolution to the second action."""
    seen = 0
    for row in vendor("nvlink5_144_150.jsonl"):
        pattern = row[f"({layout}({'<' if layout == 'V1' else '>='}R575)) Decode for action 2"]
        registers = _registers(row, pattern)
        if registers is None:
            continue
        seen += 1
        decided = xids.nvlink5(knowledge, int(str(row["Xid"])), None, None, registers)
        assert decided.resolution == word(row["Action 2"])
    assert seen == 3


@pytest.mark.parametrize(
    ("severity", "resolution"),
    [("fatal", "reset_gpu"), ("link fatal", "reset_gpu"), ("nonfatal", "ignore"), (None, "unknown")],
)
@pytest.mark.parametrize("status", [(), (0xFFFFFFFF, 0xDEAD)], ids=["no registers", "registers of no known row"])
def test_the_severity_word_decides_where_registers_do_not(
    knowledge: Knowledge, severity: str | None, resolution: str, status: tuple[int, ...]
) -> None:
    """Without registers the line's own word is followed; without a word nothing is asked for."""
    assert xids.nvlink5(knowledge, 145, None, severity, status).resolution == resolution


def test_a_word_that_contradicts_the_row_holds(knowledge: Knowledge) -> None:
    """A row's severity may depend on the system: the line that says Fatal is fatal."""
    assert xids.nvlink5(knowledge, 145, "RLW_RXPIPE", "nonfatal", (0x0409A0C2, 8)).resolution == "ignore"
    assert xids.nvlink5(knowledge, 145, "RLW_RXPIPE", "fatal", (0x0409A0C2, 8)).resolution == "reset_gpu"


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ((1 << 0 | 1 << 23,), "ignore"),
        ((1 << 20,), "sympathetic"),
        ((1 << 4,), "ecc"),
        ((1 << 16, 0, 0, 0, 0, 0, 0), "seating"),
        ((1 << 16 | 1 << 20,), "seating"),
        ((1 << 21,), "signal"),
        ((1 << 27,), "repeated"),
        ((0, 0, 1 << 1), "ecc"),
        ((0, 0, 1 << 13), "unknown"),
        ((0, 0, 0, 1 << 18), "sympathetic"),
        ((0, 0, 0, 0, 1 << 20), "threshold"),
        ((0, 0, 0, 0, 1 << 18), "ecc"),
        ((1 << 2,), "unknown"),
        ((0, 0, 0), "unknown"),
        ((), "unknown"),
    ],
)
def test_the_bits_of_an_xid_74_are_sorted_by_what_they_ask_for(
    knowledge: Knowledge, status: tuple[int, ...], kind: str
) -> None:
    """The most telling bit wins; a bit that no list names stays unknown."""
    assert xids.nvlink74(knowledge, status) == kind


@pytest.mark.parametrize(
    ("fault_class", "action"),
    [
        ("xid_79", "reboot_node"),
        ("xid_119", "reset_gpu"),
        ("xid_119_then_reboot", "reboot_node"),
        ("xid_79_then_reset", "reboot_node"),
        ("ecc_dbe", "reset_gpu"),
        ("ecc_dbe_remap", "evict"),
        ("nvlink5_149_fatal", "reset_gpu"),
        ("nvlink5_145_nonfatal", "none"),
        ("sxid_20034", "reboot_node"),
        ("xid_31", "none"),
        ("xid_31_repeated", "probe"),
        ("link_flapping", "probe"),
        ("oom_kill", "none"),
        ("never_entered", "none"),
    ],
)
def test_each_fault_class_asks_for_its_action(knowledge: Knowledge, fault_class: str, action: str) -> None:
    """What an operator would do about a class, as one of five words."""
    assert xids.action_for(fault_class, knowledge) == action


def test_a_site_overrides_one_row_and_leaves_the_others() -> None:
    """An override names only what differs; a word that is no action asks for a probe, never for more."""
    changed = parse(
        documents(), {"xid": '[codes]\n109 = { action = "none", strength = 0.1 }\n62 = { action = "explode" }\n'}
    )
    assert xids.xid(changed, 109).action == "none"
    assert xids.xid(changed, 109).means == xids.xid(parse(documents()), 109).means
    assert xids.xid(changed, 119).action == "reset_gpu"
    assert xids.xid(changed, 62).action == "probe"


def test_without_tables_nothing_is_known() -> None:
    """An empty knowledge names nobody and asks for nothing."""
    assert xids.xid(Knowledge(), 79).action == "none"
    assert xids.nvlink5(Knowledge(), 149, "NETIR", "fatal", (6, 0)).resolution == "unknown"
    assert xids.nvlink74(Knowledge(), (1 << 16,)) == "unknown"
    assert xids.action_for("xid_79", Knowledge()) == "none"
