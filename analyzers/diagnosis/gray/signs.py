"""What a GPU shows of itself under load: lowered clocks, a link below its most, a clock below that of its peers.

A sign is a reading; ``apart`` decides whether it is one GPU's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from analyzers.diagnosis.gray.names import CLOCK, GENERATION, LOWERED, WIDTH
from analyzers.diagnosis.gray.readings import Floats
from analyzers.diagnosis.gray.under_load import DATED, FEWEST, Subject, loaded_in, masks_of
from analyzers.model.medians import spread

FEWEST_PEERS = 3
HALF = 0.5  # of the readings: less is an excursion
RARELY, MOSTLY = 0.25, 0.75  # of those before, and of those now: it has changed
SAME_LOAD_PERCENT = 20.0
LOWER_CLOCK = 0.1  # GPUs of one model differ by less under one load
SPREADS = 4.0  # and by less than so many times their own spread
LOWER_LIMIT = 0.05
AT_LIMIT = 0.9
LINKS = (("width", "lanes", WIDTH), ("generation", "", GENERATION))
FEWEST_SOUND = 2  # of the newest readings without a sign: it is over
TIMES_GAP = 3  # and so many times as many as between two of it: what comes and goes is not
SURE, LIKELY, DOUBTFUL = 0.75, 0.65, 0.55


@dataclass(frozen=True, slots=True)
class Sign:
    """One sign of one GPU. ``alone``: it needs no peers, because the GPU itself was otherwise before.

    ``kind``: what is compared with peers; ``fault_class``: the class that it shows.
    """

    kind: str
    fault_class: str
    subject: Subject
    strength: float
    text: str
    at: float | None = None
    alone: bool = False
    decided: bool = True  # False: one reading, which may be an accident
    over: bool = False  # the newest readings no longer show it
    of_node: bool = True  # a whole node may have it


def signs(gpu: Subject, peers: Sequence[Subject]) -> Iterator[Sign]:
    """Yield the signs of one GPU. ``peers``: others of its model under load, on its node where there are enough."""
    slower, recovered = _below_peers(gpu, peers)
    if _is_throttled(gpu):
        yield _throttled(gpu, "" if recovered else slower)
    elif slower and (why := _why_slower(gpu, peers)) is not None:
        found = gpu.now.readings >= FEWEST
        if found or why:
            fault_class = "gray_setting" if why else "gray_clocks"
            text = slower + why + recovered
            yield Sign("clocks", fault_class, gpu, DOUBTFUL, text, gpu.now.at, of_node=False, over=bool(recovered))
    yield from _links(gpu, peers)


def _ended(gpu: Subject, shows: Floats) -> str:
    """Return since when readings under load no longer show a sign; empty where the newest do, or it comes and goes.

    ``shows``: above 0 in each reading of the GPU that shows it, NaN where that is not known.
    """
    rows = np.flatnonzero(loaded_in(gpu.read) & np.isfinite(shows))
    showing = np.flatnonzero(shows[rows] > 0)
    sound = len(rows) - 1 - int(showing[-1]) if len(showing) else 0
    if sound < max(FEWEST_SOUND, TIMES_GAP * (int(np.max(np.diff(showing), initial=1)) - 1)):
        return ""
    at = float(gpu.read.ticks[rows[-sound]])
    since = f" since {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" if at > DATED else ""
    return f"; no longer{since}, in its newest {sound} readings under load"


def _is_throttled(gpu: Subject) -> bool:
    """Whether its clocks are lowered in most of its newest readings: three of them at least, or all where there are fewer."""
    least = min(FEWEST, gpu.now.readings)
    return gpu.now.lowered > HALF and round(gpu.now.lowered * gpu.now.readings) >= least


def _throttled(gpu: Subject, slower: str) -> Sign:
    now, past = gpu.now, gpu.past
    masks = masks_of(gpu.read)
    shows = np.where(np.isfinite(masks), np.nan_to_num(masks).astype(np.int64) & LOWERED, np.nan)
    ended = "" if slower else _ended(gpu, shows)
    share = "in its one reading" if now.readings == 1 else f"in {now.lowered:.0%} of its newest {now.readings} readings"
    heat = f", at {now.temperature:.0f} °C" if math.isfinite(now.temperature) else ""
    text = (
        f"its clocks {'were' if ended else 'are'} lowered {now.reason or 'by its hardware'}{heat}, {share} under load"
    )
    text += f"; {slower}" if slower else ended
    many = now.readings >= FEWEST
    changed = past.readings >= FEWEST and past.lowered <= RARELY and now.lowered >= MOSTLY and many
    strength = SURE if many else LIKELY
    return Sign(
        "throttled",
        "gray_throttled",
        gpu,
        strength,
        text,
        now.lowered_at,
        alone=changed,
        decided=many or (bool(slower) and _all_there_is(gpu)),
        over=bool(ended),
    )


def _all_there_is(gpu: Subject) -> bool:
    """Whether it has no other readings: one or two of a GPU that rests else may be of its job's end."""
    return gpu.now.readings == len(gpu.read.ticks)


def _below_peers(gpu: Subject, peers: Sequence[Subject]) -> tuple[str, str]:
    """Return how far a clock is below that of peers with as much load, and since when it is not; both may be empty.

    It is empty where the clock is not below, or too few peers are known.
    """
    clocks = np.array([one.now.clock for one in peers if abs(one.now.load - gpu.now.load) <= SAME_LOAD_PERCENT])
    clocks = clocks[np.isfinite(clocks)]
    if len(clocks) < FEWEST_PEERS or not math.isfinite(gpu.now.clock_held):
        return "", ""
    usual = float(np.median(clocks))
    least = usual - max(LOWER_CLOCK * usual, SPREADS * spread(clocks))
    if gpu.now.clock_held >= least:
        return "", ""
    ended = _ended(gpu, least - gpu.read.column(CLOCK))
    clock = f"its clock {'was' if ended else 'is'} {gpu.now.clock:.0f} MHz"
    return f"{clock}, and {usual:.0f} MHz on its {len(clocks)} peers under the same load", ended


def _why_slower(gpu: Subject, peers: Sequence[Subject]) -> str | None:
    """Return by which setting the clock is lower, empty where that is not known; None where its work explains it."""
    limits = [one.now.limit for one in peers if math.isfinite(one.now.limit)]
    usual = float(np.median(limits)) if limits else math.nan
    if gpu.now.limit < (1 - LOWER_LIMIT) * usual:
        return f"; its power limit is {gpu.now.limit:.0f} W, and {usual:.0f} W on them"
    if gpu.now.set > HALF:
        return "; its driver says that the applications clocks, which an operator sets, hold it there"
    at_limit = gpu.now.power >= AT_LIMIT * gpu.now.limit
    return None if at_limit or gpu.now.capped >= HALF else ""


def _links(gpu: Subject, peers: Sequence[Subject]) -> Iterator[Sign]:
    for number, (what, unit, name) in enumerate(LINKS):
        now, past, most = gpu.now.link[number], gpu.past.link[number], gpu.most[number]
        others = [one.now.link[number] for one in peers if math.isfinite(one.now.link[number])]
        expected = max((value for value in (most, past) if math.isfinite(value)), default=math.nan)
        if not math.isfinite(expected) and len(others) >= FEWEST_PEERS:
            expected = float(np.median(others))
        if not now < expected:
            continue
        short, full = (f"{value:.0f} {unit}".strip() for value in (now, expected))
        ended = _ended(gpu, expected - gpu.read.column(name))
        text = f"its PCIe link {'ran' if ended else 'runs'} at {what} {short} under load, and can run at {full}"
        many = gpu.now.readings >= FEWEST
        fell = past > now and gpu.past.readings >= FEWEST and many
        text += (f"; before it ran at {past:.0f}" if fell else "") + ended
        strength = (SURE if many else LIKELY) if what == "width" else (LIKELY if many else DOUBTFUL)
        decided = many or what == "width" or _all_there_is(gpu)
        yield Sign("pcie", "gray_pcie", gpu, strength, text, gpu.now.at, alone=fell, decided=decided, over=bool(ended))
