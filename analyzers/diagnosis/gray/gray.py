"""A GPU or a port that works and is not well: what slows a job without ending it, and what a later fault announces itself by.

    throttled   its clocks are lowered for heat or by its board, and those of its peers are not
    clocks      its clock is below that of its peers under the same load, and its own work does not explain it
    setting     the same, by a limit of power or by clocks that its operator set for it, and not for them
    pcie        its link has fewer lanes, or a lower generation, than it can have, under load
    memory      its memory's errors or remapped rows grow, those of its peers do not
    links       errors on its NVLinks or its PCIe link grow faster than its peers'
    port        a port of its node is down or slow, and that port of other nodes is not; or errors of its link grow

Peers are GPUs of the same model under load: on the node, where three are there, else on all nodes. What many show alike is
none of one GPU's: heat of a room, a power limit, a slot's design. An idle GPU is compared with none, and temperatures and
clocks have no bound of their own. A count since the driver's start shows no rate: two readings with a time do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from analyzers.diagnosis.gray.apart import OF_A_NODE, Apart, Peers, errors_apart, sort_out
from analyzers.diagnosis.gray.gray_ports import of_name, port_signs
from analyzers.diagnosis.gray.growth import ERRORS, Growth, growths
from analyzers.diagnosis.gray.readings import devices
from analyzers.diagnosis.gray.signs import FEWEST_PEERS, Sign, signs
from analyzers.diagnosis.gray.under_load import Subject, measured
from analyzers.diagnosis.hardware.places import Places
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Cause, Evidence, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import KernelEvent

MOST_SURE = 0.8  # by itself: never enough to evict
MOST_SHOWN = 8
READINGS_ALONE = frozenset({"device", "samples", "unread"})


def analyze(window: Window, topology: Topology, _knowledge: Knowledge) -> Iterator[Finding]:
    """Claim each GPU or node that stands apart; with none, show what was seen and does not decide."""
    seen = [measured(read) for read in devices(window)]
    if not seen:
        return
    apart = _sorted_out(seen)
    places = Places(window, topology)
    for gpu in seen:
        if own := apart.gpus.get(id(gpu)):
            yield _of_device(gpu, own, places)
    for node in sorted(apart.nodes):
        yield _of_node(node, apart.nodes[node], places)
    if apart.undecided and not apart.gpus and not apart.nodes:
        yield _undecided(apart.undecided)
    if (
        not apart.undecided
        and not apart.gpus
        and not apart.nodes
        and window.kinds <= READINGS_ALONE
        and not window.live
    ):
        yield from _even(seen)


def _sorted_out(seen: Sequence[Subject]) -> Apart:
    loaded = [gpu for gpu in seen if gpu.now.readings]
    peers = Peers(loaded)
    grown = [growth for gpu in seen for growth in growths(gpu)]
    found = [sign for gpu in loaded for sign in signs(gpu, peers.of(gpu))]
    found += errors_apart(grown)
    ports = [port for port in seen if port.read.is_port]
    found += port_signs(ports)
    counted = _counted(grown)
    return sort_out(found, lambda kind: counted.get(kind) or of_name(kind, ports) or loaded)


def _even(seen: Sequence[Subject]) -> Iterator[Finding]:
    """Yield that nothing stands apart, where there are peers under load to compare."""
    gpus = [one for one in seen if not one.read.is_port]
    loaded = [one for one in gpus if one.now.readings]
    peers = Peers(loaded)
    if not any(len(peers.of(one)) >= FEWEST_PEERS for one in loaded):
        return
    idle = f"; {len(gpus) - len(loaded):,} are idle, and not compared" if len(loaded) < len(gpus) else ""
    text = f"no clock, link or error of {len(loaded):,} GPUs under load stands apart from those of its peers{idle}"
    shown = Evidence(text=text, source=loaded[0].read.source)
    yield Finding(
        analyzer="gray", family="hardware", symptom="healthy", cause="none", fault_class="gray_even", evidence=(shown,),
        first_symptom=shown,
    )  # fmt: skip


def _counted(grown: Sequence[Growth]) -> dict[str, list[Subject]]:
    """Return the GPUs whose errors were counted, by the kind of error."""
    found: dict[str, list[Subject]] = {kind: [] for kind in ERRORS}
    for growth in grown:
        found[growth.kind].append(growth.subject)
    return found


def _of_device(gpu: Subject, own: Sequence[Sign], places: Places) -> Finding:
    lead = max(own, key=lambda sign: sign.strength)
    why = f"{gpu.read.name}: {'; '.join(sign.text for sign in own)}"
    read = gpu.read
    event = KernelEvent(event="gray", source=read.source, node=read.node, pci=read.device.pci)
    suspect = Suspect(
        kind="link" if read.is_port else "device", strength=_joint(own), why=why, node=places.node(read.node),
        ranks=() if read.is_port else places.ranks_of_device(event),
        device=read.id if read.is_port else read.device.pci or read.id, evidence=tuple(_evidence(sign) for sign in own),
    )  # fmt: skip
    return _finding(lead, suspect, own, places)


def _of_node(node: str, own: Sequence[Sign], places: Places) -> Finding:
    lead = max(own, key=lambda sign: sign.strength)
    why = f"{len(own)} GPUs of {node}, and hardly any of the other nodes: {lead.text}"
    shown = tuple(_evidence(sign) for sign in own[:MOST_SHOWN])
    suspect = Suspect(kind="node", strength=OF_A_NODE, why=why, node=places.node(node), evidence=shown)
    return _finding(lead, suspect, own, places)


def _finding(lead: Sign, suspect: Suspect, own: Sequence[Sign], places: Places) -> Finding:
    onsets = [sign.at for sign in own if sign.at is not None]
    read = lead.subject.read
    cause: Cause = "network" if read.is_port else "platform" if lead.fault_class == "gray_setting" else "machine"
    return Finding(
        analyzer="gray", family="hardware", symptom="hardware", cause=cause, fault_class=lead.fault_class,
        suspects=(suspect,), scope=frozenset(suspect.ranks or places.ranks_on(suspect.node)),
        onset=min(onsets, default=None), first_symptom=_evidence(lead),
        senders=frozenset({read.node}) if read.received and read.node else frozenset(),
    )  # fmt: skip


def _undecided(undecided: Sequence[tuple[Sign, str]]) -> Finding:
    shown = tuple(_evidence(sign, f" ({why})") for sign, why in undecided[:MOST_SHOWN])
    missing = tuple(dict.fromkeys(f"which machine is at fault, if any: {why}" for _, why in undecided))
    return Finding(
        analyzer="gray", family="hardware", symptom="unknown", cause="unknown", fault_class="gray_undecided",
        evidence=shown, missing=missing[:MOST_SHOWN],
    )  # fmt: skip


def _evidence(sign: Sign, more: str = "") -> Evidence:
    read = sign.subject.read
    return Evidence(text=f"{read.name}: {sign.text}{more}", source=read.source, at=sign.at)


def _joint(own: Sequence[Sign]) -> float:
    """Return how sure several kinds of signs of one GPU make: throttling and its clock are one."""
    doubt = 1.0
    for fault in sorted({sign.fault_class for sign in own}):
        doubt *= 1 - max(sign.strength for sign in own if sign.fault_class == fault)
    return round(min(1 - doubt, MOST_SURE), 4)
