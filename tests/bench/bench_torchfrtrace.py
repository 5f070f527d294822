"""Faulthound and PyTorch's own analyzer, `torchfrtrace`, on the same flight-recorder dumps in the same run.

Each case is a folder of dumps by the project's simulator in which one rank never enters a collective that its peers wait
in (tests/bench/dumps.py); the simulator's truth says who. Both sides are timed as a user meets them (whole process, from
nothing to the answer) and once more without their imports. Whom each side names is compared with the truth: Faulthound's
culprits; of torchfrtrace every rank that it prints as missing or as culprit. The largest sizes are Faulthound's alone:
how long, how much memory, and how both grow. Where FAULTHOUND_CORPUS names labelled real dumps, both answer for those too.

    python -m tests.bench.bench_torchfrtrace [--smallest]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from tests.bench.dumps import Case, write
from tests.bench.measure import REPOSITORY, provenance, run
from tests.bench.sides import OURS, THEIRS, Side, warmed_seconds

ENTRIES = 200
WARM_UP = Case(name="warm up", ranks=8)
CLAIMED = "one rank missing, 512 ranks"
SMALLEST = (Case(name="one rank missing, 64 ranks", ranks=64),)
BOTH_SIDES = (
    *SMALLEST,
    Case(name="one rank missing, 256 ranks", ranks=256),
    Case(name=CLAIMED, ranks=512),
    Case(name="hosts ran ahead, 512 ranks", ranks=512, place="middle"),
    Case(name="pipeline, 512 ranks", ranks=512, stages=4),
)
OURS_ONLY = (
    Case(name="pipeline, 4096 ranks", ranks=4096, stages=8),
    Case(name="pipeline, 16384 ranks", ranks=16384, stages=16),
)
REPEATS = 3
RATIO_MIN = 4.0


class Measured(TypedDict, total=False):
    """One side on one folder: medians of the seconds, the largest peak, and whom it named. A crash ends early."""

    whole_process_seconds: float
    without_imports_seconds: float
    peak_mb: int
    crashed: bool
    named: list[int]
    right: bool


class Row(TypedDict, total=False):
    """One folder, both sides where both ran."""

    folder: str
    ranks: int
    entries: int
    bytes: int
    truth: list[int]
    faulthound: Measured
    torchfrtrace: Measured
    whole_process_ratio: float
    without_imports_ratio: float


def measure_side(side: Side, folder: Path, truth: frozenset[int], repeats: int, small: Path | None) -> Measured:
    """Run one side on one folder; ``small`` given: also in a process that warmed up on that folder."""
    whole = [run(side.whole(folder)) for _ in range(repeats)]
    named = side.named(whole[-1])
    measured: Measured = {
        "whole_process_seconds": round(statistics.median(one.seconds for one in whole), 3),
        "peak_mb": round(max(one.peak_mb for one in whole)),
        "crashed": "Traceback (most recent call last)" in whole[-1].errors,
        "named": sorted(named),
        "right": named == truth,
    }
    if small is not None:
        warmed = [warmed_seconds(run(side.warmed(small, folder))) for _ in range(repeats)]
        if finished := [seconds for seconds in warmed if seconds is not None]:
            measured["without_imports_seconds"] = round(statistics.median(finished), 3)
    return measured


def compare(folder: Path, name: str, truth: frozenset[int], repeats: int, small: Path) -> Row:
    """Measure both sides on one folder."""
    ours = measure_side(OURS, folder, truth, repeats, small)
    theirs = measure_side(THEIRS, folder, truth, repeats, small)
    row: Row = {**described(folder, name, truth), "faulthound": ours, "torchfrtrace": theirs}
    if not theirs["crashed"]:  # the time to a crash is no speed
        row["whole_process_ratio"] = round(theirs["whole_process_seconds"] / ours["whole_process_seconds"], 2)
        row["without_imports_ratio"] = round(theirs["without_imports_seconds"] / ours["without_imports_seconds"], 2)
    return row


def described(folder: Path, name: str, truth: frozenset[int]) -> Row:
    """Say what is in a folder."""
    dumps = [path for path in folder.iterdir() if path.name.startswith("_dump_")]
    return {
        "folder": name,
        "ranks": len(dumps),
        "bytes": sum(path.stat().st_size for path in dumps),
        "truth": sorted(truth),
    }


def real_folders() -> Iterator[tuple[Path, frozenset[int]]]:
    """Yield the labelled real dumps with the ranks that their injection log names, where there are any."""
    corpus = os.environ.get("FAULTHOUND_CORPUS")
    for log in sorted(Path(corpus).glob("flight_recorder/*/fault_injection.log")) if corpus else ():
        yield log.parent, injected_ranks(log.read_text(encoding="utf-8"))


def injected_ranks(log: str) -> frozenset[int]:
    """Return the ranks that an injection log names."""
    return frozenset(int(rank) for rank in re.findall(r"^Rank (\d+), fault_type", log, re.MULTILINE))


def rows(scratch: Path, *, smallest: bool) -> Iterator[Row]:
    """Write the folders one after the other and measure each; a folder is removed as soon as it is done with."""
    repeats = 1 if smallest else REPEATS
    write(WARM_UP, small := scratch / "warm_up", ENTRIES)
    for folder, truth in real_folders():
        yield compare(folder, f"real, {folder.name}", truth, repeats, small)
    for case in SMALLEST if smallest else (*BOTH_SIDES, *OURS_ONLY):
        with tempfile.TemporaryDirectory(dir=scratch) as name:
            folder = Path(name)
            truth = write(case, folder, ENTRIES)
            if case in OURS_ONLY:
                ours = measure_side(OURS, folder, truth, 1, None)
                yield {**described(folder, case.name, truth), "entries": ENTRIES, "faulthound": ours}
            else:
                yield {**compare(folder, case.name, truth, repeats, small), "entries": ENTRIES}


def growth(measured: list[Row]) -> dict[str, float]:
    """Return by which power of the ranks seconds and memory grow, from one size of the pipeline job to the next."""
    powers = {}
    for smaller, larger in itertools.pairwise(row for row in measured if row["folder"].startswith("pipeline")):
        ranks = math.log(larger["ranks"] / smaller["ranks"])
        for what in ("whole_process_seconds", "peak_mb"):
            ratio = larger["faulthound"][what] / smaller["faulthound"][what]
            powers[f"{what} {smaller['ranks']} → {larger['ranks']} ranks"] = round(math.log(ratio) / ranks, 2)
    return powers


def broken_claims(measured: list[Row]) -> list[str]:
    """Return what this run contradicts: a wrong answer, or at 512 ranks less than four times torchfrtrace's speed."""
    broken = []
    for row in measured:
        if not row["faulthound"]["right"]:
            broken.append(f"{row['folder']}: named {row['faulthound']['named']}, the truth is {row['truth']}")
        if row["folder"] == CLAIMED and (ratio := row.get("whole_process_ratio", 0.0)) < RATIO_MIN:
            broken.append(f"{CLAIMED}: {ratio} times as fast, {RATIO_MIN} claimed")
    return broken


def line(row: Row) -> str:
    """Render one row of the table."""
    ours = row["faulthound"]
    text = f"{row['folder']:<30} faulthound {ours['whole_process_seconds']:7.2f} s {ours['peak_mb']:6d} MB"
    text += f" {'right' if ours['right'] else 'WRONG'}"
    if "torchfrtrace" in row:
        theirs = row["torchfrtrace"]
        text += f" | torchfrtrace {theirs['whole_process_seconds']:7.2f} s {theirs['peak_mb']:6d} MB"
        if theirs["crashed"]:
            return f"{text} crashes"
        text += f" {'right' if theirs['right'] else 'names ' + str(theirs['named'][:6])}"
        text += f" | {row['whole_process_ratio']} × whole process"
        text += f" | without imports {ours['without_imports_seconds']} s, {theirs['without_imports_seconds']} s"
        text += f", {row['without_imports_ratio']} ×"
    return text


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, write the document; 1 if a claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smallest", action="store_true", help="64 ranks only, once, written to out/")
    options = parser.parse_args(arguments)
    measured = []
    with tempfile.TemporaryDirectory() as scratch:
        for row in rows(Path(scratch), smallest=options.smallest):
            measured.append(row)
            print(line(row), flush=True)
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "bench_torchfrtrace.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = "make bench" + " BENCH=smallest" * options.smallest
    document = {**provenance(command), "repeats": 1 if options.smallest else REPEATS, "rows": measured}
    document["faulthound_growth_powers"] = growth(measured)
    target.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {target.relative_to(REPOSITORY)}")
    for claim in (broken := broken_claims(measured)):
        print(f"claim broken: {claim}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
