"""Megatron-LM's and NeMo's lines: what is odd about one."""

from __future__ import annotations

import pytest

from collectors.formats.job_log.megatron_lines import APPLIED, SOME, report
from tests.collectors.formats.test_log_steps import megatron, read
from tests.support.live_hangs import verdict
from tests.support.sentences import numbers_in


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
