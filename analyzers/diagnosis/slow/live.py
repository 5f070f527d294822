"""Which kind of slowness a running job shows, and who, by what was read beside its steps: before the slowdown and since.

    one stands apart     a reading of one rank, node or GPU rose with the steps, and of none of its peers: it is named
    all alike            every rank of several machines takes longer for its own work: no machine
    its links            round trips to and from one node became longer, and not between the others: its network
    between them         no rank takes longer for its own work: they wait for one another's messages
    reported             a detector in rank 0's log names one, and what its own node reads agrees (``live_reports``)
    not decided          all else

Where ranks train in step, the steps of all become longer alike: they name no rank. What each takes without its waits does: the
probe knows it, or samples of their stacks. Single stacks are a hint, because they do not show what was before. None of it takes
a machine out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from analyzers.diagnosis.slow import live_reports
from analyzers.diagnosis.slow.claim import FEWEST_PEERS, finding
from analyzers.diagnosis.slow.where import where_it_is
from analyzers.diagnosis.stacks.voting import VOTING_ROUNDS, fail_slow
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Cause, Evidence, Finding, Kind, Suspect
from analyzers.model.frames import FrameRules
from analyzers.model.ranges import ranges
from analyzers.model.slow_look import Apart, Measure, OtherCode, SlowLook
from analyzers.model.standings import SOFT, Observation, histories
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import StackDump

SURE, LIKELY = 0.8, 0.6
MOST_SURE = 0.9  # by several readings that agree
NETWORK: Cause = "network"
UNKNOWN: Cause = "unknown"
AT_ONCE_SECONDS = 2.5  # stacks of one look: an answer holds two, three seconds apart
MOST_OF_RANKS = 0.75  # that a look must show
FEWEST_HINTS = 3  # looks in which one rank alone kept the others waiting
NOT_DECIDED = (
    "who is not decided: where ranks train in step, all their steps become longer alike. What each rank takes for its own work "
    "would decide: py-spy beside each agent for some minutes before and since, the probe in each rank (docs/probe.md), or a "
    "trace of torch.profiler of each (docs/formats.md)"
)
BETWEEN = (
    "which link or switch is slow: no rank takes longer for its own work, and nothing that was read here compares what is "
    "between them"
)
OWN_SHARE = 0.2  # of what the steps became longer: who rose by less takes no longer for its own work
HINT = "a hint, as it may have been so before"
ALIKE = (
    "whether it is the code, its data, the storage or the network: what changed at that step, the lengths of sequences, the "
    "time that the data loader takes, and a trace of torch.profiler would show it"
)
CODE_OR_NODES = "whether it is the code or a machine, which the version before on the same nodes would show"
BESIDE = "whether its machine holds it up, or something that runs beside it"
LINKS = "which of its ports and cables it is, or its switch: their error counters, and a bandwidth test of the node"
ONE_MACHINE = "whether it is their one machine, the code or the data: the same job on another machine would show it"
PERCENT = frozenset({"stopped", "stuck", "throttled", "waiting_cpu", "waiting_io", "waiting_memory", "gpu_slowed"})
WORDS = {
    "stopped": "was found stopped (state T) in {since} of its readings, {before} before: something stops and continues it",
    "stuck": "was found uninterruptible (state D) in {since} of its readings, {before} before",
    "throttled": "was held back by the limit of its control group for {since} of the time, {before} before",
    "cpu": "spends {since} of processor time a step, {before} before",
    "own": "takes {since} of each step for its own work, {before} before, without its waits for others",
    "sampled": "takes {since} of each step outside communication, {before} before, by samples of its stack",
    "stolen": "lost {since} processors to others on its host, {before} before",
    "waiting_cpu": "had tasks that waited for a processor for {since} of the time, {before} before",
    "waiting_io": "had tasks that waited for a disk for {since} of the time, {before} before",
    "waiting_memory": "had tasks that waited for memory for {since} of the time, {before} before",
    "round_trip": "has round trips of {since} and more on its connections to the job's other nodes, {before} before",
    "gpu_slowed": "had its clocks lowered for heat or by its board in {since} of its readings, {before} before",
}
STRENGTHS = {"stopped": SURE, "throttled": SURE, "gpu_slowed": SURE, "own": SURE}


def live_claims(slow: SlowLook, window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what is claimed of a slowdown that lasts."""
    shown = (Evidence(text=_in_words(slow), source="steps", at=slow.since),)
    rules = window.once(FrameRules.of, knowledge)
    hints = tuple(_hints(slow, window, topology, rules))
    apart = [*_apart(slow, topology)]
    beside = (*shown, *(Evidence(text=_of_all(one)) for one in slow.measures if _shows_something(one)), *hints)
    beside += live_reports.shown(slow.reported)
    if apart and _agree([one for _, one in apart]) and not live_reports.contradicts(slow.reported, apart[0][1]):
        network = all(measure.name == "round_trip" for measure, _ in apart)
        fault_class, cause, missing = ("slow_path", NETWORK, LINKS) if network else ("slow_rank", UNKNOWN, BESIDE)
        made = finding(
            fault_class,
            "slow",
            cause,
            _suspect(apart, window, rules, slow.since),
            evidence=beside,
            onset=slow.since,
            missing=(missing,),
        )
        yield replace(made, first_symptom=shown[0], scope=frozenset(topology.ranks))
    elif apart:
        shown_by = tuple(Evidence(text=_sentence(measure, one)) for measure, one in apart)
        yield finding(
            "slow_undecided", "slow", "unknown", evidence=(*beside, *shown_by), onset=slow.since, missing=(NOT_DECIDED,)
        )
    elif slow.code is not None:
        yield _of_code(slow, slow.code, beside)
    elif any(one.name in {"cpu", "own", "sampled"} and one.risen == one.read >= FEWEST_PEERS for one in slow.measures):
        alone = len(set(topology.nodes.values())) < 2
        fault_class, missing = ("slower", ONE_MACHINE) if alone else ("slow_together", ALIKE)
        yield finding(fault_class, "slow", "unknown", evidence=beside, onset=slow.since, missing=(missing,))
    elif (
        own := next((one for one in slow.measures if one.name == "own" and _none_rose(one, slow, topology)), None)
    ) is not None:
        evidence = (*beside, Evidence(text=_of_none(own)))
        yield finding("slower", "slow", "unknown", evidence=evidence, onset=slow.since, missing=(BETWEEN,))
    elif suspects := live_reports.confirmed(slow.reported, hints):
        made = finding("slow_reported", "slow", "machine", *suspects, together=True, evidence=beside, onset=slow.since)
        yield replace(made, first_symptom=shown[0], scope=frozenset(topology.ranks))
    elif slow.reported is not None:
        yield finding(
            "slow_undecided", "slow", "unknown", evidence=beside, onset=slow.since,
            missing=live_reports.unconfirmed(slow.reported),
        )  # fmt: skip
    else:
        yield finding("slower", "slow", "unknown", evidence=beside, onset=slow.since, missing=(NOT_DECIDED,))


def _of_code(slow: SlowLook, code: OtherCode, beside: tuple[Evidence, ...]) -> Finding:
    """Claim that the code is what changed, where the job has no node that it had not before."""
    if code.new_nodes is None or code.new_nodes:
        nodes = (
            "the nodes, too"
            if code.new_nodes is None
            else f"{len(code.new_nodes)} of its nodes, such as {code.new_nodes[0]}"
        )
        missing = f"{CODE_OR_NODES}: {nodes} may have changed with it"
        return finding("slow_undecided", "slow", "unknown", evidence=beside, onset=slow.since, missing=(missing,))
    why = f"the steps became longer with its version {code.since}, on the nodes that had run version {code.before}"
    suspect = Suspect(kind="code", strength=SURE, why=why, evidence=beside[:1])
    return replace(
        finding("slow_code", "slow", "code", suspect, evidence=beside, onset=slow.since), first_symptom=beside[0]
    )


def _apart(slow: SlowLook, topology: Topology) -> Iterator[tuple[Measure, Apart]]:
    """Yield who stands apart, ranks before nodes.

    Where own times are known, a rank whose processor works more while its own time is as before works in its waits, and
    samples of stacks show nothing beside.
    """
    own = next((one for one in slow.measures if one.name == "own" and _is_known(one, topology)), None)
    kept = [one for one in slow.measures if one.name not in {"cpu", "sampled"} or own is None]
    found = [(measure, one) for measure in kept for one in measure.apart]
    yield from sorted(found, key=lambda item: not item[1].ranks)


def _agree(apart: Sequence[Apart]) -> bool:
    """Whether all that stands apart is one rank, one node, or a rank and its node."""
    return len({one.node for one in apart}) == 1 and len({one.ranks for one in apart if one.ranks}) <= 1


def _is_known(own: Measure, topology: Topology) -> bool:
    """Whether a measure was read of nearly all ranks."""
    return own.read >= max(FEWEST_PEERS, MOST_OF_RANKS * len(topology.ranks))


def _none_rose(own: Measure, slow: SlowLook, topology: Topology) -> bool:
    """Whether no rank's own time rose, of nearly all, as that of one would that the others wait for."""
    if own.most is None or slow.seconds is None or slow.before_seconds is None:
        return False
    return _is_known(own, topology) and own.most <= OWN_SHARE * (slow.seconds - slow.before_seconds)


def _of_none(own: Measure) -> str:
    before, since = (_value("own", value) for value in (own.before, own.since))
    return f"none of {own.read} ranks takes longer for its own work: {since} of each step, {before} before"


def _in_words(slow: SlowLook) -> str:
    began = f"since step {slow.step:,}"
    if slow.seconds is None or slow.before_seconds is None:
        return f"a step takes longer {began}"
    if slow.code is not None:
        more = f"{100 * (slow.seconds / slow.before_seconds - 1):.0f} % longer than by version {slow.code.before}"
        return f"a step takes {slow.seconds:.3g} s by version {slow.code.since} of the code, {more} ({slow.before_seconds:.3g} s)"
    longer = f"{100 * (slow.seconds / slow.before_seconds - 1):.0f} % longer than before ({slow.before_seconds:.3g} s)"
    return f"a step takes {slow.seconds:.3g} s {began}, {longer}"


def _suspect(apart: Sequence[tuple[Measure, Apart]], window: Window, rules: FrameRules, since: float) -> Suspect:
    """Return the one that stands apart, by every reading that shows it; readings of several kinds that agree are surer."""
    one = apart[0][1]
    why = "; ".join(_sentence(measure, one) for measure, one in apart)
    doubt = prod(1 - STRENGTHS.get(measure.name, LIKELY) for measure, _ in apart)
    strength = min(1 - doubt, MOST_SURE)
    evidence = tuple(Evidence(text=_sentence(measure, one), rank=next(iter(one.ranks), None)) for measure, one in apart)
    if one.ranks and (place := where_it_is(one.ranks[0], window, rules, since)) is not None:
        evidence = (*evidence, place)
        why = f"{why}; {place.text}"
    kind: Kind = "rank" if one.ranks else "node"
    return Suspect(kind=kind, strength=strength, why=why, ranks=one.ranks, node=one.node, evidence=evidence)


def _sentence(measure: Measure, one: Apart) -> str:
    name = f"rank {one.id}" if one.ranks else one.id
    others = f"{measure.read - 1} {'GPUs' if measure.of == 'device' else measure.of + 's'}"
    return f"{name} {_filled(measure.name, one.before, one.since)}; the other {others} that were read do not show it"


def _of_all(measure: Measure) -> str:
    every = "every" if measure.risen == measure.read else f"{measure.risen} of {measure.read}"
    what = {"rank": "rank", "node": "node", "device": "GPU"}[measure.of] + ("" if every == "every" else "s")
    return f"{every} {what} {_filled(measure.name, measure.before, measure.since)}"


def _shows_something(measure: Measure) -> bool:
    """Whether most of what was read changed with the steps: no sign of one, but of what the job meets."""
    return not measure.apart and 2 * measure.risen > measure.read


def _filled(name: str, before: float, since: float) -> str:
    shown = {key: _value(name, value) for key, value in (("before", before), ("since", since))}
    return WORDS[name].format(**shown)


def _value(name: str, value: float) -> str:
    if name in PERCENT:
        return f"{100 * value:.0f} %"
    if name == "round_trip":
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if name in {"cpu", "own", "sampled"} else f"{value:.2g}"


def _hints(slow: SlowLook, window: Window, topology: Topology, rules: FrameRules) -> Iterator[Evidence]:
    """Yield what the stacks show of who keeps the others waiting: no proof, because it may have been so before."""
    looks = _looks(window, topology, rules, slow.since) if rules.rules else []
    alone: Counter[int] = Counter()
    for look in looks:
        waiting = [rank for rank, one in look.items() if one.duty.name and _waits(one)]
        busy = [rank for rank, one in look.items() if not _waits(one) and one.duty.name not in SOFT]
        if len(busy) == 1 and 2 * len(waiting) > len(look):
            alone[busy[0]] += 1
    (rank, count), *others = [*alone.most_common(2), (-1, 0)][:2] if alone else [(-1, 0)]
    if count >= FEWEST_HINTS and 3 * sum(number for _, number in others) <= count:
        text = f"in {count} of {len(looks)} looks at the stacks rank {rank} alone was outside communication while others waited"
        yield Evidence(text=f"{text}: {HINT}", rank=rank)
    vote = fail_slow([{rank: rules.normal(one.frames) for rank, one in look.items()} for look in looks], topology)
    if vote is not None:
        members = ranges(vote.group.members)
        yield Evidence(
            text=f"in {vote.flags} of {vote.rounds} looks at the stacks ranks {members}, which share group {vote.group}, "
            f"stood apart most: {HINT}"
        )


def _waits(one: Observation) -> bool:
    return one.duty.name.startswith("waiting_")


def _looks(window: Window, topology: Topology, rules: FrameRules, since: float) -> list[dict[int, Observation]]:
    """Return the stacks that were taken of most ranks at one time, since a slowdown began, the newest looks."""
    if not window.records_of(StackDump):
        return []
    history = histories(window, topology, rules)
    taken = sorted(
        ((one.dump.at, rank, one) for rank in topology.ranks for one in history(rank) if (one.dump.at or 0.0) >= since),
        key=lambda item: (item[0] or 0.0, item[1]),
    )
    looks: list[dict[int, Observation]] = []
    began = float("-inf")
    for at, rank, one in taken:
        if (at or 0.0) > began + AT_ONCE_SECONDS:
            looks.append({})
            began = at or 0.0
        looks[-1].setdefault(rank, one)
    return [look for look in looks if len(look) >= MOST_OF_RANKS * len(topology.ranks)][-2 * VOTING_ROUNDS :]
