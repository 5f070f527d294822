"""What the stacks analyzer claims of a few processes."""

from __future__ import annotations

from pathlib import Path

import analyzers.knowledge
from analyzers.diagnosis.stacks.stacks import analyze
from analyzers.knowledge import parse
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import Frame, StackDump, Thread

KNOWLEDGE = parse({"stacks": Path(analyzers.knowledge.__file__).with_name("stacks.toml").read_text()})
C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TRAIN = Frame("train", "/srv/train.py", 50)
STACKS = {
    "gradient": (Frame("_engine_run_backward", "/x/site-packages/torch/autograd/graph.py", 869), TRAIN),
    "all_reduce": (Frame("all_reduce", C10D, 3000), Frame("wrapper", "/x/torch/distributed/c10d_logger.py"), TRAIN),
    "all_gather": (Frame("all_gather_into_tensor", C10D, 4287), TRAIN),
    "send": (Frame("send", C10D, 2600), TRAIN),
    "isend": (Frame("isend", C10D, 2600), TRAIN),
    "irecv": (Frame("irecv", C10D, 2600), TRAIN),
    "recv": (Frame("recv", C10D, 2600), TRAIN),
    "compute": (Frame("check_loss_scale", "/srv/train.py", 21), TRAIN),
    "loader": (Frame("Loader.__next__", "/srv/train.py", 28), TRAIN),
    "torch_loader": (
        Frame("Condition.wait", "/usr/lib/python3.11/threading.py", 3),
        Frame("_try_get_data", "/x/site-packages/torch/utils/data/dataloader.py", 1133),
        TRAIN,
    ),
    "checkpoint": (Frame("fsync", "libc.so.6"), Frame("save", "torch/serialization.py", 9), TRAIN),
    "storage": (Frame("open", "/usr/lib/python3.11/pathlib.py", 9), Frame("read_shard", "/srv/train.py", 77), TRAIN),
    "compile": (Frame("compile_fx_inner", "/x/site-packages/torch/_inductor/compile_fx.py", 5), TRAIN),
    "store": (Frame("_store_based_barrier", C10D, 9), Frame("init_process_group", C10D, 99), TRAIN),
    "native_loader": (Frame("clock_nanosleep", "libc.so.6"), Frame("Loader.__next__", "/srv/train.py", 28), TRAIN),
    "import": (Frame("_find_and_load", "<frozen importlib._bootstrap>", 9), Frame("<module>", "/srv/train.py", 2)),
    "item": (Frame("train_step", "/srv/train.py", 61), TRAIN),
    "exception": (Frame("print_exception", "/usr/lib/python3.11/traceback.py", 9), TRAIN),
}  # fmt: skip


def dump(whose: int, stack: str, /, **more: object) -> StackDump:
    """One rank's process with one thread."""
    gil, active, line = (more.pop(name, None) for name in ("gil", "active", "line"))
    frames = STACKS[stack] if line is None else (*STACKS[stack][:-1], Frame("train", "/srv/train.py", int(str(line))))
    thread = Thread(frames=frames, main=True, owns_gil=gil, active=active)  # type: ignore[arg-type]
    known = {"rank": whose, "pid": 100 + whose, "tool": "py-spy", "threads": (thread,), "source": f"rank_{whose}.json"}
    return StackDump(**{**known, **more})  # type: ignore[arg-type]


def analyzed(*dumps: StackDump, shape: Topology | None = None) -> list[Finding]:
    """Analyze these dumps."""
    topology = shape or Topology(tuple(sorted({one.rank for one in dumps if one.rank is not None})))
    return list(analyze(Window(records=dumps), topology, KNOWLEDGE))


def suspects(found: list[Finding]) -> list[int]:
    """All suspect ranks, in the findings' order."""
    return [rank for one in found for suspect in one.suspects for rank in suspect.ranks]


def live(whose: int, stack: str, at: float, /, **more: object) -> StackDump:
    """A look that an agent took."""
    return dump(whose, stack, **{"at": at, "boot_id": "b", "source": f"stacks/{100 + whose}", **more})
