"""One judgement, from the records of a cut to the verdict, and what remains of it when analyzers fail.

The service and a replay both call ``judge_cut``. An analyzer that crashes or does not end is left out of the next try. Records
on which one fails are looked for by node, by halves: a node that alone makes it fail is left out, and the verdict states that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from analyzers.diagnosis import every_analyzer
from analyzers.diagnosis.slow.live import live_claims
from analyzers.incidents.messages import Judge, Judged
from analyzers.incidents.recurrence import with_count
from analyzers.incidents.standing_claim import claim_of, clock
from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import ANALYZER_FAILED
from analyzers.model.finding import Finding
from analyzers.model.role_ranks import match_ranks, seen_in, statements
from analyzers.model.topology import infer
from analyzers.model.verdict import TAKES_NODES, Action, Missing, Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import VERSION
from analyzers.verdict.explain import claim_to_json
from analyzers.verdict.judge import decide, findings
from collectors.records import DIRECTORY, Placement, Record, RoleState
from collectors.records.identity import places, plain

MOST_NAMED = 8  # nodes in a sentence
LOOKS_FOR_A_HANG = 2  # without a symptom of a standstill: ranks of a running job are in different places, too
WINDOW, WEIGHING = "the window", "the weighing"  # parts of a judgement that can fail beside the analyzers
_Running = Callable[[str], None]


def judge_cut(asked: Judge, knowledge: Knowledge, running: _Running = lambda _name: None) -> Judged:
    """Judge the records of a cut; ``running`` gets the name of each analyzer before it runs.

    Analyzers that ``cut.unfinished`` names are left out, and the verdict states that. Raise nothing but ``MemoryError``.
    """
    records = tuple(on_their_nodes(tuple(asked.records)))
    judged, failed = _tried(asked, records, knowledge, running)
    odd = _odd_nodes(asked, records, knowledge, running, failed) if failed else frozenset[str]()
    if odd:
        others = [record for record in records if record.node not in odd]
        again, still = _tried(asked, others, knowledge, running)
        if len(still) < len(failed):
            judged = again
        else:
            odd = frozenset()
    why = dict.fromkeys(asked.cut.shed, "its records were given up for want of memory")
    why |= {node: f"{min(failed)} fails on its records" for node in odd}
    judged = _with_unconfirmed(_contested(_with_incomplete(judged, why)))
    return replace(judged, verdict=with_count(judged.verdict, asked.cut))


def _tried(
    asked: Judge, records: Sequence[Record], knowledge: Knowledge, running: _Running
) -> tuple[Judged, frozenset[str]]:
    """Return the judgement of these records, and the parts of it that failed."""
    found: list[Finding] = []
    failed: set[str] = set()
    try:
        window = Window.build(
            records,
            asked.attempt,
            asked.cut.offsets,
            live=True,
            since=asked.cut.since,
            round_at=asked.cut.round_at,
            onset=asked.cut.onset_at,
        )
        topology = infer(window)
        found += findings(window, topology, knowledge, asked.cut.unfinished, running)
        if asked.cut.slow is not None:
            found = [
                *(one for one in found if _stands_beside_slow(one)),
                *live_claims(asked.cut.slow, window, topology, knowledge),
            ]
        verdict = decide(
            found, window, topology, knowledge, rounds=asked.cut.looks, failing=lambda: failed.add(WEIGHING)
        )
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - a judgement that fails costs itself; the next has other records
        return give_up(asked, knowledge, f"{type(error).__name__}: {error}"), frozenset({WINDOW})
    judged = Judged(
        incident=asked.incident,
        cut=asked.cut,
        verdict=verdict,
        claims=tuple(claim_to_json(finding) for finding in found),
    )
    return judged, frozenset({*failed, *(name for name, _why in failed_analyzers(judged))})


def _stands_beside_slow(one: Finding) -> bool:
    """Whether a finding is of more than where ranks were read in a job that goes on: any of them may have stood anywhere."""
    return one.symptom in {"hardware", "numeric"} or one.fault_class == ANALYZER_FAILED


def _odd_nodes(
    asked: Judge, records: Sequence[Record], knowledge: Knowledge, running: _Running, failed: frozenset[str]
) -> frozenset[str]:
    """Return the nodes whose records alone make the same parts fail; none where those are not the fewer."""
    nodes = sorted({record.node for record in records if record.node is not None})

    def fails(some: Collection[str]) -> bool:
        return bool(failed & _tried(asked, [one for one in records if one.node in some], knowledge, running)[1])

    def among(some: Sequence[str]) -> frozenset[str]:
        if len(some) == 1:
            return frozenset(some)
        halves = some[: len(some) // 2], some[len(some) // 2 :]
        return frozenset().union(*(among(half) for half in halves if fails(frozenset(half))))

    odd = among(nodes) if len(nodes) > 1 else frozenset()
    return odd if 2 * len(odd) < len(nodes) else frozenset()


def _with_incomplete(judged: Judged, why: Mapping[str, str]) -> Judged:
    """State whose evidence is incomplete, and propose no more than a probe of those: what is missing proves nothing."""
    if not why:
        return judged
    verdict = judged.verdict
    named = ", ".join(f"{node} ({why[node]})" for node in sorted(why)[:MOST_NAMED])
    more = f" and {len(why) - MOST_NAMED:,} more" if len(why) > MOST_NAMED else ""
    missing = Missing(what=f"the evidence of {len(why):,} nodes is incomplete: {named}{more}")
    action = verdict.action
    if action.kind not in ("none", "probe") and any(node in why for node in action.nodes):
        node = next(node for node in action.nodes if node in why)
        action = Action(kind="probe", nodes=action.nodes, why=f"the evidence of {node} is incomplete: {why[node]}")
    coverage = replace(verdict.coverage, shed=tuple(sorted(judged.cut.shed)))
    return replace(
        judged,
        verdict=replace(verdict, missing=(*verdict.missing, missing), action=action, coverage=coverage),
    )


def _with_unconfirmed(judged: Judged) -> Judged:
    """Mention the nodes that joined the job late and unconfirmed where nothing else is found: their word is not in it."""
    verdict, nodes = judged.verdict, judged.cut.unconfirmed
    if not nodes or verdict.culprits or verdict.symptom == "healthy":
        return judged
    what = (
        f"what {', '.join(nodes)} reports of the job is left out: it joined after the start, and nothing confirms that it"
        " belongs to the job; declare the job's nodes, or let its processes join the directory of roles"
    )
    return replace(judged, verdict=replace(verdict, missing=(*verdict.missing, Missing(what=what))))


def _contested(judged: Judged) -> Judged:
    """Let a verdict abstain that has changed twice, or calls a job hung that may run on. What a process shows stands."""
    verdict, cut = judged.verdict, judged.cut
    if verdict.symptom == "healthy" or claim_of(verdict, cut.at).proven:
        return judged
    why = cut.abstains
    if not why and cut.moved_at is not None and verdict.cause != "none":
        why = f"the job has moved again since about {clock(cut.moved_at)}: what it shows now says nothing of the stop"
    if not why and not cut.stands_still and cut.looks < LOOKS_FOR_A_HANG and _hangs_by_stacks_alone(judged):
        why = "no sign shows that the job stands still: a second look at its stacks decides whether its ranks move"
    if why:
        missing = (*verdict.missing, Missing(what=why))
        verdict = replace(
            verdict, cause="unknown", abstained=True, culprits=(), missing=missing,
            action=Action(kind="none", why="nothing is named: nothing is done"),
        )  # fmt: skip
    elif cut.held_back and verdict.action.kind in TAKES_NODES:
        ranks = tuple(sorted({rank for one in verdict.culprits for rank in one.ranks}))
        verdict = replace(verdict, action=replace(verdict.action, kind="probe", ranks=ranks, why=cut.held_back))
    return replace(judged, verdict=verdict)


def _hangs_by_stacks_alone(judged: Judged) -> bool:
    claimed = {claim.get("analyzer") for claim in judged.claims if claim.get("symptom") == "hang"}
    return judged.verdict.symptom == "hang" and claimed == {"stacks"}


def left_out(already: Iterable[str], running: str, *, everything: bool) -> tuple[str, ...]:
    """Return the analyzers to leave out of the next try: the one that ran, or ``everything`` that had not ended."""
    names = {*already, running} if running else {*already}
    if everything:  # analyzers run in the order of their names
        names |= {name for name in every_analyzer() if name >= running}
    return tuple(sorted(names))


def failed_analyzers(judged: Judged) -> Iterator[tuple[str, str]]:
    """Yield (analyzer, why) for those that ended with an exception: the judgement holds without them."""
    for claim in judged.claims:
        if claim.get("fault_class") == ANALYZER_FAILED and claim.get("analyzer") not in judged.cut.unfinished:
            yield str(claim["analyzer"]), "; ".join(map(str, claim.get("missing", ())))


def give_up(asked: Judge, knowledge: Knowledge, why: str) -> Judged:
    """Return the judgement of a cut that cannot be judged: it abstains and states why."""
    cut = replace(asked.cut, unfinished=tuple(every_analyzer()))
    missing = Missing(
        what=f"this could not be judged: the judgement failed ({why[:200]}); the log of the service says more"
    )
    verdict = Verdict(
        symptom="unknown", cause="unknown", abstained=True, version=VERSION, knowledge=knowledge.hash,
        attempt=asked.attempt, missing=(missing,),
    )  # fmt: skip
    return Judged(incident=asked.incident, cut=cut, verdict=verdict)


def on_their_nodes(records: Sequence[Record]) -> list[Record]:
    """Return the records; a directory's reading of a role is of a node only where an agent has placed its process there.

    A process says itself on which node it runs, and any holder of the job's token can say that of any node. What an agent
    reads of an instance that has its process elsewhere is left out: it cannot know.
    """
    if not any(isinstance(one, RoleState) for one in records):
        return list(records)
    by_pid, by_seat = dict[tuple[str, int], str](), dict[tuple[str, int | None], set[str]]()
    for one in records:
        if isinstance(one, Placement):
            for place, role, rank in places(one):
                node = one.nodes[place] if place < len(one.nodes) else ""
                by_seat.setdefault((role, rank), set()).add(node)
                if place < len(one.pids):
                    by_pid[plain(node), one.pids[place]] = node

    readings = [one for one in records if isinstance(one, RoleState) and one.source == DIRECTORY]
    ranks = match_ranks(
        statements(sorted(readings, key=lambda one: one.at or 0.0)),
        seen_in(one for one in records if isinstance(one, Placement)),
    )

    def node_of(one: RoleState) -> str | None:
        own = by_pid.get((plain(one.node), one.pid or 0))
        seat = by_seat.get((one.role or "", ranks.get((one.role or "", one.instance))))
        return own or (next(iter(seat)) if seat is not None and len(seat) == 1 else None)

    found = [
        replace(one, node=node_of(one)) if isinstance(one, RoleState) and one.source == DIRECTORY else one
        for one in records
    ]
    stated = {
        (one.role, one.instance): {one.node}
        for one in found
        if isinstance(one, RoleState) and one.source == DIRECTORY and one.node is not None
    }

    def is_own(one: RoleState) -> bool:
        hosts = by_seat.get((one.role or "", one.number)) or stated.get((one.role, one.instance))
        return one.source == DIRECTORY or one.node is None or not hosts or one.node in hosts

    return [one for one in found if not isinstance(one, RoleState) or is_own(one)]
