"""Steps of post-training frameworks, each by its own line; lines that look like one and are none."""

from __future__ import annotations

import io
import math
from array import array

import pytest

from collectors.formats import Input
from collectors.formats.job_log import job_log, rl_steps
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.step_lines import read_step
from collectors.formats.text_evidence import read as read_text
from collectors.records import LogEvent, Steps

NEMO = """========================= Step 41/100 =========================
▶ Preparing batch...
▶ Generating responses for batch of size 64...

📊 Training Results:
  • Loss: 0.1032
  • Avg Reward: 0.3486

⏱️  Timing:
  • Total step time: 66.55s
  • generation: 32.52s (48.9%)
"""
LINES = {
    "slime": (
        (
            "(MegatronTrainRayActor pid=812, ip=10.0.0.4) [2026-04-15 07:57:53] model.py:590 - step 41: {'train/loss': 0.25, "
            "'train/pg_loss': -0.01, 'train/grad_norm': np.float64(1.5), 'train/lr-pg_0': 1e-06, 'train/step': 41}"
        ),
        "slime",
        {"loss": 0.25, "gradient_norm": 1.5},
    ),
    "openrlhf": (
        (
            "(PPOTrainer pid=77) 2026-04-15 07:57:53 INFO ✨ Global step 41: {'policy_loss': 0.024, 'actor_lr': 5e-07, "
            "'reward': 0.4, 'timing/make_experience': 60.5, 'timing/ppo_train': 20.0, 'timing/step_total': 82.5}"
        ),
        "openrlhf",
        {"loss": 0.024, "seconds": 82.5},
    ),
    "areal": (
        "20260415-07:57:53.001 StatsLogger INFO: Epoch 2/10 Step 12/29 Train step 41/290 done.",
        "areal",
        {},
    ),
    "roll": ("[2026-04-15 07:57:53] [rlvr_pipeline.py (553)] [INFO] pipeline step 41 finished", "roll", {}),
}
AREAL_STAMP = 1776239873.001
NONE = [
    "critic-step 41: {'train/critic-loss': 0.5, 'train/critic-grad_norm': 2.0}",  # of another model: it has the same numbers
    "step 41: {'rollout/raw_reward': 0.5}",
    "step 41: {'train/loss': <Tensor object>}",
    "step 41: {'train/loss': __import__('os')}",
    "step 41: {" + "[" * 5000 + "}",
    "pipeline step 41 start...",
    "Epoch 2/10 Step 12/29 Train step 41/290 failed.",
    "pipeline step 41 finished uploading",
]


@pytest.mark.parametrize("case", LINES)
def test_a_line_reports_a_step(case: str) -> None:
    """The number and the values that its framework prints."""
    text, layout, values = LINES[case]
    found = read_step(peel(1, text))
    assert found is not None
    assert (found.layout, found.step) == (layout, 41)
    given = {"loss": found.loss, "gradient_norm": found.gradient_norm, "seconds": found.seconds}
    assert {name: value for name, value in given.items() if not math.isnan(value)} == values


@pytest.mark.parametrize("text", NONE)
def test_other_lines_report_none(text: str) -> None:
    """Another model's step, a step's beginning, and what no Python literal is."""
    assert read_step(peel(1, text)) is None


def _read(text: str, *, by_line: bool) -> list[object]:
    data = text.encode()
    input = Input("train.log", io.BytesIO(data), data)
    return list(read_text(input) if by_line else job_log.read(input))


@pytest.mark.parametrize("by_line", [True, False])
def test_a_number_above_and_a_duration_below_are_one_step(by_line: bool) -> None:
    """Of several steps each has its own duration; one that did not end has none."""
    text = (
        NEMO
        + NEMO.replace("41/100", "42/100").replace("66.55", "70.5")
        + NEMO.replace("41/100", "43/100").partition("⏱️")[0]
    )
    (steps,) = (one for one in _read(text, by_line=by_line) if isinstance(one, Steps))
    numbers, seconds = array("q", steps.columns["step"]), array("d", steps.columns["seconds"])
    assert (steps.told_by, list(numbers), list(seconds)) == ("nemo_rl", [41, 42], [66.55, 70.5])


def test_a_nan_of_a_framework_is_told() -> None:
    """Python prints it as a word that no literal is."""
    line = LINES["slime"][0].replace("'train/loss': 0.25", "'train/loss': nan")
    found = _read(line, by_line=True)
    assert [one.event for one in found if isinstance(one, LogEvent)] == ["nan"]
    (steps,) = (one for one in found if isinstance(one, Steps))
    assert list(array("b", steps.columns["nan"])) == [1]


PHASES = {
    "begun": (["Timer train_wait start", "Timer train_wait end (elapsed: 3.1s)", "Timer train start"], "train"),
    "nested": (["Timer train start", "Timer log_probs start"], "log_probs"),
    "an inner one ended": (
        ["Timer train start", "Timer log_probs start", "Timer log_probs end (elapsed: 1.0s)"],
        "train",
    ),
    "between two": (["Timer update_weights start", "Timer update_weights end (elapsed: 2.0s)"], ""),
    "an end alone": (["Timer train end (elapsed: 20.0s)"], ""),
    "nemo": (
        ["▶ Preparing batch...", "▶ Generating responses for batch of size 64..."],
        "generating responses",
    ),
    "stamped": (["[2026-04-15 07:57:53] timer.py:24 - Timer update_weights start"], "update_weights"),
    "an actor's, in its driver's log": (["(MegatronTrainRayActor pid=812) Timer train start"], None),
    "prose": (["Timer train starts soon", "the Timer train started", "Timer train end"], None),
}


@pytest.mark.parametrize("case", PHASES)
def test_a_log_tells_of_phases(case: str) -> None:
    """The innermost phase that has not ended, by the process's own lines alone."""
    lines, expected = PHASES[case]
    reported = rl_steps.Phases()
    for number, text in enumerate(lines):
        reported.take(peel(number, text))
    newest = reported.newest()
    assert (None if newest is None else newest[0]) == expected


def test_the_stamp_of_areal_and_the_length_of_answers_are_read() -> None:
    """Steps that take longer for longer answers do as much a second."""
    (areal, *_), (openrlhf, *_) = LINES["areal"], LINES["openrlhf"]
    found = read_step(peel(1, areal))
    assert found is not None
    assert found.at == pytest.approx(AREAL_STAMP)
    found = read_step(peel(1, openrlhf.replace("'reward'", "'response_length': 825.0, 'reward'")))
    assert found is not None
    assert found.tokens_per_second == pytest.approx(10.0)
