"""Logs of made jobs whose detectors report stragglers, as Megatron-LM and NVIDIA's resiliency extension print them."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

USUAL_MS, USUAL_MHZ, WORK = 1_725.0, 1_935.0, 640_000.0


@dataclass(frozen=True, kw_only=True)
class MegatronJob:
    """``slow``: rank → how many times as long it takes, in the reports from ``since`` to before ``until``."""

    ranks: int = 16
    tp: int = 1
    pp: int = 1
    slow: Mapping[int, float] = field(default_factory=dict)
    since: int = 0
    until: int = 1_000
    stage_times: tuple[float, ...] = ()  # by stage
    clocks: Mapping[int, float] = field(default_factory=dict)  # MHz, of ranks unlike the others
    celsius: Mapping[int, float] = field(default_factory=dict)
    listed: int = 0
    head: bool = True
    stages_inside: bool | None = None  # None: no dump of arguments
    spread: float = 0.004
    seed: int = 7

    def log(self, reports: int = 10) -> str:
        """Return so many reports, each below a step's line."""
        chosen = random.Random(self.seed)
        lines = [self._sizes()] if self.head else []
        if self.stages_inside is not None:
            lines.append(f"  use_tp_pp_dp_mapping ............................ {self.stages_inside}")
        for number in range(reports):
            lines += self._report(number, chosen)
        return "\n".join(lines) + "\n"

    def _sizes(self) -> str:
        return (
            f"using world size: {self.ranks}, data-parallel size: {self.ranks // (self.tp * self.pp)}, context-parallel size: 1, "
            f"hierarchical context-parallel sizes: None, tensor-model-parallel size: {self.tp}, "
            f"pipeline-model-parallel size: {self.pp}"
        )

    def _report(self, number: int, chosen: random.Random) -> list[str]:
        took = self._took(number, chosen)
        order = sorted(took, key=lambda rank: took[rank])
        stamp = f"2026-11-21 03:{number // 2:02}:{30 * (number % 2):02}"
        ends = [("Rtt", took, "ms"), ("Tmp", {**dict.fromkeys(took, 57.0), **self.celsius}, "C")]
        ends.append(("Clk", {**dict.fromkeys(took, USUAL_MHZ), **self.clocks}, "MHz"))
        parts = []
        for name, of, unit in ends:
            low, high = (pick(of, key=lambda rank: of[rank]) for pick in (min, max))
            parts += [f"Mn{name}/Rnk: {of[low]:.2f}{unit}/{low}", f"Mx{name}/Rnk: {of[high]:.2f}{unit}/{high}"]
        lines = [
            f" [{stamp}] iteration {10 * number + 10:8d}/ 50000 | elapsed time per iteration (ms): {3 * took[order[-1]]:.1f} |",
            f"INFO:megatron.core.utils:[{stamp}] | {' | '.join(parts)}",
        ]
        speeds = [f"{WORK / took[rank]:.2f}/{rank}" for rank in reversed(order)]
        for word, of_word, what in (
            ("Bottom", speeds[: self.listed], "lowest "),
            ("Top   ", speeds[-self.listed :], "highest"),
        ):
            if self.listed:
                lines.append(f"^^^^ {word} {self.listed} Ranks with {what} Etpt(TF): {', '.join(of_word)},")
        return lines

    def _took(self, number: int, chosen: random.Random) -> dict[int, float]:
        """Milliseconds of each rank; those of one tensor-parallel group wait for one another."""
        own = {}
        for rank in range(self.ranks):
            times = self.slow.get(rank, 1.0) if self.since <= number < self.until else 1.0
            of_stage = (
                self.stage_times[rank // self.tp % self.pp if self.stages_inside else rank * self.pp // self.ranks]
                if self.stage_times
                else 1.0
            )
            own[rank] = USUAL_MS * times * of_stage * (1 + abs(chosen.gauss(0, self.spread)))
        waited = {rank: max(own[rank // self.tp * self.tp + one] for one in range(self.tp)) for rank in own}
        return {rank: waited[rank] * (1 + 0.001 * chosen.random()) for rank in own}


def scores_log(
    slow: Mapping[int, float], *, ranks: int = 32, reports: int = 6, listed: int = 3, since: int = 0, below: float = 0.7,
    ids: bool = True, scores: bool = True, usual: tuple[float, float] = (0.95, 0.99),
) -> str:  # fmt: skip
    """Return the reports of the extension's callback: scores of ranks, and a warning of those below its threshold."""
    chosen = random.Random(3)
    lines = []
    for number in range(reports):
        prefix = f"[NeMo W 2026-11-21 05:{number:02}:00 straggler_det_callback:148] "
        score = {rank: chosen.uniform(*usual) for rank in range(ranks)}
        score.update(slow if number >= since else {})
        if named := [rank for rank in score if score[rank] < below]:
            warning = "STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance."
            lines.append(f"{prefix}{warning} Affected ranks: {affected(named, ids)}")
        for kind in ("relative", "individual") if scores else ():
            own = score if kind == "relative" else dict.fromkeys(score, 1.0)
            lines += [prefix, f"GPU {kind} performance:", *_scored(own, listed), ""]
        lines.append(f"{prefix}Straggler report processing time: 0.037 sec.")
    return "\n".join(lines) + "\n"


def affected(ranks: Collection[int], ids: bool) -> str:
    """Return ranks as a warning names them: a set of identities, or a list of numbers."""
    if not ids:
        return str(list(ranks))
    return "{" + ", ".join(f"StragglerId(rank={rank}, node='node-{rank // 8}')" for rank in ranks) + "}"


def _scored(score: Mapping[int, float], listed: int) -> list[str]:
    order = sorted(score, key=lambda rank: score[rank])
    rows = [f"  Rank={rank} Node=node-{rank // 8} Score={score[rank]:.2f}" for rank in order]
    if len(order) <= 2 * listed:
        return rows
    worst, best = f" Worst performing {listed}/{len(order)} ranks:", f" Best performing {listed}/{len(order)} ranks:"
    return [worst, *rows[:listed], best, *rows[: -listed - 1 : -1]]
