"""Megatron-LM's and NeMo's lines: the work of a step by its sizes, and what is odd about one."""

from __future__ import annotations

import pytest

from collectors.formats.job_log.megatron_lines import APPLIED, SOME, report
from tests.collectors.formats.test_log_steps import megatron, read
from tests.support.live_hangs import verdict
from tests.support.sentences import numbers_in

LINE = " iteration 10/ 500 | elapsed time per iteration (ms): 2000.0 | global batch size: {} | lm loss: 2.5E+00 | {}"
NEMO = (
    "Training epoch 0, iteration 1/99 | global_batch_size: 512 | reduced_train_loss: 9.9 | train_step_timing in s: 2.0"
)


@pytest.mark.parametrize(
    ("line", "rates"),
    [
        (LINE.format(256, ""), {"samples_per_second": 128.0}),
        (
            LINE.format(256, "curriculum seqlen: 1024 | TFLOPs: 150.1 |"),
            {"tokens_per_second": 131072.0, "tflops": 150.1},
        ),
        (LINE.format(256, "throughput per GPU (TFLOP/s/GPU): 420.1 |"), {"tflops": 420.1}),
        (LINE.format(256, "tokens/sec: 9 |"), {"tokens_per_second": 9.0}),
        (LINE.format("none", ""), {}),
        (NEMO, {"samples_per_second": 256.0}),
    ],
)
def test_the_work_a_second_by_the_sizes_of_a_step(line: str, rates: dict[str, float]) -> None:
    """A larger batch and longer sequences are more work; a rate that is printed knows more than the batch."""
    found = report(line)
    assert found is not None
    names = ("tokens_per_second", "samples_per_second", "tflops")
    assert {name: found[2][name] for name in names if name in found[2]} == rates


def lost(step: int, nan: int, skipped: int, loss: str = "2.5E+00") -> str:
    """A line of ten iterations, of which some had no loss."""
    line = megatron(10 * step, loss, skipped=skipped)
    return line.replace("nan iterations:   0", f"nan iterations:  {nan:2d}")


@pytest.mark.parametrize("skipped", [0, 7])
@pytest.mark.parametrize(("newest", "since"), [(4, [570]), (3, None)])
def test_a_loss_that_some_iterations_of_each_line_lack_is_none(
    skipped: int, newest: int, since: list[int] | None
) -> None:
    """The loss that is printed is the mean of the others; now and then is nothing."""
    earlier = "".join(lost(step, int(step == 30), 0) for step in range(1, 57))
    log = earlier + "".join(lost(step, 7, skipped) for step in range(57, 57 + newest))
    judged = verdict(read(log))
    assert (judged.symptom == "numeric") == (since is not None)
    assert since is None or numbers_in(judged.evidence[0].text) == since


@pytest.mark.parametrize(("scale", "symptom"), [("1.0", "numeric"), ("2.0", "unknown")])
def test_steps_that_are_all_skipped_at_the_smallest_loss_scale_are_reported(scale: str, symptom: str) -> None:
    """No smaller scale repairs a norm that is NaN at 1; at another one the search may go on."""
    sound = "".join(megatron(step, scale="65536.0") for step in range(1, 41))
    dead = "".join(megatron(step, "", "nan", 1, scale).replace("lm loss:  | ", "") for step in range(41, 60))
    judged = verdict(read(sound + dead))
    assert judged.symptom == symptom
    assert symptom == "unknown" or numbers_in(judged.evidence[0].text) == [41]


def test_bits_of_what_is_odd() -> None:
    """Of the column ``nan``."""
    whole, some = report(megatron(1, norm="nan", skipped=1)), report(lost(1, 1, 1))
    assert whole is not None
    assert some is not None
    assert (whole[2]["odd"], some[2]["odd"]) == (APPLIED, SOME)
