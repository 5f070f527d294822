"""Who holds up weights that exist: who sends them, or the few of a role that did not get them.

Weights go from a trainer to rollouts, one by one or by a collective, or from a rollout that has them to the next. A waiter that
names one instance waits for that instance's part of it; one that names none, or a role, waits for the role.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median_low

from analyzers.model.role_instances import Instance, Seat, serving
from analyzers.model.role_look import Look, Stall
from analyzers.model.role_waits import MOST_AHEAD, newer

MOST_NAMED = 8
PAST = 2.0  # times its own longest sync that was over
_SENDS_LATER = frozenset({"switch", "warm_up", "checkpoint"})


def held_up(look: Look) -> Iterator[Stall]:
    """Yield who holds up weights that exist, once none of a role got them for long: some send them to one after another.

    An instance that is in the phase of a sync before there are newer weights waits for the tail of a step.
    """
    trainers = look.waits.of_kind("trainer") or look.waits.of_kind("hybrid")
    newest = _newest(look, trainers)
    moves = any(map(look.moves, serving(look.instances)))
    for role in sorted({one.role for one in serving(look.instances)} - {one.role for one in trainers}):
        members = look.waits.of_role(role)
        last = max((one.given_at[-1] for one in members if one.given_at), default=0.0)
        twice = max((one.given_at[0] for one in members if len(one.given_at) > 1), default=0.0)
        syncs = {one.seat: _in_sync(look, one) for one in members}
        passed = {seat for seat, seconds in syncs.items() if twice >= look.now - seconds}  # others had their turn again
        waits = {seat: s if seat in passed else min(s, look.now - last) for seat, s in syncs.items()}
        late = [one for one in members if waits[one.seat] >= max(look.bounds.sync_seconds, PAST * _longest(look, one))]
        sure = [one for one in late if newer(newest, one.weights) and _is_empty(look, one)]
        stuck = sure or [one for one in late if one.weights is None and not moves]
        if not stuck:
            continue
        base = max((one.weights for one in sure if one.weights is not None), default=None)
        served = sum(newer(one.weights, base) for one in members)
        sender, nodes = _sender(look, sure), {one.node for one in sure}
        apart = len(nodes) > 1 or (None in nodes and len(sure) > 1)
        others = len(trainers) == 1 and any(one.seat in passed for one in sure)
        # What keeps several machines waiting is not with one of them, unless who sends to them sends to others.
        if served and 2 * len(sure) <= len(members) and (sender is None or not apart or others):
            for one in sure[:MOST_NAMED]:
                seconds = waits[one.seat]
                why = f"it waits for weights for {seconds:.0f} s, and {served} others of its role have them"
                yield look.stall("weight_sync_still", one, look.now - seconds, 0.75, why)
        elif trainers:
            certain = sender is not None and len(nodes - {None}) > 1 and not served
            strength = 0.8 if certain else 0.7 if sure else 0.4
            seconds = max(waits[one.seat] for one in stuck)
            found = _not_sent(look, stuck, [sender] if sender is not None else trainers, strength, seconds)
            yield from found if any(one.weights for one in members) else map(_is_first, found)


def _newest(look: Look, trainers: Sequence[Instance]) -> int | None:
    """Return the newest version of the weights that there is: the trainers' own, or one that two instances state.

    One that is far beyond the others is no version, of a trainer neither. Where no trainer states any, each instance is believed.
    """
    said = [(one, one.weights) for one in serving(look.instances) if one.weights is not None]
    most = median_low(version for _, version in said) + MOST_AHEAD if said else 0
    near = [(one, version) for one, version in said if version <= most]
    times = Counter(version for _, version in near)
    roles = {one.role for one in trainers}
    own = {version for one, version in near if one.role in roles}
    return max((version for version in times if not own or version in own or times[version] > 1), default=None)


def _not_sent(
    look: Look, stuck: Sequence[Instance], senders: Sequence[Instance], strength: float, seconds: float
) -> Iterator[Stall]:
    """Yield who sends: one, or several together; none while one does first what may take long."""
    if any(look.rules.phase_kind(one.phase) in _SENDS_LATER and not look.is_overdue(one) for one in senders):
        return
    role = stuck[0].role
    of = len(look.waits.of_role(role))
    why = f"{len(stuck)} of {of} instances of {role} wait for its weights for {seconds:.0f} s"
    seats = tuple(one.seat for one in senders)
    behind = {one.seat for end in stuck for one in (end, *look.waits.behind.get(end.seat, ()))} - set(seats)
    made = look.stall("weight_sync_still", senders[0], look.now - seconds, strength, why)
    made = replace(made, blocked=len(behind))
    yield made if len(senders) == 1 else replace(made, instance="", seats=seats)


def _is_first(stall: Stall) -> Stall:
    """Accuse none of the first weights that a role is given: how long that takes is not known yet."""
    return replace(
        stall, strength=min(0.5, stall.strength), missing="how long this job's weights take: these are the first"
    )


def _sender(look: Look, stuck: Sequence[Instance]) -> Instance | None:
    """Return the one instance for whose weights all of these wait, directly or along a chain; None: they name no one."""
    found = {one.seat if one is not None else None: one for one in (_source(look, waiter) for waiter in stuck)}
    return next(iter(found.values())) if len(found) == 1 else None


def _source(look: Look, waiter: Instance) -> Instance | None:
    """Return who has the weights at the end of the chain of those that a waiter names."""
    passed: set[Seat] = set()
    one: Instance | None = waiter
    while one is not None and one.seat not in passed and look.fresh(one.spoke_at):
        passed.add(one.seat)
        role, _, name = (one.waiting_for or "").partition(" ")
        one = look.instances.get((role, name)) if name else None
        if one is not None and newer(one.weights, waiter.weights):
            return one
    return None


def _is_empty(look: Look, one: Instance) -> bool:
    """Whether it is seen to have ended what it had: a rollout does that before it takes newer weights."""
    return one.requests_running == 0 or (one.tokens is not None and not look.moves(one))


def _longest(look: Look, one: Instance) -> float:
    """Return how long its longest weight sync took that is over."""
    syncs = (stay for phase, stay in one.stays.by_phase.items() if look.rules.phase_kind(phase) == "weight_sync")
    return max((stay.longest for stay in syncs), default=0.0)


def _in_sync(look: Look, one: Instance) -> float:
    """Return for how long it has been in a weight sync."""
    syncs = look.rules.phase_kind(one.phase) == "weight_sync" and look.fresh(one.spoke_at)
    return look.now - one.phase_since if syncs and one.phase_since is not None else 0.0
