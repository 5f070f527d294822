"""A rank in a pause is no culprit; one that is stuck is, whatever its functions are called."""

from __future__ import annotations

import re

import msgspec
import pytest

from analyzers.knowledge import Knowledge, parse
from analyzers.model.frames import FrameRules
from analyzers.model.standings import Observation
from analyzers.verdict.pauses import Pauses
from collectors.records import Frame, LogEvent, ProcessState, StackDump, Thread
from service import packaged_knowledge
from service.reports.story import no_fault
from tests.support.live_hangs import KNOWLEDGE, REDUCE, SPIN, START, TRAIN, Hang, inside, named, verdict

TORCH = "/x/site-packages/torch"
PDB = "/usr/lib/python3.11/pdb.py"
MET = {
    "frames.debugger": inside("interaction", "set_trace", file=PDB),
    "frames.debugger_attached": inside("do_wait_suspend", file="/x/site-packages/debugpy/_vendored/pydevd/pydevd.py"),
    "frames.console": inside("raw_input", "interact", file="/usr/lib/python3.11/code.py"),
    "frames.terminal": inside("PyOS_Readline", file="libpython3.11.so.1.0"),
    "frames.checkpoint": inside("write", "save_checkpoint"),
    "frames.checkpoint_words": inside("zero_save_all"),
    "frames.checkpoint_files": inside("_write_item", file=f"{TORCH}/distributed/checkpoint/filesystem.py"),
    "frames.evaluation": inside("perplexity", "evaluate"),
    "frames.evaluation_words": inside("estimate_loss"),
    "frames.samples": inside("decode", "generate_samples"),
    "frames.compile": inside("compile_fx_inner", file=f"{TORCH}/_inductor/compile_fx.py"),
    "frames.compile_kernels": inside("make_ptx", file="/x/site-packages/triton/backends/nvidia/compiler.py"),
    "frames.garbage": inside("gc_collect_main", file="libpython3.12.so.1.0"),
    "frames.garbage_torchtitan": inside("collect", "run", file="/srv/torchtitan/tools/utils.py"),
    "frames.data_index": inside("_build_shuffle_index", file="/srv/megatron/core/datasets/gpt_dataset.py"),
    "frames.data_library": inside("_map_single", file="/x/site-packages/datasets/arrow_dataset.py"),
    "frames.download": inside("http_get", "hf_hub_download", file="/x/site-packages/huggingface_hub/file_download.py"),
    "frames.start": inside("_find_and_load", file="<frozen importlib._bootstrap>"),
    "frames.start_words": inside("setup_model_and_optimizer"),
    "frames.capture": inside("capture_begin", file=f"{TORCH}/cuda/graphs.py"),
    "frames.profile": inside("export_chrome_trace", file=f"{TORCH}/profiler/profiler.py"),
}  # fmt: skip
STUCK = {
    "a loop in the user's own code": SPIN,
    "a data loader": inside("read_shard", "__next__"),
    "a call with the interpreter's lock": inside("clean_text"),
    "a compiled model's own run": inside("forward", "compile_wrapper", file=f"{TORCH}/_dynamo/eval_frame.py"),
    "a job that runs below a debugger": (*SPIN, Frame("_run", PDB), Frame("main", "/x/debugpy/server/cli.py")),
    "a function that trains and evaluates": (Frame("step", "/srv/a.py"), Frame("train_and_evaluate", "/srv/a.py")),
    "a batch's own checks": inside("validate_batch", "evaluate_loss"),
    "a model's library": inside("validate", file="/x/site-packages/pydantic/main.py"),
    "the head of a batch's tokens": inside("tokenize", "collate"),
}


def pauses() -> Pauses:
    """The packaged rules."""
    return Pauses.from_knowledge(KNOWLEDGE)


def seen(frames: tuple[Frame, ...]) -> str:
    """The kind of pause that a stack shows."""
    dump = StackDump(rank=0, pid=1, tool="py-spy", threads=(Thread(frames=frames, main=True),))
    found = pauses().seen([Observation.from_dump(dump, FrameRules.from_knowledge(KNOWLEDGE))], [], [])
    return found.kind if found else ""


@pytest.mark.parametrize("row", MET)
def test_each_rule_is_met_by_a_real_stack(row: str) -> None:
    """Every row of pauses.toml knows the stack that it is for, and the verdict then names and evicts nobody."""
    part, name = row.split(".")
    kind = KNOWLEDGE.table("pauses")[part][name]["kind"]
    found = verdict(Hang(stands=(MET[row],)).records())

    assert seen(MET[row]) == kind
    assert (found.culprits, found.abstained, found.action.kind) == ((), False, "none")
    assert found.cause == ("code" if kind in ("debugger", "input") else "none")
    assert [root.fault_class for root in found.roots] == [f"pause_{kind}"]
    assert no_fault(found).startswith("rank 2 is ")
    assert re.search(
        r"rank 2 is .*, since 20\S+Z at the latest \(.*next evidence round is 60 s after", found.action.why
    )


def test_there_is_an_example_of_each_rule() -> None:
    """The table above is whole."""
    assert set(MET) == {f"frames.{name}" for name in KNOWLEDGE.table("pauses")["frames"]}
    assert pauses().unusable == ()


@pytest.mark.parametrize("what", STUCK)
def test_a_rank_that_is_stuck_is_in_no_pause(what: str) -> None:
    """Names that resemble a pause's, and functions that the whole job runs in, excuse nobody."""
    assert seen(STUCK[what]) == ""
    found = verdict(Hang(stands=(STUCK[what],)).records())
    deed = "probe" if what == "a data loader" else "evict"  # what a rank alone reads does not accuse its machine
    assert (named(found), found.action.kind, found.action.nodes) == ([2], deed, ("gpu-2",))


def test_who_waits_in_communication_is_in_no_pause() -> None:
    """All evaluate, three wait in a collective there: the evaluation of those is none, and the fourth's is one."""
    waiting = (*REDUCE[:1], Frame("evaluate", "/srv/train.py"), *TRAIN)
    assert seen(waiting) == ""
    assert seen((Frame("metric", "/srv/train.py"), *waiting[1:])) == "evaluation"


@pytest.mark.parametrize("state", ["T", "Z"])
def test_a_stopped_or_dead_rank_is_at_fault_inside_a_pause(state: str) -> None:
    """It does not write its checkpoint any more."""
    found = verdict(Hang(stands=(MET["frames.checkpoint"],), state=state).records())
    assert (named(found), found.action.kind) == ([2], "evict")


def test_a_pause_that_lasts_too_long_is_named_and_not_evicted() -> None:
    """A checkpoint of an hour is for people to look at, with the rank's name on it, in files as in a live job."""
    hour = {"looks_at": (3700.0, 3710.0), "states_at": (3700.0, 3710.0)}
    for looks in (2, 4, None):
        found = verdict(Hang(stands=(MET["frames.checkpoint"],), **hour).records(), looks)  # type: ignore[arg-type]
        assert (named(found), found.action.kind, found.action.nodes) == ([2], "probe", ("gpu-2",))
        assert "a pause, however long, proves nothing" in found.action.why
    debugged = verdict(Hang(stands=(MET["frames.debugger"],), **hour).records())  # type: ignore[arg-type]
    assert (debugged.culprits, debugged.cause) == ((), "code")


def test_a_pause_in_files_of_a_dead_job_excuses_too() -> None:
    """Nobody looks again: the sentence says so, and the bound."""
    found = verdict(Hang(stands=(MET["frames.compile"],)).records(), None)
    assert (found.cause, found.action.kind, found.abstained) == ("none", "none", False)
    assert "collect the evidence again if it lasts; after 3600 s it is named" in found.action.why


def test_a_pause_that_the_watchdog_ended_excuses_the_dead() -> None:
    """The others' patience ran out, and all ended within seconds: who compiled until then did nothing but compile."""
    ends = [
        ProcessState(
            source="process", at=START + 631.0 + rank, boot_id="b", node=f"gpu-{rank}", job="llama", attempt=1, rank=rank,
            pid=100 + rank, state="X",
        )
        for rank in range(4)
    ]  # fmt: skip
    late = {"more": list(ends), "looks_at": (590.0, 600.0), "states_at": (590.0, 600.0)}
    found = verdict(Hang(stands=(MET["frames.compile"],), **late).records(), 4)  # type: ignore[arg-type]
    assert ([root.fault_class for root in found.roots], found.action.kind) == (["pause_compile"], "none")
    stuck = verdict(Hang(**late).records(), 4)  # type: ignore[arg-type]
    assert (named(stuck), stuck.action.nodes) == ([2], ("gpu-2",))


def test_a_compiler_among_the_children_is_a_compile() -> None:
    """The rank's own stack says nothing, its child is nvcc; a child that has ended says nothing either."""

    def child(state: str) -> ProcessState:
        return ProcessState(
            source="process", at=START + 60.0, boot_id="b", node="gpu-2", job="llama", attempt=1, rank=2, pid=900,
            parent_pid=102, state=state, command="/usr/local/cuda/bin/nvcc -c fused.cu",
        )  # fmt: skip

    running = verdict(Hang(more=[child("R")]).records())
    ended = verdict(Hang(more=[child("X")]).records())
    assert ([root.fault_class for root in running.roots], running.culprits) == (["pause_compile"], ())
    assert named(ended) == [2]


def test_a_traced_process_is_in_a_debugger_if_it_stays_so() -> None:
    """State t at three tables is somebody's gdb; at one it may be py-spy, and excuses nobody."""
    held = verdict(Hang(state="t").records())
    assert (held.cause, held.culprits, held.action.kind) == ("code", (), "none")
    assert named(verdict(Hang(state="t", states_at=(60.0,)).records())) == [2]


def test_a_console_is_known_by_what_its_process_sleeps_in() -> None:
    """Without frames that tell, the kernel's function does."""
    found = verdict(Hang(stands=((),), state="S", channel="n_tty_read").records())
    assert [root.fault_class for root in found.roots] == ["pause_input"]


@pytest.mark.parametrize("ranks", [(1, 2), (0, 1, 2, 3)])
def test_a_pause_rejects_no_rank_that_it_cannot_name(ranks: tuple[int, ...]) -> None:
    """Where several save together no rank was suspected: none is among the rejected without a number."""
    found = verdict(Hang(ranks, stands=(MET["frames.checkpoint"],)).records())
    assert [root.fault_class for root in found.roots] == ["pause_checkpoint"]
    assert all(one.id != one.kind for one in found.rejected)


def test_a_pause_of_one_rank_does_not_excuse_another() -> None:
    """Rank 1 compiles, rank 2 is stuck: the one is named, the other rejected with its reason."""
    one, other = Hang((1,), stands=(MET["frames.compile"],)), Hang((2,))
    records = [
        *(record for record in one.records() if record.node == "gpu-1"),
        *(record for record in other.records() if record.node != "gpu-1"),
    ]
    found = verdict(records)
    assert (named(found), found.action.nodes) == ([2], ("gpu-2",))
    assert any("compiling" in rejected.why for rejected in found.rejected)


@pytest.mark.parametrize("culprits", [(1, 2), (0, 1, 2, 3)])
def test_ranks_of_several_machines_that_wait_for_files_are_the_storages(culprits: tuple[int, ...]) -> None:
    """State D in a file system, on some or all: the storage is named, no machine."""
    found = verdict(Hang(culprits, state="D", channel="nfs_wait_bit_killable").records())
    assert (found.cause, [culprit.kind for culprit in found.culprits]) == ("storage", ["storage"])
    assert found.action.kind == "none"


def test_loaders_that_wait_for_files_are_the_storages() -> None:
    """Two ranks on two machines open a shard in their data loaders, and do not come back."""
    stack = (Frame("open", "/usr/lib/python3.11/pathlib.py"), *inside("read_shard", "__getitem__"))
    found = verdict(Hang((1, 2), stands=(stack,)).records())
    assert (found.cause, found.action.kind) == ("storage", "none")


def test_one_rank_that_waits_for_a_file_server_is_the_storages() -> None:
    """It may be the only one that happened to ask: the server is suspected, and the rank is named as who waits there."""
    found = verdict(Hang(state="D", channel="nfs_wait_bit_killable").records())
    assert (found.cause, [one.kind for one in found.culprits], named(found)) == ("storage", ["storage"], [2])
    assert (found.action.kind, "file server" in found.action.why) == ("none", True)


def test_one_rank_that_waits_for_a_local_disk_is_probed() -> None:
    """No other node reads that disk: its machine is suspected, and nothing is evicted for it."""
    found = verdict(Hang(state="D", channel="folio_wait_bit_common").records())
    assert (found.cause, named(found), found.action.kind) == ("machine", [2], "probe")
    assert "waits for files" in found.action.why


@pytest.mark.parametrize(
    "hang",
    [
        Hang(state="X", exit_code=0, stands=((),)),
        Hang(stands=(inside("destroy_process_group", file=f"{TORCH}/distributed/distributed_c10d.py"),)),
    ],
    ids=["ended", "shutting down"],
)
def test_a_rank_whose_data_ended_first_is_no_machines_fault(hang: Hang) -> None:
    """It left in good order while the others wait for it: the code, named with the rank, nobody evicted."""
    for looks in (1, 2, None):
        found = verdict(hang.records(), looks)
        assert (found.cause, [root.fault_class for root in found.roots]) == ("code", ["uneven_end"])
        assert (named(found), found.action.kind) == ([2], "none")


def test_peers_that_fail_after_a_rank_has_left_are_no_culprits() -> None:
    """Rank 0 ends with exit code 0; the others lose it and abort: nobody is suspected of a crash."""

    def end(rank: int, at: float, **how: int) -> ProcessState:
        return ProcessState(
            source="process", at=START + at, boot_id="b", node=f"gpu-{rank}", rank=rank, pid=100 + rank, state="X", **how
        )  # fmt: skip

    left = [end(0, 100.0, exit_code=0), *(end(rank, 101.0 + rank, signal=6) for rank in (1, 2, 3))]
    found = verdict(left)
    assert (found.symptom, found.cause, [root.fault_class for root in found.roots]) == ("crash", "code", ["uneven_end"])
    killed = verdict([*left[:2], end(2, 103.0, signal=9)])
    assert ([root.fault_class for root in killed.roots], named(killed)) == (["process_killed"], [2])


def test_a_launchers_sweep_is_not_the_crash() -> None:
    """One rank fails, its launcher kills all the others at once on their nodes: nobody else is named, nobody evicted."""

    def end(rank: int, at: float, **how: int) -> ProcessState:
        return ProcessState(
            source="process", at=START + at, boot_id="b", node=f"gpu-{rank}", rank=rank, pid=100 + rank, state="X", **how
        )  # fmt: skip

    swept = [end(1, 100.0, exit_code=1), *(end(rank, 100.4 + rank / 10, signal=9) for rank in (0, 2, 3))]
    found = verdict(swept)
    assert (named(found), found.cause, found.abstained) == ([], "unknown", True)


def test_a_sites_rows_are_added_and_a_wrong_one_costs_itself_only() -> None:
    """An override names a function of its own; one that is no pattern is reported in the verdict."""
    own = '[frames.ours]\nkind = "evaluation"\nfunction = "^score_on_holdout$"\n[frames.bad]\nkind = "compile"\nfunction = "("\n'
    packaged = packaged_knowledge._packaged()
    found = Pauses.from_knowledge(parse(packaged, {"pauses": own}))
    look = Observation.from_dump(
        StackDump(pid=1, threads=(Thread(frames=inside("score_on_holdout"), main=True),)),
        FrameRules.from_knowledge(KNOWLEDGE),
    )
    seen_now = found.seen([look], [], [])
    assert seen_now is not None
    assert seen_now.kind == "evaluation"
    assert len(found.unusable) == 1
    assert "frames.bad" in found.unusable[0]


def test_without_the_table_nobody_is_excused() -> None:
    """Knowledge without pauses judges as ever."""
    assert Pauses.from_knowledge(Knowledge()).seen([], [], []) is None
    assert Pauses.from_knowledge(parse({"pauses": 'kind = 3\nframes = "x"'})).frames == ()


def test_a_word_of_a_crash_is_not_held_against_a_pause() -> None:
    """A rank that raised inside its evaluation crashed: its exception leads."""
    raised = LogEvent(
        source="job.log:9", at=START + 58.0, node="gpu-2", rank=2, event="traceback", exception="ValueError",
        message="sample 4711", text="ValueError: sample 4711",
    )  # fmt: skip
    found = verdict(Hang(stands=(MET["frames.evaluation"],), more=[raised]).records())
    assert (found.symptom, found.cause, named(found)) == ("crash", "code", [2])


@pytest.mark.parametrize("row", ["frames.evaluation", "frames.checkpoint", "frames.compile"])
def test_a_pause_of_unknown_age_decides_nothing(row: str) -> None:
    """Stacks without an instant do not show how long a rank has evaluated: it is neither named nor called innocent."""
    records = [
        msgspec.structs.replace(record, node=None, at=None, job=None, source=f"stacks_rank{record.rank}.json")
        for record in Hang(stands=(MET[row],)).records()
        if isinstance(record, StackDump)
    ]
    found = verdict(records)

    assert (found.culprits, found.cause, found.abstained, found.action.kind) == ((), "unknown", True, "none")
    assert any("not known" in entry.what for entry in found.missing)


def test_a_pause_without_a_bound_needs_no_age() -> None:
    """A rank that a person debugs is in no fault, however long."""
    records = [
        msgspec.structs.replace(record, node=None, at=None, job=None, source=f"stacks_rank{record.rank}.json")
        for record in Hang(stands=(MET["frames.debugger"],)).records()
        if isinstance(record, StackDump)
    ]
    assert (found := verdict(records)).cause == "code"
    assert not found.abstained


@pytest.mark.parametrize("channel", [None, "folio_wait_bit_common"])
@pytest.mark.parametrize("after", [REDUCE, inside("forward"), inside("step")], ids=["waits", "computes", "steps"])
def test_a_rank_that_has_just_left_its_pause_is_not_named(after: tuple[Frame, ...], channel: str | None) -> None:
    """The table of processes and the recorder are from before; the next round shows whether it hangs now."""
    hang = Hang(stands=(MET["frames.checkpoint"],), state="R" if channel is None else "D", channel=channel)
    records = [
        replaced(record, after)
        if isinstance(record, StackDump) and record.rank == 2 and record.at == START + 63
        else record
        for record in hang.records()
    ]
    found = verdict(records)
    assert (found.culprits, found.cause, found.action.kind) == ((), "none", "none")
    assert "rank 2 was in a checkpoint, and had left it by" in found.action.why


def test_a_rank_that_left_its_pause_a_round_ago_and_holds_the_others_up_is_named() -> None:
    """Both stacks of the newest round find it in its own code."""
    found = verdict(Hang(stands=(MET["frames.checkpoint"], SPIN)).records())
    assert (named(found), found.action.kind) == ([2], "probe")


def replaced(dump: StackDump, frames: tuple[Frame, ...]) -> StackDump:
    """The same dump with another main thread."""
    return msgspec.structs.replace(dump, threads=(Thread(frames=frames, main=True, name="MainThread"),))
