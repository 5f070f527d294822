"""``faulthound simulate``: labelled incidents to try ``diagnose`` and ``evaluate`` on."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.cli import options
from service.cli.output import print_lines
from service.cli.speech import Speech
from service.cli.verbs import ending
from service.client import UserError

LEAST_RANKS, MOST_RANKS = 16, 16_384


class Family(StrEnum):
    """What befalls the jobs."""

    hang = "hang"
    slow = "slow"


def simulate(
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder to make; it may exist if it is empty.")],
    family: Annotated[Family | None, typer.Option(help="Jobs that hang, or slow ones; both if left out.")] = None,
    cases: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Cases of each.")] = 14,
    ranks: Annotated[
        int,
        typer.Option(metavar="N", help="Ranks of a job at most; of hangs above 256, of slow jobs above 64, exactly."),
    ] = 64,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The first seed: the same one writes the same files.")
    ] = 0,
    quiet: options.Quiet = False,
) -> None:
    """Write simulated incidents, each a folder of the files that such a job leaves, and their labels.

    Hangs leave flight-recorder dumps and, half of them, a hosts file; slow jobs a trace of their
    operations. Healthy jobs, and slow ones without a machine at fault, are among them. What a label
    calls decidable is what the files determine (docs/evaluate.md). A simulated case is not a real one.

    \b
    Examples:
      faulthound simulate --out cases && faulthound evaluate cases
      faulthound simulate --out cases --family slow --cases 40 --seed 1000
      faulthound simulate --out big --family hang --cases 1 --ranks 1024
    """
    with ending():
        _check(out, ranks)
        _write(
            out, [family] if family is not None else list(Family), range(seed, seed + cases), ranks, Speech(quiet=quiet)
        )
    print_lines([f"{cases:,} cases of {name} in {out / name}" for name in ([family] if family is not None else Family)])


def _check(out: Path, ranks: int) -> None:
    if not LEAST_RANKS <= ranks <= MOST_RANKS or ranks & (ranks - 1):
        powers = ", ".join(str(1 << n) for n in range(LEAST_RANKS.bit_length() - 1, MOST_RANKS.bit_length()))
        raise UserError(f"--ranks {ranks} is no power of two that can be simulated; allowed: {powers}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out {out} is not empty: name a new folder, because nothing is overwritten")


def _write(out: Path, families: list[Family], seeds: range, ranks: int, speech: Speech) -> None:
    from simulation.cases.writing import write_cases

    done, total = 0, len(families) * len(seeds)
    try:
        with speech.progress("cases") as progress:
            for family in families:
                for _ in write_cases(out / family, family, seeds, ranks):
                    done += 1
                    if progress is not None:
                        progress(done, total)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written ({error.strerror or error}): choose another place") from None
