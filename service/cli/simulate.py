"""``faulthound simulate``: labelled incidents to try ``diagnose`` and ``evaluate`` on, or a job that reports to a service."""

from __future__ import annotations

import time
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import options
from service.cli.output import print_lines
from service.cli.speech import Speech
from service.cli.verbs import ending
from service.client import UserError, connected
from service.clock import now
from service.reports.instants import clock

if TYPE_CHECKING:
    from simulation.live.scenes import Truth

HEALTHY, HEALTHY_HOURS = "healthy", 1.0
SCENES = "spin, sigstop, killed, dead_node, gpu_lost, checkpoint_on_rank_0, healthy and others"
LEAST_RANKS, MOST_RANKS = 16, 16_384


class Family(StrEnum):
    """What befalls the jobs."""

    hang = "hang"
    slow = "slow"


def simulate(
    ctx: typer.Context,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder to make; it may exist if it is empty.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="URL", help="A service, to which one job reports as it runs.")
    ] = None,
    family: Annotated[Family | None, typer.Option(help="Jobs that hang, or slow ones; both if left out.")] = None,
    cases: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Cases of each.")] = 14,
    ranks: Annotated[
        int,
        typer.Option(metavar="N", help="Ranks of a job at most; of hangs above 256, of slow jobs above 64, exactly."),
    ] = 64,
    scene: Annotated[str, typer.Option(metavar="NAME", help=f"With --to, what befalls the job: {SCENES}.")] = "spin",
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="The first seed: the same one writes the same files.")
    ] = 0,
    quiet: options.Quiet = False,
) -> None:
    """Write simulated incidents, each a folder of the files that such a job leaves, and their labels; or let a job report.

    Hangs leave flight-recorder dumps and, half of them, a hosts file; slow jobs a trace of their
    operations. Healthy jobs, and slow ones without a machine at fault, are among them. What a label
    calls decidable is what the files determine (docs/evaluate.md). A simulated case is not a real one.

    With --to, the agents of a simulated job's nodes report to a service in real time and answer what it
    asks: to see incidents and pages without a cluster. It trains for some minutes before anything happens.
    When it ends its nodes fall silent, as machines do that are switched off, and the service says so.

    \b
    Examples:
      faulthound simulate --out cases && faulthound evaluate cases
      faulthound simulate --out cases --family slow --cases 40 --seed 1000
      faulthound simulate --out big --family hang --cases 1 --ranks 1024
      faulthound simulate --to http://127.0.0.1:4747 --scene checkpoint_on_rank_0
    """
    speech = Speech(quiet=quiet)
    with ending():
        if (out is None) == (to is None):
            raise UserError("give either --out DIR, to write files, or --to URL, to let a job report to a service")
        of_other = ("scene",) if to is None else ("family", "cases", "ranks")
        for name in of_other:
            if (source := ctx.get_parameter_source(name)) is not None and source.name == "COMMANDLINE":
                raise UserError(f"--{name} is of {'--to' if to is None else '--out'}: leave it out")
        if to is not None:
            _report(to, scene, seed, ctx.obj or {}, speech)
            return
        assert out is not None
        _check(out, ranks)
        _write(out, [family] if family is not None else list(Family), range(seed, seed + cases), ranks, speech)
    print_lines([f"{cases:,} cases of {name} in {out / name}" for name in ([family] if family is not None else Family)])


def _report(url: str, scene: str, seed: int, reach: Mapping[str, Any], speech: Speech) -> None:
    from service.cli.simulated_job import Feed
    from simulation.live.fleet import Fleet
    from simulation.live.scene_list import FAULTS, PAUSES, healthy_day, play

    if scene not in (known := [*FAULTS, *PAUSES, HEALTHY]):
        raise UserError(f"--scene {scene!a} is none: choose {', '.join(known)}")
    begun = now()
    job = f"simulated-{scene.replace('_', '-')}-{time.strftime('%H%M%S', time.gmtime(begun))}"
    drawn = (
        healthy_day(seed, HEALTHY_HOURS, begun, job)
        if scene == HEALTHY
        else play(scene, seed, began_at=begun, label=job)
    )
    truth = drawn.truth
    with connected(url, reach.get("ca_file"), reach.get("token_file"), option="--to") as connection:
        list(connection.all("/v1/jobs", 1))  # it answers, and knows the token
        print_lines([
            f"job {job}, {drawn.job.world} ranks on {len(drawn.job.nodes)} nodes: {connection.url}/jobs/{job}",
            f"the truth: {_truth(scene, truth)}; it ends at {clock(drawn.until)}",
        ])  # fmt: skip
        feed = Feed(Fleet([drawn.job], seed, begun), connection, speech.note)
        with speech.progress("seconds") as progress:
            feed.until(
                drawn.until,
                lambda at: progress(int(at - begun), int(drawn.until - begun)) if progress is not None else None,
            )
        incidents = list(connection.all("/v1/incidents", job=job))
    sent = f"{feed.records:,} records in {feed.batches:,} batches, {feed.commands:,} commands answered"
    said = ", ".join(one["id"] for one in incidents) or "none"
    print_lines([f"sent: {sent}; its nodes are silent from now on", f"incidents of the job: {said}"])


def _truth(scene: str, truth: Truth) -> str:
    if not truth.ranks and not truth.nodes:
        return f"{scene.replace('_', ' ')}, no machine at fault"
    where = ", ".join([*(f"rank {rank}" for rank in truth.ranks), *truth.nodes])
    return f"{scene.replace('_', ' ')} at {clock(truth.at)} ({where})"


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
