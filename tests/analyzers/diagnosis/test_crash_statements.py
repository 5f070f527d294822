"""Errors that lines of unknown programs state: weaker than known lines, and no reason to evict."""

from __future__ import annotations

import msgspec
import pytest

from analyzers.diagnosis.crash.statements import SHARE, kind_of_code
from analyzers.model import topology
from analyzers.model.window import Window
from analyzers.verdict import judge
from collectors.records import Frame, LogEvent, Members, Placement
from service import packaged_knowledge
from tests.support.crash_claims import only, raised


def _stated(rank: int | None, code: str, node: str | None = None) -> LogEvent:
    return LogEvent(
        event="stated", rank=rank, node=node, code=code, text=f"ERROR own: {code}", source=f"rank{rank}.log:4"
    )


def test_it_weighs_less_than_a_known_line_of_the_same() -> None:
    """The cause is the same, the strength is not."""
    known = only([raised(1, "OSError", "[Errno 28] No space left on device")])
    stated = only([_stated(1, "ENOSPC")])

    assert (stated.cause, stated.fault_class) == (known.cause, known.fault_class) == ("storage", "file_system_error")
    assert stated.suspects[0].strength == pytest.approx(SHARE * known.suspects[0].strength)


def test_a_known_line_that_explains_leaves_it_out() -> None:
    """What a program states beside an exception of which the frames are there is no second cause."""
    frames = (Frame(function="collate", file="/srv/run/data.py", line=12),)
    whole = msgspec.structs.replace(raised(1, "ValueError", "bad sample"), frames=frames)

    finding = only([whole, _stated(1, "ENOSPC")])

    assert (finding.cause, finding.fault_class) == ("code", "program_error")


def test_an_uncorrectable_error_of_a_gpu_evicts_no_node_by_a_statement_alone() -> None:
    """The node is named and tested."""
    placed = Placement(source="hosts.txt", ranks=Members.of([0, 1]), nodes=("gpu-0", "gpu-1"), world_size=2)
    window = Window.build([_stated(1, "cudaErrorECCUncorrectable", "gpu-1"), placed], None)
    verdict = judge.judge(window, topology.infer(window), packaged_knowledge.load(None))

    assert (verdict.cause, verdict.culprits[0].id) == ("machine", "gpu-1")
    assert verdict.action.kind == "probe"


def test_an_exact_name_counts_before_a_prefix() -> None:
    """A prefix is for what no row names."""
    kinds = {"echo": ["IBV_WC_*"], "network": ["IBV_WC_RETRY_EXC_ERR"]}

    assert kind_of_code("IBV_WC_RETRY_EXC_ERR", kinds) == "network"
    assert kind_of_code("IBV_WC_GENERAL_ERR", kinds) == "echo"
    assert kind_of_code("EINTR", kinds) == kind_of_code(None, kinds) == ""
