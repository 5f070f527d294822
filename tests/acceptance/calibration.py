"""Whether stated probabilities come true, and the packaged table that makes them: simulated cases, judged for many minutes.

Held out are seeds that the table has not seen; shifted is a simulator with another mix of faults, other sizes and more noise.
The strength of each claim's evidence is what was stated before anything was learned. Judged cases are kept in out/ while a run
goes on, and then as counts in docs/measured/calibration_counts.jsonl, by the commit that judged them, so that a further run on
any machine adds to them.

    nice -n 15 python -m tests.acceptance.calibration [--minutes N] [--learn] [--smallest]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from analyzers.verdict.curves import calibrations
from service.evaluation.calibration import calibrate
from service.evaluation.forecasts import Forecast
from service.evaluation.learning import learn
from service.evaluation.table_writing import to_toml
from tests.bench.measure import REPOSITORY, provenance
from tests.support.scoreboard import table
from tests.support.scoreboard.forecasts import HELD_OUT, LEARNED, NOISE, SHIFTED, Case, cases, forecasts
from tests.support.simulated_hangs import knowledge

DOCUMENT = REPOSITORY / "docs" / "measured" / "calibration.json"
COUNTS = "calibration_counts.jsonl"
TABLE = REPOSITORY / "analyzers" / "knowledge" / "calibration.toml"
_MORE = NOISE[SHIFTED][0]
WORDS = {
    HELD_OUT: "seeds from 300,000 on, which neither the table nor any test has seen",
    SHIFTED: f"another mix of faults, other sizes, {_MORE.dumps:.0%} of the dumps and {_MORE.rows:.0%} of the rows lost, "
    f"{_MORE.jitter:g} times the jitter",
}
AT_ONCE = 20
SMALLEST = 20  # cases of each population


def rows_of(population: str, folder: Path) -> Path:
    """Return the file of a population's judged cases, a line each: how many came before, and its forecasts."""
    return folder / f"calibration_{population.replace(' ', '_')}.jsonl"


def judge(populations: Sequence[str], seconds: float, most: int, folder: Path) -> None:
    """Judge further cases of each population in turn until the time is over, and keep them."""
    until = time.monotonic() + seconds
    waiting = {one: islice(cases(one), counted(one, folder) + _count(one, folder), most) for one in populations}
    with ProcessPoolExecutor(2) as workers:
        while time.monotonic() < until and waiting:
            for population, left in list(waiting.items()):
                some: list[Case] = list(islice(left, AT_ONCE))
                with rows_of(population, folder).open("a", encoding="utf-8") as stream:
                    for claims in workers.map(forecasts, some):
                        stream.write(json.dumps([asdict(one) for one in claims]) + "\n")
                if len(some) < AT_ONCE:
                    del waiting[population]


def _count(population: str, folder: Path) -> int:
    return sum(1 for _ in _lines(population, folder))


def _lines(population: str, folder: Path) -> Iterator[str]:
    if (path := rows_of(population, folder)).exists():
        yield from path.read_text(encoding="utf-8").splitlines()


def batches(population: str, folder: Path) -> list[dict[str, Any]]:
    """Return the counted cases of a population, a batch for each run."""
    path = _counts(folder)
    every = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return [one for one in every if one["population"] == population]


def _counts(folder: Path) -> Path:
    return (DOCUMENT.parent if folder == REPOSITORY / "out" else folder) / COUNTS


def counted(population: str, folder: Path) -> int:
    """Return how many cases of a population are counted."""
    return sum(one["cases"] for one in batches(population, folder))


def folded(rows: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """Return forecasts as counts: the kind of claim, its strength, whether it is guilty and first, and how many there are."""
    found = Counter((*row["key"], row["strength"], row["guilty"], row["first"]) for row in rows)
    return [[*what, number] for what, number in sorted(found.items())]


def unfolded(lines: Iterable[Sequence[Any]]) -> Iterator[Forecast]:
    """Yield the forecasts that were counted; which case each is of is lost."""
    for *key, strength, guilty, first, number in lines:
        one = Forecast("", "simulator", tuple(key), strength, strength, guilty, first)  # type: ignore[arg-type]
        yield from [one] * number


def fold(populations: Sequence[str], folder: Path) -> None:
    """Move the cases of a run into the counts, a line a population."""
    for population in populations:
        if cases_judged := _count(population, folder):
            lines = folded(row for line in _lines(population, folder) for row in json.loads(line))
            batch = {
                "population": population,
                "commit": provenance("")["commit"],
                "cases": cases_judged,
                "counts": lines,
            }
            with _counts(folder).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(batch) + "\n")
            rows_of(population, folder).unlink()


def kept(population: str, folder: Path) -> list[Forecast]:
    """Return the forecasts of all kept and counted cases, as they are stated today."""
    curves = calibrations(knowledge())
    rows = (row for line in _lines(population, folder) for row in json.loads(line))
    claims = [Forecast(**row | {"key": tuple(row["key"])}) for row in rows]
    claims += [one for batch in batches(population, folder) for one in unfolded(batch["counts"])]
    stated = ((one, curves.find(one.key)) for one in claims)
    return [
        replace(one, stated=round(curve.probability(one.strength), 4) if curve else one.strength)
        for one, curve in stated
    ]


def report(folder: Path) -> dict[str, Any]:
    """Return how first culprits, and all, are calibrated: by strengths alone (before), and as stated."""
    return {
        "table": knowledge().table("calibration")["source"],
        "populations": {
            which: {
                "of": words,
                "cases": counted(which, folder) + _count(which, folder),
                "commits": _commits(which, folder),
                **_compared(kept(which, folder)),
            }
            for which, words in WORDS.items()
        },
    }


def _commits(population: str, folder: Path) -> dict[str, int]:
    found: Counter[str] = Counter()
    for batch in batches(population, folder):
        found[batch["commit"][:12]] += batch["cases"]
    return dict(found)


def _compared(claims: Sequence[Forecast]) -> dict[str, Any]:
    compared: dict[str, Any] = {}
    for which, some in (("first", [one for one in claims if one.first]), ("all", list(claims))):
        guilty = [one.guilty for one in some]
        pairs = (("before", [one.strength for one in some]), ("after", [one.stated for one in some]))
        compared[which] = {when: msgspec.to_builtins(calibrate(stated, guilty)) for when, stated in pairs}
    return compared


def write_table(folder: Path) -> int:
    """Learn the packaged table from the kept cases; 1 where it would be worse than strengths alone."""
    claims = [replace(one, stated=one.strength) for one in kept(LEARNED, folder)]  # today's table may know them
    learned = learn(claims)
    if learned.worse:
        print(f"not written: {learned.worse}")
        return 1
    named = len({one.case for one in claims})
    source = (
        f"python -m tests.acceptance.calibration --learn: {_count(LEARNED, folder):,} simulated cases of seeds from 440,000 on, "
        f"{named:,} of which name a culprit; {learned.method.name}, a prior of {learned.method.prior:g} claims of each strength"
    )
    TABLE.write_text(to_toml(learned.curves, source, datetime.now(UTC).date()), encoding="utf-8")
    print(json.dumps({which: msgspec.to_builtins(one) for which, one in learned.after.items()}, indent=1))
    return 0


def main() -> int:
    """Measure and write the document; 0 only if the learned probabilities are better than the base rate and than before.

    The smallest form holds no bound: among a few cases one wrong claim decides the scores.
    """
    parser = argparse.ArgumentParser(description="Hold stated probabilities against what came true.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--learn", action="store_true", help="learn the packaged table instead")
    parser.add_argument("--smallest", action="store_true", help="a few cases, written to out/")
    given = parser.parse_args()
    folder = REPOSITORY / "out" / "smallest" if given.smallest else REPOSITORY / "out"
    folder.mkdir(parents=True, exist_ok=True)
    populations = [LEARNED] if given.learn else [HELD_OUT, SHIFTED]
    judge(populations, 60 * given.minutes, SMALLEST if given.smallest else sys.maxsize, folder)
    if given.learn:
        return write_table(folder)
    fold(populations, folder)
    document = provenance(" ".join(["python -m tests.acceptance.calibration", *sys.argv[1:]])) | report(folder)
    target = folder / DOCUMENT.name if given.smallest else DOCUMENT
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if not given.smallest:
        table.main()
    print(json.dumps(document["populations"], indent=1))
    return 0 if given.smallest or holds(document) else 1


def holds(document: dict[str, Any]) -> bool:
    """Whether both scores of first culprits are below the base rate's and below what they were, in both populations."""
    for population in document["populations"].values():
        before, after = population["first"]["before"], population["first"]["after"]
        if not all(after[score] < min(after[f"{score}_base"], before[score]) for score in ("brier", "log_loss")):
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
