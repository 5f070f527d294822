"""The crash analyzer names who failed by itself; the stories below are what logs look like when somebody did."""

from __future__ import annotations

import io
import random

import pytest

from analyzers.diagnosis.crash.crash import analyze
from analyzers.knowledge import Knowledge
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.formats import Input
from collectors.formats.job_log import job_log
from collectors.records import KernelEvent, LogEvent, Record
from tests.support.crash_claims import ECHO, KNOWLEDGE, died, echo, judged, named, only, raised, said


def test_an_empty_window_gives_nothing() -> None:
    """No records, no finding; and no rules, no finding."""
    assert list(analyze(Window(), Topology(), KNOWLEDGE)) == []
    assert list(analyze(Window.build([raised(1, "ValueError")]), Topology(), Knowledge())) == []


def test_one_rank_with_an_exception_of_its_own_is_code_and_the_others_are_victims() -> None:
    """Three ranks lost their connection, one raised: the one is to be looked at, and nothing is evicted."""
    finding = only([echo(0), echo(1), raised(2, "ValueError", "bad sample"), echo(3), died(2, 1, first=True)])

    assert (finding.symptom, finding.cause, finding.fault_class) == ("crash", "code", "program_error")
    assert (finding.suspects[0].kind, named(finding), finding.victims) == ("code", (2,), (0, 1, 3))
    assert "machine" not in finding.suspects[0].why  # no repeat turns it to one
    assert finding.suspects[0].evidence[0].source == "rank2.log:10"


def test_an_exception_without_an_echo_claims_nothing_of_the_others() -> None:
    """A rank that alone is in the log may be one of many that raised: it is less likely, and no other rank is mentioned."""
    heard = only([raised(2, "ValueError", "bad sample"), echo(0)])
    for story in ([raised(2, "ValueError", "bad sample")], [raised(2, "ValueError", "bad sample"), echo(2)]):
        alone = only(list(story))

        assert (alone.cause, alone.fault_class, named(alone)) == ("code", "program_error", (2,))
        assert alone.suspects[0].strength < heard.suspects[0].strength == 0.9
        assert "lost their connection" not in alone.suspects[0].why
        assert "it alone" not in alone.suspects[0].why
        assert "the logs of the other ranks" in alone.missing
    assert "the others lost their connection to it" in heard.suspects[0].why


def test_the_earliest_error_line_is_not_the_culprit() -> None:
    """The naive answer, the first line of an error by the clock, is a victim here, and the analyzer is not."""
    story = [echo(0, at=100.0), echo(3, at=100.1), raised(1, "ValueError", "bad sample", at=100.9), echo(2, at=101.0)]
    naive = min(story, key=lambda event: event.at or 0.0).rank

    finding = only([*story, died(0, 1, first=True), died(1, 1), died(2, -15), died(3, -15)])

    assert naive == 0
    assert named(finding) == (1,)
    assert finding.rejected[0].ranks == (0,)
    assert "echo" in finding.rejected[0].why


def test_the_same_exception_on_every_rank_is_code() -> None:
    """Every rank that was not ended before it spoke raised the same: no rank stands out."""
    finding = only([*(raised(rank, "RuntimeError", "no lr") for rank in range(3)), died(3, -15)])

    assert (finding.cause, finding.fault_class) == ("code", "exception_all_ranks")
    assert (len(finding.suspects), finding.suspects[0].kind) == (1, "code")


def test_the_same_file_system_error_on_every_rank_is_storage() -> None:
    """A stale handle everywhere is the shared file system; on one rank it is that rank's path."""
    everywhere = only([raised(rank, "OSError", "[Errno 116] Stale file handle: '/fs/x'") for rank in range(4)])
    alone = only([raised(1, "FileNotFoundError", "[Errno 2] No such file"), echo(0), echo(2), echo(3)])

    assert (everywhere.cause, everywhere.suspects[0].kind) == ("storage", "storage")
    assert (alone.cause, named(alone)) == ("code", (1,))


@pytest.mark.parametrize(
    ("message", "cause", "fault_class", "least", "most"),
    [
        ("CUDA error: an illegal memory access was encountered", "unknown", "device_fault", 0.0, 0.5),
        ("CUDA error: uncorrectable ECC error encountered", "machine", "device_lost", 0.85, 1.0),
        ("CUDA error: device-side assert triggered", "code", "device_assert", 0.5, 1.0),
        ("CUDA out of memory. Tried to allocate 2 GiB", "imbalance", "device_memory", 0.5, 1.0),
    ],
)
def test_a_cuda_error_on_one_rank_is_judged_by_its_kind(
    message: str, cause: str, fault_class: str, least: float, most: float
) -> None:
    """ECC is the machine, an illegal access may be anybody's, an assert and memory are not the machine's."""
    finding = only([echo(0), raised(1, "torch.AcceleratorError", message), echo(2), echo(3)])

    assert (finding.cause, finding.fault_class, named(finding)) == (cause, fault_class, (1,))
    assert least <= finding.suspects[0].strength <= most


def test_an_asynchronous_error_says_that_its_line_lies() -> None:
    """An illegal access asks for a probe and warns of the line it names; on every rank it is code."""
    message = "CUDA error: an illegal memory access was encountered"
    alone = only([raised(1, "RuntimeError", message), echo(0), echo(2), echo(3)])
    everywhere = only([raised(rank, "RuntimeError", message) for rank in range(4)])

    assert "asynchronous" in alone.suspects[0].why
    assert any("probe" in text for text in alone.missing)
    assert everywhere.cause == "code"


def test_a_failure_said_again_without_a_rank_is_no_second_suspect() -> None:
    """C++ repeats the watchdog's words on a line without a prefix: the suspect stays one."""
    message = "CUDA error: an illegal memory access was encountered"

    finding = only(
        [said("cuda_error", 1, message=message), said("cuda_error", None, message=message), echo(0), echo(2)]
    )

    assert [suspect.ranks for suspect in finding.suspects] == [(1,)]


def test_an_error_inside_a_communication_exception_is_the_rank_s_own() -> None:
    """NCCL wraps a GPU's failure in its own exception: the words inside decide."""
    wrapped = raised(3, "torch.distributed.DistBackendError", "NCCL error, Cuda failure 'uncorrectable ECC error'")

    assert only([echo(0), echo(1), echo(2), wrapped]).cause == "machine"


def test_a_rank_killed_by_signal_9_is_named() -> None:
    """The launcher ended the others after it; it was ended from outside."""
    finding = only([died(0, -15), died(1, -9, first=True), died(2, -15), echo(3)])

    assert (finding.cause, finding.fault_class) == ("machine", "process_killed")
    assert (named(finding), finding.suspects[0].node) == ((1,), "node-1")
    assert finding.victims == (0, 2, 3)


def test_ranks_that_their_launcher_killed_are_victims() -> None:
    """After 30 s torchrun sends SIGKILL to what ignores SIGTERM: those deaths are its own doing."""
    closing = [said("closing_signal", rank, signal=15, pid=rank) for rank in (0, 2, 3)]

    finding = only(
        [*closing, died(0, -9), raised(1, "ValueError", "x"), died(1, 1, first=True), died(2, -9), died(3, -9)]
    )

    assert (finding.cause, named(finding)) == ("code", (1,))


@pytest.mark.parametrize("where", ["pid", "node"])
def test_a_kill_with_the_kernel_s_out_of_memory_line_is_not_the_machine(where: str) -> None:
    """The oom killer's line for that process, or on that node, makes the memory the cause."""
    killed = KernelEvent(
        source="kern.log:5",
        event="oom_kill",
        pid=77 if where == "pid" else None,
        node="node-1" if where == "node" else None,
    )

    finding = only([died(0, -15), died(1, -9, first=True, pid=77), died(2, -15), killed])

    assert (finding.cause, finding.fault_class, named(finding)) == ("code", "host_oom", (1,))
    assert (
        only([died(0, -15), died(1, -9, first=True, pid=78), KernelEvent(event="oom_kill", node="node-3")]).cause
        == "machine"
    )


def test_a_preemption_explains_every_death() -> None:
    """The scheduler's word makes kills and interrupted exceptions its own doing, unless an exception is much older."""
    story: list[Record] = [died(rank, -9) for rank in range(4)]
    taken = said("preempted", at=1000.0, text="CANCELLED DUE TO PREEMPTION")

    finding = only([*story, raised(2, "KeyError", "x", at=990.0), taken])
    older = [each for each in judged([raised(2, "KeyError", "x", at=10.0), taken]) if each.cause == "code"]

    assert (finding.cause, finding.suspects[0].kind, named(finding)) == ("platform", "platform", ())
    assert [named(each) for each in older] == [(2,)]


def test_everybody_terminated_is_the_platform() -> None:
    """SIGTERM for all, and nobody failed by himself: nobody is blamed."""
    finding = only([died(rank, -15) for rank in range(4)])

    assert (finding.cause, finding.fault_class, named(finding)) == ("platform", "terminated", ())


def test_everybody_killed_is_the_platform_but_one_node_of_two_is_not() -> None:
    """Kills of all ranks come from outside; kills of one node's ranks only are that node's."""
    nodes = {rank: f"node-{rank // 3}" for rank in range(4)}

    assert only([died(rank, -9) for rank in range(4)]).cause == "platform"
    finding = only([*(died(rank, -9) for rank in range(3)), echo(3)], nodes=nodes)
    assert (finding.cause, named(finding), finding.together) == ("machine", (0, 1, 2), True)


def test_a_node_that_is_taken_as_lost_without_a_reason_is_a_weaker_lead() -> None:
    """Ray's "its node has died" and Kubernetes' NodeNotReady are the view of others; a node is tested, none is evicted."""
    told = only([said("node_failure", node="node-2", text="CANCELLED DUE TO NODE FAILURE")])
    for text in ("The actor is dead because its node has died.", "Node node-2 status is now: NodeNotReady"):
        unsaid = only([said("node_failure", node="node-2", text=text)])

        assert (unsaid.cause, unsaid.fault_class, unsaid.suspects[0].node) == ("machine", "node_failed", "node-2")
        assert unsaid.suspects[0].strength < told.suspects[0].strength
        assert unsaid.missing


def test_who_waits_for_a_node_without_a_name_is_no_platform() -> None:
    """A node is suspected, and none is named."""
    finding = only([said("node_failure", text="The actor is dead because its node has died.")])

    assert [(suspect.kind, suspect.node) for suspect in finding.suspects] == [("node", None)]


def test_a_lost_node_is_named() -> None:
    """Slurm's NODE FAILURE names the node and the ranks on it."""
    finding = only(
        [said("node_failure", node="node-2", text="CANCELLED DUE TO NODE FAILURE"), echo(0), echo(1), echo(3)]
    )

    assert (finding.cause, finding.suspects[0].kind, finding.suspects[0].node) == ("machine", "node", "node-2")
    assert named(finding) == (2,)


@pytest.mark.parametrize("signal", [11, 5])
def test_a_native_crash_of_one_rank_is_a_moderate_suspicion(signal: int) -> None:
    """One rank's segfault may be a library's or the machine's; every rank's is a library's."""
    finding = only([died(0, -15), died(1, -signal, first=True), died(2, -15), died(3, -15)])

    assert (finding.cause, finding.fault_class, named(finding)) == ("machine", "process_crashed", (1,))
    assert finding.suspects[0].strength < 0.7
    assert only([died(rank, -signal) for rank in range(4)]).cause == "code"


@pytest.mark.parametrize("signal", [8, 4])
def test_an_instruction_that_traps_is_the_program_s(signal: int) -> None:
    """A division by zero, or a build for another processor: no memory that failed makes either."""
    finding = only([died(0, -15), died(1, -signal, first=True), died(2, -15), died(3, -15)])

    assert (finding.cause, finding.fault_class) == ("code", "instruction_trapped")


def test_a_bus_error_accuses_no_machine() -> None:
    """A full /dev/shm ends a process with SIGBUS as failing memory does; where all die of it, what they share ran out."""
    finding = only([died(0, -15), died(1, -7, first=True), died(2, -15), died(3, -15)])

    assert (finding.cause, finding.fault_class, named(finding)) == ("unknown", "process_crashed", (1,))
    together = only([died(rank, -7) for rank in range(4)])
    assert (together.cause, together.fault_class) == ("code", "shared_memory")


def test_an_abort_after_a_watchdog_is_a_victim_s() -> None:
    """NCCL's watchdog ends its own process with SIGABRT: the rank without a timeout stays the suspect."""
    timeouts = [said("watchdog_timeout", rank, group="0", sequence=9, timeout_ms=1) for rank in (0, 1, 3)]

    finding = only([*timeouts, *(died(rank, -6, first=rank == 0) for rank in (0, 1, 3)), died(2, -15)])

    assert (finding.symptom, finding.narrows, finding.family) == ("hang", True, "waits")
    assert named(finding) == (2,)


def test_the_rank_that_had_enqueued_less_never_entered() -> None:
    """Of one group, the rank whose last enqueued operation is below what the others wait in is named, and no other."""
    waits = [
        said("watchdog_timeout", rank, group="5", sequence=9, last_enqueued=11, last_completed=8) for rank in (0, 1, 3)
    ]
    behind = said("watchdog_dump", 2, group="5", last_enqueued=8, last_completed=8)

    finding = only([*waits, behind])

    assert (named(finding), finding.fault_class) == ((2,), "never_entered")
    assert "enqueued 8" in finding.suspects[0].evidence[0].text


def test_local_group_numbers_are_never_compared() -> None:
    """``PG 1`` is another group on every rank: a lower counter there names nobody."""
    waits = [said("watchdog_timeout", rank, group="local:1", sequence=9, last_enqueued=11) for rank in (0, 1, 3)]

    finding = only([*waits, said("watchdog_timeout", 2, group="local:1", sequence=4, last_enqueued=4)])

    assert (finding.fault_class, named(finding), finding.cause) == ("echoes_only", (), "unknown")


def test_timeouts_of_everybody_name_nobody() -> None:
    """All ranks wait, none says more: a hang without a culprit."""
    finding = only([said("watchdog_timeout", rank, group="0", sequence=9, last_enqueued=9) for rank in range(4)])

    assert (finding.symptom, finding.suspects, finding.cause) == ("hang", (), "unknown")


def test_a_silent_node_among_several_is_not_blamed() -> None:
    """Two of five nodes without any line may be logs that nobody collected."""
    nodes = {rank: f"node-{rank // 2}" for rank in range(10)}

    assert only([echo(rank) for rank in range(6)], nodes=nodes).suspects == ()
    assert named(only([echo(rank) for rank in range(10) if rank != 7], nodes=nodes)) == (7,)


def test_a_barrier_that_names_the_missing_is_believed() -> None:
    """The monitored barrier says who did not come."""
    finding = only([raised(0, "RuntimeError", "Rank 0: Ranks 1, 3 failed to pass monitoredBarrier in 5000 ms")])

    assert named(finding) == (1, 3)


def test_an_interpreter_that_made_no_progress_is_a_suspect() -> None:
    """A rank whose own heartbeat monitor complains is where the hang is."""
    waits = [said("watchdog_timeout", rank, group="0", sequence=9, last_enqueued=9) for rank in range(4)]

    finding = only([*waits, said("watchdog_stuck", 2, text="could not acquire GIL")])

    assert named(finding) == (2,)
    assert finding.cause == "unknown"  # its own code may hold the interpreter


def test_an_exception_that_was_survived_weighs_less() -> None:
    """An exception followed by a connection error in the same log was handled, and loses to a certain one."""
    survived = [raised(0, "FileNotFoundError", "retrying", line=5), raised(0, "RuntimeError", ECHO, line=90)]

    alone = only([*survived, echo(1), echo(2), echo(3)])
    beside = only([*survived, echo(1), raised(2, "ValueError", "x"), echo(3)])

    assert alone.suspects[0].strength < 0.5
    assert named(beside) == (2,)


def test_two_different_exceptions_are_two_roots() -> None:
    """Neither explains the other: both are reported."""
    findings = judged([raised(0, "ValueError", "a"), raised(2, "IndexError", "b"), echo(1), echo(3)])

    assert sorted(named(finding) for finding in findings) == [(0,), (2,)]


def test_a_look_up_error_around_a_lost_connection_is_an_echo() -> None:
    """A KeyError during whose handling NCCL failed is only the wrapping of the failure."""
    wrapped = LogEvent(
        source="r1:1", rank=1, event="traceback", exception="KeyError", message="7",
        text="KeyError: 7 (during handling of which came torch.distributed.DistBackendError)",
    )  # fmt: skip

    assert named(only([wrapped, echo(0), raised(2, "ValueError", "x"), echo(3)])) == (2,)


def test_an_exit_code_without_words_is_named_weakly() -> None:
    """With nothing but the launcher's summary its first failure is a weak suspect of unknown cause."""
    finding = only([died(0, -15), died(1, 1, first=True), died(2, -15), died(3, -15)])

    assert (finding.cause, named(finding)) == ("unknown", (1,))
    assert finding.suspects[0].strength <= 0.4


def test_peers_of_lost_connections_support_the_suspect_on_that_host() -> None:
    """The address that the victims lost is reported as evidence, and as the suspect's own where it is."""
    nodes = {0: "10.0.0.1", 1: "10.0.0.7", 2: "10.0.0.2", 3: "10.0.0.3"}
    lost = [
        LogEvent(source=f"r{rank}:1", rank=rank, event="connection_closed", peer="10.0.0.7:4242") for rank in (0, 2, 3)
    ]

    finding = only([*lost, died(1, -9, first=True)], nodes=nodes)

    assert "3 ranks lost their connection to 10.0.0.7, the suspect's own node" in [
        each.text for each in finding.evidence
    ]


STORY: list[Record] = [
    echo(0, at=99.0), raised(1, "ValueError", "x", at=100.0), echo(2), died(1, 1, first=True), died(3, -15),
    died(0, -15), said("nan", 2, text="loss nan"), died(2, -15),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_records_does_not_matter(seed: int) -> None:
    """Any permutation of a story's records gives equal findings."""
    shuffled = random.Random(seed).sample(STORY, len(STORY))

    assert judged(shuffled) == judged(STORY)


def test_renaming_nodes_renames_the_findings_and_nothing_else() -> None:
    """The findings under new names are the old ones with the names replaced."""
    story: list[Record] = [died(0, -15), died(1, -9, first=True), echo(2), died(3, -15)]
    before = judged(story)
    after = judged(story, nodes={rank: f"gpu{9 - rank}" for rank in range(4)})

    assert repr(after) == repr(before).replace("node-1", "gpu8")
    assert repr(after) != repr(before)


def test_a_printed_log_is_judged_from_text_to_name() -> None:
    """An interleaved log of one exception, two echoes and the launcher's summary names the rank that raised."""
    parts = []
    for rank, error in enumerate(["RuntimeError: " + ECHO, "ValueError: bad", "RuntimeError: " + ECHO]):
        lines = ["Traceback (most recent call last):", '  File "/app/train.py", line 9, in step', "    x()", error]
        parts.append([f"[rank{rank}]: {line}" for line in lines])
    text = "\n".join(line for lines in zip(*parts, strict=True) for line in lines) + "\n"
    data = text.encode()

    records = list(job_log.read(Input("job.log", io.BytesIO(data), data)))

    assert named(only(records, ranks=3)) == (1,)
