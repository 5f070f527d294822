"""The fault classes that a job's logs give: how it was ended or refused, what failed by itself, what only echoes."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.model.fault_class import FaultClass, Trait


def rows() -> Iterator[FaultClass]:
    """Yield every row."""
    yield from _ends()
    yield from _files()
    yield from _crash()
    yield from _deaths()
    yield from _shown_by_lines()
    yield from _programs()
    yield from _memory()


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
        "interrupted", by, ("none",), "none", "a person stopped it", advice="who stopped it starts it again",
        traits=("asked", "from_outside"),
    )  # fmt: skip
    yield FaultClass("container_ended", by, ("platform",), "restart_job", "the platform ended its container",
        advice="the platform took its place: start it again; no machine of the job is at fault",
    )  # fmt: skip
    yield FaultClass(
        "container_refused", by, ("platform",), "none", "the platform refused it a container, or a device in it",
        advice="mend that first (device plugin, driver, runtime, image): there it is refused again; no GPU is proven bad",
    )  # fmt: skip
    yield FaultClass(
        "node_full", by, ("platform",), "none", "its node ran short of disk, memory or processes, and ended its container",
        advice="free what ran short on that node, or ask for more of it: there it is ended again; no GPU is at fault",
    )  # fmt: skip
    yield FaultClass(
        "used_too_much", by, ("platform",), "none", "its container used more of its node than it asked for, and was evicted",
        advice="use less of what ran short, or request what it needs (memory: what loaders and caches hold; disk: checkpoints, "
        "caches and logs belong on a volume): "
        "started again as it is, it is evicted again",
    )  # fmt: skip
    yield FaultClass(
        "daemon_failed", by, ("platform",), "none", "a daemon of the scheduler does not work, or could not be reached",
        advice="no machine of the job is at fault as far as is seen: look at that daemon's own log",
        traits=("alone",),
    )  # fmt: skip
    yield FaultClass(
        "service_refused", by, ("platform",), "none", "a service that a process asked did not give what it asked for",
        advice="no machine of the job is at fault as far as is seen: look at that service, its limits, and the way to it",
    )  # fmt: skip
    yield FaultClass(
        "access_refused", by, ("platform",), "none", "a service refused what its account may not have",
        advice="log in on every node (of Hugging Face, `hf auth login` or HF_TOKEN), and ask for access with that account where "
        "a licence is to be accepted: it is refused again until then",
    )  # fmt: skip
    yield FaultClass(
        "pod_waits", by, ("platform",), "none", "a job or a pod waits for a place, or for its container to start",
        advice="no machine of the job is at fault: the platform has to give what it waits for",
    )  # fmt: skip


def _files() -> Iterator[FaultClass]:
    yield FaultClass(
        "file_system_error", ("crash",), ("storage",), "none", "a file system did not read or write for it",
        advice="no machine of the job is at fault: look at the space, the quota and the server of that file system",
        traits=("disk_decides",),
    )  # fmt: skip
    yield FaultClass(
        "file_system_lapse", ("crash",), ("storage",), "reattempt", "a file system did not answer a read or a write",
        advice="such an error can pass, and a plain restart shows whether it comes again; see whether other nodes can read and "
        "write that path, its mount, its server, and the kernel log of its node",
        traits=("disk_decides",),
    )  # fmt: skip
    yield FaultClass(
        "account", ("crash",), ("code", "machine", "network", "data", "storage", "platform"), "probe",
        "a person reports it, and no line shows it",
        advice="nothing is done on a person's words alone: add the lines that the programs printed",
        traits=("alone", "words_only"),
    )  # fmt: skip
    yield FaultClass(
        "like_other_texts", ("text_class",), ("code", "data", "network", "platform", "storage"), "none",
        "no rule decides it, and its words are those of other failures",
        advice="nothing is done on the likeness of words: add the lines that the programs printed",
        traits=("alone", "words_only"),
    )  # fmt: skip
    yield FaultClass(
        "path_not_there", ("crash",), ("code",), "none", "every rank was given a path that is not there, or not for it",
        advice="no machine is at fault: see the path that the job was given, and whether what holds it is mounted on its nodes; "
        "it fails again until then",
        traits=("everywhere",),
    )  # fmt: skip


def _crash() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass(
        "uneven_end", ("crash", "verdict"), ("code",), "none", "it ended its steps before the others",
        advice="the ranks had not the same number of steps to do: the code is to end them together",
    )  # fmt: skip
    yield FaultClass("node_failed", by, ("machine",), "probe", "the scheduler lost its node", traits=("unanswered",))
    yield FaultClass("node_unheard", by, ("unknown",), "probe", "its heartbeats did not come", traits=("unanswered",))
    yield FaultClass("device_lost", by, ("machine",), "probe", "its GPU reported a hardware failure")
    yield FaultClass(
        "devices_absent", ("crash", "hardware"), ("platform",), "restart_job", "no working GPU was there for it",
        advice="repair its fabric manager, driver or container before: no proof against the machine",
    )  # fmt: skip
    yield FaultClass("device_fault", by, ("unknown",), "probe", "an error of its device", traits=("device_decides",))
    yield FaultClass(
        "device_fault_unnamed", by, ("code",), "reattempt", "a kernel used an address that it cannot have",
        advice="two in three are the program's: compute-sanitizer shows where, and the kernel log whether a GPU failed",
    )  # fmt: skip
    yield FaultClass(
        "device_fault_all_ranks", by, ("code",), "reattempt", "an error of the device on every rank",
        advice="every rank meets it: compute-sanitizer shows which kernel; a plain restart shows whether it comes again",
    )  # fmt: skip
    yield FaultClass(
        "device_assert", by, ("code",), "none", "a check inside a kernel failed",
        advice="no machine is at fault: look for an index out of range in that batch (a label, a token beyond the vocabulary, a "
        "position beyond its table); CUDA_LAUNCH_BLOCKING=1 shows the line, and the same data raises it again",
        traits=("own_failure", "raised_again"),
    )  # fmt: skip
    yield FaultClass(
        "exception_one_rank", by, ("code", "data"), "reattempt", "it raised an exception of its own",
        advice="an exception in the code: read it; a plain restart shows whether it comes again",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "exception_some_ranks", by, ("code",), "reattempt", "some ranks raised the same exception",
        advice="an exception in the code: read it; a plain restart shows whether it comes again",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "exception_all_ranks", by, ("code", "storage", "data"), "reattempt", "every rank raised the same exception",
        advice="no machine is at fault: read it; a plain restart shows whether it comes again", traits=("everywhere",),
    )  # fmt: skip


def _deaths() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass(
        "process_killed", by, ("machine", "unknown"), "probe", "its process was killed", traits=("own_failure",)
    )  # fmt: skip
    yield FaultClass("all_killed", by, ("platform",), "restart_job", "every process was killed")
    yield FaultClass(
        "process_crashed", by, ("machine", "unknown"), "probe", "its process crashed in native code",
        traits=("own_failure", "kernel_decides"),
    )  # fmt: skip
    yield FaultClass(
        "crashed_all_ranks", by, ("code",), "reattempt", "every process crashed in native code",
        advice="no machine is at fault: read a native stack, and see which library it names; a plain restart shows whether it "
        "comes again",
    )  # fmt: skip
    yield FaultClass(
        "process_aborted", by, ("unknown",), "probe", "it aborted itself without saying why", traits=("kernel_decides",)
    )  # fmt: skip
    yield FaultClass(
        "aborted_all_ranks", by, ("code",), "reattempt", "every process aborted itself",
        advice="no machine is at fault: the lines before the abort, or a native stack, show why; a plain restart shows whether "
        "it comes again",
    )  # fmt: skip
    yield FaultClass(
        "program_ended_job", by, ("code",), "none", "its program ended the job itself, and no log shows why",
        advice="no machine is at fault as far as is seen: what this rank printed before it, or the place in the program that "
        "calls it, says why",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "exit_unexplained", by, ("unknown",), "probe", "it failed, and no log shows why",
        traits=("own_failure", "kernel_decides"),
    )  # fmt: skip
    yield FaultClass(
        "left_by_itself", by, ("unknown",), "reattempt", "its program left with an exit code, and no log shows why",
        advice="a program chooses such a code, and no machine does: read what this rank printed last; a plain restart shows "
        "whether it comes again",
        traits=("own_failure", "kernel_decides"),
    )  # fmt: skip
    yield FaultClass("engine_died", by, ("unknown",), "none", "a server's engine has died, and no log shows why")
    yield FaultClass("transport_failed", by, ("network",), "probe", "the network did not deliver to a peer")
    yield FaultClass("port_failed", by, ("network",), "probe", "a port of its network card failed")
    yield FaultClass(
        "prepares_data", by, ("code",), "none", "a data set was still being prepared while others waited",
        advice="prepare the data before the job, or on one rank before the process group is made, or raise its time-out",
    )  # fmt: skip
    yield FaultClass(
        "echoes_only", by, ("unknown",), "none", "its peers lost their connections, and no log shows why",
        advice="who lost a peer is a victim, and no log read shows whom it lost: a plain restart shows whether it comes again",
    )  # fmt: skip
    yield FaultClass(
        "not_a_number", ("crash", "numeric"), ("code", "unknown"), "none", "a value that is not a number",
        advice="no machine is at fault: restart from the checkpoint before that step, and look at its data and the learning rate",
    )  # fmt: skip


def _shown_by_lines() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass("spike", ("numeric",), ("unknown",), "none", "the loss or the gradient norm jumped")
    yield FaultClass(
        "node_drained", by, ("platform",), "none", "the scheduler took its node out of use",
        advice="an administrator sees why, and the job runs on other nodes until then",
    )  # fmt: skip
    yield FaultClass(
        "node_differs", by, ("platform",), "none", "its node has less than the scheduler's configuration says",
        advice="the job runs on other nodes until an administrator sees which is true: the configuration, or what the node shows",
    )  # fmt: skip
    yield FaultClass(
        "no_switches", by, ("platform",), "none", "the fabric manager found no NVSwitch",
        advice="no fabric manager is needed where the board has no NVSwitch: disable the service, or load the NVSwitches' driver",
    )  # fmt: skip
    yield FaultClass(
        "fabric_refused", ("crash", "hardware"), ("platform",), "none", "the network's software was refused what it asked for",
        advice="no machine is proven bad, and a plain restart meets it again: see the network's limits, driver and set-up",
        traits=("alone",),
    )  # fmt: skip
    yield FaultClass(
        "platform_part_failed", by, ("platform",), "none", "a part of the platform failed",
        advice="no machine is proven bad: look at the log of that part, and whether it is the same on other nodes",
        traits=("alone",),
    )  # fmt: skip
    yield FaultClass("daemon_lost", by, ("unknown",), "probe", "the launcher lost its daemon on that node")
    yield FaultClass(
        "node_check_failed", by, ("machine", "unknown"), "probe", "the launcher's check at the start named its node"
    )
    yield FaultClass(
        "not_started", by, ("code",), "none", "a program could not be started",
        advice="no machine is at fault as far as is seen: see that the file is on every node, and that it may be run",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "misused_library", by, ("code",), "none", "the communication library refused what it was given",
        advice="no machine is at fault, and a plain restart meets it again: see which GPU each rank takes, and that all have the "
        "same version of the library",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "never_submitted", by, ("unknown",), "probe", "it did not submit the operation that its peers wait in",
        advice="its code, its data or its machine may hold it up, and the lines show only that it did not come",
        traits=("own_code",),
    )  # fmt: skip
    yield FaultClass(
        "parted_alike", by, ("unknown",), "none", "several ranks did not join what the others wait in, all at one point",
        advice="compare the stacks of both sides: where those behind stand in one branch, the code parts them, and not a machine",
        traits=("stacks_add",),
    )  # fmt: skip
    yield FaultClass(
        "crashed_in_library", by, ("code",), "reattempt", "its process crashed in native code",
        advice="no proof against the machine: read the native stack; a plain restart shows whether it comes again",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "page_not_backed", by, ("platform",), "none", "processes used mapped pages that nothing backs",
        advice="no machine is at fault as far as is seen: see how full /dev/shm is, and raise its limit",
        traits=("own_failure",),
    )  # fmt: skip


def _programs() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass(
        "not_installed", by, ("code",), "none", "its environment lacks a module or a library, or has another version",
        advice="install what it names, in the version that the program asks for, in each node's environment: without it "
        "every start fails",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "port_in_use", by, ("code",), "none", "a port that it was to listen on is in use",
        advice="see which process holds the port (`ss -ltnp` on that host shows its PID), end it where an earlier run left it, "
        "or give the job another port (`--master-port`); before that a restart meets it again",
        traits=("own_failure", "raised_again"),
    )  # fmt: skip
    yield FaultClass(
        "too_many_files", by, ("code",), "none", "it has as many files open as its limit allows",
        advice="no machine is at fault: raise the limit (`ulimit -n`, LimitNOFILE of the daemon that starts it)",
        traits=("own_failure", "raised_again"),
    )  # fmt: skip
    yield FaultClass(
        "node_files_full", by, ("platform",), "none", "its node's own table of open files is full",
        advice="no machine is at fault: end what holds the files on that node, or raise fs.file-max there; a limit of the job "
        "changes nothing, and until then it is met again",
    )  # fmt: skip
    yield FaultClass(
        "clock_wrong", by, ("platform",), "none", "a service refused its request for the time in it",
        advice="set the clock of its node (`chronyc makestep`), and see its time service: signed requests are refused until then",
    )  # fmt: skip
    yield FaultClass(
        "name_not_found", by, ("code",), "none", "it asked for a model or a data set under a name that is not there for it",
        advice="no machine is at fault: see the name and the revision, or the folder on each node; a private one needs a login "
        "on every node (`hf auth login` or HF_TOKEN); it is refused again until then",
        traits=("own_failure", "raised_again"),
    )  # fmt: skip
    yield FaultClass(
        "program_error", by, ("code",), "none", "it raised an exception that its program's own fault raises",
        advice="no machine is at fault: mend what its traceback names; the same code raises it again on the same data",
        traits=("own_failure", "raised_again"),
    )  # fmt: skip
    yield FaultClass(
        "program_error_everywhere", by, ("code",), "none", "every rank raised an exception that its program's own fault raises",
        advice="no machine is at fault: mend what the traceback names; the same code raises it again on every rank",
        traits=("everywhere",),
    )  # fmt: skip
    yield FaultClass(
        "killed_unexplained", by, ("unknown",), "none", "its process was killed (SIGKILL), and nothing shows by whom",
        advice="nothing is done to a machine: the kernel's log shows whether it was killed for memory, the scheduler's record "
        "whether it was cancelled or reached a limit",
        traits=("own_failure", "was_ended", "kernel_decides"),
    )  # fmt: skip
    yield FaultClass(
        "kernel_fault", by, ("code",), "none", "a kernel used an address or an instruction that it cannot have",
        advice="no machine is at fault: look at the kernels of the program and its libraries (compute-sanitizer shows where)",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "instruction_trapped", by, ("code",), "none", "an instruction of its program traps",
        advice="no machine is at fault: a division by zero, or a build for another processor; its native stack shows where",
        traits=("own_failure",),
    )  # fmt: skip


def _memory() -> Iterator[FaultClass]:
    by = ("crash",)
    yield FaultClass(
        "loader_crashed", by, ("code",), "none", "a worker of its data loader ended without an exception",
        advice="no machine is at fault as far as is seen: run it with num_workers=0, which shows what fails, or on which sample",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "device_memory", by, ("imbalance",), "none", "its share did not fit its GPU",
        advice="no machine is at fault: see what else its GPU held, and let this rank hold less on it",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "device_memory_alone", by, ("code",), "none", "its share did not fit its GPU, and no other rank was seen",
        advice="no machine is at fault: let each rank hold less on its GPU, or see whether the split is even",
    )  # fmt: skip
    yield FaultClass(
        "device_shared", by, ("platform",), "none", "other processes held much of its GPU",
        advice="no machine is at fault: see whose processes are on the GPU, and end or move them",
    )  # fmt: skip
    yield FaultClass(
        "device_memory_all_ranks", by, ("code",), "none", "no rank's share fits its GPU",
        advice="no machine is at fault: let each rank hold less on its GPU",
    )  # fmt: skip
    yield FaultClass(
        "host_oom", by, ("code",), "none", "memory of the host, or of its limit, ran out",
        advice="no machine is at fault: hold less in the host's memory, or raise the job's limit",
        traits=("own_failure",),
    )  # fmt: skip
    yield FaultClass(
        "shared_memory", by, ("code",), "none", "shared memory ran out",
        advice="no machine is at fault: raise the limit of shared memory (/dev/shm), or use fewer data loader workers",
        traits=("own_failure",),
    )  # fmt: skip
