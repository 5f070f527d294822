"""Lines of PyTorch's ImageNet example and of timm are steps; their validations are not."""

from __future__ import annotations

from collectors.formats.job_log.vision_lines import report

IMAGENET = "Epoch: [3][ 10/500]\tTime  0.512 ( 0.520)\tData  0.003 ( 0.004)\tLoss 2.3112e+00 (2.4012e+00)\tAcc@1  10.16"
TIMM = "Train: 2 [  50/1251 (  4%)]  Loss: 6.93 (6.94)  Time: 0.412s,  621.36/s  (0.480s,  533.33/s)  LR: 1.000e-05"


def test_a_line_gives_its_newest_batch() -> None:
    """The number is counted through the epochs."""
    assert report(IMAGENET) == ("plain", 1510, {"seconds": 0.512, "loss": 2.3112})
    assert report(TIMM) == ("plain", 2552, {"seconds": 0.412, "loss": 6.93})
    assert report("Epoch [1][0/1000]  Time 0.5 (0.5) Loss nan")[1] == 1000  # type: ignore[index]


def test_other_lines_give_none() -> None:
    """A validation, a line without a loss, and words alone."""
    assert report("Test: [ 20/391]\tTime  0.522 ( 0.520)\tLoss 9.3012e+00 (2.4012e+00)") is None
    assert report("Epoch: [3][ 10/500]\tTime  0.512 ( 0.520)") is None
    assert report("Epoch 3 of 10, Loss 2.0") is None
