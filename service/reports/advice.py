"""What to do about a verdict, in sentences: the test before an eviction, the deed, a person's own next steps. Pure."""

from __future__ import annotations

from analyzers.model.fault_class import Trait
from analyzers.model.fault_classes import has
from analyzers.model.verdict import Action, Verdict
from service.reports.hostlists import fold_hosts
from service.reports.story import (
    LOCAL,
    NOT_A_MACHINE,
    became_slower,
    by_agents,
    called,
    listed,
    name_culprits,
    plural_ranks,
    tone,
)

_TOOLS = {  # cause network, GPUs → a test
    (True, True): "nccl-tests' `all_reduce_perf`",
    (True, False): "`iperf3` between its nodes",
    (False, True): "`dcgmi diag -r 3`",
    (False, False): "`stress-ng --cpu 0 --vm 2 --verify --timeout 10m`",
}

_OF_DISKS = "`smartctl -a` or `nvme smart-log` of its disks"

WRITES_AT_TIMEOUT = (
    "where there are none, start the job the next time with TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
    "(TORCH_FR_DUMP_TEMP_FILE sets where they go)"
)
WRITTEN = "ls -l ~/.cache/torch/comm_lib_trace_rank_* /tmp/nccl_trace_rank_*"
_LOST = "`scontrol show node`, `kubectl describe node`, or its console"

_SLOWER = (
    "Let the job go on.",
    "Look at what changed at that step: the code, the data and its lengths, the storage, other work on the machines.",
    "Record a trace of torch.profiler of each rank (docs/formats.md), and give them to `faulthound diagnose FOLDER`.",
)


def no_nccl(verdict: Verdict) -> bool:
    """Whether its collectives run on another library than NCCL: what NCCL reads, and tests of it, are no advice then."""
    seen = verdict.coverage.backends
    return "nccl" not in seen if seen else verdict.coverage.has_gpus is False


def what_to_do(verdict: Verdict) -> str:
    """Return what to do about this verdict as one sentence."""
    if tone(verdict) == "healthy" and verdict.action.kind == "none":
        return "Nothing: leave the job alone." if verdict.symptom == "healthy" else "Evict no node."
    known = name_culprits([one for one in verdict.culprits if one.kind not in NOT_A_MACHINE] or verdict.culprits)
    suspects = f"{known[:1].lower()}{known[1:]}" if known else "the suspects"
    sentence = _test(verdict, suspects) if verdict.action.kind == "probe" else _deed(verdict.action, suspects)
    if verdict.action.kind == "rollback" and any(root.assumes for root in verdict.roots):
        return f"See first whether the job stands still, by the log of its steps. If it does: {sentence[0].lower()}{sentence[1:]}"
    if verdict.abstained and verdict.action.kind != "none":
        return f"If the job cannot wait for more evidence, one way is: {sentence[0].lower()}{sentence[1:]}"
    return sentence


def _object(action: Action, suspects: str) -> str:
    """Name what the action is done to: nodes, else the nodes of ranks, else the suspects themselves."""
    if action.nodes:
        return f"node{'s' if len(action.nodes) > 1 else ''} {fold_hosts(action.nodes)}"
    if action.ranks:
        where = f", {fold_hosts(action.nodes_of_ranks)}" if action.nodes_of_ranks else ""
        return f"the node{'s' if len(action.ranks) > 1 else ''} of {plural_ranks(action.ranks)}{where}"
    if action.devices:
        return listed(called("device", device) for device in action.devices)
    return f"the node of {suspects}" if suspects.lower().startswith(LOCAL) else suspects


def _test(verdict: Verdict, suspects: str) -> str:
    """Return how suspects are tested before an eviction, with a command where they are machines."""
    action, asked = verdict.action, by_agents(verdict)
    hints = []
    if action.nodes or action.ranks:
        hints.append(f"for example {_tool(verdict)}")
    if not action.nodes and action.ranks and not action.nodes_of_ranks and not asked:
        hints.append(f"`--hosts` names the node{'s' if len(action.ranks) > 1 else ''}")
    how = f" ({'; '.join(hints)})" if hints else ""
    sentence = f"Test {_object(action, suspects)}{how} before any eviction"
    if _shows(verdict, "own_code"):
        whose = plural_ranks(action.ranks) if action.ranks else suspects
        how = "" if verdict.coverage.has_ended or verdict.coverage.all_ended else " (`py-spy dump -p PID`)"
        look = f"See first the code and the data at the frames of {whose}{how}: either may hold the job up"
        return f"{look}. Where neither does, {sentence[0].lower()}{sentence[1:]}."
    if _shows(verdict, "unanswered"):
        look = f"See first whether it answers, and why it was lost ({_LOST})"
        return f"{look}. Where it answers, {sentence[0].lower()}{sentence[1:]}."
    if verdict.symptom != "hang" or asked or verdict.abstained:
        return f"{sentence}."
    if verdict.coverage.has_ended or verdict.coverage.all_ended:
        dumps = f"See first what flight recorders wrote at the time-out (`{WRITTEN}`), and diagnose it with this"
        return (
            f"{sentence}."
            if verdict.coverage.sources.get("flight_recorder") or no_nccl(verdict)
            else f"{dumps}; {WRITES_AT_TIMEOUT}. {sentence}."
        )
    if of_two_sets(verdict):
        return f"{sentence}."
    return f"{sentence}; while the job still hangs, dump the stacks again in a minute and diagnose both."


def of_two_sets(verdict: Verdict) -> bool:
    """Whether two sets of stacks were given, as far as their number shows: another one is not asked for then."""
    seen = verdict.coverage
    return seen.sources.get("stacks", 0) >= 2 * seen.ranks_seen > 0


def _deed(action: Action, suspects: str) -> str:
    """Return what to do as one sentence that names its object."""
    object_ = _object(action, suspects)
    if (
        action.devices
        and not (action.nodes or action.ranks)
        and action.kind in {"evict", "reboot_node", "drain_after_job"}
    ):
        object_ = f"the node of {object_}"
    return {
        "evict": f"Evict {object_}.",
        "drain_after_job": f"Let the job go on, and drain {object_} when it ends.",
        "reset_gpu": f"Reset {'the GPU on ' if action.nodes or action.ranks else ''}{object_}, then restart the job.",
        "reboot_node": f"Reboot {object_}, then restart the job.",
        "restart_role": f"Restart {_role(action)}; leave the others running.",
        "restart_job": "Restart the job where it is; evict no node.",
        "reattempt": "Start the job again as it is; evict no node.",
        "rollback": "Mend the code, or go back to a version that ran well; evict no node.",
        "none": "Evict no node.",
    }.get(action.kind, f"{action.kind.replace('_', ' ').capitalize()} {object_}.")


_REPLICA = (
    "Take no checkpoint that this rank writes, and go back to one from before that step where it has written any.",
    "Run the same steps from the same checkpoint twice on its node and once elsewhere: results that differ are its device's.",
    "See whether the program changes parameters on this rank alone.",
)
_APART = (
    "Look for what is updated without a reduction (`no_sync`, a parameter that DDP does not see), and for seeds of a rank's own.",
    "If it is meant, as in local SGD, set FAULTHOUND_PROBE_HASH to a multiple of the steps between two averages.",
)


def own_steps(verdict: Verdict) -> tuple[str, ...]:
    """Return what a person can do about numbers that went wrong, or steps that became longer; empty for another symptom."""
    if became_slower(verdict):
        return _SLOWER
    if verdict.symptom != "numeric" or verdict.first_symptom is None:
        return ()
    if any(root.fault_class == "replica_differs" for root in verdict.roots):
        return _REPLICA
    if any(root.fault_class == "replicas_apart" for root in verdict.roots):
        return _APART
    alone = " alone, while " in verdict.first_symptom.text
    whose = (
        "Give that rank's batch to another rank, and its machine another batch: what is NaN again is at fault."
        if alone
        else "Log each rank's loss and gradient norm before the reduction: it spreads one rank's value to all."
    )
    return (
        "If it lasts, stop the job and restart it from the last checkpoint before that step.",
        "Look at what changed by then: the data of that step, the learning rate, the last change of the code.",
        whose,
    )


def _role(action: Action) -> str:
    if action.role and action.instance:
        return f"{action.role} {action.instance}"
    return f"the role {action.role or 'named above'}"


def _tool(verdict: Verdict) -> str:
    """Return a test of what is named; a node on which agents found no GPU gets none of a GPU."""
    if _shows(verdict, "of_disk"):
        return _OF_DISKS
    if verdict.cause == "network":
        return _TOOLS[True, not no_nccl(verdict)]
    return _TOOLS[False, verdict.coverage.has_gpus is not False]


def _shows(verdict: Verdict, trait: Trait) -> bool:
    """Whether what is named first is of a class with this trait: that it stands in its own code, that its node did not answer."""
    first = next((one.root for one in verdict.culprits), None)
    return any(root.root == first and has(root.fault_class, trait) for root in verdict.roots)
