"""Steps as people print them themselves: pairs of a name and a value, in any order and any unit."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.step_lines import read_step
from collectors.records import Steps

OF_A_STEP = (
    "batch=40 loss=2.31 sec=0.25",
    "batch 7 of 100 loss 2.31 time 0.25s",
    "step 40 (0.25 s) loss 2.31",
    "step 40 loss 2.31 took 0.250s",
    "step 40 loss 2.31 | step took 0.250s",
    "step=40 loss=2.31 step_time=0.25",
    "step=40 loss=2.31 step_time_ns=250000000",
    "step=40 loss=2.31 iter_ms=250",
    "step: 40, loss: 2.31, sec/step: 0.25",
    "step 40 loss 2.31 dt 250.00ms",
    "step 40 loss 2.31 time 250000000ns",
    "step 40 loss 2.31 fwd_time=0.1s bwd_time=0.14s step_time=0.25",
    'ts=2026-11-22T10:00:01Z level=info msg="train" step=40 loss=2.31 step_duration=250ms',
    "it 40/1000 loss 2.31 lr 1e-4 4.0 it/s",
)
WITHOUT_LOSS = (
    "step 40 (0.25 s)",
    "2026-11-22 10:00:01 INFO train: step 40/1000 took 0.250s",
    "Step 40 finished in 250 ms",
    "step=40 step_time=0.25 lr=1e-4",
    "it 40/1000 lr 1e-4 4.0 it/s",
    "batch 7 of 100 (0.25 s)",
)
NO_DURATION = (
    "step 40 loss 2.31 eval_time=0.25s",
    "step 40 loss 2.31 data_time=0.25",
    "step 40: loss 2.31 checkpoint time 12 s",
    "step 40 loss 2.31 forward took 0.1s",
    "step 40 loss 2.31 timestamp=1795341601.2",
    "step 40 loss 2.31 elapsed=360.0",
    "step 40: loss 2.31 | ref_logprob took 1.514 s",
    "step 40: loss 2.31, env.step took 1.520 s",
    "step 40: loss 2.31, tokenize: took 1.520 s",
    "step=40 loss=2.31 dt=2026-11-29T10:00:01",
    "step=40 loss=2.31 dt=1795946400",
    "step=40 loss=2.31 step_time=2026-11-29T10:00:01",
)
NO_STEP = (
    "saved checkpoint at step 40 took 12 s",
    "step 40: saving checkpoint took 12 s",
    "step 40: eval took 12 s",
    "Train time/batch: 40",
    "dispatch 40 took 3 s",
    "resuming from step 40 took 12 s",
    "warmup_steps=40 step_time=0.25",
    "step 40 of the installation (0.25 s)",
)


@pytest.mark.parametrize("text", [*OF_A_STEP, *WITHOUT_LOSS])
def test_a_step_has_its_duration_whatever_the_form(text: str) -> None:
    """Batches are counted anew with every epoch, and have no number."""
    found = read_step(peel(1, text))
    assert found is not None
    assert found.step == (-1 if "atch" in text else 40)
    assert found.seconds == pytest.approx(0.25)
    assert found.loss == pytest.approx(2.31 if text in OF_A_STEP else math.nan, nan_ok=True)


@pytest.mark.parametrize("text", NO_DURATION)
def test_what_something_else_took_is_no_duration_of_a_step(text: str) -> None:
    """Nor is what has elapsed since the start."""
    found = read_step(peel(1, text))
    assert found is not None
    assert math.isnan(found.seconds)


@pytest.mark.parametrize("text", NO_STEP)
def test_what_is_done_at_a_step_is_none(text: str) -> None:
    """A checkpoint takes long, and an evaluation changes no weight."""
    assert read_step(peel(1, text)) is None


WRITTEN = {
    "nanotron": (
        "11/22/2026 10:00:01 [INFO|DP=0|PP=0|TP=0|node-1]: iteration: 40 / 6000 | consumed_tokens: 160M | "
        "elapsed_time_per_iteration_ms: 250 | tokens_per_sec: 4.1K | lm_loss: 2.31 | lr: 0.0003 | grad_norm: 0.8"
    ),
    "t5x": (
        "I1122 10:00:01.123456 140 logging_writer.py:48] [40] train/loss=2.31, train/accuracy=0.4, "
        "timing/steps_per_second=4.0"
    ),
    "ms-swift": (
        "{'loss': 2.31, 'grad_norm': 0.81, 'learning_rate': 9e-05, 'train_speed(iter/s)': 4.0, 'epoch': 0.04, "
        "'global_step/max_steps': '40/6000', 'percentage': '0.67%', 'elapsed_time': '5m 8s'}"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_a_framework_s_line_gives_number_loss_and_seconds(name: str) -> None:
    """As each prints it."""
    found = read_step(peel(1, WRITTEN[name]))
    assert found is not None
    assert (found.step, found.loss, found.seconds) == (40, 2.31, 0.25)


def test_a_table_that_rich_draws_has_steps(tmp_path: Path) -> None:
    """Between its header and its end."""
    rows = "".join(f"│ {n:4d} │ 2.{n:03d} │ 0.{250 + n % 3}    │\n" for n in range(1, 60))
    head = "┏━━━━━━┳━━━━━━━┳━━━━━━━━━━┓\n┃ Step ┃ Loss  ┃ Time (s) ┃\n┡━━━━━━╇━━━━━━━╇━━━━━━━━━━┩\n"
    (tmp_path / "train.log").write_text(f"{head}{rows}└──────┴───────┴──────────┘\n", encoding="utf-8")
    (found,) = [one for one in read_paths([tmp_path]) if isinstance(one, Steps)]
    assert (found.count, found.step) == (59, 59)


def test_a_number_of_composer_may_stand_behind_a_logger_s_name(tmp_path: Path) -> None:
    """As llm-foundry's does."""
    form = (
        "2026-11-22 10:{m:02d}:{s:02d},123: rank0[1234][MainThread]: INFO: llmfoundry.command_utils.train: [batch={n}/4800]:\n"
        "\t Train time/batch: {n}\n\t Train loss/train/total: 2.31\n\t Train throughput/batches_per_sec: 0.8\n"
    )
    text = "".join(form.format(n=n, m=n // 60, s=n % 60) for n in range(1, 60))
    (tmp_path / "train.log").write_text(text, encoding="utf-8")
    (found,) = [one for one in read_paths([tmp_path]) if isinstance(one, Steps)]
    assert (found.count, found.step) == (59, 59)


def test_nodes_of_skypilot_are_apart(tmp_path: Path) -> None:
    """Its prefix numbers nodes, and not ranks of the job."""
    text = "".join(
        f"({of}, pid=43{of[-2:]}) step {n} loss 2.31 dt 250.00ms\n"
        for n in range(40)
        for of in ("head, rank=0", "worker1, rank=1")
    )
    (tmp_path / "run.log").write_text(text.replace("pid=43=", "pid=43"), encoding="utf-8")
    found = [one for one in read_paths([tmp_path]) if isinstance(one, Steps)]
    assert [(one.count, one.rank, one.node) for one in found] == [(40, None, "head"), (40, None, "worker1")]
