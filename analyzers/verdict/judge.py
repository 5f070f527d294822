"""From a window to a verdict: run every analyzer, combine what they claim. A crashing analyzer is a recorded failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from analyzers import diagnosis
from analyzers.knowledge import Knowledge
from analyzers.model.fault_classes import ANALYZER_FAILED
from analyzers.model.finding import Finding
from analyzers.model.frames import Rules
from analyzers.model.topology import Topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.build import compose
from analyzers.verdict.correlate import Root, combine
from analyzers.verdict.excuses import excused, unclaimed, without_echoes
from analyzers.verdict.gate import Restraint
from analyzers.verdict.pauses import Pauses
from analyzers.verdict.witness import Witness

ENDED = "it had not ended at the deadline"


def findings(
    window: Window,
    topology: Topology,
    knowledge: Knowledge,
    unfinished: Sequence[str] = (),
    running: Callable[[str], None] = lambda _name: None,
) -> Iterator[Finding]:
    """Yield what every analyzer claims; one that crashes costs its own claims only, and says so.

    Those in ``unfinished`` are left out, and that is said too. ``running`` is told each one's name before it runs.
    """
    for name, registered in sorted(diagnosis.registry().items()):
        if name in unfinished:
            yield failed(name, ENDED)
            continue
        if not registered.reads & window.kinds:
            continue
        running(name)
        try:
            yield from list(registered.load()(window, topology, knowledge))
        except Exception as failure:  # noqa: BLE001 the one catch-all of the engine: the others' claims must stand
            yield failed(name, f"{type(failure).__name__}: {failure}")


def judge(window: Window, topology: Topology, knowledge: Knowledge, *, looks: int | None = None) -> Verdict:
    """Return the one answer for this window.

    ``looks``: rounds of evidence that the agents were asked for, in a live window; None where nobody can be asked again
    (``diagnose``).
    """
    return decide(findings(window, topology, knowledge), window, topology, knowledge, looks=looks)


def decide(
    found: Iterable[Finding],
    window: Window,
    topology: Topology,
    knowledge: Knowledge,
    *,
    looks: int | None = None,
) -> Verdict:
    """Return what these findings of this window come to, where the analyzers were run by somebody else."""
    claims = list(found)
    try:
        return _weighed(claims, window, topology, knowledge, looks)
    except Exception as failure:  # noqa: BLE001 records that no analyzer can make sense of must not cost the verdict
        claims.append(failed("pauses", f"{type(failure).__name__}: {failure}"))
        return compose(combine(claims, topology), window, topology, knowledge, _held_by_failure)


def _weighed(
    claims: Sequence[Finding], window: Window, topology: Topology, knowledge: Knowledge, looks: int | None
) -> Verdict:
    """Combine the claims, less what has an excuse, and hold back what is not sure yet."""
    pauses = Pauses.of(knowledge)
    witness = Witness(window, topology, Rules.of(knowledge), claims)
    wrong = (failed("pauses", problem) for problem in pauses.unusable)
    weighed = [*without_echoes(claims, witness), *wrong]
    decision = combine(weighed, topology)
    if not decision.roots and (claim := unclaimed(weighed, witness, pauses, live=looks is not None)) is not None:
        decision = combine([*weighed, claim], topology)
    excused(decision, witness, pauses, looks)
    return compose(decision, window, topology, knowledge, Restraint(witness, pauses, looks))


def _held_by_failure(_root: Root) -> str:
    return "whether it is in a pause, or moves, could not be judged: look at it"


def failed(name: str, why: str) -> Finding:
    """Make the finding that stands in the place of an analyzer that crashed or was ended."""
    return Finding(
        analyzer=name,
        family="log",
        symptom="unknown",
        cause="unknown",
        fault_class=ANALYZER_FAILED,
        missing=(f"analyzer {name} failed ({why}): its evidence is not in this verdict",),
    )
