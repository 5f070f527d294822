"""A log of a job that stood still until somebody pressed Ctrl-C: it was ended, it did not crash, and what held it up is open."""

from __future__ import annotations

import io

import pytest

from analyzers.model.verdict import Verdict
from collectors.files.reading import read_input
from collectors.formats import Input
from service.reports import text
from tests.analyzers.verdict.test_ended_from_outside import verdict_on

WRITTEN_AT = 1_795_261_000.0  # 2026-11-21T11:36:40Z
STEP = "2026-11-21 11:{}:{:06.3f} INFO gpt: step {} | loss {:.4f} | grad_norm 0.4{} | lr 3.0e-04 | 400 ms/step\n"
STEPS = "".join(
    STEP.format("30", 10 + 0.4 * step, step, 2.0 - step / 100, step % 10).replace(".", ",", 1)
    for step in range(1, 60)
)  # fmt: skip
ELASTIC = "W1121 11:{}.900000 71 torch/distributed/elastic/"
ENDED = (
    ELASTIC + "agent/server/api.py:753] Received {} death signal, shutting down workers\n"
    + ELASTIC + "multiprocessing/api.py:1028] Sending process 91 closing signal {}\n"
)  # fmt: skip
GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.4]:{}. "
    "This is typically caused by a remote worker crashing.\n"
)
BROKEN_OFF = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/w/train.py", line 61, in <module>\n'
    "[rank2]:     main()\n"
    '[rank2]:   File "/w/train.py", line 30, in evaluate\n'
    "[rank2]:     time.sleep(5)\n"
    "[rank2]: KeyboardInterrupt\n"
)
LOST = "".join(
    f"[rank{rank}]: Traceback (most recent call last):\n"
    f'[rank{rank}]:   File "/w/train.py", line 44, in main\n'
    f"[rank{rank}]:     loss.backward()\n"
    f"[rank{rank}]: {GLOO.format(4100 + rank)}\n"
    f"[rank{rank}]: During handling of the above exception, another exception occurred:\n\n"
    f"[rank{rank}]: Traceback (most recent call last):\n"
    f'[rank{rank}]:   File "/w/train.py", line 44, in main\n'
    f"[rank{rank}]:     loss.backward()\n"
    f"[rank{rank}]: KeyboardInterrupt\n"
    for rank in (0, 1, 3)
)


def ended(at: str, number: int = 2, name: str = "SIGINT") -> str:
    """The launcher's lines of an end from outside."""
    return ENDED.format(at, number, at, name)


def judged(written: str) -> Verdict:
    """The verdict on a log that was last written on that day: torchrun's own lines state no year."""
    data = written.encode()
    return verdict_on(list(read_input(Input("train.log", io.BytesIO(data), data, at=WRITTEN_AT))))


def said(verdict: Verdict) -> str:
    """The report, on one line."""
    return " ".join(text.render(verdict).split())


@pytest.mark.parametrize(("number", "name"), [(2, "SIGINT"), (15, "SIGTERM")])
@pytest.mark.parametrize("after", ["", BROKEN_OFF + LOST])
def test_a_hang_that_was_ended_by_hand_is_no_crash(number: int, name: str, after: str) -> None:
    """The steps stopped five minutes before: what held the job up is not decided, and nothing is rolled back or restarted."""
    verdict = judged(STEPS + ended("35:40", number, name) + after)
    page = said(verdict)

    assert (verdict.symptom, verdict.cause, verdict.abstained) == ("hang", "unknown", True)
    assert verdict.action.kind == "none"
    assert verdict.first_symptom is not None
    assert verdict.first_symptom.at == "2026-11-21T11:30:33.600Z"
    assert "step 59" in verdict.first_symptom.text
    assert name in page
    assert "2026-11-21 11:30:33 UTC" in page
    assert any(one.matters and "stacks" in one.what for one in verdict.missing)
    assert "Do not stop any process" not in page  # it has ended
    assert "without fault" not in page  # any of them may have held the others up
    assert not after or "in evaluate (/w/train.py:30)" in page


def test_a_running_job_that_was_ended_by_hand_is_no_crash_of_its_ranks() -> None:
    """Connections that break after the launcher was interrupted follow from that."""
    verdict = judged(STEPS + ended("30:34") + BROKEN_OFF + LOST)

    assert (verdict.cause, verdict.action.kind) == ("platform", "none")
    assert [culprit.kind for culprit in verdict.culprits] == ["platform"]


def test_connections_that_broke_before_the_end_are_no_part_of_it() -> None:
    """A rank that was lost is lost, whoever ends the others afterwards."""
    verdict = judged(STEPS + LOST + ended("35:40"))

    assert verdict.cause != "platform"
    assert verdict.symptom == "crash"


def test_a_rank_that_failed_is_the_root_of_a_job_that_was_then_ended() -> None:
    """Its exception came first, and is no end from outside."""
    raised = BROKEN_OFF.replace("KeyboardInterrupt", "KeyError: 'tokens'")
    verdict = judged(STEPS + raised + LOST + ended("30:36"))

    assert (verdict.symptom, verdict.cause) == ("crash", "code")
