"""What a launcher's own check of the nodes says before the start: DLRover's."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.crash_claims import only, raised


@pytest.mark.parametrize(
    ("exception", "message"),
    [("dlrover.python.common.error.NodeCheckFailedError", "The node is a straggler and exits."),
     ("RuntimeError", "The node is a straggler and exits."), ("RuntimeError", "The node network is breakdown.")],
)  # fmt: skip
def test_a_node_that_its_check_names_is_tested_and_the_code_is_not_at_fault(exception: str, message: str) -> None:
    """The launcher on a node raises it about that node, after two rounds with two neighbours; the node is named, not evicted."""
    found = only([msgspec.structs.replace(raised(None, exception, message), node="gpu-0017")])

    assert (found.cause, found.fault_class) == ("machine", "node_check_failed")
    assert [(one.kind, one.node) for one in found.suspects] == [("node", "gpu-0017")]
    assert found.suspects[0].strength < 0.85


def test_of_three_nodes_and_fewer_the_check_names_each() -> None:
    """It fails on every node where one is at fault: the cause is open."""
    found = only(
        [
            msgspec.structs.replace(raised(None, "NodeCheckFailedError", "This node is down."), node=f"gpu-{number}")
            for number in (1, 2)
        ]
    )

    assert (found.cause, found.fault_class) == ("unknown", "node_check_failed")
    assert max(one.strength for one in found.suspects) < 0.5
