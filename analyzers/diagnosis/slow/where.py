"""Where a slow rank spends the time that its peers wait for it: of all functions, the one that it is in more often than they."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from analyzers.model.finding import Evidence
from analyzers.model.frames import FrameRules, normal
from analyzers.model.standings import WAITING
from analyzers.model.window import Window
from collectors.records import Frame, Profile

WORTH_SHARE = 0.05  # of the samples


def where_it_is(rank: int, window: Window, rules: FrameRules, since: float) -> Evidence | None:
    """Return what one rank does since a slowdown and its peers do less; None where that is not known."""
    places: dict[int, Counter[str]] = defaultdict(Counter)
    samples: Counter[int] = Counter()
    source = ""
    for profile in window.records_of(Profile):
        if profile.rank is None or (profile.at or 0.0) < since:
            continue
        samples[profile.rank] += profile.samples
        source = profile.source if profile.rank == rank else source
        for one in profile.stacks:
            if rules.duty(one.frames).name not in WAITING:
                places[profile.rank][_place(one.frames, rules)] += one.samples
    peers = [one for one in samples if one != rank and samples[one]]
    if not samples[rank] or not peers:
        return None
    share = {
        place: (
            count / samples[rank],
            float(np.median([places[one][place] / samples[one] for one in peers])),
        )
        for place, count in places[rank].items()
    }
    place, (own, usual) = max(
        share.items(), key=lambda item: (item[1][0] - item[1][1], item[0]), default=("", (0.0, 0.0))
    )
    if own - usual < WORTH_SHARE:
        return None
    text = f"rank {rank} is in {place} in {100 * own:.0f} % of its samples, its peers in {100 * usual:.0f} %"
    return Evidence(text=text, source=source, rank=rank)


def _place(frames: tuple[Frame, ...], rules: FrameRules) -> str:
    """Return the job's own function that runs or has called what runs, and what a rule calls that."""
    frame = rules.user_frame(frames) or (frames[0] if frames else None)
    duty = rules.duty(frames).name.replace("_", " ")
    place = normal(frame) if frame is not None else "an empty stack"
    return f"{place}, {duty}," if duty else place
