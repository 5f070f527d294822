"""Activities of a rank: the stacks that py-spy would show, the process state and the CPU time.

The functions are those of real jobs: torch 2.13 and a training script, with the wait channels of Linux 6. An activity that
moves has several stacks, which take turns; one that stands still has one.
"""

from __future__ import annotations

from typing import NamedTuple

from collectors.records import Frame

ROOTS = {
    "torch": "/opt/train/lib/python3.11/site-packages/torch",
    "pydevd": "/opt/train/lib/python3.11/site-packages/pydevd",
    "python": "/usr/lib/python3.11",
}
SCRIPT = "/srv/train"


class Activity(NamedTuple):
    """One way to spend time. ``stacks`` take turns of ``turn_seconds``; frames are innermost first."""

    stacks: tuple[tuple[Frame, ...], ...]
    state: str = "R"  # ps's letter
    wait_channel: str | None = None
    cpu_share: float = 1.0  # of one core
    owns_gil: bool = False
    turn_seconds: float = 1.0
    child: str = ""  # the command of a process that it has started for this

    def frames(self, at: float) -> tuple[Frame, ...]:
        """Return where it stands at an instant."""
        return self.stacks[int(at / self.turn_seconds) % len(self.stacks)]


def _frames(text: str) -> tuple[Frame, ...]:
    """Read "function file:line; …", innermost first, and put the script's own outer frames below."""
    found = []
    for part in (*text.split(";"), "main train.py:209", "<module> train.py:218"):
        function, _, place = part.strip().partition(" ")
        file, _, line = place.rpartition(":")
        root, _, rest = file.partition("/")
        path = f"{ROOTS[root]}/{rest}" if root in ROOTS else file if file.startswith("<") else f"{SCRIPT}/{file}"
        found.append(Frame(function, path, int(line)))
    return tuple(found)


def _activity(*texts: str, state: str = "R", wait_channel: str | None = None, cpu_share: float = 1.0,
           owns_gil: bool = False, turn_seconds: float = 1.0, child: str = "") -> Activity:  # fmt: skip
    stacks = tuple(_frames(text) for text in texts)
    return Activity(stacks, state, wait_channel, cpu_share, owns_gil, turn_seconds, child)


_BACKWARD = (
    "_engine_run_backward torch/autograd/graph.py:979; backward torch/autograd/__init__.py:395; "
    "Tensor.backward torch/_tensor.py:623; train train.py:108"
)
_CALL = "Module._call_impl torch/nn/modules/module.py:1787; Module._wrapped_call_impl torch/nn/modules/module.py:1776"
_ALL_REDUCE = (
    "all_reduce torch/distributed/distributed_c10d.py:3252; "
    "_exception_logger.<locals>.wrapper torch/distributed/c10d_logger.py:83; reduce_metrics train.py:81; train train.py:112"
)
_BARRIER = (
    "barrier torch/distributed/distributed_c10d.py:4818; "
    "_exception_logger.<locals>.wrapper torch/distributed/c10d_logger.py:83"
)
_PDB = "Pdb.interaction python/pdb.py:381; Pdb.user_line python/pdb.py:289; Bdb.dispatch_line python/bdb.py:115"

TRAINING: dict[str, Activity] = {
    "load": _activity("Loader.read_shard data.py:43; Loader.__next__ data.py:37; train train.py:104", cpu_share=0.3),
    "forward": _activity(
        f"Block.forward model.py:41; {_CALL}; Model.forward model.py:88; {_CALL}; train train.py:106",
        f"Attention.forward model.py:23; {_CALL}; Block.forward model.py:40; {_CALL}; train train.py:106",
        f"Linear.forward torch/nn/modules/linear.py:134; {_CALL}; Block.forward model.py:44; {_CALL}; train train.py:106",
        turn_seconds=0.37,
        owns_gil=True,
    ),
    "backward": _activity(_BACKWARD),
    "optimizer": _activity(
        "_multi_tensor_adamw torch/optim/adamw.py:660; step torch/optim/adamw.py:246; train train.py:110"
    ),
}
"""The parts of a step, in their order."""

WAITS: dict[str, Activity] = {
    "gradient": _activity(_BACKWARD, state="S", wait_channel="futex_do_wait", cpu_share=0.01),
    "all_reduce": _activity(_ALL_REDUCE, state="S", wait_channel="futex_do_wait", cpu_share=0.01),
    "item": _activity("train train.py:111"),  # cudaStreamSynchronize spins, and shows only with native frames
    "barrier": _activity(f"{_BARRIER}; save_checkpoint train.py:93; train train.py:115", state="S",
                      wait_channel="futex_do_wait", cpu_share=0.01),
    "evaluated": _activity(f"{_BARRIER}; maybe_evaluate train.py:129; train train.py:117", state="S",
                        wait_channel="futex_do_wait", cpu_share=0.01),
    "rendezvous": _activity("_store_based_barrier torch/distributed/distributed_c10d.py:1010; "
                         "init_process_group torch/distributed/distributed_c10d.py:1787; join train.py:196",
                         state="S", wait_channel="poll_schedule_timeout", cpu_share=0.01),
    "indexed": _activity(f"{_BARRIER}; build_datasets data.py:141; prepare train.py:187", state="S",
                      wait_channel="futex_do_wait", cpu_share=0.01),
}  # fmt: skip
"""Where the other ranks wait."""

PAUSES: dict[str, Activity] = {
    "checkpoint": _activity(
        "_save torch/serialization.py:1183; save torch/serialization.py:967; save_checkpoint train.py:91; train train.py:115",
        state="D", wait_channel="folio_wait_bit_common", cpu_share=0.2,
    ),
    "evaluation": _activity(
        f"Block.forward model.py:41; {_CALL}; evaluate evaluate.py:31; maybe_evaluate train.py:127; train train.py:117",
        "score evaluate.py:44; evaluate evaluate.py:33; maybe_evaluate train.py:127; train train.py:117",
        "generate sampling.py:63; evaluate evaluate.py:36; maybe_evaluate train.py:127; train train.py:117",
        turn_seconds=1.7,
    ),
    "collection": _activity("train train.py:119", owns_gil=True),  # gc.collect() is C: only its caller shows
    "compile": _activity(
        "codegen torch/_inductor/scheduler.py:5120; compile_fx_inner torch/_inductor/compile_fx.py:815; "
        "_compile_inner torch/_dynamo/convert_frame.py:1213; train train.py:106",
        "wait torch/_inductor/async_compile.py:508; compile_to_module torch/_inductor/graph.py:2310; "
        "compile_fx_inner torch/_inductor/compile_fx.py:815; "
        "_compile_inner torch/_dynamo/convert_frame.py:1213; train train.py:106",
        turn_seconds=7.0, child="ptxas",
    ),
    "debugger": _activity(
        f"Cmd.cmdloop python/cmd.py:126; Pdb._cmdloop python/pdb.py:348; {_PDB}; Bdb.trace_dispatch python/bdb.py:90; "
        "collate train.py:70; train train.py:105",
        state="S", wait_channel="wait_woken", cpu_share=0.0,
    ),
    "remote_debugger": _activity(
        "PyDB._do_wait_suspend pydevd/pydevd.py:2221; PyDB.do_wait_suspend pydevd/pydevd.py:2128; "
        "collate train.py:70; train train.py:105",
        state="S", wait_channel="futex_do_wait", cpu_share=0.02,
    ),
    "traced": _activity(f"Block.forward model.py:41; {_CALL}; train train.py:106", state="t", wait_channel="ptrace_stop",
                     cpu_share=0.0),
    "importing": _activity(
        "_call_with_frames_removed <frozen importlib._bootstrap>:241; _find_and_load <frozen importlib._bootstrap>:1176; "
        "<module> model.py:9",
        "get_code <frozen importlib._bootstrap_external>:1012; _find_and_load <frozen importlib._bootstrap>:1176; "
        "<module> data.py:4",
        turn_seconds=3.0,
    ),
    "indexing": _activity(
        "build_sample_index data.py:88; build_datasets data.py:132; prepare train.py:187",
        "shuffle_index data.py:97; build_datasets data.py:135; prepare train.py:187",
        turn_seconds=40.0, owns_gil=True,
    ),
    "files": _activity("Loader.read_shard data.py:42; Loader.__next__ data.py:37; train train.py:104", state="D",
                    wait_channel="rpc_wait_bit_killable", cpu_share=0.0),
    "ending": _activity("destroy_process_group torch/distributed/distributed_c10d.py:2310; main train.py:206", state="S",
                     wait_channel="futex_do_wait", cpu_share=0.0),
}  # fmt: skip
"""What a healthy rank may do while no step is taken."""

FAULTS: dict[str, Activity] = {
    "spin": _activity("check_loss_scale train.py:58; train train.py:107", "check_loss_scale train.py:59; train train.py:107",
                   owns_gil=True, turn_seconds=0.7),
    "sigstop": _activity(f"Attention.forward model.py:23; {_CALL}; Block.forward model.py:40; {_CALL}; train train.py:106",
                      state="T", wait_channel="do_signal_stop", cpu_share=0.0),
    "data_loader": _activity("Loader.read_shard data.py:42; Loader.__next__ data.py:37; train train.py:104", state="S",
                          wait_channel="hrtimer_nanosleep", cpu_share=0.0),
    "gpu_lost": _activity("train train.py:111"),
}  # fmt: skip
"""Activities that hold up all other ranks without end."""

EVERYTHING = TRAINING | WAITS | PAUSES | FAULTS
PARTS = (
    ("load", 0.06),
    ("forward", 0.36),
    ("backward", 0.93),
    ("optimizer", 1.0),
)  # name, share of the step when it ends


def part_of_step(share: float) -> str:
    """Name what a rank does when so much of its step has passed."""
    return next(name for name, until in PARTS if share < until or until == 1.0)
