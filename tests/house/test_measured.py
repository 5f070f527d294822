"""The rows of docs/measured/README.md about cost say what the documents of the bench hold.

The bench is run anew more often than people read its page: ``pytest tests/house/test_measured.py --rewrite`` writes the rows from
``cost.md``, in which each figure is a place in a document.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY

MEASURED = REPOSITORY / "docs" / "measured"
PAGE = MEASURED / "README.md"
TEMPLATE = Path(__file__).with_name("cost.md")
DOCUMENTS = ("agent", "bench_torchfrtrace", "engine", "probe", "reading", "service", "slow_judgement")
PLACE = re.compile(r"(?<=<!-- cost -->\n).*(?=<!-- end of cost -->)", re.DOTALL)


def documents() -> dict[str, Any]:
    """Return what the bench wrote."""
    return {name: json.loads((MEASURED / f"{name}.json").read_text(encoding="utf-8")) for name in DOCUMENTS}


def test_the_page_says_what_was_measured(rewrite: bool) -> None:
    """Every figure about cost is that of its document."""
    page, rows = PAGE.read_text(encoding="utf-8"), TEMPLATE.read_text(encoding="utf-8").format(**documents())
    if rewrite:
        page = PLACE.sub(lambda _found: rows, page)
        PAGE.write_text(page, encoding="utf-8")

    assert [found.group() for found in PLACE.finditer(page)] == [rows]


def test_what_the_rows_claim_in_words_holds() -> None:
    """Where they say that an answer is right, that the peer ends in an error, or is nearly as fast."""
    found = documents()
    against = {row["folder"]: row for row in found["bench_torchfrtrace"]["rows"]}

    assert all(row["faulthound"]["right"] for row in against.values())
    assert against["one rank missing, 512 ranks"]["torchfrtrace"]["right"]
    assert against["hosts ran ahead, 512 ranks"]["torchfrtrace"]["right"]
    assert against["hosts ran ahead, 512 ranks"]["whole_process_ratio"] < 4
    assert against["pipeline, 512 ranks"]["torchfrtrace"]["crashed"]
    assert found["reading"]["reading"]["right"]
    assert all(size["right"] for size in found["slow_judgement"]["sizes"])
