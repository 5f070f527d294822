"""A device's own event beside a crash or a hang: whether it came in time to be the cause, and what it explains.

An illegal access is the program's two times in three, and an error of a GPU that has failed is only how the program met that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzers.model.clocks import ZONES
from analyzers.model.fault_class import Trait
from analyzers.model.fault_classes import has
from analyzers.model.finding import Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.verdict.candidates import Candidate, Correlation, arguments_of, joint, nodes_of

LATER_SECONDS = 600.0  # a GPU that fails ends its program within a time-out; what comes later is another story
UNSTAMPED = "no stamp shows whether it came before the {}"
NO_ZONE = "by the stamps it came after the {} had begun, and in another zone it came before"
_OF_A_DISK = ("[errno 5]", "input/output error", "i/o error", "os error 5)", "[errno 30]", "read-only file system")
"""What a program says of a local disk's error. A stale handle, a full disk or a server's answer are none."""
LEADING = 0.75  # so sure is an event of a device that comes before an open error of a rank on another one
LED = "another machine's hardware failed at that time for sure, and this error may be its program's"
NO_LINKS = "the ranks called different operations, which no port of the network makes them do"
_BY_KERNEL: tuple[Trait, ...] = ("device_decides", "kernel_decides")
UNORDERED = 0.9
"""So much less sure is a device's event that may have come after the error: no stamp shows which was first."""


def decides(old: Candidate, new: Candidate, least: float, topology: Topology) -> bool:
    """Whether a device's own event, surer than ``least``, shows the cause of an error that a log leaves open."""
    if _is_of_its_disk(old, new, topology):
        return True
    return _is_open(old) and _of_machine(new) and new.certain and _strength(new) > least


def leads(old: Candidate, new: Candidate) -> bool:
    """Whether a device's event is so much surer than what a log leaves open of another rank that this is rejected."""
    return _is_open(old) and _of_machine(new) and new.certain and _strength(new) >= max(LEADING, _strength(old))


def stands(decision: Correlation, new: Candidate) -> None:
    """Add a root; a device's event stands in the place of what a log leaves open of other ranks, which is rejected."""
    led = [old for old in decision.roots if leads(old, new)]
    decision.roots = [old for old in decision.roots if old not in led]
    decision.rejected.extend(replace(one, why=f"{one.why}; {LED}") for old in led for one in old.suspects[:4])
    for old in led:
        new = replace(new, finding=replace(new.finding, symptom=old.finding.symptom, victims=old.finding.victims))
    decision.roots.append(new)


def without_links(decision: Correlation, narrowing: Iterable[Finding]) -> None:
    """Reject ports that went down where lines show that ranks called different operations: no network makes them do that."""
    parted = any(one.cause == "code" and one.fault_class == "desync" for one in narrowing)
    links = [
        one for one in decision.roots if parted and one.families == {"hardware"} and one.finding.cause == "network"
    ]
    decision.roots = [one for one in decision.roots if one not in links]
    decision.rejected.extend(replace(one, why=f"{one.why}; {NO_LINKS}") for old in links for one in old.suspects[:4])


def _is_open(root: Candidate) -> bool:
    decided_by = any(has(root.finding.fault_class, trait) for trait in _BY_KERNEL)
    return root.finding.cause == "unknown" and decided_by


def _of_machine(root: Candidate) -> bool:
    return (root.finding.family, root.finding.cause) == ("hardware", "machine")


def _strength(root: Candidate) -> float:
    return max(one.strength for one in root.suspects)


def _is_of_its_disk(old: Candidate, new: Candidate, topology: Topology) -> bool:
    """Whether files failed on nodes whose own disks the kernel reports, and on no other: what nodes share fails on others."""
    if not (has(old.finding.fault_class, "disk_decides") and has(new.finding.fault_class, "of_disk")):
        return False
    placed = nodes_of((one for one in old.suspects if one.ranks or one.node), topology)
    said = " ".join(one.text for suspect in old.suspects for one in suspect.evidence).lower()
    return bool(placed) and placed <= nodes_of(new.suspects, topology) and any(word in said for word in _OF_A_DISK)


def _met(old: Candidate, new: Candidate) -> Candidate:
    """Return a disk's error that a program met as its machine's fault: what the kernel says is a second sign of it."""
    first, *others = new.suspects
    surer = replace(first, strength=joint(first.strength, old.suspects[0].strength, once=False))
    return replace(new, finding=replace(new.finding, cause="machine"), suspects=(surer, *others), certain=True)


def explained(old: Candidate, new: Candidate) -> Candidate:
    """Return the device's event as the root, with the ranks that met it: what it asks for is done, and no more."""
    ranks = tuple(sorted(old.ranks | new.ranks))
    if has(new.finding.fault_class, "of_disk"):
        new = _met(old, new)
    suspects = tuple(
        _in_unknown_order(one, UNSTAMPED.format("error")) if _unordered(old, new) else one for one in new.suspects
    )
    suspects = tuple(replace(one, ranks=ranks) for one in suspects)
    met = replace(
        new.finding, symptom=old.finding.symptom, victims=old.finding.victims, scope=old.finding.scope,
        together=len(suspects) > 1, missing=(*new.finding.missing, *old.finding.missing),
    )  # fmt: skip
    arguments = (*new.arguments, *old.arguments, *arguments_of(old))
    return replace(
        new, finding=met, suspects=suspects, arguments=arguments, agreeing=(*old.agreeing, old.finding.fault_class)
    )


def _unordered(old: Candidate, new: Candidate) -> bool:
    """Whether no stamp shows that the device's event did not come after the error."""
    error = old.finding
    return new.finding.onset is None or (error.onset is None and error.no_later_than is None)


def came_later(old: Finding, new: Finding) -> bool:
    """Whether a machine's own event came long after a crash that a log reports, or after a watchdog gave up."""
    if new.family != "hardware" or new.onset is None:
        return False
    if old.symptom == "crash":
        crashed_at = old.onset if old.onset is not None else old.no_later_than
        return crashed_at is not None and new.onset > crashed_at + LATER_SECONDS
    return (
        _is_timed_hang(old)
        and new.cause == "machine"
        and _after(old, new.onset)
        and not _fits_in_a_zone(old, new.onset)
    )


def in_unknown_order(new: Candidate, findings: Iterable[Finding]) -> Candidate:
    """Return a machine's event less sure where its stamp does not show that it came before a hang that watchdogs report."""
    at = new.finding.onset
    hang = next(filter(_is_timed_hang, findings), None)
    of_machine = (new.finding.family, new.finding.cause) == ("hardware", "machine")
    if hang is None or not of_machine or (at is not None and not _after(hang, at)):
        return new
    why = (UNSTAMPED if at is None else NO_ZONE).format("hang")
    return replace(new, suspects=tuple(_in_unknown_order(one, why) for one in new.suspects))


def _is_timed_hang(finding: Finding) -> bool:
    return finding.symptom == "hang" and finding.no_later_than is not None


def _after(hang: Finding, at: float) -> bool:
    return hang.no_later_than is not None and at > hang.no_later_than + LATER_SECONDS


def _fits_in_a_zone(hang: Finding, at: float) -> bool:
    """Whether a stamp of another zone, by whole hours, may lie about the time in which the ranks began to wait."""
    if hang.no_earlier_than is None or hang.no_later_than is None:
        return True
    since, until = hang.no_earlier_than - LATER_SECONDS, hang.no_later_than + LATER_SECONDS
    return any(since <= at - zone <= until for zone in ZONES)


def _in_unknown_order(one: Suspect, why: str) -> Suspect:
    return replace(one, strength=round(one.strength * UNORDERED, 4), why=f"{one.why}; {why}")
