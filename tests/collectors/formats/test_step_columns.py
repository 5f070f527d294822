"""Steps of a table that a home-made loop prints: a header that names its columns, and rows of numbers."""

from __future__ import annotations

import math

import pytest

from collectors.formats.job_log.recognition import sniff
from tests.collectors.formats.test_log_steps import column
from tests.collectors.formats.test_step_bars import read

ROWS = [(10 * n, 2.5 - n / 100, (0.412, 0.398)[n % 2], 81.2) for n in range(1, 41)]


def table(header: str, form: str, between: str = "") -> str:
    """A header and its rows."""
    return header + "\n" + between + "".join(form.format(*row) + "\n" + between for row in ROWS)


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("   step     loss      sec    tok/s", "{:7d} {:8.4f} {:8.3f} {:8.1f}"),
        ("Step | Loss | Time (s) | tokens/sec", "{:4d} | {:.4f} | {:.3f}s | {:.1f}"),
        ("| iter | train loss | s/it | tok/s |", "| {} | {:.4f} | {:.3f} | {:.1f} |"),
        ("iteration,train_loss,step_time,tokens_per_second", "{},{:.4f},{:.3f},{:.1f}"),
        ("STEP\tLOSS\tSECONDS\tTOK/S", "{}\t{:.4f}\t{:.3f}\t{:.1f}"),
        ("[rank3]: step loss sec tok/s", "[rank3]: {} {:.4f} {:.3f} {:.1f}"),
        ("2026-11-28 10:00:00,123 INFO step loss sec tok/s", "2026-11-28 10:00:01,123 INFO {:7d} {:.4f} {:.3f} {:.1f}"),
        ("epoch step lr loss gnorm sec tok/s", "0 {} 1.0e-04 {:.4f} 0.91 {:.3f} {:.1f}"),
    ],
)
@pytest.mark.parametrize("between", ["", "saved a checkpoint\n"])
def test_rows_under_a_header_are_steps(header: str, form: str, between: str) -> None:
    """The header says which column is which; other lines may stand between."""
    (found,) = read(table(header, form, between))

    assert (found.told_by, found.rank) == ("columns", 3 if "rank" in header else None)
    assert column(found, "step") == [row[0] for row in ROWS]
    assert column(found, "loss") == pytest.approx([row[1] for row in ROWS], abs=1e-4)
    assert column(found, "seconds")[2:] == pytest.approx([row[2] for row in ROWS[2:]])
    assert column(found, "tokens_per_second") == pytest.approx([81.2] * 40)


@pytest.mark.parametrize(
    ("header", "cell", "seconds"),
    [
        ("ms", "412.0", 0.412), ("time(ms)", "412.0", 0.412), ("ms/step", "412", 0.412), ("step_time_ms", "412", 0.412),
        ("time", "412ms", 0.412), ("it/s", "2.5", 0.4), ("sec/it", "0.412", 0.412), ("dt", "0.412s", 0.412),
    ],
)  # fmt: skip
def test_units_are_made_one(header: str, cell: str, seconds: float) -> None:
    """Of the header's name, or of the cell."""
    (found,) = read(f"step loss {header}\n" + "".join(f"{step} 2.5 {cell}\n" for step in range(20)))

    assert column(found, "seconds")[1:] == pytest.approx([seconds] * 19)


def test_a_time_that_only_rises_is_that_since_the_beginning() -> None:
    """Home-made loops print what elapsed as often as what a step took."""
    (found,) = read("step | loss | time\n" + "".join(f"{20 * n} | 2.5 | {30.0 * n:.1f}s\n" for n in range(1, 41)))

    seconds = column(found, "seconds")
    assert all(math.isnan(value) for value in seconds[:5])
    assert seconds[6:] == pytest.approx([1.5] * 34)


def test_a_loss_that_is_nan_is_marked() -> None:
    """As in any other layout."""
    (found,) = read("step loss sec\n" + "".join(f"{n} {'nan' if n > 30 else 2.5} 0.41\n" for n in range(40)))
    assert column(found, "nan") == [0.0] * 31 + [1.0] * 9


@pytest.mark.parametrize(
    "text",
    [
        "step val_loss sec\n" + "10 2.5 0.41\n" * 9,
        "each step loss is\n" + "1 2 3 4\n" * 9,
        "step loss sec\n" + "10 2.5 0.41 7\n" * 9,
        "step loss sec\n" + "a 2.5 0.41\n" * 9,
        "# gpu  pwr  temp  sm\n" + "0 70 45 99\n" * 9,
        "step lr wd\n" + "10 0.1 0.2\n" * 9,
        "10 2.5 0.41\n" * 9,
    ],
)
def test_what_no_header_names_is_no_step(text: str) -> None:
    """Evaluations, sentences, rows of another width, and tables of other things."""
    assert read(text) == []


def test_a_log_is_known_by_its_columns() -> None:
    """A header and rows, whatever the file is called."""
    assert sniff(table("step loss sec tok/s", "{} {} {} {}").encode(), "run7") == 30
    assert sniff(b"step loss sec tok/s\nand nothing else\n", "run7") == 0
