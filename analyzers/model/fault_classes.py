"""Every fault class in one table: who claims it, which causes it may have, its words, and the strongest action it allows.

Whatever treats a class specially reads it here. A new class is one row; docs/reference.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal

from analyzers.knowledge import Knowledge
from analyzers.knowledge.xids import Action, action_for
from analyzers.model.finding import Cause

ActionKind = Literal[
    "none", "probe", "restart_role", "reattempt", "restart_job", "rollback", "reset_gpu", "reboot_node", "evict"
]  # the weakest first
Trait = Literal[
    "job_may_run",  # the job runs, or may run: a claim that only supports others does not stand beside it
    "alone",  # it stands only where nothing else is claimed, and supports nothing
    "supports",  # it supports other claims, and stands by itself only where there is none
    "no_dump",  # it rests on a missing dump alone
    "no_stack",  # it rests on a missing stack alone
    "own_state",  # the process's own state shows it: that the rank waits for files or has left is no excuse
    "on_device",  # the rank waits for its device: what its host does meanwhile is no excuse
    "alike",  # without named ranks it is about all ranks that stand alike
    "any_size",  # the set of suspects is named, however large
    "stacks_add",  # stacks that point at other ranks widen the set of suspects
    "while_absent",  # a live rank that has a process again is not evicted for it
    "may_start",  # a live rank may still be starting: only its process's state evicts it
    "asked",  # the job was ended from outside: what held it up before is the root, where anything did
    "from_outside",  # the job was ended from outside, and nothing is wrong
    "ended",  # a process that ended, as each does once the job is ended from outside
    "waits_outside",  # the ranks of its scope wait for what is outside their role or job: no wait of others accuses them
    "own_code",  # a place in the program's own code: with no other evidence its code or data holds it as well as its machine
    "everywhere",  # every rank failed alike: the code of this version is broken
]

ANALYZER_FAILED = "analyzer_failed"


@dataclass(frozen=True, slots=True)
class FaultClass:
    """One row. A ``name`` with * stands for all that fit it, and {} in ``words`` for what * stands for.

    ``claimed_by``: the analyzers that claim it; "verdict": it is made while their claims are weighed.
    ``causes``: the causes that a claim of this class may have.
    ``strongest``: the strongest action that it leads to with no other evidence; of an event of a device, the strongest that
    the table of hardware events may ask for (``analyzers/knowledge/xid.toml``).
    ``words``: what happened, as a sentence goes on after the rank's name and a colon.
    ``proof``: why its evidence alone is enough to evict, as a sentence goes on; empty: it is not.
    ``advice``: why ``strongest`` is the action where the first of ``causes`` is the cause; empty: the cause decides.
    """

    name: str
    claimed_by: tuple[str, ...]
    causes: tuple[Cause, ...]
    strongest: ActionKind
    words: str
    proof: str = ""
    advice: str = ""
    traits: tuple[Trait, ...] = ()


def _hang() -> Iterator[FaultClass]:
    yield FaultClass(
        "never_entered", ("hang", "ras", "crash"), ("machine", "unknown"), "evict",
        "it never entered the operation that its peers wait in",
        proof="its own record shows that it stopped while its peers wait for it", traits=("stacks_add",),
    )  # fmt: skip
    yield FaultClass(
        "completion_lost", ("hang",), ("machine",), "evict",
        "its peers' records prove that its device finished, its own record does not",
        proof="its own record misses what its peers prove has ended", traits=("on_device",),
    )  # fmt: skip
    yield FaultClass(
        "device_stuck", ("hang",), ("machine",), "evict", "its device never started what its peers' devices are in",
        proof="its device never started what its peers' devices are in", traits=("on_device",),
    )  # fmt: skip
    yield FaultClass(
        "init", ("hang", "stacks"), ("machine", "unknown"), "evict", "a communicator never formed",
        proof="it never launched anything while its peers wait for it", traits=("may_start",),
    )  # fmt: skip
    yield FaultClass(
        "no_dump", ("hang",), ("machine", "unknown"), "probe", "its peers wait for it, and it left no dump",
        traits=("no_dump",),
    )  # fmt: skip
    yield FaultClass(
        "device_or_network", ("hang",), ("unknown", "network"), "probe",
        "every member entered the operation and none finished it", traits=("on_device", "any_size"),
    )  # fmt: skip
    yield FaultClass(
        "desync", ("hang", "stacks", "crash"), ("code", "unknown"), "rollback",
        "the members did not all call the same operation",
    )  # fmt: skip
    yield FaultClass(
        "deadlock", ("hang",), ("code", "unknown"), "rollback", "the ranks wait for one another in a circle"
    )
    yield FaultClass("outside", ("hang", "verdict"), ("unknown",), "probe", "it waits outside of any collective")
    yield FaultClass("running", ("hang",), ("none",), "none", "the job is running", traits=("job_may_run",))
    yield FaultClass(
        "undecided", ("hang",), ("unknown",), "none", "the job may be running or hang", traits=("job_may_run",)
    )


def _processes_and_stacks() -> Iterator[FaultClass]:
    yield FaultClass(
        "stopped", ("process",), ("machine",), "evict", "its process is stopped",
        proof="its process is stopped", traits=("own_state",),
    )  # fmt: skip
    advice = "continue the job, or ask who has suspended it"
    yield FaultClass("all_stopped", ("process",), ("platform",), "none", "all its processes are stopped", advice=advice)
    yield FaultClass(
        "gone", ("process",), ("machine",), "evict", "its process has ended",
        proof="its process has ended", traits=("while_absent", "ended"),
    )  # fmt: skip
    yield FaultClass(
        "process_gone", ("ras", "crash"), ("machine",), "evict", "its process has ended",
        proof="its process has ended", traits=("ended",),
    )  # fmt: skip
    yield FaultClass(
        "uninterruptible", ("process",), ("machine", "storage"), "probe",
        "its process sleeps in the kernel and cannot be interrupted", traits=("supports",),
    )  # fmt: skip
    yield FaultClass(
        "same_stack", ("stacks",), ("code", "storage", "data"), "rollback", "every rank shows the same stack",
        traits=("supports", "alike"),
    )  # fmt: skip
    yield FaultClass(
        "stuck_stack", ("stacks",), ("machine", "code"), "rollback", "its stack differs from its peers' and stays"
    )
    yield FaultClass("stuck_*", ("stacks",), ("machine", "code"), "rollback", "its stack differs from its peers': {}")
    for name, words in (("stuck_compute", "it is in its own code"), ("stuck_sleeping", "it sleeps in its own code")):
        yield FaultClass(
            name, ("stacks",), ("unknown", "machine"), "probe", f"{words} while its peers wait", traits=("own_code",),
            advice="its code, its data or its machine may hold it there, and stacks alone do not decide between them",
        )  # fmt: skip
    yield FaultClass(
        "no_stack", ("stacks",), ("machine",), "probe", "it gave no stack while its peers did", traits=("no_stack",)
    )
    yield FaultClass("outlier_group", ("stacks",), ("machine",), "probe", "its group waits elsewhere than the others")


def _network() -> Iterator[FaultClass]:
    yield FaultClass(
        "network_wait", ("stacks",), ("unknown",), "none", "a rank waits for it in a network call",
        advice="no machine of the job is at fault as far as is seen: see what that process does",
        traits=("supports", "alike", "waits_outside"),
    )  # fmt: skip
    yield FaultClass(
        "service_stopped", ("stacks",), ("platform",), "none", "a rank waits for it in a network call, but it does not run",
        advice="let it run again, or restart it: no machine of the job is at fault", traits=("supports", "waits_outside"),
    )  # fmt: skip


def _roles() -> Iterator[FaultClass]:
    by = ("roles",)
    machine: tuple[Cause, ...] = ("machine", "unknown")  # unknown where the whole role stands alike
    yield FaultClass(
        "role_lost", by, ("machine",), "restart_role", "an instance of a role is gone, or neither heard nor answering",
        traits=("own_state",),
    )  # fmt: skip
    yield FaultClass("engine_still", by, machine, "restart_role", "an engine has requests and generates nothing")
    yield FaultClass("tool_still", by, machine, "restart_role", "an environment has calls and finishes none")
    yield FaultClass("worker_still", by, machine, "restart_role", "it has requests and finishes none")
    yield FaultClass("trainer_still", by, machine, "restart_role", "a trainer makes no progress in its training phase")
    waits = "weights that exist do not reach who waits for them"
    yield FaultClass("weight_sync_still", by, machine, "restart_role", waits)
    yield FaultClass(
        "role_memory", by, ("code",), "restart_role", "a role's memory grew until a process on its node was killed",
        advice="no machine is at fault: restart what grew, and give the role less to hold", traits=("own_state",),
    )  # fmt: skip
    yield FaultClass("role_slow", by, machine, "probe", "it does far less than its peers with as much work")
    yield FaultClass(
        "lost_request", by, ("code",), "restart_job", "the roles wait for one another, and none has the work",
        advice="no machine is at fault: a request was lost between the roles",
    )  # fmt: skip
    yield FaultClass("phase_overdue", by, ("unknown",), "probe", "it has been in a phase for longer than that may take")
    yield FaultClass(
        "role_waits", by, ("none",), "none", "its ranks wait for another role", traits=("waits_outside", "supports")
    )


def _ends() -> Iterator[FaultClass]:
    by = ("crash",)
    advice = "the job was ended from outside: who ended it starts it again"
    ends: tuple[tuple[str, str, tuple[Trait, ...]], ...] = (
        ("preempted", "the scheduler took the job's place", ()),
        ("time_limit", "the job reached its time limit", ("asked",)),
        ("terminated", "the job was ended from outside", ("asked",)),
    )
    for name, words, traits in ends:
        yield FaultClass(name, by, ("platform",), "none", words, advice=advice, traits=(*traits, "from_outside"))
    yield FaultClass(
        "container_refused", by, ("platform",), "restart_job", "the platform ended or refused its container"
    )
    yield FaultClass(
        "pod_waits", by, ("platform",), "none", "a pod waits for a place, or for its container to start",
        advice="no machine of the job is at fault: the platform has to give what the pod waits for",
    )  # fmt: skip


def _files() -> Iterator[FaultClass]:
    yield FaultClass(
        "file_system_error", ("crash",), ("storage",), "none", "a file system did not read or write for it",
        advice="no machine of the job is at fault: look at the space, the quota and the server of that file system",
    )  # fmt: skip


def _crash() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass(
        "uneven_end", ("crash", "verdict"), ("code",), "none", "it ended its steps before the others",
        advice="the ranks had not the same number of steps to do: the code is to end them together",
    )  # fmt: skip
    yield FaultClass("node_failed", by, ("machine",), "probe", "the scheduler lost its node")
    yield FaultClass("device_lost", by, ("machine",), "probe", "its GPU reported a hardware failure")
    yield FaultClass(
        "devices_absent", ("crash", "hardware"), ("platform",), "restart_job", "no working GPU was there for it",
        advice="repair its fabric manager, driver or container before: no proof against the machine",
    )  # fmt: skip
    yield FaultClass("device_fault", by, ("unknown",), "probe", "an error of its device")
    yield FaultClass("device_fault_all_ranks", by, ("code",), "rollback", "an error of the device on every rank")
    yield FaultClass("device_assert", by, ("code",), "rollback", "a check inside a kernel failed")
    yield FaultClass(
        "device_memory", by, ("imbalance",), "none", "its share did not fit its GPU",
        advice="no machine is at fault: see what else its GPU held, and let this rank hold less on it",
    )  # fmt: skip
    yield FaultClass(
        "device_memory_all_ranks", by, ("code",), "none", "no rank's share fits its GPU",
        advice="no machine is at fault: let each rank hold less on its GPU",
    )  # fmt: skip
    yield FaultClass(
        "host_oom", by, ("code",), "none", "memory of the host, or of its limit, ran out",
        advice="no machine is at fault: hold less in the host's memory, or raise the job's limit",
    )  # fmt: skip
    yield FaultClass(
        "shared_memory", by, ("code",), "none", "shared memory ran out",
        advice="no machine is at fault: raise the limit of shared memory (/dev/shm), or use fewer data loader workers",
    )  # fmt: skip
    yield FaultClass(
        "exception_one_rank", by, ("code", "data"), "reattempt", "it alone raised an exception",
        advice="an exception in the code: read it; a plain restart shows whether it comes again",
    )  # fmt: skip
    yield FaultClass("exception_some_ranks", by, ("code",), "rollback", "some ranks raised the same exception")
    yield FaultClass(
        "exception_all_ranks", by, ("code", "storage", "data"), "rollback", "every rank raised the same exception",
        traits=("everywhere",),
    )  # fmt: skip
    yield FaultClass(
        "process_killed", by, ("machine", "unknown"), "evict", "its process was killed", proof="its process was killed"
    )
    yield FaultClass("all_killed", by, ("platform",), "restart_job", "every process was killed")
    yield FaultClass("process_crashed", by, ("machine", "unknown"), "probe", "its process crashed in native code")
    yield FaultClass("crashed_all_ranks", by, ("code",), "rollback", "every process crashed in native code")
    yield FaultClass("process_aborted", by, ("unknown",), "probe", "it aborted itself without saying why")
    yield FaultClass("aborted_all_ranks", by, ("code",), "rollback", "every process aborted itself")
    yield FaultClass("exit_unexplained", by, ("unknown",), "probe", "it failed, and no log shows why")
    yield FaultClass("transport_failed", by, ("network",), "probe", "the network did not deliver to a peer")
    yield FaultClass("port_failed", by, ("network",), "probe", "a port of its network card failed")
    yield FaultClass("echoes_only", by, ("unknown",), "none", "its peers lost their connections, and no log shows why")
    yield FaultClass(
        "not_a_number", ("crash", "numeric"), ("code", "unknown"), "none", "a value that is not a number",
        advice="no machine is at fault: restart from the checkpoint before that step, and look at its data and the learning rate",
    )  # fmt: skip
    yield FaultClass("spike", ("numeric",), ("unknown",), "none", "the loss or the gradient norm jumped")


def _hardware() -> Iterator[FaultClass]:
    by = ("hardware",)
    yield FaultClass("xid_*", by, ("machine",), "evict", "Xid {}")
    yield FaultClass(
        "xid_of_program", by, ("code",), "none", "a fault of the program on its GPU",
        advice="no machine is at fault: look for what the job's kernels or its library access", traits=("alone",),
    )  # fmt: skip
    yield FaultClass("sxid_*", by, ("machine",), "reboot_node", "SXid {}")
    yield FaultClass("nvlink5_*", by, ("machine",), "evict", "an NVLink error, Xid {}")
    yield FaultClass("nvlink_74_*", by, ("machine",), "reset_gpu", "an NVLink error, Xid 74: {}")
    yield FaultClass("nvlink_fatal_node", by, ("machine",), "reboot_node", "links of several GPUs of the node failed")
    yield FaultClass("nvlink_fatal_many", by, ("network",), "probe", "links of GPUs on several nodes failed together")
    yield FaultClass("nvlink_origin_unseen", by, ("unknown",), "none", "GPUs report a failed link and no log shows it")
    yield FaultClass("ecc_dbe*", by, ("machine",), "evict", "an uncorrectable memory error of its GPU")
    yield FaultClass("off_bus_many", by, ("machine",), "reboot_node", "several GPUs of the node left the bus together")
    yield FaultClass("out_of_time", by, ("none",), "none", "an event of another time")
    yield FaultClass("soft_lockup", by, ("machine",), "reboot_node", "a processor was stuck in the kernel")
    yield FaultClass("machine_check", by, ("machine",), "evict", "an uncorrected hardware error of the host")
    yield FaultClass("kernel_panic", by, ("machine",), "reboot_node", "the kernel panicked")
    yield FaultClass("disk_error", by, ("machine",), "probe", "a disk or a local file system failed")
    yield FaultClass("gpu_uncorrected", by, ("machine",), "reset_gpu", "an uncorrectable memory error of its GPU")
    yield FaultClass("gpu_needs_reset", by, ("machine",), "reset_gpu", "a GPU asks for a reset")
    yield FaultClass("gpu_reset", by, ("unknown",), "probe", "the driver reset a GPU that did not answer")
    yield FaultClass(
        "gpu_page_fault", by, ("code",), "none", "a process used GPU memory that was not mapped",
        advice="no machine is at fault: look for what the job's kernels or its library access",
    )  # fmt: skip
    yield FaultClass("gsp_timeout", by, ("machine",), "probe", "the system processor of a GPU did not answer")
    yield FaultClass("gpu_lost", by, ("machine",), "reboot_node", "the driver lost a GPU, or could not start it")
    yield FaultClass("pcie_fatal", by, ("machine",), "reboot_node", "a fatal PCIe error")
    yield FaultClass("pcie_nonfatal", by, ("machine",), "probe", "an uncorrected PCIe error")
    yield FaultClass("hung_task", by, ("machine",), "probe", "a process was blocked in the kernel")
    yield FaultClass("hung_task_storage", by, ("storage",), "none", "a process was blocked in a file system")
    yield FaultClass("storage_unreachable", by, ("storage",), "none", "a file server stopped answering")
    yield FaultClass(
        "stuck_together", by, ("platform",), "none", "processes of several nodes were stuck at one time",
        advice="the nodes were stuck together: no machine of the job is at fault",
    )  # fmt: skip
    yield FaultClass(
        "oom_kill", by, ("code",), "none", "the kernel killed a process for memory",
        advice="no machine is at fault: hold less in the host's memory, or raise the job's limit",
    )  # fmt: skip
    yield FaultClass("segfault", by, ("code",), "rollback", "a process of the job crashed")
    yield FaultClass("nic_health", by, ("network",), "probe", "the network card reports itself unhealthy")
    yield FaultClass("nic_cable", by, ("network",), "probe", "a network port reports a cable or module error")
    yield FaultClass("link_flapping", by, ("network",), "probe", "a network port went down again and again")
    yield FaultClass("switch_flapping", by, ("network",), "probe", "ports of several nodes went down together")


def _slow() -> Iterator[FaultClass]:
    by = ("slow",)
    yield FaultClass(
        "slow_worker", by, ("machine",), "evict", "it takes longer for the same work than its peers",
        proof="its own operations take longer than those of every peer with the same work, and the job waits for it",
    )  # fmt: skip
    yield FaultClass("slow_host", by, ("unknown",), "probe", "its host lets its device wait")
    yield FaultClass(
        "slow_link", by, ("network",), "probe", "transfers between two stages take longer than on other replicas"
    )
    yield FaultClass("slow_together", by, ("unknown",), "none", "many workers take longer at once")
    yield FaultClass(
        "slow_undecided", by, ("unknown",), "none", "workers of one duty differ, and nothing shows which is slow"
    )
    advised: tuple[tuple[str, Cause, str, str], ...] = (
        ("slow_stage", "imbalance", "a pipeline stage has more work than the others", "give the stage fewer layers"),
        ("slow_data", "data", "some microbatches have more work than others", "even out the lengths of their sequences"),
        ("slow_loader", "storage", "devices wait for the data loader", "look at the loader and the file system that it reads"),
        ("slow_pauses", "code", "hosts pause in turns", "collect garbage and save checkpoints on all ranks at one time"),
    )  # fmt: skip
    for name, cause, words, advice in advised:
        yield FaultClass(name, by, (cause,), "none", words, advice=f"no machine is at fault: {advice}")
    runs: tuple[Trait, ...] = ("job_may_run",)
    yield FaultClass(
        "latent_worker", by, ("none",), "none", "a slow worker that the job does not wait for", traits=runs
    )
    yield FaultClass("unlike_machines", by, ("none",), "none", "workers that differ steadily", traits=runs)
    yield FaultClass("even_pace", by, ("none",), "none", "no worker is slower than its peers", traits=runs)
    yield FaultClass("slow_unmeasured", by, ("unknown",), "none", "traces without what can be compared", traits=runs)


def _weighing() -> Iterator[FaultClass]:
    yield FaultClass("pause_*", ("verdict",), ("none", "code"), "none", "a pause: {}")
    yield FaultClass(ANALYZER_FAILED, ("verdict",), ("unknown",), "none", "an analyzer failed: its evidence is missing")


FAULT_CLASSES: tuple[FaultClass, ...] = (
    *_hang(),
    *_processes_and_stacks(),
    *_network(),
    *_roles(),
    *_ends(),
    *_files(),
    *_crash(),
    *_hardware(),
    *_slow(),
    *_weighing(),
)
_EXACT = {row.name: row for row in FAULT_CLASSES if "*" not in row.name}
_PREFIXES = sorted((row for row in FAULT_CLASSES if "*" in row.name), key=lambda row: -len(row.name))


@cache
def fault_class(name: str) -> FaultClass:
    """Return the row of a class: its own, else that of the longest prefix; a class of no row allows nothing by itself."""
    found = _EXACT.get(name) or next((row for row in _PREFIXES if name.startswith(row.name[:-1])), None)
    return found or FaultClass(name, (), (), "none", name.replace("_", " "))


def has(name: str, trait: Trait) -> bool:
    """Return whether a class has a trait."""
    return trait in fault_class(name).traits


def with_trait(trait: Trait) -> frozenset[str]:
    """Return the names of the classes that have a trait."""
    return frozenset(row.name for row in FAULT_CLASSES if trait in row.traits)


def hardware_action(name: str, knowledge: Knowledge) -> Action:
    """Return what a device's own event asks for, by the table of hardware events; without a row there, a probe at most."""
    row = _EXACT.get(name)
    return action_for(name, knowledge, "none" if row is None or row.strongest == "none" else "probe")


def in_words(name: str) -> str:
    """Say what happened, for people; a class of no row says its own name."""
    row = fault_class(name)
    return row.words.format(name.removeprefix(row.name[:-1]).replace("_", " ")) if "*" in row.name else row.words
