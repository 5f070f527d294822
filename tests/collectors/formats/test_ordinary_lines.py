"""What a training job prints while it is well is nearly all of a log: it costs a look, not a reading."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from collectors.formats.job_log import late_steps
from tests.collectors.formats.test_text_evidence import read

LINES = 4_000
MOST_CALLS = 15  # of functions, a line; to read a step takes forty and more

MEGATRON = (
    " [2026-11-21 10:00:{second:02}] iteration {step:8d}/ 900000 | consumed samples: {step} | elapsed time per iteration (ms): "
    "512.3 | learning rate: 1.0E-04 | global batch size: 256 | lm loss: 2.1E+00 | loss scale: 1.0 | grad norm: 0.{step} |"
)
SKIPPED = " number of skipped iterations:   0 | number of nan iterations:   0 |"
ORDINARY = {
    "Megatron-LM": MEGATRON + SKIPPED,
    "Megatron-LM, a line that ends in a bar": MEGATRON,
    "Megatron-LM, ranked": "[rank{rank}]:" + MEGATRON,
    "Megatron-LM, tee": "[default{rank}]:" + MEGATRON,
    "TorchTitan": "[rank{rank}]:[titan] 2026-11-21 10:00:{second:02},101 - root - INFO - step: {step}  loss:  2.{step}  "
    "grad_norm:  0.9  memory: 70.10GiB(88.5%)  tps: 7,012  tflops: 410.2  mfu: 41.47%",
    "transformers": "{{'loss': 2.{step}, 'grad_norm': 0.9, 'learning_rate': 5e-05, 'epoch': 0.{step}}}",
    "a plain print": "[rank{rank}]: epoch 3 | step {step} | loss 2.{step} | lr 0.0001 |",
    "a loader": "[rank{rank}]: 2026-11-21 10:00:{second:02} INFO prefetched shard {step:05} of part-{rank:04}.tar",
    "NCCL": "gpu-{rank}:4000{rank}:4100{rank} [{rank}] NCCL INFO Channel {second:02}/0 : {rank} -> 7 via P2P/CUMEM",
    "a request served": 'INFO:     10.0.0.{rank}:{step} - "POST /v1/completions HTTP/1.1" 200 OK',
    "a warning that was got over": "[rank{rank}]: 10:00:{second:02} WARNING reader: shard {step:05} is slow, asked again",
}


def calls_in_reading(text: str) -> int:
    """Count the calls of the program's own functions while a text is read."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        read(text)
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("kind", ORDINARY)
def test_an_ordinary_line_is_passed_over(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the lines that report steps only the newest are read, and no other line is, with more than a few calls a line."""
    monkeypatch.setattr(late_steps, "MOST_OF_PROCESS", 10)
    monkeypatch.setattr(late_steps, "MOST_OF_UNKNOWN", 10)
    of_kind = [ORDINARY[kind].format(rank=n % 8, step=n // 8, second=n // 8 % 60) for n in range(LINES)]
    mixed = [line for each in of_kind for line in (each, "[rank3]: samples wait for the next batch")]

    assert calls_in_reading("\n".join(of_kind)) < MOST_CALLS * LINES, kind
    assert calls_in_reading("\n".join(mixed)) < MOST_CALLS * len(mixed), kind
