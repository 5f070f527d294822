"""The JSON of dcgmi diag: which tests failed, on which GPU, in the forms of its versions."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from collectors.files.reading import read_input
from collectors.formats import Input
from collectors.records import LogEvent, Record, Unread


def report(heading: str, category: str, test: str, **result: Any) -> str:
    """Write a report of one result."""
    tests = [{"name": test, "results": [result]}]
    return json.dumps({heading: {"test_categories": [{"category": category, "tests": tests}]}}, indent=2)


def records(text: str) -> list[Record]:
    """Read a text as a file of that content."""
    data = text.encode()
    return list(read_input(Input("diag.json", io.BytesIO(data), data)))


@pytest.mark.parametrize(
    ("heading", "whose", "named"),
    [
        ("DCGM GPU Diagnostic", {"gpu_ids": "3"}, "GPU 3"),
        ("DCGM Diagnostic", {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 3}, "GPU 3"),
    ],
)
def test_a_test_that_failed_is_an_event(heading: str, whose: dict[str, Any], named: str) -> None:
    """Each form gives the test, the GPU and the warning."""
    (event,) = records(
        report(heading, "Hardware", "memory", status="Fail", warnings=[{"warning": "2 bad rows"}], **whose)
    )

    assert isinstance(event, LogEvent)
    assert event.event == "diagnostic_failed"
    assert all(words in event.text for words in ("memory", named, "2 bad rows"))


def test_what_passes_or_is_of_the_software_is_no_event() -> None:
    """A test that was skipped, that passed, or whose category is the deployment says nothing of a GPU."""
    for category, status in (("Hardware", "Pass"), ("Hardware", "Skip"), ("Deployment", "Fail")):
        assert records(report("DCGM Diagnostic", category, "software", status=status, entity_id=0)) == []


@pytest.mark.parametrize("content", ['{"DCGM Diagnostic": {"test_categories": [{"cat', '{"DCGM Diagnostic": [1, 2]}'])
def test_a_bad_report_costs_itself(content: str) -> None:
    """What is cut off is reported with its reason; what has another shape gives nothing."""
    assert all(isinstance(record, Unread) for record in records(content))
