"""Role restart against whole-job restart, on one real job and one schedule of faults: ETTR and the time to the same reward.

The job is examples/rl_job: 2 trainers, 4 rollouts one step ahead, a reward, a tool with a long tail, a controller. A trainer is
killed in 10 % and in 2 % of the steps. *role*: the trainer's restart is asked for and approved at once, and goes through the
service, the signed webhook and the launcher's receiver. *whole*: the launcher restarts every process at once, without asking
any service. How fast a fault is detected is left out of both. The clock runs from the first trajectory to the last commit.

ETTR is RobustRL's: while only the trainer restarts, time counts as rollouts / (rollouts + trainers) (arXiv 2512.22492).
``ettr_at_work`` counts that time only up to the last trajectory that came in it: rollouts that wait for weights do no work.
``to_reward`` is the time until the mean reward of ten steps was first as high as every arm of that seed and rate reached.
Finished runs are kept in out/role_restarts.jsonl.

    python -m tests.acceptance.role_restarts [--smallest] [--seeds 3] [--steps 50]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from tests.bench.measure import REPOSITORY, provenance
from tests.support.rl.journal import kill
from tests.support.rl_restarts import RlJob, rl_job

Row = dict[str, Any]
ARMS = {"role": "faulthound", "whole": "whole", "no_fault": "launcher"}
RATES = (0.1, 0.02)
STEPS, TRAINERS, ROLLOUTS, TOOL_SECONDS = 50, 2, 4, 0.3  # at least STEPS: the reward begins to rise after a hundred
BLOCK = 10  # steps: at most one fault in each, away from its ends
LAST = 10  # steps whose mean reward is compared
POLL_SECONDS = 0.05
LONGEST_SECONDS = 2_400.0
KEPT = REPOSITORY / "out" / "role_restarts.jsonl"


class Timeline:
    """When what came into the journal, as seen from outside."""

    def __init__(self, job: RlJob) -> None:
        self._job, self._read = job, 0
        self.trajectories: list[float] = []
        self.commits: list[float] = []

    def look(self) -> None:
        """Read what is new."""
        journal = self._job.folder / "journal.jsonl"
        if not journal.exists():
            return
        with journal.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                (self.commits if b'"commit"' in line[:12] else self.trajectories).append(time.monotonic())


def schedule(rate: float, seed: int, steps: int) -> list[int]:
    """Return the numbers of commits after which a trainer is killed."""
    drawn = random.Random(f"{rate} {seed}")
    blocks = drawn.sample(range(steps // BLOCK), round(rate * steps))
    return sorted(BLOCK * block + drawn.randint(2, BLOCK - 3) for block in blocks)


def play(arm: str, rate: float, seed: int, steps: int) -> Row:
    """Run the job once; return what it lost."""
    faults = [] if arm == "no_fault" else schedule(rate, seed, steps)
    with tempfile.TemporaryDirectory(prefix="rl-") as folder:
        more = ("--off-policy", "--tool-seconds", str(TOOL_SECONDS))
        with rl_job(Path(folder), steps, *more, restarts=ARMS[arm]) as job:
            timeline, spans, left = Timeline(job), [], list(faults)
            began_at = time.monotonic()
            while job.launcher.poll() is None:
                if time.monotonic() > began_at + LONGEST_SECONDS:
                    raise RuntimeError(f"not done in {LONGEST_SECONDS:.0f} s: {tail(job)}")
                timeline.look()
                if left and len(timeline.commits) >= left[0]:
                    left.pop(0)
                    spans.append(lose_trainer(job, timeline, arm))
                time.sleep(POLL_SECONDS)
            timeline.look()
            code = job.launcher.returncode
            outcomes = [job.remediation(id)["outcome"] for id in job.asked]
            rewards = json.loads((job.folder / "rewards.json").read_text())
    first, last = timeline.trajectories[0], timeline.commits[-1]
    return {
        "arm": arm, "rate": rate, "seed": seed, "faults": faults, "code": code, "steps": len(timeline.commits),
        "seconds": round(last - first, 2), "outcomes": outcomes,
        "down_seconds": [round(back - lost, 2) for lost, back in spans],
        "ettr": round(ettr(arm, spans, first, last, timeline.trajectories, at_work=False), 4),
        "ettr_at_work": round(ettr(arm, spans, first, last, timeline.trajectories, at_work=True), 4),
        "reward": round(statistics.mean(rewards[-LAST:]), 4),
        "committed": [round(at - first, 1) for at in timeline.commits], "rewards": [round(one, 4) for one in rewards],
    }  # fmt: skip


def lose_trainer(job: RlJob, timeline: Timeline, arm: str) -> tuple[float, float]:
    """Kill a trainer; return when, and when the job was whole again: for *whole* once a trajectory came in."""
    before = job.directory()["trainer 0"]["epoch"]
    kill(job.folder, "trainer.py", "RANK=1")
    lost = time.monotonic()
    if arm == "role":
        job.restart("trainer", "1")

    def ready() -> bool:
        timeline.look()
        trainer = job.directory()["trainer 0"]
        return bool(trainer["epoch"] > before and trainer["weights"] is not None)

    job.wait(ready)
    seen = len(timeline.trajectories)
    if arm == "whole":
        job.wait(lambda: timeline.look() or len(timeline.trajectories) > seen)
    return lost, time.monotonic()


def ettr(
    arm: str, spans: list[tuple[float, float]], first: float, last: float, trajectories: list[float], *, at_work: bool
) -> float:
    """Return the share of the time that was training, with the rollouts' part of a role restart."""
    part = ROLLOUTS / (ROLLOUTS + TRAINERS) if arm == "role" else 0.0
    lost = 0.0
    for begin, end in spans:
        worked = end if not at_work else max((at for at in trajectories if begin <= at <= end), default=begin)
        lost += (end - begin) - part * (worked - begin)
    return 1 - lost / (last - first)


def tail(job: RlJob) -> str:
    """Return the end of the launcher's log."""
    return (job.folder / "launcher.log").read_text()[-1_000:]


def smooth(row: Row) -> list[tuple[float, float]]:
    """Return when each commit was made and the mean reward of the last steps by then."""
    rewards = row["rewards"]
    means = [statistics.mean(rewards[end - LAST : end]) for end in range(LAST, len(rewards) + 1)]
    return list(zip(row["committed"][LAST - 1 :], means, strict=False))


def add_times(rows: list[Row]) -> None:
    """Add to each row when it had the reward that every arm of its seed and rate reached: the lowest of their best."""
    for row in rows:
        alike = [one for one in rows if one["seed"] == row["seed"] and one["rate"] in (row["rate"], RATES[0])]
        compared = [one for one in alike if one["arm"] == "no_fault" or one["rate"] == row["rate"]]
        target = min(max(reward for _, reward in smooth(one)) for one in compared)
        row["to_reward"] = next(at for at, reward in smooth(row) if reward >= target)
        row["same_reward"] = round(target, 4)


def summary(rows: list[Row]) -> list[Row]:
    """Compare the arms at each rate; spreads are the least and the most of the seeds."""
    found = []
    for rate in sorted({row["rate"] for row in rows}, reverse=True):
        for arm in ARMS:
            of = [row for row in rows if (row["arm"], row["rate"]) == (arm, rate)]
            if not of:
                continue
            entry: Row = {"rate": rate, "arm": arm, "runs": len(of)}
            for name in ("ettr", "ettr_at_work", "seconds", "to_reward", "reward"):
                values = [row[name] for row in of]
                entry[name] = {
                    "mean": round(statistics.mean(values), 4), "least": min(values), "most": max(values)
                }  # fmt: skip
            down = [seconds for row in of for seconds in row["down_seconds"]]
            entry["down_seconds"] = round(statistics.mean(down), 2) if down else 0.0
            found.append(entry)
    return found


def _which(row: Row) -> tuple[str, float, int, int]:
    return row["arm"], row["rate"], row["seed"], row["steps"]


def main() -> int:
    """Run both arms on the same schedules, turn by turn; 0 only if every run ended, and each role restart was cured."""
    parser = argparse.ArgumentParser(description="Role restart against whole-job restart.")
    parser.add_argument(
        "--smallest", action="store_true", help="one seed at one rate, restarts of the role alone, into out/"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    seeds, rates = (1, RATES[1:]) if options.smallest else (options.seeds, RATES)
    KEPT.parent.mkdir(exist_ok=True)
    known = [json.loads(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []
    known = [row for row in known if "rewards" in row]  # those of before are measured again
    rows = []
    for seed in range(seeds):
        for rate in rates:
            for arm in list(ARMS)[: 1 if options.smallest else None]:
                row = next((one for one in known if _which(one) == (arm, rate, seed, options.steps)), None)
                if row is None and not (arm == "no_fault" and rate != rates[0]):
                    row = play(arm, rate, seed, options.steps)
                    with KEPT.open("a") as kept:
                        kept.write(json.dumps(row) + "\n")
                    print(json.dumps(row), flush=True)
                rows += [row] if row else []
    add_times(rows)
    document = {
        **provenance(" ".join(["python -m tests.acceptance.role_restarts", *sys.argv[1:]])),
        "torch_threads": torch.get_num_threads(),
        "steps": options.steps, "trainers": TRAINERS, "rollouts": ROLLOUTS, "tool_median_seconds": TOOL_SECONDS,
        "summary": summary(rows), "runs": rows,
    }  # fmt: skip
    path = REPOSITORY / ("out" if options.smallest else "docs/measured") / "role_restarts.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document["summary"], indent=2))
    good = all(row["code"] == 0 and row["steps"] == options.steps and set(row["outcomes"]) <= {"cured"} for row in rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
