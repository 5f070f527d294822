"""Steps of further trainers, as their own format strings print them."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.records import Steps

STAMP = "2026-11-28 10:00:{:02d}"
LITGPT = "Epoch 1 | iter {n} step 25 | loss train: 2.345, val: n/a | iter time: 350.12 ms (step)"
LITGPT_LORA = "iter {n} | step 25: loss 2.345, iter time: 350.12 ms (optimizer.step)"
TORCHVISION = (
    "Epoch: [0]  [{n:5d}/5005]  eta: 1:02:03  lr: 0.1  img/s: 731.0  loss: 2.345 (6.95)  time: 0.35012  data: 0.0200"
)
DINO = "Epoch: [0/300]  [{n:5d}/1251]  eta: 1:23:45  loss: 2.345 (2.9)  time: 0.35012  data: 1.2000  max mem: 8000"
DETECTRON2 = (
    "[11/28 10:00:{s:02d} d2.utils.events]:  eta: 0:10:00  iter: {n}  total_loss: 2.345  loss_cls: 0.5  time: 0.35012  "
    "last_time: 0.33  data_time: 0.01  last_data_time: 0.00  lr: 0.0001  max_mem: 3000M"
)
FAIRSEQ = (
    "2026-11-28 10:00:{s:02d} | INFO | train_inner | epoch 001:    {n} / 1000 loss=2.345, nll_loss=9.1, ppl=500, wps=12000, "
    "ups=2.85616, wpb=24000, bsz=800, num_updates={n}, lr=0.0001, gnorm=2.1, clip=0, train_wall=200, wall=220"
)
FAIRSEQ_JSON = (
    '2026-11-28 10:00:{s:02d} | INFO | train_inner | {{"epoch": 1, "update": 0.1, "loss": "2.345", "nll_loss": "9.1", '
    '"wps": "12000", "ups": "2.85616", "num_updates": "{n}", "lr": "0.0001", "gnorm": "2.1", "wall": "220"}}'
)
OPEN_CLIP = (
    "2026-11-28,10:00:{s:02d} | INFO | Train Epoch: 0 [{n:8d}/12000000 (4%)] Data (t): 0.021 Batch (t): 0.35012, 4500.1/s, "
    "560.1/s/gpu LR: 0.000500 Logit Scale: 14.286 Contrastive_loss: 8.1 (8.3) Loss: 2.345 (8.3000)"
)
NUMBERS = list(range(40, 60))


def read(tmp_path: Path, text: str) -> Steps:
    """Read a text as a log without a log's name."""
    (tmp_path / "output").write_text(text, encoding="utf-8")
    (found,) = [one for one in read_paths([tmp_path / "output"]) if isinstance(one, Steps)]
    return found


def column(record: Steps, name: str, kind: str = "d") -> list[float]:
    """Return a column's values."""
    return array(kind, record.columns[name]).tolist()


@pytest.mark.parametrize(
    "form",
    [LITGPT, LITGPT_LORA, TORCHVISION, DINO, DETECTRON2, FAIRSEQ, FAIRSEQ_JSON],
    ids=["litgpt", "litgpt lora", "torchvision", "dino", "detectron2", "fairseq", "fairseq json"],
)
def test_a_line_gives_number_loss_and_seconds(form: str, tmp_path: Path) -> None:
    """Of lines with means in brackets the newest values; of updates a second what one takes."""
    found = read(tmp_path, "".join(form.format(n=n, s=n) + "\n" for n in NUMBERS))

    assert column(found, "step", "q") == NUMBERS
    assert column(found, "loss") == pytest.approx([2.345] * 20)
    assert column(found, "seconds") == pytest.approx([0.35012] * 20, rel=1e-4)


def test_lines_of_samples_are_steps_without_a_number(tmp_path: Path) -> None:
    """open_clip counts the samples of an epoch."""
    found = read(tmp_path, "".join(OPEN_CLIP.format(n=512 * n, s=n) + "\n" for n in NUMBERS))

    assert (found.count, found.step) == (20, None)
    assert column(found, "seconds") == pytest.approx([0.35012] * 20)
    assert column(found, "samples_per_second") == pytest.approx([4500.1] * 20)
    assert column(found, "at")[1] - column(found, "at")[0] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "line",
    [
        "Test:  [  {n}/100]  eta: 0:00:10  loss: 1.9 (1.95)  time: 0.35  data: 0.02",
        "iter {n}: val loss 2.3456, val time: 1200.00 ms",
        '2026-11-28 10:00:00 | INFO | valid | {{"epoch": 1, "valid_loss": "8.8", "valid_num_updates": "{n}"}}',
        "[Eval batch={n}/100] Eval on eval data:",
    ],
)
def test_their_evaluations_are_no_steps(line: str, tmp_path: Path) -> None:
    """They pass more quickly, and change no weight."""
    (tmp_path / "output.log").write_text("".join(line.format(n=n) + "\n" for n in NUMBERS), encoding="utf-8")

    assert not [one for one in read_paths([tmp_path / "output.log"]) if isinstance(one, Steps)]


OLMO = (
    "2026-11-28 10:00:{s:02d}.250\tnode-0:0\tolmo_core.train.callbacks.console_logger:60\tINFO\t[step={n}/10000,epoch=1,eta=3h]\n"
    "    optim/total grad norm=0.307\n    throughput/device/BPS=0.411\n    throughput/device/TPS=9,447\n"
    "    train/CE loss={loss}\n    train/PPL=11.02\n"
)
COMPOSER = (
    "0: [batch={n}/10000]:\n0: \t Train time/epoch: 0\n0: \t Train time/batch: {n}\n0: \t Train loss/train/total: {loss}\n"
    "0: \t Train metrics/train/LanguageCrossEntropy: 9.1\n0: \t Train throughput/batches_per_sec: 0.5\n"
)


@pytest.mark.parametrize("form", [OLMO, COMPOSER], ids=["olmo", "composer"])
def test_a_number_above_its_values_is_a_step(form: str, tmp_path: Path) -> None:
    """Each is one step, with all values of the lines below; a loss that is none is its own."""
    losses = ["2.345"] * 19 + ["nan"]
    found = read(tmp_path, "".join(form.format(n=n, s=n, loss=loss) for n, loss in zip(NUMBERS, losses, strict=True)))

    assert column(found, "step", "q") == NUMBERS
    assert column(found, "loss") == pytest.approx([2.345] * 19 + [math.nan], nan_ok=True)
    assert column(found, "nan", "b") == [0] * 19 + [1]
    assert all(map(math.isnan, column(found, "seconds")))  # means of a hundred steps


def test_of_olmo_the_stamps_and_the_work_are_read(tmp_path: Path) -> None:
    """The line with the number has the stamp; tokens a second are a step's own."""
    found = read(tmp_path, "".join(OLMO.format(n=n, s=n, loss="2.345") for n in NUMBERS))

    assert column(found, "at")[1] - column(found, "at")[0] == pytest.approx(1.0)
    assert column(found, "tokens_per_second") == pytest.approx([9447.0] * 20)
    assert column(found, "gradient_norm") == pytest.approx([0.307] * 20)


def test_other_lines_end_such_a_step(tmp_path: Path) -> None:
    """A value that stands far below is none of the step above."""
    block = OLMO.format(n=1, s=1, loss="2.3") + OLMO.format(n=2, s=2, loss="2.2").replace("    train/CE loss=2.2\n", "")
    found = read(tmp_path, block + "saved\n" * 300 + "    train/CE loss=nan\n")

    assert column(found, "nan", "b") == [0, 0]
