"""Days of GPUs as they are: jobs of several kinds, silicon that differs, heat, bursts of errors; and one that is not well."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tests.support.gray_fleet import BRAKE, HOT, POWER_CAP, SLOWDOWN, WARM, Change, GrayFleet, both

FAULTS = ("hot", "brake", "lanes", "generation", "clock", "corrected", "uncorrected", "crc", "replays")


@dataclass
class GrayDay:
    """A fleet drawn by a seed. ``fault``: what is wrong with one GPU from a third of the readings on; empty: nothing."""

    seed: int
    fault: str = ""
    draws: random.Random = field(init=False)
    fleet: GrayFleet = field(init=False)
    guilty: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        """Draw it."""
        draws = self.draws = random.Random(f"{self.seed}/{self.fault}")
        nodes, gpus, reports = draws.choice((1, 2, 4, 8)), draws.choice((4, 8)), draws.choice((6, 12, 40))
        self.guilty = draws.randrange(nodes), draws.randrange(gpus)
        silicon = {(node, gpu): draws.gauss(1.0, 0.015) for node in range(nodes) for gpu in range(gpus)}
        kinds = [draws.choice(("capped", "full", "light", "idle")) for _ in range(nodes)]
        kinds[self.guilty[0]] = draws.choice(("capped", "full"))
        bursts = {
            (draws.randrange(nodes), draws.randrange(gpus), draws.randrange(reports)): draws.choice(
                ("heat", "errors", "pause")
            )
            for _ in range(draws.randrange(6))
        }
        errors: dict[tuple[int, int], int] = {}

        def healthy(node: int, gpu: int, report: int) -> dict[str, object]:
            here = random.Random(f"{self.seed}/{node}/{gpu}/{report}")
            changes = _work(kinds[node], silicon[node, gpu], here)
            burst = bursts.get((node, gpu, report))
            if burst == "heat":
                changes |= {"reasons": frozenset({SLOWDOWN, HOT}), "clock": 1200, "temperature": 86}
            elif burst == "pause":
                changes |= {"load": 3, "clock": 345, "generation": 1, "reasons": frozenset({"Idle"})}
            errors[node, gpu] = errors.get((node, gpu), 0) + (here.randrange(80, 400) if burst == "errors" else 0)
            return changes | {"corrected": errors[node, gpu], "replays": report // 7 + gpu, "crc": report // 5}

        self.fleet = GrayFleet(
            nodes=nodes, gpus=gpus, reports=reports, seconds=30.0, change=both(healthy, self._wrong(reports // 3))
        )

    def _wrong(self, since: int) -> Change:
        changes: dict[str, dict[str, object]] = {
            "hot": {"reasons": frozenset({SLOWDOWN, HOT}), "clock": self.draws.randrange(600, 1200), "temperature": 87},
            "brake": {"reasons": frozenset({SLOWDOWN, BRAKE}), "clock": self.draws.randrange(600, 1200)},
            "lanes": {"width": self.draws.choice((4, 8))},
            "generation": {"generation": self.draws.choice((1, 3, 4))},
            "clock": {"clock": self.draws.randrange(700, 1000), "power": 300.0, "reasons": frozenset()},
        }
        if self.fault in changes:
            found = changes[self.fault]
            return lambda node, gpu, report: found if (node, gpu) == self.guilty and report >= since else {}
        step = {"corrected": 60, "uncorrected": 1, "crc": 50, "replays": 200}.get(self.fault, 0)

        def grows(node: int, gpu: int, report: int) -> dict[str, object]:
            wrong = step and (node, gpu) == self.guilty and report >= since
            return {self.fault: 1_000 + step * (report - since)} if wrong else {}

        return grows


def _work(kind: str, silicon: float, draws: random.Random) -> dict[str, object]:
    """What a GPU shows of its work: at the limit of power clocks differ by silicon, elsewhere they are the highest."""
    if kind == "idle":
        return {
            "load": 0,
            "clock": 345,
            "temperature": 30,
            "power": 70.0,
            "generation": 1,
            "reasons": frozenset({"Idle"}),
        }
    if kind == "capped":
        warm = draws.random() < 0.02
        reasons = frozenset({POWER_CAP, WARM} if warm else {POWER_CAP})
        clock = round(1420 * silicon * draws.gauss(1.0, 0.03))
        return {"load": draws.randrange(90, 101), "clock": clock, "power": draws.gauss(690.0, 8.0), "reasons": reasons}
    load = draws.randrange(85, 101) if kind == "full" else draws.randrange(30, 80)
    return {
        "load": load,
        "clock": draws.choice((1980, 1980, 1965)),
        "power": draws.gauss(500.0, 40.0),
        "temperature": 60,
    }
