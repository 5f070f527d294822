"""``dcgmi diag -j``: which tests of which GPUs failed.

Forms: DCGM 2 and 3 give ``gpu_ids`` a result, DCGM 4 ``entity_group`` and ``entity_id``. What fails of the software (its
"Deployment") is no fault of a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from collectors.formats import Damaged, Input, reader
from collectors.records import LogEvent

LIMIT_BYTES = 16 << 20
_HEADINGS = (b'"DCGM Diagnostic"', b'"DCGM GPU Diagnostic"')
_OF_SOFTWARE = frozenset({"deployment", "software", "metadata"})


def _sniff(head: bytes, _source: str) -> int:
    return 95 if head.lstrip().startswith(b"{") and any(heading in head for heading in _HEADINGS) else 0


@reader("dcgm_diag", made_by="dcgmi diag -r 3 -j", gives="which tests of which GPUs failed", sniff=_sniff)
def read(input: Input) -> Iterator[LogEvent]:
    """Yield an event per GPU and test that failed."""
    data = input.stream.read(LIMIT_BYTES)
    try:
        report = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"the JSON of dcgmi diag ends being JSON: {error}") from error
    for category in _list(_first(report), "test_categories"):
        if str(category.get("category", "")).lower() in _OF_SOFTWARE:
            continue
        for test in _list(category, "tests"):
            for result in _list(test, "results"):
                if str(result.get("status", "")).lower() == "fail":
                    yield _failed(str(test.get("name", "a test")), result, input)


def _failed(test: str, result: dict[str, Any], input: Input) -> LogEvent:
    gpu = result.get("gpu_ids", result.get("entity_id", "?"))
    said = "; ".join(str(each.get("warning", "")) for each in _list(result, "warnings"))
    text = f"dcgmi diag: {test} failed on {result.get('entity_group', 'GPU')} {gpu}" + (f": {said}" if said else "")
    return LogEvent(event="diagnostic_failed", node=input.node, source=input.source, at=input.at, text=text[:500])


def _first(report: object) -> dict[str, Any]:
    return next((value for value in report.values() if isinstance(value, dict)), {}) if isinstance(report, dict) else {}


def _list(of: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = of.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
