"""Every fault class in one table: who claims it, which causes it may have, its words, and the strongest action it allows.

Whatever treats a class specially reads it here. A new class is one row; docs/reference.md lists them. Those of a job's
logs are in ``crash_classes``, those of hardware that is not well in ``gray_classes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from analyzers.knowledge import Knowledge
from analyzers.knowledge.xids import Action, action_for
from analyzers.model import crash_classes, gray_classes
from analyzers.model.fault_class import FaultClass, Trait
from analyzers.model.finding import Cause

ANALYZER_FAILED = "analyzer_failed"


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
        proof="its process is stopped", traits=("own_state", "of_process"),
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
        "uninterruptible", ("process",), ("machine", "storage", "unknown"), "probe",
        "its process sleeps in the kernel and cannot be interrupted", traits=("supports",),
    )  # fmt: skip
    yield FaultClass(
        "file_server_wait", ("process",), ("storage",), "none",
        "its process waits for the server of a network file system, and cannot be interrupted",
        advice="no machine is at fault as far as is seen: see the file server, and its mount where the rank waits",
        traits=("supports",),
    )  # fmt: skip
    yield FaultClass(
        "same_stack", ("stacks",), ("code", "storage", "data"), "rollback", "every rank shows the same stack",
        traits=("supports", "alike"),
    )  # fmt: skip
    yield FaultClass(
        "stuck_stack", ("stacks",), ("machine", "code"), "rollback", "its stack differs from its peers' and stays"
    )
    yield FaultClass("stuck_*", ("stacks",), ("machine", "code"), "rollback", "its stack differs from its peers': {}")
    yield FaultClass(
        "stuck_data_loader", ("stacks",), ("data",), "probe", "it is in its data loader while its peers wait",
        traits=("own_code", "own_input"),
        advice="what it reads, or the code that reads it, holds it there; only a test shows whether its machine does",
    )  # fmt: skip
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
        "thread_wait", ("stacks",), ("unknown",), "none", "a rank waits for what another process sends to its idle threads",
        advice="no machine of the job is at fault as far as is seen: the sender may be another role",
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
    yield FaultClass(
        "role_loops", by, ("unknown",), "restart_role", "it runs in one place of its own code, and others wait for it"
    )
    yield FaultClass("tool_still", by, machine, "restart_role", "an environment has calls and finishes none")
    yield FaultClass("worker_still", by, machine, "restart_role", "it has requests and finishes none")
    yield FaultClass(
        "trainer_still", by, machine, "restart_role", "a trainer makes no progress in its training phase",
        traits=("in_step",),
    )  # fmt: skip
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


def _hardware() -> Iterator[FaultClass]:
    by = ("hardware",)
    yield FaultClass("xid_*", by, ("machine",), "evict", "Xid {}")
    yield FaultClass(
        "xid_of_program", by, ("code",), "none", "a fault of the program on its GPU",
        advice="no machine is at fault: look for what the job's kernels or its library access", traits=("alone",),
    )  # fmt: skip
    yield FaultClass("sxid_*", by, ("machine",), "reboot_node", "SXid {}")
    yield FaultClass("nvlink5_*", by, ("machine",), "reboot_node", "an NVLink error, Xid {}")
    yield FaultClass("nvlink_74_*", by, ("machine",), "reset_gpu", "an NVLink error, Xid 74: {}")
    yield FaultClass("nvlink_fatal_node", by, ("machine",), "reboot_node", "links of several GPUs of the node failed")
    yield FaultClass("nvlink_fatal_many", by, ("network",), "probe", "links of GPUs on several nodes failed together")
    yield FaultClass("nvlink_origin_unseen", by, ("unknown",), "none", "GPUs report a failed link and no log shows it")
    yield FaultClass("ecc_dbe*", by, ("machine",), "evict", "an uncorrectable memory error of its GPU")
    yield FaultClass("off_bus_many", by, ("machine",), "reboot_node", "several GPUs of the node left the bus together")
    yield FaultClass(
        "fault_of_another_hour",
        by,
        ("machine",),
        "probe",
        "its hardware failed hours before by its stamp, or in another zone as it ended",
    )
    yield FaultClass("out_of_time", by, ("none",), "none", "an event of another time")
    yield FaultClass("soft_lockup", by, ("machine",), "reboot_node", "a processor was stuck in the kernel")
    yield FaultClass(
        "memory_wearing", by, ("machine",), "probe", "a memory module of its host corrects too many errors"
    )
    yield FaultClass("gpu_link_errors", by, ("machine",), "probe", "a link between its GPUs corrected very many errors")
    yield FaultClass("machine_check", by, ("machine",), "evict", "an uncorrected hardware error of the host")
    yield FaultClass("kernel_panic", by, ("machine",), "reboot_node", "the kernel panicked")
    yield FaultClass(
        "disk_error", by, ("machine", "storage"), "probe", "a disk or a local file system failed", traits=("of_disk",)
    )
    yield FaultClass("gpu_uncorrected", by, ("machine",), "reset_gpu", "an uncorrectable hardware error of its GPU")
    yield FaultClass(
        "gpu_rows_spent", by, ("machine",), "probe", "a row of its GPU's memory failed and could not be remapped",
        advice="no reset and no restart mends it: keep jobs off this GPU, and have the vendor's field diagnostic confirm it; the "
        "vendor then replaces such a GPU (RMA)",
    )  # fmt: skip
    yield FaultClass(
        "gpu_counted",
        by,
        ("machine",),
        "probe",
        "uncorrected memory errors of its GPU are counted",
        traits=("supports",),
    )
    yield FaultClass(
        "gpu_unread", by, ("machine",), "probe", "a value of its GPU could not be read", traits=("supports",)
    )
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


def _hosts() -> Iterator[FaultClass]:
    by = ("hardware",)
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
    yield FaultClass(
        "segfault", by, ("code",), "reattempt", "a process of the job crashed",
        advice="no machine is at fault as far as is seen: its native stack shows which library; a plain restart shows whether it "
        "comes again",
    )  # fmt: skip
    yield FaultClass("nic_silent", by, ("network",), "probe", "the network card did not answer its driver in time")
    yield FaultClass(
        "gpus_reset_together", by, ("platform",), "none", "the driver reset several GPUs of one machine",
        advice="no GPU is singled out: see the driver, its firmware, and the program that ran on all of them",
    )  # fmt: skip
    yield FaultClass(
        "driver_failed", by, ("platform",), "none", "a device's driver, or a file system's, failed in the kernel",
        advice="this alone shows no machine at fault: see the versions of the driver and its firmware, and other nodes",
    )  # fmt: skip
    yield FaultClass("nic_health", by, ("network",), "probe", "the network card reports itself unhealthy")
    yield FaultClass("nic_cable", by, ("network",), "probe", "a network port reports a cable or module error")
    yield FaultClass("link_flapping", by, ("network",), "probe", "a network port went down again and again")
    yield FaultClass("switch_flapping", by, ("network",), "probe", "ports of several nodes went down together")


def _slow() -> Iterator[FaultClass]:
    by = ("slow",)
    yield FaultClass(
        "slow_worker", by, ("machine",), "evict", "it takes longer than its peers, and nothing shows that it has more work",
        proof="its own operations take longer than those of every peer, where other stages of its replica, or operations whose "
        "cost tokens fix, show that its work is as theirs; and the job waits for it",
    )  # fmt: skip
    yield FaultClass(
        "slow_reported", by, ("machine",), "probe", "a detector inside the job reports it as slow again and again",
        advice="its machine is tested, at the latest after the job: the job goes on with it", traits=("supports",),
    )  # fmt: skip
    yield FaultClass("slow_host", by, ("unknown",), "probe", "its host lets its device wait")
    yield FaultClass(
        "slow_link", by, ("network",), "probe", "transfers between two stages take longer than on other replicas"
    )
    yield FaultClass(
        "late_rank", by, ("unknown",), "probe", "it comes last to collectives by what it does itself, and the others wait",
        advice="what holds it up, its computation, its host, its data or a larger part of the model, a trace of torch.profiler "
        "of each rank shows: the job goes on with it", traits=("supports",),
    )  # fmt: skip
    yield FaultClass(
        "slow_path", by, ("network",), "probe", "transfers on its paths take longer than on others like them",
        traits=("supports",),
    )  # fmt: skip
    yield FaultClass(
        "slow_fabric", by, ("network",), "probe", "collectives take longer on all members, and none waits for another",
        traits=("supports",),
    )  # fmt: skip
    yield FaultClass("slow_together", by, ("unknown",), "none", "many workers take longer at once")
    yield FaultClass(
        "slow_undecided", by, ("unknown",), "none", "workers of one duty differ, and nothing shows which is slow"
    )
    advised: tuple[tuple[str, Cause, str, str], ...] = (
        ("slow_stage", "imbalance", "a pipeline stage has more work than the others", "give the stage fewer layers"),
        ("slow_data", "data", "some microbatches have more work than others", "even out the lengths of their sequences"),
        ("slow_loader", "storage", "devices wait for the data loader", "look at the loader and the file system that it reads"),
        ("slow_code", "code", "steps take longer by another version of the code", "look at what changed with it, or go back"),
        ("slow_pauses", "code", "hosts pause in turns", "collect garbage and save checkpoints on all ranks at one time"),
    )  # fmt: skip
    for name, cause, words, advice in advised:
        yield FaultClass(name, by, (cause,), "none", words, advice=f"no machine is at fault: {advice}")
    yield FaultClass(
        "slow_rank", by, ("unknown",), "none", "something began to hold it up when the job's steps became longer",
        advice="look at what holds it up, and test its machine after the job: the job goes on with it",
    )  # fmt: skip
    yield FaultClass("slower", by, ("unknown",), "none", "the job's steps take longer than before")
    steady: tuple[tuple[str, Cause, str], ...] = (
        ("latent_worker", "none", "a slow worker that the job does not wait for"),
        ("unlike_machines", "none", "workers that differ steadily"),
        ("even_pace", "none", "no worker is slower than its peers"),
        ("slow_unmeasured", "unknown", "traces without what can be compared"),
    )
    for name, cause, words in steady:
        yield FaultClass(name, by, (cause,), "none", words, traits=("job_may_run",))


def _numbers() -> Iterator[FaultClass]:
    by = ("numeric",)
    yield FaultClass("replica_differs", by, ("machine",), "probe", "its parameters are no longer those of its replicas")
    yield FaultClass(
        "replicas_apart", by, ("code",), "none", "the replicas' parameters are no longer the same",
        advice="no machine is at fault: look at what the program updates without a reduction, or at random",
    )  # fmt: skip


def _weighing() -> Iterator[FaultClass]:
    yield FaultClass("pause_*", ("verdict",), ("none", "code"), "none", "a pause: {}")
    yield FaultClass(ANALYZER_FAILED, ("verdict",), ("unknown",), "none", "an analyzer failed: its evidence is missing")


FAULT_CLASSES: tuple[FaultClass, ...] = (
    *_hang(), *_processes_and_stacks(), *_network(), *_roles(), *crash_classes.rows(), *_hardware(), *_hosts(),
    *gray_classes.rows(), *_slow(), *_numbers(), *_weighing(),
)  # fmt: skip
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
