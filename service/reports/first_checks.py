"""How what a verdict names is examined before anything is evicted: with what its nodes have, and its own code first. Pure."""

from __future__ import annotations

from analyzers.model.fault_classes import has
from analyzers.model.verdict import Verdict

_TOOLS = {  # cause network, GPUs → a test
    (True, True): "nccl-tests' `all_reduce_perf`",
    (True, False): "`iperf3` between its nodes",
    (False, True): "`dcgmi diag -r 3`",
    (False, False): "`stress-ng --cpu 0 --vm 2 --verify --timeout 10m`",
}


def tool(verdict: Verdict) -> str:
    """Return a test of what is named; a node on which agents found no GPU gets none of a GPU."""
    return _TOOLS[verdict.cause == "network", verdict.coverage.has_gpus is not False]


def in_own_code(verdict: Verdict) -> bool:
    """Whether all that is known is that what is named first stands in its own code."""
    first = next((one.root for one in verdict.culprits), None)
    return any(root.root == first and has(root.fault_class, "own_code") for root in verdict.roots)
