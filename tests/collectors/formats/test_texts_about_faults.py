"""Texts in which errors stand that happened to no job: reports of test runs, lessons, rules that watch for faults."""

from __future__ import annotations

import pytest

from analyzers.knowledge import Knowledge
from collectors.formats.prose.lessons import is_lesson
from collectors.formats.prose.test_runs import is_test_run
from collectors.formats.prose.watch_rules import is_watch_rules
from service import packaged_knowledge
from tests.analyzers.diagnosis.reported.excerpts import verdict_on

TEST_RUN = """tests/test_gather.py ..F..                       [ 50%]
E   RuntimeError: CUDA error: an illegal memory access was encountered
trainer/gather.py:31: RuntimeError
FAILED tests/test_gather.py::test_of_two - RuntimeError: CUDA error: an illegal memory access was encountered
1 failed, 9 passed in 4.20s
"""
LESSON = """Device asserts explained
If you see the following in your run, a label is out of range:
RuntimeError: CUDA error: device-side assert triggered
Common causes
- Check the labels of the last layer
- Set CUDA_LAUNCH_BLOCKING=1
"""
RULES = """groups:
  - name: gpus
    rules:
      - alert: GpuFell
        expr: increase(xid_total{xid="79"}[5m]) > 0
        annotations:
          description: "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus. Drain it."
"""
CHECKED_FIRST = """============================= test session starts ==============================
checks/test_fabric.py ....                                               [100%]
============================== 4 passed in 3.21s ===============================
[rank3]: Traceback (most recent call last):
[rank3]:   File "/app/run.py", line 61, in main
[rank3]:     loss = model(batch["ids"])
[rank3]: KeyError: 'ids'
"""
REPORT = """RuntimeError: CUDA error: device-side assert triggered
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.mark.parametrize("text", [TEST_RUN, LESSON, RULES], ids=["test run", "lesson", "rules"])
def test_what_happened_to_no_job_has_no_cause(text: str) -> None:
    """Nothing is named: an error that a test, a guide or an alert quotes is no failure of a job."""
    knowledge: Knowledge = packaged_knowledge.load(None)

    verdict = verdict_on(text, knowledge)

    assert verdict is None or not verdict.culprits


def test_a_job_whose_checks_passed_before_it_is_judged() -> None:
    """The checks are tests too, and what follows them is the job's own end."""
    verdict = verdict_on(CHECKED_FIRST, packaged_knowledge.load(None))

    assert verdict is not None
    assert verdict.cause == "code"


def test_each_is_recognised_by_its_own_marks() -> None:
    """No text is taken for another, and a line that a job printed is none of them."""
    recognised = [
        [each(text) for each in (is_test_run, is_lesson, is_watch_rules)] for text in (TEST_RUN, LESSON, RULES, REPORT)
    ]

    assert recognised == [[True, False, False], [False, True, False], [False, False, True], [False, False, False]]


@pytest.mark.parametrize(
    "sentence",
    ["We get this on node 4:", "2026-11-26 10:00:02 ERROR rank 3 ended", "2026-11-26T10:00:02Z rank 3 ended"],
)
def test_what_is_reported_is_no_lesson(sentence: str) -> None:
    """A person's report or a clock's stamp outweighs headings and commands."""
    assert is_lesson(LESSON)
    assert not is_lesson(sentence + "\n" + LESSON)
