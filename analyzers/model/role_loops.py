"""An instance that says nothing new while others wait for it: a loop of its own code, or a long sequence.

Both look alike from what it states: its heartbeat comes from another thread. So it opens an incident after far longer than such
a phase has ever taken, and is accused by its stacks alone: two rounds that find it running in the same lines of the
program's own code. One that decodes is found in its model, one that waits for a tool in a call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from analyzers.model.role_instances import Instance, serving
from analyzers.model.role_look import Look, Stall
from analyzers.model.role_silence import NOT_SEEN

OPENS, NAMED, SURE = 0.5, 0.6, 0.8
PAST = 5.0  # times the longest such phase of its role
TAIL_SECONDS = 1_200.0  # RobustRL (arXiv 2512.22492): a rollout's longest tail took 1,050 s
LEAST_ROUNDS = 5  # in which its role has left a phase and come back to it: the first ones may all be long
_ENGINES = frozenset(
    {"rollout", "hybrid"}
)  # kinds that work one thing after another; a server's main thread shows nothing
_MAY_COMPUTE = frozenset({"warm_up", "checkpoint", "switch", "weight_sync", "train"})


def looping(look: Look) -> Iterator[Stall]:
    """Yield those whose stacks show them in their own code, round after round, while others wait for them or go on."""
    for one in _engines(look):
        seen, rests = look.seen.get(one.seat, NOT_SEEN), look.now - one.stays.changed_at
        phase, waits = look.rules.phase_kind(one.phase), one.waits or look.rules.of_phase(one.phase).awaits
        refuted = waits and _is_refuted(look, one)
        if not seen.own_code or phase in _MAY_COMPUTE or waits is not refuted or rests < look.bounds.quiet_seconds:
            continue
        if refuted or _holds_up(look, one):
            sure = phase == "generate" and _is_long(look, one, rests)
            why = f"its main thread ran in {seen.own_code}, its own code, in every round of its stacks"
            says = f"while it said nothing new for {rests:.0f} s"
            yield look.stall("role_loops", one, one.stays.changed_at, SURE if sure else NAMED, f"{why}, {says}", seen)


def saying_nothing(look: Look, *, known: bool = True) -> Iterator[Stall]:
    """Yield those that have said nothing new for far longer than such a phase has ever taken; their stacks decide.

    ``known``: what is usual has to be; else so long a silence alone is enough, to say what is missing.
    """
    for one in _engines(look):
        seen, rests = look.seen.get(one.seat, NOT_SEEN), look.now - one.stays.changed_at
        works = look.rules.phase_kind(one.phase) == "generate" and not one.waits and one.requests_running != 0
        long = _is_long(look, one, rests) if known else rests >= look.rules.of_role(one.role).decided_seconds
        if works and long and not seen.elsewhere and _holds_up(look, one):
            why = f"in phase {one.phase} it said nothing new for {rests:.0f} s"
            opens = look.stall("role_loops", one, one.stays.changed_at, OPENS, why)
            yield replace(
                opens, missing=f"whether {one.name} loops or decodes a long sequence: two rounds of its stacks"
            )


def nothing_new(look: Look) -> Iterator[Stall]:
    """Yield who waits for none, in a job that has said nothing new for longer than any tail: it opens, and accuses none."""
    every = [one for one in serving(look.instances) if look.fresh(one.seen_at)]
    quiet = look.now - max((one.stays.changed_at for one in every), default=look.now)
    for one in every if quiet >= TAIL_SECONDS and look.waits.waiting else ():
        rule, idle = look.rules.of_phase(one.phase), one.idle and not look.rules.of_phase(one.phase).works
        long = one.phase_since is not None and look.now - one.phase_since >= rule.longest_seconds
        if long and not one.waits and not rule.awaits and not idle and look.waits.behind.get(one.seat):
            why = (
                f"in phase {one.phase} it said nothing new for {quiet:.0f} s, nor did any other, and others wait for it"
            )
            stall = look.stall("phase_overdue", one, one.stays.changed_at, OPENS, why)
            yield replace(stall, missing=f"what {one.name} does meanwhile: its stacks")


def _engines(look: Look) -> Iterator[Instance]:
    """Yield those that are heard and state a phase; others say nothing of now."""
    for one in serving(look.instances):
        if look.rules.kind(one.role) in _ENGINES and one.phase and look.fresh(one.spoke_at):
            yield one


def _is_long(look: Look, one: Instance, rests: float) -> bool:
    """Whether it has been so for far longer than any such phase of its role that was over, and its phases came round often."""
    rounds, longest = look.usual_stays(one.role, look.rules.phase_kind(one.phase))
    return rounds >= LEAST_ROUNDS and rests >= max(look.rules.of_role(one.role).decided_seconds, PAST * longest)


def _holds_up(look: Look, one: Instance) -> bool:
    """Whether a chain of waits ends at it, or another of its role has said something new lately."""
    peers = (other for other in look.waits.of_role(one.role) if other is not one)
    return bool(look.waits.behind.get(one.seat)) or any(
        other.stays.changed_at > max(one.stays.changed_at, look.now - look.bounds.quiet_seconds) for other in peers
    )


def _is_refuted(look: Look, one: Instance) -> bool:
    """Whether all that it says it waits for have stated for a while that they have nothing to do, and others wait through it."""
    ends, unseen = look.waits.ends(one)
    idle = all(end.idle and look.fresh(end.seen_at) and not look.waits.active(end) for end in ends)
    others = any(other is not one for end in ends for other in look.waits.behind.get(end.seat, ()))
    return bool(ends) and not unseen and idle and others
