"""The tables of what happens: stories of jobs, drawn out by a seed into lanes of plans.

A lane is a set of nodes that runs one job after the other. All times count in seconds from the job's first step, or from its
``meet``, where it waits for the jobs of the other lanes: a busy machine starts them when it can.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Literal

Output = Literal["file", "pipe", "nothing"]
OUTPUTS: tuple[Output, ...] = ("file", "pipe", "nothing")


@dataclass(frozen=True)
class Event:
    """One thing that happens to a job; ``rank`` -1: drawn by seed."""

    kind: str
    after: float
    lasts: float = 0.0
    rank: int = -1


@dataclass(frozen=True)
class Story:
    """A job's life."""

    name: str
    events: tuple[Event, ...]
    save: tuple[float, float, str] | None = None  # every so many seconds, for so many, by rank0 or all
    evaluate: tuple[float, float] | None = None
    restarts: int = 0  # of torchrun itself
    again: bool = False  # a further run of the job before it in its lane, under the same name


@dataclass(frozen=True)
class Plan:
    """A story on a lane, with all that the seed decided."""

    story: Story
    name: str
    nodes: tuple[str, ...]
    ranks_a_node: int
    output: Output
    step_seconds: float

    @property
    def ranks(self) -> int:
        """Return the size of the world."""
        return len(self.nodes) * self.ranks_a_node


@dataclass(frozen=True)
class Schedule:
    """Lanes of plans, and how agents are restarted besides: every so many seconds one, by seed; 0: never."""

    name: str
    seed: int
    lanes: tuple[tuple[Plan, ...], ...]
    agent_every_seconds: float = 0.0
    service_down: tuple[float, float] | None = None  # after so many seconds, for so many

    @property
    def nodes(self) -> list[str]:
        """Return every node."""
        return sorted({node for lane in self.lanes for plan in lane for node in plan.nodes})


NOW_AND_THEN = ((70, 35), (190, 110), (390, 45), (520, 80))  # after, lasting
DAY: tuple[Story, ...] = (
    Story("short saves, finishes", (Event("finish", 300),), save=(75, 20, "rank0"), evaluate=(190, 30)),
    Story("raises", (Event("raise", 120),)),
    Story("is started again", (Event("finish", 150),), again=True),
    Story("the same stop three times", (*(Event("stop", at, 55, 1) for at in (90, 230, 370)), Event("finish", 480))),
    Story("waits in a debugger", (Event("debugger", 120, 90, 0), Event("ctrl_c", 290))),
    Story("is killed", (Event("kill", 90),)),
    Story("deadlocks, is killed", (Event("deadlock", 120, 3600), Event("kill", 275))),
    Story("a rank is killed", (Event("kill_rank", 150),)),
    Story("long saves", (Event("finish", 400),), save=(110, 50, "all")),
    Story("stops early, twice", (Event("stop", 30, 50, 0), Event("stop", 160, 50, 0), Event("ctrl_c", 270))),
    Story("leaves with a code", (Event("exit", 90),)),
    Story("asks a service that does not answer", (Event("network", 100, 100), Event("network", 280, 100), Event("finish", 450))),
    Story("a person stops all of it", (Event("stop_all", 100, 70), Event("finish", 260))),
    Story("is interrupted", (Event("ctrl_c", 60),), save=(40, 15, "rank0")),
    Story("stops for long", (Event("stop", 120, 150), Event("kill", 350))),
    Story("every rank raises", (Event("raise_all", 100),)),
    Story(
        "is restarted by its launcher", (Event("raise_restarted", 120, 60), Event("finish", 240)), save=(50, 5, "all"), restarts=1
    ),
    Story("reaches its time limit", (Event("time_limit", 120, 5),), evaluate=(60, 25)),
    Story("stops, is interrupted", (Event("stop", 100, 65), Event("ctrl_c", 160))),
    Story("hangs now and then", (*(Event("stop", *each, 1) for each in NOW_AND_THEN), Event("kill", 690))),
)  # fmt: skip
SHORT: tuple[Story, ...] = (
    Story("stops, is interrupted", (Event("stop", 25, 40), Event("ctrl_c", 90))),
    Story("saves, finishes", (Event("finish", 80),), save=(30, 12, "rank0")),
    Story("raises", (Event("raise", 40),)),
)
ROUND_MINUTES = 20.0
DAY_LANES = (1, 1, 1, 2, 2)  # nodes of each lane
STEP_SECONDS = (0.4, 0.7, 1.2, 2.0)
STOPS, STOP_SECONDS, BETWEEN_SECONDS = 20, (30.0, 170.0), 75.0
DOWN_SECONDS = 600.0
STAYS_SECONDS = {"agent": 30.0, "service": 60.0}  # a stop after the interruption: a service needs up to 20 s to start
INTERRUPTED = ("kill", "ctrl_c", "stop", "stop over meanwhile")


def day(seed: int, rounds: int = 3) -> Schedule:
    """Return every story so often, each about twenty minutes, in any order and with any output."""
    chance = random.Random(f"day {seed}")
    widths = list(DAY_LANES)
    lengths, groups = [0.0] * len(widths), [list[list[Story]]() for _ in widths]
    for group in sorted(_shuffled(DAY * rounds, chance), key=_seconds, reverse=True):
        # Launchers of two nodes count one failure twice, and may give up at the first.
        fits = [
            number for number, width in enumerate(widths) if width == 1 or not any(story.restarts for story in group)
        ]
        lane = min(fits, key=lambda number: lengths[number])
        groups[lane].append(group)
        lengths[lane] += _seconds(group)
    reported = [[story for group in chance.sample(lane, len(lane)) for story in group] for lane in groups]
    lanes = _lanes(reported, widths, chance, 3)
    return Schedule(f"day-{seed}-{rounds}", seed, lanes, 150.0, (rounds * ROUND_MINUTES * 30.0, 60.0))


def short(seed: int) -> Schedule:
    """Return a few minutes of it."""
    chance = random.Random(f"short {seed}")
    lanes = _lanes([[story] for story in SHORT], [1, 1, 1], chance, 2)
    return Schedule(f"short-{seed}", seed, lanes, 45.0)


def stops(seed: int, count: int = STOPS, longest: float = STOP_SECONDS[1]) -> Schedule:
    """Return three jobs, one an output, each with one rank stopped so many times for 30 to 170 s."""
    chance = random.Random(f"stops {seed}")
    reported = []
    for _ in OUTPUTS:
        at, events = 30.0, []
        for _ in range(count):
            lasts = round(chance.uniform(STOP_SECONDS[0], longest))
            events.append(Event("stop", at, lasts, 1))
            at += lasts + BETWEEN_SECONDS
        reported.append([Story("stops again and again", (*events, Event("finish", at)))])
    lanes = _lanes(reported, [1] * len(reported), chance, 3, outputs=OUTPUTS)
    return Schedule(f"stops-{seed}-{count}", seed, lanes)


def interrupted(seed: int, what: Literal["agent", "service"], down: float = DOWN_SECONDS) -> Schedule:
    """Return kill, Ctrl-C and a stop, each with every output, while the agents are restarted or the service is down."""
    reported = [(output, kind) for kind in INTERRUPTED for output in OUTPUTS]
    lasts = 20.0 if what == "agent" else down
    return _interrupted(f"interrupted-{what}-{seed}-{lasts:.0f}", seed, reported, lasts, what)


def interrupted_briefly(seed: int) -> Schedule:
    """Return the same in two minutes: each once, agents alone."""
    reported = list(zip(cycle(OUTPUTS), INTERRUPTED, strict=False))
    return _interrupted(f"interrupted-briefly-{seed}", seed, reported, 15.0, "agent", lead=25.0)


def _interrupted(
    name: str, seed: int, reported: Sequence[tuple[Output, str]], lasts: float, what: str, lead: float = 50.0
) -> Schedule:
    stories = []
    for number, (_, kind) in enumerate(reported):
        first = what == "agent" or not number  # there is one service
        ours = (Event(f"{what}_down", lead + 10.0, lasts),) if first else ()
        stories.append([Story(f"{kind}, {what} down", _around(kind, ours, lasts, lead, STAYS_SECONDS[what]))])
    chance, outputs = random.Random(f"interrupted {seed}"), [output for output, _ in reported]
    return Schedule(name, seed, _lanes(stories, [1] * len(reported), chance, 2, outputs=outputs))


def _around(kind: str, ours: tuple[Event, ...], lasts: float, lead: float, stays: float) -> tuple[Event, ...]:
    """Return the events around an interruption ten seconds after the lead, which counts from the meeting."""
    meet, down = Event("meet", 20.0), lead + 10.0
    if kind == "stop":  # it begins before and ends after the interruption
        return meet, Event("stop", lead, 10.0 + lasts + stays), *ours, Event("finish", lead + lasts + stays + 35.0)
    if kind == "stop over meanwhile":
        return meet, *ours, Event("stop", down + 2.0, lasts * 0.6), Event("finish", down + lasts + 40.0)
    return meet, *ours, Event(kind, down + lasts / 2)


def _seconds(stories: Sequence[Story]) -> float:
    """Return about how long a lane has with stories: a job needs a minute to start, to end and until the next."""
    return sum(story.events[-1].after + 60.0 for story in stories)


def _shuffled(stories: Sequence[Story], chance: random.Random) -> list[list[Story]]:
    """Return the stories in any order, a further run behind the one before it."""
    groups: list[list[Story]] = []
    for story in stories:
        if story.again:
            groups[-1].append(story)
        else:
            groups.append([story])
    return chance.sample(groups, len(groups))


def _lanes(
    reported: Sequence[Sequence[Story]], widths: Sequence[int], chance: random.Random, ranks: int,
    outputs: Sequence[Output] = (),
) -> tuple[tuple[Plan, ...], ...]:  # fmt: skip
    """Give each lane its nodes, each job its name, its output, its pace and the ranks that it happens to."""
    lanes, first, turns = [], 1, cycle(chance.sample(OUTPUTS, len(OUTPUTS)))
    for number, (stories, width) in enumerate(zip(reported, widths, strict=True)):
        nodes = tuple(f"gpu-{node:04d}" for node in range(first, first + width))
        first += width
        given = outputs[number] if outputs else None
        lanes.append(tuple(_plans(stories, number, nodes, ranks if width == 1 else 2, chance, turns, given)))
    return tuple(lanes)


def _plans(
    stories: Sequence[Story], lane: int, nodes: tuple[str, ...], ranks_a_node: int, chance: random.Random,
    turns: Iterator[Output], given: Output | None,
) -> Iterator[Plan]:  # fmt: skip
    name = ""
    for number, story in enumerate(stories):
        name = name if story.again else f"run-{lane + 1}-{number + 1}"
        world = ranks_a_node * len(nodes)
        drawn = [chance.randrange(world) for _ in story.events]
        events = tuple(
            replace(event, rank=rank if event.rank < 0 else event.rank) for event, rank in zip(story.events, drawn, strict=True)
        )  # fmt: skip
        pace = chance.choice(STEP_SECONDS)
        yield Plan(replace(story, events=events), name, nodes, ranks_a_node, given or next(turns), pace)
