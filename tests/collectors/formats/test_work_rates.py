"""The work that a line reports for a second, before or after its name."""

from __future__ import annotations

import pytest

from collectors.formats.job_log.work_rates import rate_by_size, work_rates


@pytest.mark.parametrize(
    ("text", "tokens", "samples"),
    [
        ("step 3 loss 2.3 12345 tok/s 1.2 s/it", 12345.0, None),
        ("loss 2.31 samples/s 128.3", None, 128.3),
        ("loss 2.31 samples/s 128.3 lr 0.1", None, 128.3),
        ("loss 2.31 img/s: 128.3 (40 ms)", None, 128.3),
        ("loss: 2.31, 12 samples/s", None, 12.0),
        ("3 images/sec, 3.5 tokens per second", 3.5, 3.0),
        ("tokens_per_second: 55", 55.0, None),
        ("avg samples/s: 10", None, None),
        ("data loading: 95000 tok/s, 300 samples/s", None, 300.0),
        ("128 samples/s (avg)", None, None),
        ("8.25k tok/s, 3 sequences/s", 8250.0, 3.0),
        ("12.3.4.5 samples/s", None, None),
        ("12,345.5 tok/s | 3 k images/s", 12345.5, 3000.0),
        ("tokens/s: 1.25M, loss 2", 1.25e6, None),
        ("tokens/s 7,012, loss 2", 7012.0, None),
        ("8 it/s", None, None),
    ],
)
def test_rates_of_work(text: str, tokens: float | None, samples: float | None) -> None:
    """Tokens, or samples, images and examples; steps a second are no work, and means say nothing of one step."""
    found = work_rates(text)
    assert (found.get("tokens_per_second"), found.get("samples_per_second")) == (tokens, samples)


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        ({"batch_size": 8}, {"samples_per_second": 4.0}),
        ({"batch_size": 8, "grad_accum": 6}, {"samples_per_second": 24.0}),
        ({"global_batch_size": 48, "batch_size": 8, "grad_accum": 6}, {"samples_per_second": 24.0}),
        ({"batch_size": 8, "seq_len": 1000}, {"tokens_per_second": 4000.0}),
        ({"batch_size": True}, {}),
        ({"seq_len": 1000}, {}),
    ],
)
def test_the_work_of_a_step_by_its_batch(given: dict[str, object], rates: dict[str, float]) -> None:
    """Of a step of two seconds."""
    assert rate_by_size(given, 2.0) == rates
    assert rate_by_size(given, 0.0) == rate_by_size(given, float("nan")) == {}
