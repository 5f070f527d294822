"""From a window to a verdict: run the analyzers, combine their findings, apply pauses and excuses, build the document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from analyzers import diagnosis
from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import ANALYZER_FAILED
from analyzers.model.finding import Finding
from analyzers.model.frames import FrameRules
from analyzers.model.topology import Topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.action import Held
from analyzers.verdict.build import compose
from analyzers.verdict.calibrated import calibrated, with_doubt
from analyzers.verdict.candidates import Candidate, Correlation
from analyzers.verdict.correlate import combine
from analyzers.verdict.excuses import excused, unclaimed, without_echoes
from analyzers.verdict.gate import EvictionGate
from analyzers.verdict.gray_hardware import add_gray, without_gray
from analyzers.verdict.pauses import Pauses
from analyzers.verdict.roles import between_roles, each_for_itself, of_roles, without_idle
from analyzers.verdict.senders import with_senders
from analyzers.verdict.witness import Witness

ENDED = "it had not ended at the deadline"


def findings(
    window: Window,
    topology: Topology,
    knowledge: Knowledge,
    unfinished: Sequence[str] = (),
    running: Callable[[str], None] = lambda _name: None,
) -> Iterator[Finding]:
    """Yield the findings of every analyzer that reads a kind of record in the window, in order of their names.

    An analyzer that crashes loses its own findings only, and the verdict reports it. Those in ``unfinished`` are not run,
    which is reported too. ``running`` is called with each name before that analyzer runs.
    """
    for name, registered in sorted(diagnosis.registry().items()):
        if name in unfinished:
            yield failed(name, ENDED)
            continue
        # Ranks are compared with those of their own role only.
        parts = {"": window} if registered.across_roles else _parts(window)
        reading = {role: part for role, part in parts.items() if registered.reads & part.kinds}
        if not reading:
            continue
        running(name)
        try:
            found: list[Finding] = []
            for role, part in reading.items():
                shape = topology if part is window else topology.parts.get(role, topology)
                own = registered.load()(part, shape, knowledge)
                found += (replace(finding, role=role) for finding in own) if role else own
            yield from found
        except Exception as failure:  # noqa: BLE001 the other analyzers' findings must stand
            yield failed(name, f"{type(failure).__name__}: {failure}")


def _parts(window: Window) -> Mapping[str, Window]:
    return window.parts or {"": window}


def judge(window: Window, topology: Topology, knowledge: Knowledge, *, rounds: int | None = None) -> Verdict:
    """Return the verdict on this window.

    ``rounds``: how many evidence rounds the agents have answered, in a live window; None for files, where no agent can be
    asked again.
    """
    return decide(findings(window, topology, knowledge), window, topology, knowledge, rounds=rounds)


def decide(
    found: Iterable[Finding],
    window: Window,
    topology: Topology,
    knowledge: Knowledge,
    *,
    rounds: int | None = None,
    failing: Callable[[], None] = lambda: None,
) -> Verdict:
    """Return the verdict for findings that were made before. ``failing`` is called where they cannot be weighed."""
    claims = list(found)
    decided: dict[str, tuple[Correlation, Held]] = {}
    for role, part in _parts(window).items():
        own = [claim for claim in claims if claim.role == role or (claim.role not in window.parts and not decided)]
        shape = topology.parts.get(role, topology)
        try:
            own = each_for_itself(own, role, shape, knowledge)
            decided[role] = _weighed(own, part, shape, knowledge, rounds, alone=len(window.parts) < 2)
        except Exception as failure:  # noqa: BLE001 records that the weighing cannot read must not cost the verdict
            failing()
            own.append(failed("pauses", f"{type(failure).__name__}: {failure}"))
            decided[role] = combine(own, shape), _held_by_failure
    between_roles({role: decision for role, (decision, _) in decided.items()})
    verdicts = {
        role: compose(decision, window.parts.get(role, window), topology.parts.get(role, topology), knowledge, held)
        for role, (decision, held) in decided.items()
    }
    return with_doubt(calibrated(of_roles(verdicts, window) if window.parts else verdicts[""], knowledge))


def _weighed(
    claims: Sequence[Finding],
    window: Window,
    topology: Topology,
    knowledge: Knowledge,
    rounds: int | None,
    *,
    alone: bool,
) -> tuple[Correlation, Held]:
    pauses = Pauses.from_knowledge(knowledge)
    witness = Witness(window, topology, window.once(FrameRules.of, knowledge), claims)
    wrong = (failed("pauses", problem) for problem in pauses.unusable)
    weighed = [*without_echoes(claims, witness), *wrong]
    weighed, gray = without_gray(with_senders(weighed, window, topology))
    decision = combine(weighed, topology)
    if not decision.roots and (claim := unclaimed(weighed, witness, pauses, live=rounds is not None)) is not None:
        decision = combine([*weighed, claim], topology)
    excused(decision, witness, pauses, rounds)
    add_gray(decision, gray, topology)
    if not alone:
        without_idle(decision, witness)
    return decision, EvictionGate(witness, pauses, rounds)


def _held_by_failure(_root: Candidate) -> str:
    return "whether it is in a pause, or moves, could not be judged: check the node by hand"


def failed(name: str, why: str) -> Finding:
    """Return the finding that replaces those of an analyzer that crashed or was ended."""
    return Finding(
        analyzer=name,
        family="log",
        symptom="unknown",
        cause="unknown",
        fault_class=ANALYZER_FAILED,
        missing=(f"analyzer {name} failed ({why}): its evidence is not in this verdict",),
    )
