"""What healthy jobs do that looks like a hang: each a scene by seed, in which no machine is at fault."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

from simulation.live.course import Interruption
from simulation.live.job import Attempt, End
from simulation.live.logs import launcher, traceback, watchdog
from simulation.live.scenes import MINUTE, Scene, Sketch, Truth, Write

COLLECTIVE_TIMEOUT_SECONDS = 600.0


def _paused(
    drawn: Sketch,
    activity: str,
    seconds: float,
    actors: frozenset[int] = frozenset(),
    wait: str = "",
    *,
    first: bool = False,
) -> Scene:
    """Return a job that pauses once and goes on."""
    at = drawn.strikes_at() if not first else drawn.began_at
    one = Interruption(at, activity, seconds, actors, wait, before_first=first)
    after = max(2 * MINUTE, 6 * drawn.habits.step_seconds)
    truth = Truth(activity, at)
    return drawn.scene([Attempt(1, drawn.course(one))], truth, at + drawn.habits.step_seconds * 2 + seconds + after)


def compiling(random: Random, drawn: Sketch) -> Scene:
    """One rank compiles for ten minutes."""
    return _paused(drawn, "compile", 600.0, frozenset({random.randrange(drawn.world)}))


def checkpointing(random: Random, drawn: Sketch) -> Scene:
    """Rank 0 writes a checkpoint, longer than ever before, while the others wait at the barrier."""
    return _paused(drawn, "checkpoint", random.uniform(90, 400), frozenset({0}), "barrier")


def evaluating(random: Random, drawn: Sketch) -> Scene:
    """An evaluation by rank 0 or by all, unlike any before."""
    actors = frozenset({0}) if random.random() < 0.6 else frozenset()
    return _paused(drawn, "evaluation", random.uniform(120, 900), actors, "evaluated")


def debugging(random: Random, drawn: Sketch) -> Scene:
    """A person stopped one rank in a debugger: pdb, a remote one, or gdb, which traces the process."""
    activity = ("debugger", "remote_debugger", "traced")[random.randrange(3)]
    return _paused(drawn, activity, random.uniform(300, 1200), frozenset({random.randrange(drawn.world)}))


def starting_slowly(random: Random, drawn: Sketch) -> Scene:
    """Before the first step rank 0 builds the index of the data set, or every rank imports, for many minutes."""
    if random.random() < 0.6:
        return _paused(drawn, "indexing", random.uniform(400, 1500), frozenset({0}), "indexed", first=True)
    return _paused(drawn, "importing", random.uniform(300, 900), first=True)


def stalling_files(random: Random, drawn: Sketch) -> Scene:
    """The file system does not answer: all ranks, or most of them, wait in a read."""
    spared = frozenset(random.sample(range(drawn.world), drawn.world // 4)) if random.random() < 0.4 else frozenset()
    actors = frozenset(range(drawn.world)) - spared if spared else frozenset()
    return _paused(drawn, "files", random.uniform(200, 900), actors)


def capturing(random: Random, drawn: Sketch) -> Scene:
    """CUDA graphs: the recorder stands still for hours while the job steps."""
    drawn.habits = replace(drawn.habits, captured=True, reported_by="log")
    return drawn.scene(
        [Attempt(1, drawn.course())], Truth("captured", drawn.began_at), drawn.began_at + random.uniform(1800, 3600)
    )


def restarting(random: Random, drawn: Sketch) -> Scene:
    """Attempt after attempt fails while it starts: every rank by the same exception, or one rank by a file system error."""
    begin, attempts, reports = drawn.began_at, [], []
    alike, failing = random.random() < 0.5, random.randint(4, 9)
    for number in range(1, failing + 1):
        lasted = random.uniform(15, 70)
        first = random.randrange(drawn.world)
        ends = {rank: End(begin + lasted + random.uniform(0.1, 1.5), signal=15) for rank in range(drawn.world)}
        failed = range(drawn.world) if alike else (first,)
        for rank in failed:
            ends[rank] = End(begin + lasted + (random.uniform(0, 0.3) if alike else 0.0), exit_code=1)
        over_at = max(end.at for end in ends.values())
        course = drawn.course(begin=begin)
        course.end = over_at
        attempts.append(Attempt(number, course, ends))
        words = ("FileNotFoundError", "no such file: /data/corpus/index.idx") if alike else (
            "OSError", "[Errno 116] Stale file handle: '/data/corpus/index.idx'"
        )  # fmt: skip
        reports += [traceback(drawn, attempts[-1], rank, words, "build_datasets") for rank in failed]
        reports += launcher(drawn, attempts[-1], first)
        begin = over_at + random.uniform(3, 20)
    attempts.append(Attempt(failing + 1, drawn.course(begin=begin)))
    until = begin + drawn.habits.start_seconds + drawn.habits.first_step_seconds + 5 * MINUTE
    return drawn.scene(attempts, Truth("restart_storm", drawn.began_at), until, tuple(reports))


def running_out(random: Random, drawn: Sketch) -> Scene:
    """Some ranks have no more data and end, or wait at the end; the others wait for them until their timeout."""
    few = frozenset(random.sample(range(drawn.world), random.randint(1, max(1, drawn.world // 3))))
    ended = random.random() < 0.6
    return _timed_out(random, drawn, "ending", few, exit_code=0 if ended else None)


def outlasting(random: Random, drawn: Sketch) -> Scene:
    """One rank's pause outlasts the others' timeout: their watchdogs end the job."""
    activity = random.choice(("compile", "debugger", "evaluation", "checkpoint", "remote_debugger"))
    rank = random.randrange(drawn.world) if activity not in ("checkpoint", "evaluation") else 0
    return _timed_out(random, drawn, activity, frozenset({rank}))


def _timed_out(
    random: Random, drawn: Sketch, activity: str, few: frozenset[int], exit_code: int | None = None
) -> Scene:
    """Return a job in which most wait for a few, until their watchdogs abort them and the launcher ends the rest."""
    course = drawn.course(Interruption(drawn.strikes_at(), activity, inf, few))
    struck = course.struck()
    timed_out = struck + COLLECTIVE_TIMEOUT_SECONDS
    ends = {
        rank: End(timed_out + random.uniform(0.5, 3.0), signal=6 if rank not in few else 15)
        for rank in range(drawn.world)
    }
    if exit_code is not None:
        ends |= {rank: End(struck + random.uniform(1.0, 4.0), exit_code=exit_code) for rank in few}
    attempt = Attempt(1, course, ends)
    reports = tuple(watchdog(drawn, attempt, rank, timed_out) for rank in range(drawn.world) if rank not in few)
    course.end = timed_out + 5.0
    return drawn.scene([attempt], Truth(f"timed_out_{activity}", struck), timed_out + MINUTE, reports)


PAUSES: dict[str, Write] = {
    "compile_on_one_rank": compiling,
    "checkpoint_on_rank_0": checkpointing,
    "evaluation": evaluating,
    "debugger": debugging,
    "slow_start": starting_slowly,
    "restart_storm": restarting,
    "file_system_stall": stalling_files,
    "uneven_data_end": running_out,
    "pause_beyond_the_timeout": outlasting,
    "cuda_graphs": capturing,
}
