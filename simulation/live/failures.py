"""Faults: each a scene by seed, with what a verdict should say of it."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

from collectors.records import DeviceState, KernelEvent
from simulation.live.course import Interruption
from simulation.live.job import Attempt, End, Report
from simulation.live.logs import ends, launcher, traceback
from simulation.live.scenes import MINUTE, Scene, Sketch, Truth, Write


def _held_up(random: Random, drawn: Sketch, kind: str, cause: str = "machine") -> Scene:
    """One rank stands still without end. What a rank alone reads does not accuse its machine."""
    rank = random.randrange(drawn.world)
    course = drawn.course(Interruption(drawn.strikes_at(), kind, inf, frozenset({rank})))
    node, evicts = drawn.node_of(rank), cause == "machine"
    truth = Truth(kind, course.struck(), (rank,), (node,), "hang", (cause,), evicts=evicts)
    return drawn.scene([Attempt(1, course)], truth, truth.at + max(5 * MINUTE, 8 * drawn.habits.step_seconds))


def spinning(random: Random, drawn: Sketch) -> Scene:
    """One rank spins in a loop of its own."""
    return _held_up(random, drawn, "spin")


def stopping(random: Random, drawn: Sketch) -> Scene:
    """One rank's process is stopped."""
    return _held_up(random, drawn, "sigstop")


def loading(random: Random, drawn: Sketch) -> Scene:
    """One rank's data loader does not come back."""
    return _held_up(random, drawn, "data_loader", "data")


def losing_gpu(random: Random, drawn: Sketch) -> Scene:
    """One rank's GPU falls off the bus: the driver reports it, the rank waits for its device without end."""
    scene = _held_up(random, drawn, "gpu_lost")
    rank, at, node = scene.truth.ranks[0], scene.truth.at, scene.truth.nodes[0]
    local = rank % drawn.ranks_a_node
    pci, device = f"0000:{0x1B + local:02x}:00", f"GPU-{node}-{local}"
    lost = DeviceState(
        source="nvml", at=at + 3.0, device=device, index=local, pci=pci, state="lost", text="GPU is lost"
    )
    xid = KernelEvent(source="/dev/kmsg:9", at=at, event="xid", code=79, pci=pci, text="GPU has fallen off the bus.")
    reports = (Report(at + 1.0, node, xid), Report(at + 4.0, node, lost))
    scene.job.reports = reports
    truth = replace(scene.truth, symptom="hang|hardware")
    return Scene(scene.job, truth, scene.until)


def dying(random: Random, drawn: Sketch) -> Scene:
    """One rank is killed, by an unknown sender; the launcher ends the others."""
    rank = random.randrange(drawn.world)
    course = drawn.course(Interruption(drawn.strikes_at(), "spin", inf, frozenset({rank})))
    at = course.struck()
    attempt = Attempt(1, course, ends(random, drawn, rank, End(at, signal=9)))
    course.end = max(end.at for end in attempt.ends.values())
    truth = Truth(
        "killed", at, (rank,), (drawn.node_of(rank),), "crash", ("machine",)
    )  # SIGKILL comes from outside: its sender is not known
    return drawn.scene([attempt], truth, at + 2 * MINUTE, tuple(launcher(drawn, attempt, rank)))


def raising(random: Random, drawn: Sketch) -> Scene:
    """One rank ends by an exception of its own code; the launcher ends the others."""
    rank = random.randrange(drawn.world)
    course = drawn.course(Interruption(drawn.strikes_at(), "spin", inf, frozenset({rank})))
    at = course.struck()
    attempt = Attempt(1, course, ends(random, drawn, rank, End(at, exit_code=1)))
    course.end = max(end.at for end in attempt.ends.values())
    words = ("ValueError", "sample 4711 has 33 tokens, more than the position table's 32")
    reports = (traceback(drawn, attempt, rank, words, "collate"), *launcher(drawn, attempt, rank))
    truth = Truth("exception", at, (rank,), (drawn.node_of(rank),), "crash", ("code",))
    return drawn.scene([attempt], truth, at + 2 * MINUTE, reports)


def losing_node(random: Random, drawn: Sketch) -> Scene:
    """A node loses its power: its agent is silent, the others' ranks wait for its ranks."""
    node = random.choice(drawn.nodes)
    ranks = tuple(rank for rank in range(drawn.world) if drawn.node_of(rank) == node)
    course = drawn.course(Interruption(drawn.strikes_at(), "sigstop", inf, frozenset(ranks)))
    truth = Truth("dead_node", course.struck(), ranks, (node,), "hang", ("machine", "unknown", "network"))
    scene = drawn.scene([Attempt(1, course)], truth, truth.at + max(5 * MINUTE, 8 * drawn.habits.step_seconds))
    scene.job.dead_nodes[node] = truth.at
    return scene


FAULTS: dict[str, Write] = {
    "spin": spinning,
    "sigstop": stopping,
    "data_loader": loading,
    "killed": dying,
    "exception": raising,
    "dead_node": losing_node,
    "gpu_lost": losing_gpu,
}
