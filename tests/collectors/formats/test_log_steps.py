"""Steps in a log that lies on disk: every trainer's layout, by rank, bounded, and what the verdict makes of a NaN."""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Iterable
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.formats import Input, recognise
from collectors.formats.job_log import job_log
from collectors.formats.job_log.step_series import MAX_SERIES, MAX_STEPS_OF_SERIES
from collectors.records import LogEvent, Record, Steps
from simulation.scenarios import KINDS, draw, play
from tests.support.live_hangs import verdict
from tests.support.sentences import numbers_in

CODES = {"step": "q", "nan": "b", "skipped": "b"}


def read(text: str, source: str = "train.log", rank: int | None = None) -> list[Record]:
    """Read a text as one file."""
    data = text.encode()
    return list(job_log.read(Input(source, io.BytesIO(data), data[: 1 << 16], rank=rank)))


def steps(records: Iterable[Record]) -> list[Steps]:
    """Keep the steps."""
    return [record for record in records if isinstance(record, Steps)]


def column(record: Steps, name: str) -> list[float]:
    """Return a column's values."""
    return list(array(CODES.get(name, "d"), record.columns[name]))


def megatron(step: int, loss: str = "2.5E+00", norm: str = "1.1", skipped: int = 0, scale: str = "1.0") -> str:
    """A line as Megatron-LM prints it."""
    return (
        f" [2026-11-20 10:{step // 60 % 60:02d}:{step % 60:02d}] iteration {step:8d}/  500000 | consumed samples: {step:12d}"
        f" | elapsed time per iteration (ms): 1010.5 | throughput per GPU (TFLOP/s/GPU): 420.1 | learning rate: 1.0E-04 |"
        f" global batch size:   512 | lm loss: {loss} | loss scale: {scale} | grad norm: {norm} |"
        f" number of skipped iterations:  {skipped:2d} | number of nan iterations:   0 |\n"
    )


def titan(step: int, loss: str = " 2.5", norm: str = " 1.1") -> str:
    """A line as TorchTitan prints it."""
    return f"[titan] 2026-11-20 10:00:{step % 60:02d},500 - root - INFO - step: {step:2}  loss: {loss}  grad_norm: {norm}\n"


def transformers(step: int, loss: str = "2.5", norm: str = "1.1") -> str:
    """What transformers' Trainer prints at a step: its dict, after the progress bar that it wipes off."""
    bar = f"\r {step // 10}%|#     | {step}/1000 [01:00<09:00,  8.2it/s]"
    return (
        f"{bar}\r{' ' * 60}\r{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 5e-05, 'epoch': {step / 500}}}\n"
    )


def verl(step: int, loss: str = "0.1", norm: str = "1.1") -> str:
    """A line as verl's console logger prints it."""
    return f"(TaskRunner pid=977) step:{step} - actor/pg_loss:{loss} - actor/grad_norm:{norm} - timing_s/step:12.25\n"


def pipeline(step: int, loss: str = "2.5", norm: str = "") -> str:
    """A line as DeepSpeed's pipeline engine prints it."""
    del norm
    return f"steps: {step} loss: {loss} iter time (s): 0.523 samples/sec: 16.1\n"


def plain(step: int, loss: str = "2.5", norm: str = "1.1") -> str:
    """A line of a script started by torchrun."""
    return f"[rank0]: step {step}: loss {loss}, grad_norm {norm}, time 523.1ms\n"


LAYOUTS = {"megatron": megatron, "torchtitan": titan, "transformers": transformers, "verl": verl, "deepspeed": pipeline,
           "plain": plain}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_loss_that_becomes_nan_is_a_numeric_verdict_that_names_nobody(layout: str) -> None:
    """From step 31 on the loss is NaN: that step is named; of a job's whole loss the code weakly, of one rank's nobody."""
    text = "".join(LAYOUTS[layout](step, *(["nan", "nan"] if step > 30 else [])) for step in range(1, 36))

    judged = verdict(read(text))

    of_rank = layout == "plain"
    assert (judged.symptom, judged.cause, judged.action.kind) == ("numeric", "unknown" if of_rank else "code", "none")
    assert [(culprit.kind, culprit.ranks) for culprit in judged.culprits] == ([] if of_rank else [("code", ())])
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [31]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_healthy_log_has_steps_and_no_symptom(layout: str) -> None:
    """Forty sound steps are steps, and nothing else."""
    records = read("".join(LAYOUTS[layout](step) for step in range(1, 41)))

    (found,) = records

    assert isinstance(found, Steps)
    assert column(found, "step") == list(range(1, 41))
    assert all(value > 0 for value in column(found, "loss"))
    assert verdict(records).symptom == "unknown"


def test_overflows_that_the_optimizer_skips_are_no_symptom() -> None:
    """A loss scale that begins too high, and one that overflows at the newest step, are fp16 as it is."""
    warm_up = "".join(megatron(step, "2.5E+00", "inf", 1, f"{2**32 >> step}.0") for step in range(1, 12))
    sound = "".join(megatron(step) for step in range(12, 60))

    assert verdict(read(warm_up)).symptom == "unknown"
    assert verdict(read(warm_up + sound + megatron(60, "nan", "nan", 1, "1024.0"))).symptom == "unknown"


def test_one_odd_gradient_norm_is_no_symptom_and_a_lasting_one_is() -> None:
    """transformers prints the norm of a step that fp16 skipped, and not that it did."""
    sound = "".join(transformers(step) for step in range(1, 41))

    assert verdict(read(sound + transformers(41, norm="nan"))).symptom == "unknown"
    judged = verdict(read(sound + "".join(transformers(step, norm="nan") for step in (41, 42, 43))))
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [41]


def test_reports_without_a_number_are_counted() -> None:
    """Where the progress bar went elsewhere, the dicts keep their order; the step has no number."""
    text = "".join(
        f"{{'loss': {'nan' if n > 25 else 2.5}, 'learning_rate': 5e-05, 'epoch': 0.{n:02}}}\n" for n in range(1, 31)
    )

    records = read(text)

    assert column(steps(records)[0], "step") == [-1] * 30
    judged = verdict(records)
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [26]


def test_a_loss_that_the_trainer_filtered_is_nan() -> None:
    """transformers leaves a NaN out of the sum that it prints: a loss of 0.0 beside a norm that is NaN is read as printed."""
    text = transformers(1) + transformers(2, loss="0.0", norm="nan") + transformers(3, loss="0.0")
    (found,) = steps(read(text))

    assert (column(found, "nan"), column(found, "loss")[1]) == ([0, 2, 0], 0.0)
    judged = verdict(read(transformers(1) + "".join(transformers(n, loss="0.0", norm="nan") for n in range(2, 6))))
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [2, 0]


def test_keras_counts_anew_in_every_epoch() -> None:
    """Each of its bars with a loss is a later report; a validation's loss is none of training."""
    bars = (
        " 120/938 [==>...........] - ETA: 12s - loss: 0.4213 - accuracy: 0.87\n"
        " 938/938 [==============] - 14s 15ms/step - loss: 0.2213 - accuracy: 0.93 - val_loss: 0.5\n"
        "  10/938 ━━━━━━━━━━━━━━━━ 9s 11ms/step - accuracy: 0.94 - loss: 0.1913\n"
        "938/938 - 14s - loss: nan - accuracy: 0.1\n"
        " 313/313 [==============] - 1s 2ms/step\n"
    )
    (found,) = steps(read(bars))

    assert found.told_by == "keras"
    assert column(found, "loss")[:3] == [0.4213, 0.2213, 0.1913]
    assert column(found, "nan") == [0, 0, 0, 1]


@pytest.mark.parametrize("tag", ["[eval]", "eval", "| val |", "(validation)", "test"])
def test_a_step_of_an_evaluation_is_none_of_training(tag: str) -> None:
    """The word for the mode may stand between the step and its loss."""
    tagged = "".join(f"step {step} {tag} loss: nan\n" for step in range(20, 26))
    trained = "".join(f"step {step} [train] loss: 2.5\n" for step in range(1, 26))

    assert verdict(read(trained + tagged)).symptom == "unknown"
    assert [record.count for record in steps(read(trained + tagged))] == [25]


def test_a_restart_from_a_checkpoint_makes_the_nan_history() -> None:
    """The second run passes step 26 again, sound: what the first printed beyond it no longer counts."""
    first = "".join(plain(step, *(["nan"] if step > 25 else [])) for step in range(1, 41))
    second = "".join(plain(step) for step in range(21, 31))

    assert verdict(read(first)).symptom == "numeric"
    assert verdict(read(first + second)).symptom == "unknown"


def test_ranks_are_those_of_the_prefix_the_label_or_the_file() -> None:
    """One record a rank; a task that started torchrun is no rank."""
    torch = "".join(f"[rank{rank}]: step {step} loss 0.5\n" for step in range(3) for rank in (4, 5))
    srun = "".join(f"{task}: step {step} loss 0.5\n" for step in range(3) for task in (6, 7))

    assert [record.rank for record in steps(read(torch))] == [4, 5]
    assert [record.rank for record in steps(read(srun))] == [6, 7]
    assert [record.rank for record in steps(read("step 1 loss 0.5\n", rank=3))] == [3]
    started = "0: W1120 10:00:00.0 torch/distributed/run.py:792] ***\n" + srun.replace("7: ", "1: ").replace(
        "6: ", "0: "
    )
    assert {record.rank for record in steps(read(started))} == {None}


def test_the_rank_that_breaks_first_alone_is_evidence() -> None:
    """Rank 2 has its NaN a step before the others: it is named, to be tested, and not evicted."""
    text = "".join(
        f"[rank{rank}]: step {step} loss {'nan' if step > 30 or (step == 30 and rank == 2) else 0.5}\n"
        for step in range(1, 35) for rank in range(4)
    )  # fmt: skip

    judged = verdict(read(text))

    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [30, 2, 0, 1, 3]
    assert (judged.first_symptom.rank, judged.cause, judged.action.kind) == (2, "unknown", "probe")
    assert [culprit.ranks for culprit in judged.culprits] == [(2,)]


def test_every_rank_at_once_is_said() -> None:
    """All four ranks print the NaN that a reduction gave them."""
    text = "".join(
        f"[rank{rank}]: step {step} loss {'nan' if step > 30 else 0.5}\n" for step in range(1, 35) for rank in range(4)
    )

    judged = verdict(read(text))

    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [31, 4]


def test_a_long_log_keeps_its_newest_steps_and_where_the_nan_began() -> None:
    """Of 10,000 steps the newest are kept; step 812, where the loss broke, is one more."""
    text = "".join(plain(step, *(["nan"] if step >= 812 else [])) for step in range(10_000))

    records = read(text)

    (found,) = steps(records)
    assert found.count == MAX_STEPS_OF_SERIES + 1
    assert column(found, "step")[:2] == [812, 10_000 - MAX_STEPS_OF_SERIES]
    judged = verdict(records)
    assert judged.first_symptom is not None
    assert numbers_in(judged.first_symptom.text) == [812]
    assert [record.source for record in records if isinstance(record, LogEvent)] == ["train.log:813"]


@pytest.mark.parametrize(
    "line",
    [
        "validation step 12 loss: nan", "eval iter 3 loss nan", "step 12 val_loss nan", "step 500: val loss nan",
        "{'eval_loss': nan, 'epoch': 1.0}", "[Rank 0] step=10, skipped=1, lr=[0.0001], mom=[[0.9, 0.95]]",
        "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768",
    ],
)  # fmt: skip
def test_what_is_no_training_step_is_none(line: str) -> None:
    """Evaluation, and DeepSpeed's account of its scaler, are no steps."""
    assert steps(read(f"{line}\n")) == []


@pytest.mark.parametrize(
    ("form", "numbers"),
    [
        ("10:00:0{} [r0] I tinygpt | it {}/400  train_loss=1.06  295 ms/it", [1, 2, 3, 4, 5]),
        ("10:00:0{} Epoch 0 | batch {} | loss: 1.09", [-1, -1, -1, -1, -1]),
        ("10:00:0{} Train mini-batch {} of epoch 2, loss 1.09", [-1, -1, -1, -1, -1]),
    ],
)
def test_iterations_and_batches_with_a_loss_are_steps(form: str, numbers: list[int]) -> None:
    """A batch is counted again with every epoch: each is a step without a number."""
    (found,) = steps(read("".join(f"2026-11-20 {form.format(number, number)}\n" for number in range(1, 6))))
    assert (found.count, column(found, "step")) == (5, numbers)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        ("step: 412 loss: 1.4 time: 1.82s", 1.82),
        ("step: 412  loss: 1.4  grad_norm: 0.9  step time: 1820 ms", 1.82),
        ("iter 412 loss 1.4 1.82 s/it", 1.82),
        ("step 412 | loss 1.4 | 295 ms/step", 0.295),
        ("iter 412 loss 1.4 (4 it/s)", 0.25),
        ("iter 412 loss 1.4 time 0.5s 2,000 tok/s", 0.5),
        ("iter 412 loss 1.4 0 it/s", math.nan),
        ("69%|######9   | 412/600 [09:40<05:42,  1.82s/it]{'loss': 1.4, 'learning_rate': 5e-05, 'epoch': 0.7}", 1.82),
    ],
)
def test_a_pace_without_a_name_is_the_time_of_a_step(line: str, seconds: float) -> None:
    """As progress bars and home-made loops print it; tokens a second are none."""
    (found,) = steps(read(f"{line}\n"))
    assert column(found, "seconds") == pytest.approx([seconds], nan_ok=True)


def test_a_log_is_known_by_its_steps(tmp_path: Path) -> None:
    """No name and no error marks it: the steps do."""
    path = tmp_path / "metrics"
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": NaN}\n')

    (found,) = steps(read_paths([path]))

    assert column(found, "nan") == [0, 1]
    assert math.isnan(column(found, "loss")[1])
    assert recognise(b"a letter about steps\nand nothing else\n", "letter.txt") is None


@pytest.mark.parametrize("kind", ['"phase":"eval"', '"split": "val"', '"mode":"validation"', '"stage":"test"'])
def test_an_evaluation_row_is_no_step(kind: str) -> None:
    """A row of JSON that is marked as one of an evaluation is no training step and no NaN."""
    sound = "".join(f'{{"step": {step}, "phase": "train", "loss": 2.0}}\n' for step in range(1, 31))
    records = read(sound + f'{{"step": 31, "loss": NaN, {kind}}}\n{{"step": 32, {kind}, "loss": NaN}}\n')

    (found,) = records
    assert isinstance(found, Steps)
    assert found.count == 30


@pytest.mark.parametrize(
    ("line", "loss"),
    [
        ("step 5 kl loss: nan total loss: 2.0", 2.0), ("step 5 kl loss: nan train loss: 2.0", 2.0),
        ("step 5 kl loss: nan loss: 2.0", 2.0), ("step 5 kl loss: nan, loss: 2.0", 2.0),
        ("step 5 loss: 2.0 kl loss: nan", 2.0), ("step 5 kl loss: 2.0 total_loss: nan", math.nan),
        ("step 5 train loss: nan, kl loss: 2.0", math.nan), ("step 5 policy loss: 2.5 value loss 3.0", 2.5),
    ],
)  # fmt: skip
def test_the_loss_of_the_whole_model_counts_before_that_of_a_part(line: str, loss: float) -> None:
    """Of several losses on a line it is the bare one, or that of training or the total."""
    (found,) = steps(read(f"{line}\n"))
    assert column(found, "loss") == pytest.approx([loss], nan_ok=True)


def test_megatron_prints_no_loss_where_all_iterations_were_nan() -> None:
    """The count of NaN iterations stands for it."""
    lost = "".join(
        megatron(step, skipped=1)
        .replace("lm loss: 2.5E+00 | ", "")
        .replace("nan iterations:   0", "nan iterations:   1")
        for step in range(41, 600)
    )
    judged = verdict(read("".join(megatron(step) for step in range(1, 41)) + lost))
    assert (judged.symptom, numbers_in(judged.evidence[0].text)) == ("numeric", [41])


@pytest.mark.parametrize(
    ("log", "line"),
    [
        ("".join(f"Epoch {epoch}/10 - loss: {'nan' if epoch > 4 else 2.0} - acc: 0.1\n" for epoch in range(1, 11)), 5),
        ("".join(f"epoch=0 batch={batch} loss={'nan' if batch > 2 else '2.5'} lr=1e-4\n" for batch in range(9)), 4),
        ("start\n" + "".join(f"{n}/1000 [00:{n}<10:00, loss=nan]\r" for n in range(10, 50)) + "\n", 2),
        ("loss: 2.0\nloss: nan\nloss: 2.0\nloss: nan\ntrain_loss nan\n", 4),
        ("loss: tensor(nan, device='cuda:0')\nvalidation loss: 2.0\nval_loss: 2.0\nkl loss: 2.0 loss: nan\n", 1),
        ("Epoch 1 loss: nan - val_loss: nan\n", 1), ("validation done, training loss: nan\n", 1),
    ],
)  # fmt: skip
def test_a_line_without_a_step_whose_loss_is_nan_is_an_event(log: str, line: int) -> None:
    """It is the first of those that last until the end, and the verdict shows it without a machine."""
    records = read(log)
    (found,) = [record for record in records if isinstance(record, LogEvent)]
    assert (found.event, found.source) == ("nan", f"train.log:{line}")
    judged = verdict(records)
    assert (judged.symptom, judged.cause, judged.abstained, judged.action.kind) == ("numeric", "code", False, "none")


@pytest.mark.parametrize(
    "log",
    [
        "validation loss: nan", "Epoch 3 validation loss at iteration 39 | lm loss value: nan |", "eval/loss: nan",
        "Test set: Average loss: nan", "Train loss: 2.0, Valid loss: nan", "loss: nan\nloss: 2.0",
        "Epoch 1 - loss: nan - acc: 0.1\nEpoch 2 - loss: 2.0 - acc: nan", "loss 2.0 mfu nan", "loss scale: inf",
        "loss=nan\nloss=2.0\nloss=nan", "kl loss: nan total loss: 2.0", "GradScaler: skips steps if loss is nan",
        '{"epoch": 3, "split": "val", "loss": NaN}', "step 1 loss nan\nstep 2 loss 2.0",
    ],
)  # fmt: skip
def test_a_nan_that_passed_or_is_of_an_evaluation_is_no_event(log: str) -> None:
    """A log with such lines is a healthy one."""
    records = read(f"{log}\n")
    assert [record for record in records if isinstance(record, LogEvent)] == []
    assert verdict(records, None).symptom == "unknown"


@pytest.mark.system
def test_a_hostile_log_stays_bounded() -> None:
    """A series for each of many ranks, and numbers that jump about, cost no more than the bound."""
    text = "".join(f"[rank{rank}]: step {rank * 7919 % 1000} loss 0.5\n" for rank in range(MAX_SERIES + 500))

    assert len(steps(read(text))) == MAX_SERIES


def test_a_job_that_runs_on_nan_is_not_healthy() -> None:
    """Two rounds of dumps show a job that moves: with a sound log it is healthy, with a NaN in its log it is not."""
    dumps = play(draw(KINDS.index("healthy_twice"), 64, 8)).records()
    sound = [plain(step) for step in range(1, 31)]

    assert verdict([*dumps, *read("".join(sound))]).symptom == "healthy"
    assert verdict([*dumps, *read("".join([*sound, plain(31, "nan"), plain(32, "nan")]))]).symptom == "numeric"
