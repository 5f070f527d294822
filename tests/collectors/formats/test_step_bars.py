"""Steps that a progress bar alone shows: tqdm's, Lightning's and rich's, and the bars that are no training's."""

from __future__ import annotations

import io
import math

import pytest

from collectors.files.parsers.steps import parse
from collectors.formats import Input, text_evidence
from collectors.formats.job_log.recognition import sniff
from collectors.formats.text_lines import LINE_BYTES, MANY_BYTES
from collectors.records import LogEvent, Steps, block
from tests.collectors.formats.test_log_steps import column, transformers

SECONDS = 1.3
SLOWER = 1.4


def read(text: str) -> list[Steps]:
    """Return the steps of a log."""
    data = text.encode()
    found = text_evidence.read(Input("train.log", io.BytesIO(data), data[: 1 << 16]))
    return [record for record in found if isinstance(record, Steps)]


def clock(seconds: float) -> str:
    """A time as tqdm writes it."""
    whole = int(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes:02}:{whole % 60:02}"


def tqdm(done: int, total: int, elapsed: float, of: str = "", more: str = "") -> str:
    """A bar as tqdm draws it; its rate is of no use."""
    named, cells = (f"{of}: " if of else ""), "█" * (done * 10 // total)
    bar = f"{done * 100 // total:3d}%|{cells:10}| {done}/{total}"
    return f"{named}{bar} [{clock(elapsed)}<{clock(9)},  9.99it/s{more}]"


def lightning(done: int, total: int, elapsed: float, epoch: int = 0) -> str:
    """A bar of Lightning's."""
    return tqdm(done, total, elapsed, f"Epoch {epoch}", f", v_num=0, train_loss={3 - done / total:.3f}")


def rich(done: int, total: int, elapsed: float, epoch: int = 0) -> str:
    """A bar of Lightning's RichProgressBar."""
    at = f"{int(elapsed) // 3600}:{int(elapsed) // 60 % 60:02}:{int(elapsed) % 60:02}"
    return f"Epoch {epoch}/9 ━━━━━━╸━━━ {done}/{total} {at} • 0:00:09 9.99it/s v_num: 0.000 train/loss: {3 - done / total:.3f}"


def elapsed(count: int, slow_from: int) -> list[float]:
    """Return when each step of a job ends that becomes slower."""
    ends = [0.0]
    for step in range(1, count + 1):
        ends.append(ends[-1] + SECONDS * (SLOWER if step > slow_from else 1.0))
    return ends[1:]


FORMS = {
    "Lightning": lightning, "rich": rich,
    "rich, a narrow page": lambda done, total, at: rich(done, total, at).replace("• 0:00:09 ", "•        "),
    "a description": lambda done, total, at: tqdm(done, total, at, "Training"),
    "torchtune": lambda done, total, at: tqdm(done, total, at, f"1|{done}|Loss: {3 - done / total:.4f}"),
    "diffusers": lambda done, total, at: tqdm(done, total, at, "Steps", f", lr=0.0001, step_loss={done / total:.4f}"),
    "kohya": lambda done, total, at: tqdm(done, total, at, "steps", f", avr_loss={done / total:.4f}"),
    "a loss alone": lambda done, total, at: tqdm(done, total, at, "", f", loss={3 - done / total:.3f}"),
    "Colab": lambda done, total, at: f"Epoch 3:  34% {done}/{total} [{clock(at)}<02:05, 15.73it/s, loss=1.2, v_num=1024]",
    "no total": lambda done, _, at: f"Epoch 0: : {done}it [{clock(at)}, 15.73it/s, loss=1.2, v_num=1024]",
    "a total to come": lambda done, _, at: f"Epoch 0: |          | {done}/? [{clock(at)}<?, 15.73it/s, loss=1.2]",
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("between", ["\r", "\n", "\n[rank3]: "])
def test_a_bar_gives_steps_and_their_pace(form: str, between: str) -> None:
    """What elapsed between bars is the pace, whole seconds though they are, and the rate beside it is not."""
    ends = elapsed(600, slow_from=300)
    (found,) = read(between + between.join(FORMS[form](n, 600, at) for n, at in enumerate(ends, 1)) + "\n")

    seconds = dict(zip(column(found, "step"), column(found, "seconds"), strict=True))
    assert (found.told_by, len(seconds), found.rank) == ("bar", 600, 3 if "rank" in between else None)
    assert all(
        seconds[step] == pytest.approx(SECONDS, rel=0.06) for step in range(max(seconds) - 560, max(seconds) - 300)
    )
    assert all(
        seconds[step] == pytest.approx(SECONDS * SLOWER, rel=0.06) for step in seconds if step > max(seconds) - 270
    )


def test_the_loss_is_that_of_the_newest_drawing() -> None:
    """A bar is drawn again when its values have come."""
    (found,) = read("\r".join(tqdm(4, 18, 17, "Epoch 0", f", loss={loss}, v_num=1") for loss in (10.072, 9.926)) + "\n")

    assert (column(found, "step"), column(found, "loss")) == ([4], [9.926])


def test_epochs_go_on_counting_and_each_has_a_clock_of_its_own() -> None:
    """Lightning draws a bar anew in each epoch. What is drawn at its end alone gives the epoch's mean."""
    (found,) = read("\n".join(lightning(n, 50, 2.0 * n, epoch) for epoch in range(3) for n in range(1, 51)))
    assert column(found, "step") == list(range(1, 151))
    assert {value for value in column(found, "seconds") if math.isfinite(value)} == {2.0}

    (found,) = read("\n".join(rich(98, 98, 49.0, epoch) for epoch in range(5)))
    assert column(found, "step") == [98, 196, 294, 392, 490]
    assert column(found, "seconds") == pytest.approx([0.5] * 5)


OTHERS = [
    tqdm(30, 50, 40, of, more)
    for of in ("Map (num_proc=8)", "Loading checkpoint shards", "Validation DataLoader 0", "Sanity Checking DataLoader 0",
               "Testing DataLoader 0", "Evaluating", "Tokenizing train dataset", "Generating train split", "Fetching 12 files",
               "Downloading data", "Filter", "Epochs", "Processing", "Packing train dataset", "")
    for more in ("", ", val_loss=2.1")
] + [
    "     ━━━━━━━━━━━━━━━━━━━━━━━ 12.3/45.6 MB 5.1 MB/s eta 0:00:07",
    "model.safetensors:  50%|█████     | 2.48G/4.98G [00:30<00:30, 82.1MB/s]",
    "train-00000.parquet  50%[=========>          ]   1.21M   812KB/s    eta 3s",
    "Generating train split:  50%|█████     | 1000/2000 [00:30<00:30, 33.1 examples/s]",
]  # fmt: skip


@pytest.mark.parametrize("bar", OTHERS)
def test_other_bars_are_no_steps(bar: str) -> None:
    """Data sets, downloads, shards and evaluations; epochs are no steps, nor is what has no description and no loss."""
    assert read("\r".join([bar] * 3) + "\n") == []


def test_a_bar_that_counts_epochs_gives_no_steps() -> None:
    """scvi-tools writes the epoch in its description too."""
    assert read("\n".join(tqdm(n, 20, 40 * n, f"Epoch {n}/20", ", loss=1.1e+03, v_num=1") for n in range(1, 21))) == []


@pytest.mark.parametrize("of", ["", "Epoch 1/3"])
def test_a_validation_without_a_word_of_it_is_no_step(of: str) -> None:
    """Its loop has another length: the first loop is the training's; one that says so is it before one that shows a loss."""
    text = "\n".join(
        tqdm(n, total, n / pace, of, f", loss={loss}")
        for total, pace, loss in ((300, 1, 2.5), (40, 5, 7.5)) for n in range(1, total + 1)
    )  # fmt: skip
    (found,) = read(text)
    assert (found.count, set(column(found, "loss"))) == (300, {2.5})

    first = "\n".join(tqdm(n, 40, n, "", ", loss=7.5") for n in range(1, 5))
    (found,) = read(first + "\n" + "\n".join(lightning(n, 90, n) for n in range(1, 91)))
    assert column(found, "step") == list(range(1, 91))


def test_an_evaluation_between_steps_is_not_their_pace() -> None:
    """The clock of the training's bar runs on meanwhile."""
    text, at = "", 0.0
    for step in range(1, 401):
        at += 1.0
        text += "\r" + lightning(step, 400, at)
        if step % 100 == 0:
            text += "".join("\r" + tqdm(n, 60, n, "Validation DataLoader 0") for n in range(1, 61))
            at += 60.0
    (found,) = read(text + "\n")

    assert max(value for value in column(found, "seconds") if math.isfinite(value)) == pytest.approx(1.0)


@pytest.mark.parametrize("between", ["\r", "\n"])
@pytest.mark.parametrize("below", ["\n", ""])
def test_the_trainers_dict_takes_number_and_pace_from_its_bar(between: str, below: str) -> None:
    """The bar stands on the line above, or on the same; the evaluation's bar has no description either."""
    ends, text = elapsed(600, slow_from=300), ""
    for step, at in enumerate(ends, 1):
        text += between + tqdm(step, 600, at)
        if step % 10 == 0:
            text += f"{below}{{'loss': 2.5, 'grad_norm': 1.1, 'learning_rate': 5e-05, 'epoch': {step / 200}}}\n"
        if step % 200 == 0:
            text += "".join(between + tqdm(n, 40, n) for n in range(1, 41)) + "\n{'eval_loss': 2.6, 'epoch': 1.0}\n"
    (found,) = read(text)

    assert (found.told_by, column(found, "step")) == ("transformers", list(range(10, 601, 10)))
    seconds = column(found, "seconds")
    assert {round(value, 1) for value in seconds[:30] if math.isfinite(value)} <= {1.2, 1.3, 1.4}
    assert sum(math.isfinite(value) for value in seconds) > 50
    assert seconds[34] == pytest.approx(SECONDS * SLOWER, rel=0.06)


def test_a_dict_with_a_pace_of_its_own_keeps_it() -> None:
    """As TRL's has."""
    text = "".join(f"{tqdm(n, 90, 30 * n)}\n{{'loss': 2.5, 'step_time': 7.5, 'epoch': {n}}}\n" for n in range(1, 9))
    assert set(column(read(text)[0], "seconds")) == {7.5}


def test_bars_beside_lines_that_report_steps_are_left_out() -> None:
    """The lines say more of the same steps."""
    text = "".join(f"{lightning(n, 90, 30 * n)}\nstep {n} loss 2.5 time 900.5ms\n" for n in range(1, 9))
    assert [record.told_by for record in read(text)] == ["plain"]
    assert [record.told_by for record in read("".join(transformers(n) for n in range(1, 9)))] == ["transformers"]


def test_of_a_line_that_is_redrawn_for_ever_the_newest_bars_are_read() -> None:
    """It is longer than what is held of a line."""
    bars = [lightning(n, 40_000, n) for n in range(1, 40_001)]
    text = "\r".join(bars)
    assert len(text) > 2 * MANY_BYTES + LINE_BYTES

    (found,) = read(text)

    assert column(found, "step") == list(range(40_001 - 4096, 40_001))
    assert set(column(found, "seconds")[40:]) == {1.0}


def test_a_log_is_known_by_its_bars() -> None:
    """Whatever it is called; a download's bar marks none."""
    assert sniff("\r".join(lightning(n, 90, n) for n in range(9)).encode(), "run7") == 30
    assert sniff("\r".join(tqdm(n, 90, n, "Downloading") for n in range(9)).encode(), "run7") == 0


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("pace", ["time 1.5s", "1.5 s/it"])
@pytest.mark.parametrize("bars", [False, True])
def test_lines_that_end_in_carriage_returns_are_lines(end: str, pace: str, bars: bool) -> None:
    """However long what has no line feed is, and whatever bars stand between them."""
    drawn = f"\r{tqdm(3, 10, 3.0, 'Loading')}" if bars else ""
    lines = [
        f"step {step} loss 2.31 {pace} {'.' * 600}{end}{drawn if step % 500 == 0 else ''}" for step in range(1, 3001)
    ]
    (found,) = read("".join(lines))
    assert (found.count, column(found, "seconds")[-1]) == (3000, 1.5)


def test_a_traceback_among_carriage_returns_is_read() -> None:
    """Its lines are no drawings of a bar."""
    lines = [*(f"step {step} loss 2.31 {'.' * 600}" for step in range(3000)), "Traceback (most recent call last):",
             '  File "/srv/train.py", line 3, in <module>', "    main()", "ValueError: no such shard"]  # fmt: skip
    data = "\r".join([*lines, ""]).encode()
    found = text_evidence.read(Input("train.log", io.BytesIO(data), data[: 1 << 16]))
    assert "ValueError" in [record.exception for record in found if isinstance(record, LogEvent)]


def test_an_agent_reads_each_line_that_a_carriage_return_ends() -> None:
    """Of one reading of a log that grows, as of a file."""
    data = "".join(f"step {step} loss 2.31 time 1.5s\r" for step in range(1, 41)).encode()
    (found,) = block.decode(parse(data, "train.log", 0, "n1", 1.79e9)["steps"])
    assert isinstance(found, Steps)
    assert found.count == 40
