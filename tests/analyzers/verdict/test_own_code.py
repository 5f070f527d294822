"""A rank in its own code that all others wait for: its code, its data or its machine, and nobody can tell from stacks alone."""

from __future__ import annotations

import msgspec
import pytest

from analyzers.model import topology
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.calibrated import calibrated
from analyzers.verdict.judge import judge
from collectors.records import (
    CollectorReport,
    Coverage,
    Device,
    FlightRecorderDump,
    KernelEvent,
    Members,
    Placement,
    ProcessState,
    Record,
    StackDump,
)
from service.packaged_knowledge import load
from service.reports import text
from tests.support.argued_claims import a_set, claim, decided, suspect
from tests.support.live_hangs import START, Hang, inside, named, verdict
from tests.support.stack_claims import live

RANKS, CULPRIT, NODE, AT = 4, 3, "cpu-7", 1_795_260_925.0
WAITS = "all_reduce"


def seen(*more: Record, stack: str = "compute", rounds: int = 3) -> Verdict:
    """The verdict on some rounds of stacks, an agent's: three ranks wait in a collective, one stands elsewhere."""
    placed = Placement(
        source="agent", job="mlp", node=NODE, ranks=Members.of(range(RANKS)), nodes=(NODE,) * RANKS, world_size=RANKS,
        pids=tuple(100 + rank for rank in range(RANKS)),
    )  # fmt: skip
    stacks = [
        live(rank, stack if rank == CULPRIT else WAITS, AT + 60.0 * number, node=NODE, pid=100 + rank, job="mlp")
        for number in range(rounds)
        for rank in range(RANKS)
    ]
    window = Window.build([placed, *stacks, *more], live=True, since=AT - 30.0)
    return judge(window, topology.infer(window), load(), rounds=rounds)


def looked(nothing: int) -> Coverage:
    """An agent's minute in which it looked for GPUs six times."""
    report = CollectorReport(name="gpu", runs=6, nothing=nothing, records=6 - nothing, error="no NVIDIA driver")
    return Coverage(node=NODE, at=AT + 60.0, collectors=(report,))


def said(verdict: Verdict) -> str:
    """The report, on one line."""
    return " ".join(text.render(verdict).split())


def test_a_rank_in_its_own_code_for_rounds_is_undecided_between_code_data_and_machine() -> None:
    """It is named, its frames are shown, its node is checked at most, and no cause is claimed."""
    verdict = seen()

    assert (verdict.symptom, verdict.cause, verdict.abstained) == ("hang", "unknown", False)
    assert [(one.kind, one.ranks) for one in verdict.culprits] == [("node", (CULPRIT,))]
    assert (verdict.action.kind, verdict.action.nodes, verdict.action.ranks) == ("probe", (NODE,), (CULPRIT,))
    assert any(" ← " in one.text and "train.py" in one.text for one in verdict.evidence)
    assert all(word in said(verdict) for word in ("code", "data", "machine"))


@pytest.mark.parametrize(("coverage", "gpus"), [((), True), ((looked(0),), True), ((looked(6),), False)])
def test_a_test_of_gpus_is_for_nodes_that_have_some(coverage: tuple[Coverage, ...], gpus: bool) -> None:
    """Where an agent looked for GPUs and found none, no GPU is tested; where nobody looked, there may be some."""
    assert ("dcgmi" in said(seen(*coverage))) is gpus


def test_a_gpu_that_was_seen_is_one() -> None:
    """A device's record outweighs a minute in which the library did not answer."""
    assert "dcgmi" in said(seen(looked(6), Device(node=NODE, at=AT, type="gpu", id="GPU-0")))
    assert "dcgmi" not in said(seen(looked(6), Device(node="other", at=AT, type="gpu", id="GPU-0")))


def test_a_stopped_rank_is_its_machines_and_is_continued_first() -> None:
    """State T is its process's own: what its stack shows says nothing, and whoever stopped it can let it go on."""
    rows = [
        ProcessState(
            node=NODE, job="mlp", rank=rank, pid=100 + rank, state="T" if rank == CULPRIT else "S", at=AT + 10.0 * number,
            boot_id="b", source="agent",
        )
        for number in range(6)
        for rank in (CULPRIT, (CULPRIT + 1) % 4)
    ]  # fmt: skip
    verdict = seen(*rows)
    page = said(verdict)

    assert (verdict.cause, verdict.action.kind) == ("machine", "evict")
    assert page.index("kill -CONT") < page.index("Evict node")


def test_less_evidence_is_no_bolder() -> None:
    """One round names no cause either, and never an eviction."""
    once, often = seen(rounds=1), seen(rounds=4)

    assert {one.cause for one in (once, often)} <= {"unknown", "none"}
    assert "evict" not in {one.action.kind for one in (once, often)}
    assert msgspec.to_builtins(once.coverage)["has_gpus"] is None


LOADER = (inside("read_shard", "__next__"),) * 2


@pytest.mark.parametrize("looks", [None, 1, 2, 5])
def test_a_rank_that_dumps_and_stacks_find_in_its_loader_is_named_and_its_machine_is_not_accused(
    looks: int | None,
) -> None:
    """What it reads is its own: that the others wait for it proves who it is, however often it is seen."""
    found = verdict(Hang(stands=LOADER).records(), looks)

    assert (found.symptom, found.cause, named(found)) == ("hang", "data", [2])
    assert (found.action.kind, found.action.nodes, found.action.ranks) == ("probe", ("gpu-2",), (2,))
    assert said(found).startswith("Rank 2 (node gpu-2) hangs the job")


def test_what_accuses_the_machine_of_a_rank_in_its_loader() -> None:
    """A process that somebody stopped is proof whatever its stack shows; so is its device's failure."""
    stopped = verdict(Hang(stands=LOADER, state="T").records())
    lost = KernelEvent(
        source="/dev/kmsg:9", node="gpu-2", at=START + 1.0, event="xid", code=79, pci="0000:1b:00", text="GPU lost"
    )
    failed = verdict(Hang(stands=LOADER, more=[lost]).records())

    assert (stopped.cause, stopped.action.kind, stopped.action.nodes) == ("machine", "evict", ("gpu-2",))
    assert (failed.cause, named(failed)) == ("machine", [2])


@pytest.mark.parametrize("looks", [None, 3])
def test_a_loader_that_waits_for_a_file_system_has_no_machine_evicted(looks: int | None) -> None:
    """Uninterruptible in NFS: another client of the file system would wait as well."""
    found = verdict(Hang(stands=LOADER, state="D", channel="nfs_wait_bit_killable").records(), looks)
    page = said(found)

    assert (found.cause, named(found), found.action.kind) == ("storage", [2], "none")
    assert page.startswith("The storage that rank 2 on gpu-2 uses (not a machine) hangs the job")
    assert "network file system (NFS)" in page


@pytest.mark.parametrize("channel", [None, "rwsem_down_read_slowpath", "folio_wait_bit_common"])
def test_a_loader_of_which_the_kernel_does_not_show_the_wait_is_no_surer_its_machines(channel: str | None) -> None:
    """A reader that is not root sees state D and no function: a file server is as likely as the machine."""
    found, plain = (
        verdict(Hang(stands=LOADER, state="D", channel=channel).records(), None),
        verdict(Hang(stands=LOADER).records(), None),
    )

    assert (found.cause, named(found), found.action.kind) == (plain.cause, [2], plain.action.kind)
    assert found.culprits[0].probability <= plain.culprits[0].probability
    assert any("/proc/102/wchan" in one.what for one in found.missing)


def test_a_rank_that_only_left_no_dump_is_not_named_beside_one_that_waits_and_its_stack_prove() -> None:
    """Its recorder was not asked in time: it stays a suspect, and the advice is about the rank that is proven."""
    records = [
        one for one in Hang(stands=LOADER).records()
        if not (isinstance(one, (FlightRecorderDump, StackDump)) and one.rank == 0)
    ]  # fmt: skip
    found = verdict(records)

    assert (named(found), found.cause, found.action.ranks) == ([2], "data", (2,))
    assert any(0 in one.ranks for one in found.suspects)


def test_the_nodes_of_all_ranks_in_their_loaders_are_tested() -> None:
    """Two ranks read without end, the others wait for both."""
    found = verdict(Hang(culprits=(1, 2), stands=LOADER, ranks=8).records())

    assert (found.cause, named(found)) == ("data", [1, 2])
    assert (found.action.kind, found.action.nodes, found.action.ranks) == ("probe", ("gpu-1", "gpu-2"), (1, 2))


def test_one_reading_of_a_stopped_process_is_enough_to_look_past_its_loader() -> None:
    """The table was read once since: the stack says where it was stopped, and nothing of why."""
    found = verdict(Hang(stands=LOADER, state="T", states_at=(60.0,)).records())

    assert (found.cause, found.action.kind, found.action.nodes) == ("machine", "evict", ("gpu-2",))


def test_a_stopped_process_is_continued_before_anything_is_evicted_whatever_names_it() -> None:
    """Dumps name the rank, its state shows why: the machine may be well."""
    certain = said(verdict(Hang(state="T", channel="do_signal_stop").records(), None))
    in_loader = said(verdict(Hang(stands=LOADER, state="T").records()))
    others = [
        one for one in Hang(state="T", channel="do_signal_stop").records()
        if not (isinstance(one, FlightRecorderDump) and one.rank == 2)
    ]  # fmt: skip
    without_its_dump = said(verdict(others, None))

    assert all(
        page.index("kill -CONT") < page.index("Evict node gpu-2.") for page in (certain, in_loader, without_its_dump)
    )
    assert "kill -CONT" not in said(verdict(Hang().records()))


def all_in_loaders(*culprits: int) -> list[Record]:
    """Dumps in which these ranks hold the others up, and stacks of all ranks in their loaders."""
    dumps = [record for record in Hang(culprits).records() if not isinstance(record, StackDump)]
    stacks = [record for record in Hang(range(4), stands=LOADER).records() if isinstance(record, StackDump)]
    return [*dumps, *stacks]


@pytest.mark.parametrize("looks", [None, 3])
@pytest.mark.parametrize("culprits", [(2,), (1, 2)])
def test_where_all_stand_in_their_loaders_dumps_that_differ_accuse_no_machine(
    culprits: tuple[int, ...], looks: int | None
) -> None:
    """The data is the cause; nobody waits for another, and no stacks are asked for: they are there."""
    found = verdict(all_in_loaders(*culprits), looks)

    assert (found.symptom, found.cause, found.action.kind) == ("hang", "data", "none")
    assert [one.kind for one in found.culprits] == ["data"]
    assert (found.victims.count, found.victims.chains, found.first_symptom) == (0, (), None)
    assert not [one.what for one in found.missing if "would" in one.what]
    assert "4 ranks stand in" in said(found)


def test_loaders_of_all_ranks_excuse_no_process_that_has_ended() -> None:
    """What its stack showed before is no reason of its end."""
    row = ProcessState(
        source="ps.txt:4",
        at=START + 61.0,
        node="gpu-2",
        job="llama",
        attempt=1,
        rank=2,
        pid=102,
        state="Z",
        boot_id="b",
    )
    found = verdict([*all_in_loaders(2), row], None)

    assert (found.cause, named(found)) == ("machine", [2])


def test_a_stack_that_is_missing_of_a_rank_that_holds_no_other_up_changes_nothing() -> None:
    """All whom the dumps may accuse are seen in their loaders: less evidence is no bolder."""
    without = [one for one in all_in_loaders(1, 2) if not (isinstance(one, StackDump) and one.rank == 0)]
    found = verdict(without, None)

    assert (found.cause, [one.kind for one in found.culprits], found.action.kind) == ("data", ["data"], "none")


def test_loaders_of_some_ranks_acquit_none_of_whom_nothing_is_seen() -> None:
    """The stacks of two ranks are there, the dumps hold up a third: less evidence is no bolder."""
    seen_ones = [one for one in all_in_loaders(2) if not isinstance(one, StackDump) or one.rank in {0, 1}]
    found = verdict(seen_ones, None)

    assert named(found) == [2]
    assert found.cause != "data"


def test_a_rank_in_its_loader_waits_for_no_other_whatever_its_dump_shows() -> None:
    """What it launched before still runs: it is named with the rank that the dumps name, and is no victim of that."""
    dumps = [one for one in Hang((1,), ranks=8).records() if not isinstance(one, StackDump)]
    stacks = [one for one in Hang((1, 2), ranks=8, stands=LOADER).records() if isinstance(one, StackDump)]
    found = verdict([*dumps, *stacks], None)

    assert (found.cause, named(found), found.victims.ranks) == ("data", [1, 2], "0,3-7")
    assert (found.action.kind, found.action.ranks) == ("probe", (1, 2))
    assert all(f"rank {one.ranks[0]} is in its data loader" in one.why for one in found.culprits)
    assert "while 6 others wait" in said(found)


def test_a_rank_whose_stack_alone_is_missing_is_named_with_less() -> None:
    """Without its stack it is known who holds the others up, and not why: no figure is stated that rests on more."""
    window = Hang(stands=LOADER).records()
    without = [one for one in window if not (isinstance(one, StackDump) and one.rank == 2)]
    assert named(verdict(without, None)) == [2]

    waits = a_set(1, 2, fault_class="never_entered", cause="machine")
    absent = claim("stacks", "no_stack", suspect(2, strength=0.6), narrows=True)
    picked = calibrated(decided(waits, absent), load())
    assert [(one.ranks, one.probability) for one in picked.culprits] == [((2,), 0.6)]
    assert (picked.action.kind, picked.roots[0].calibration) == ("probe", "none")


def test_a_rank_in_its_loader_beside_a_stopped_one_is_neither_named_nor_said_to_wait() -> None:
    """The stopped one is certain; whether the other is stuck as well only its next stack shows."""
    stopped = claim(
        "hang", "never_entered", suspect(5, strength=0.95), scope=frozenset(range(64)), victims=tuple(range(5))
    )
    state = claim("process", "stopped", suspect(5, strength=0.95))
    beside = claim("stacks", "stuck_data_loader", suspect(2), cause="data", narrows=True)
    found = decided(stopped, state, beside)

    assert (named(found), found.victims.ranks) == ([5], "0-1,3-4")
    assert ["rank 2" in one.what for one in found.missing] == [True]
