"""Words of Slurm, Kubernetes, LSF and PBS about nodes and limits, apart from those that ``launchers`` reads.

Formats: Slurm 20.11 to 25.05 (srun, slurmstepd, slurmctld), kubectl describe and get events, kubelet's and the scheduler's
event messages of Kubernetes 1.24 to 1.33, LSF's termination reasons, PBS's job output, how PaddlePaddle's launcher ends.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_NODE = r"(?P<node>[A-Za-z0-9][\w.-]{0,252})"

SHAPES = (
    shape("Node failure on", r"(?:srun|salloc|sbatch): error: Node failure on " + _NODE + r"\s*$", "node_failure"),
    shape("setting DOWN", r"Nodes? " + _NODE + r" not responding, setting DOWN", "node_failure"),
    shape("due to failure of node", r"due to failure of node " + _NODE, "node_failure"),
    shape(  # a clock, a key or a daemon of munge, on the node or on the one that asks
        " credential ",
        r"(?:srun|salloc|sbatch|slurmd|slurmstepd): error: (?P<message>.{0,160}(?:Job credential (?:expired|revoked)|"
        r"Invalid job credential|Expired credential|Rewound credential|Replayed credential))",
        "evicted",
        operation="daemon",
    ),
    shape(
        "Task launch for ",
        r"(?:srun|salloc): error: Task launch for \S{1,60} failed on node " + _NODE + r": (?P<message>.{1,200})",
        "evicted",
    ),
    *(
        shape(
            word,
            r"(?:srun|salloc|sbatch): error: (?P<message>(?:Batch job submission failed|Unable to create step for job \d{1,12}|"
            r"Unable to allocate resources|tasks? [\d,-]{1,80} launch failed): (?!.{0,40}(?:busy|temporarily)).{1,200})",
            "evicted",
        )
        for word in ("submission failed: ", "error: Unable to ", " launch failed: ")
    ),
    *(
        shape(
            word,
            r"slurmstepd: error: (?P<message>.{0,60}[Ee]xceeded (?:\w{1,12} )?memory limit.{0,120})",
            "oom_kill",
            signal=9,
        )
        for word in ("xceeded memory", "xceeded step memory", "xceeded job memory", "xceeded virtual memory")
    ),
    shape("prolog failed", r"prolog failed, draining node " + _NODE, "node_failure"),
    shape(
        "FAILED (non-zero",
        r"\*\*\* (?:JOB|STEP) \S{1,40} (?:ON \S{1,253} )?FAILED \(non-zero exit code",
        "step_cancelled",
    ),
    shape("NOT ENDING WITH SIGNALS", r"\*\*\* .{1,60}STEPD TERMINATED ON \S{1,253} AT .{1,60}", "step_cancelled"),
    shape(
        "MEMORY ERROR AT", r"\*\*\* (?:JOB|STEP) \S{1,40} ON \S{1,253} UNCORRECTABLE MEMORY ERROR AT", "node_failure"
    ),
    shape(
        "NodeNotReady",
        r"\bNodeNotReady\s.{1,160}?\s(?P<message>Node is not ready)",
        "node_failure",
        operation="unheard",
    ),
    shape(
        "SystemOOM",
        r"\bSystemOOM\s.{1,160}?\s(?P<message>System OOM encountered(?:, victim process: .{1,100})?)",
        "oom_kill",
    ),
    shape(
        "OOMKilling",
        r"\bOOMKilling\s.{1,160}?\s(?P<message>(?:Memory cgroup o|O)ut of memory: Kill.{1,200})",
        "oom_kill",
    ),
    shape("NodeNotReady", r"\bNode " + _NODE + r" status is now: NodeNotReady", "node_failure", operation="unheard"),
    shape(
        "xit code",
        r"(?:command terminated with|[Cc]ontainer .{1,120}?exited with|"
        r"(?:[Pp]od|[Rr]eplica|[Ww]orker)s? .{1,120}?(?:failed|exited) with|"
        r"\bError \(|\bfailed with) ?exit code:? ?\(?(?P<exit>13[4579]|143)\b",
        "exit",
    ),
    shape("TERM_", r"^TERM_(?P<message>(?:MEMLIMIT|SWAP): job killed.{0,100})", "oom_kill", signal=9),
    shape("TERM_", r"^TERM_(?P<message>(?:RUNLIMIT|CPULIMIT|DEADLINE|WINDOW): job killed.{0,100})", "time_limit"),
    shape("TERM_", r"^TERM_(?P<message>PREEMPT: job killed.{0,100})", "preempted"),
    shape("TERM_", r"^TERM_(?P<message>(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN): job killed.{0,100})", "cancelled"),
    shape(
        "TERM_",
        r"^TERM_(?P<message>(?:THREADLIMIT|PROCESSLIMIT|LOAD): job killed.{0,100})",
        "evicted",
        operation="ended",
    ),
    shape(
        "PBS: job killed",
        r"=>> PBS: job killed: (?P<message>(?:v?p?mem|ncpus) .{1,80}exceeded limit.{0,60})",
        "oom_kill",
    ),
    shape(
        "PBS: job killed",
        r"=>> PBS: job killed: (?P<message>(?:walltime|cput) .{1,80}exceeded limit.{0,60})",
        "time_limit",
    ),
    shape("Exit_status=", r"^Exit_status=271$", "terminated", signal=15),
    shape("Exit_status=", r"^Exit_status=265$", "exit", signal=9),
    shape(
        "status failed cmd",
        r"^Container rank (?P<local_rank>\d{1,4}) status failed cmd \[.{0,4000}\] code (?P<exit>-?\d{1,3}) log ",
        "exit",
    ),
    *(  # why a pod was refused: the inner reason of a lost GPU is the GPU's
        shape(
            "Allocate failed due to ",
            r"Allocate failed due to (?P<message>" + lost + r"{1,500}?)(?:, which is unexpected|$)",
            name,
        )
        for lost, name in (
            (r"(?=.{0,500}(?:GPU is lost|fallen off the bus|uncorrectable)).", "cuda_error"),
            (".", "evicted"),
        )
    ),
    shape(  # the kubelet evicts first who uses more than it asked for: its numbers tell
        "low on resource: ",
        r"(?P<message>The node was low on resource: [\w.-]{1,60}\..{1,160}?(?:[Cc]ontainer|[Pp]od) \S{1,80} was using "
        r"\S{1,24} (?:request is|which exceeds its request of) \S{1,24}.{0,500})",
        "evicted",
        operation="own",
    ),
    *(
        shape(word, r"(?P<message>" + pattern + r".{0,160})", "evicted", operation="own")
        for word, pattern in (
            ("local ephemeral storage limit", r"[Cc]ontainer \S{1,80} exceeded its local ephemeral storage limit"),
            ("phemeral local storage usage", r"Pod ephemeral local storage usage exceeds the total limit"),
            ("Usage of EmptyDir volume", r"Usage of EmptyDir volume \S{1,80} exceeds the limit"),
        )
    ),
    shape("Evicted ", r"(?:\s\d{1,3}/\d{1,3}|\bWarning)\s{1,30}Evicted\s{1,30}\d", "evicted", operation="ended"),
    *(  # the reason in a pod's or a job's status, as YAML or `describe` print it
        shape(
            word, r"^\s{0,24}(?:- )?[Rr]eason:\s{1,24}[\"']?(?P<message>" + reason + r")[\"']?\s*$", name, operation=how
        )
        for word, reason, name, how in (
            ("Evicted", r"(?:[A-Z]\w{1,20}Job)?Evicted", "evicted", "ended"),
            ("NodeShutdown", r"NodeShutdown", "evicted", "ended"),
            ("UnexpectedAdmission", r"UnexpectedAdmissionError", "evicted", "status"),
            ("OutOf", r"OutOf(?:cpu|memory|pods|nvidia\.com/gpu|amd\.com/gpu|ephemeral-storage)", "evicted", None),
            ("NodeLost", r"NodeLost", "node_failure", "unheard"),
            ("Preempt", r"Preempt(?:ed|ing|ionByScheduler|ionByKubeScheduler)", "preempted", None),
            ("DeadlineExceeded", r"DeadlineExceeded", "time_limit", None),
        )
    ),
    shape(
        "are evicted",
        r"(?:^|: )[\"']?(?P<message>\d{1,5}/\d{1,5} (?:workers?|pods?|replicas?) (?:are|were) evicted)",
        "evicted",
        operation="ended",
    ),
    shape(
        " in gang unschedulable",
        r"(?P<message>\d{1,6}/\d{1,6} tasks in gang unschedulable: .{1,200})",
        "pod_waits",
    ),
    shape("cluster is preempted", r"(?:^|\] )(?P<message>The cluster is preempted)", "preempted"),
    shape("ImagePull", r"\s\d{1,3}/\d{1,3}\s{1,30}(?P<message>ErrImagePull|ImagePullBackOff)\s", "evicted"),
    shape("job preempted", r"^(?P<message>job preempted \(.{1,60}\))$", "preempted"),
    shape("Preempted by", r"\bPreempted\b.{1,120}Preempted by (?:a )?pod", "preempted"),
    # What a pod waits for: a place, or a container that can be started. A later line may say that it got it.
    shape(
        " nodes are available: ",
        r"(?:\bFailedScheduling\s.{1,160}?\s|^[\s>`*-]{0,4})(?P<message>\d{1,6}/\d{1,6} nodes are available: .{1,300})",
        "pod_waits",
    ),
    shape("FailedScheduling", r"\bFailedScheduling\s.{1,160}?\s(?P<message>pod group .{1,300})", "pod_waits"),
    shape("Cannot schedule pods: ", r"(?P<message>PodUnschedulable:? Cannot schedule pods: .{1,200})", "pod_waits"),
    shape("rror syncing pod", r"(?P<message>Error syncing pod, skipping: .{1,300})", "evicted"),
    shape("assign flavors to pod set", r"(?P<message>couldn't assign flavors to pod set .{1,200})", "pod_waits"),
    *(
        shape(
            reason,
            r"\b" + reason + r"\w{0,20}\s.{1,160}?\s"
            r"(?P<message>(?:MountVolume|Unable to attach or mount|Multi-Attach|AttachVolume|Failed to create).{1,300})",
            "pod_waits",
            operation="start",
        )
        for reason in ("FailedMount", "FailedAttachVolume", "FailedCreatePod")
    ),
    shape("Successfully assigned ", r"\bScheduled\s.{1,160}?\sSuccessfully assigned ", "pod_started"),
    shape("pod group is ready", r"\bScheduled\s.{1,160}?\spod group is ready", "pod_started"),  # Volcano
    shape("Started container ", r"\bStarted\s.{1,160}?\sStarted container ", "pod_started", operation="start"),
    shape("CrashLoopBackOff", r"\s\d{1,3}/\d{1,3}\s{1,30}(?P<message>CrashLoopBackOff)\s", "exit", first=True),
    shape(
        "Back-off restarting",
        r"\bBackOff\s.{1,160}?\s(?P<message>Back-off restarting failed container.{0,160})",
        "exit",
        first=True,
    ),
    shape(
        "NotReady",
        r"^" + _NODE + r"\s{1,60}NotReady(?:,SchedulingDisabled)?\s{1,30}\S{1,120}\s{1,30}[\ddhms]{2,12}\s{1,30}v\d",
        "node_failure",
        operation="unheard",
    ),
    shape("NodeStatusUnknown", r"^\s{0,8}Ready\s{1,30}Unknown\s.{1,160}NodeStatusUnknown", "node_failure"),
    shape(
        "node had condition",
        r"(?:\bEvicted\s{1,40}(?=\S*[A-Za-z])"
        + _NODE
        + r"\s{1,40}Pod )?(?P<message>The node had condition: \[\w{1,60}Pressure\])",
        "evicted",
        operation="full",
    ),
    shape("cannot allocate unhealthy", r"(?P<message>cannot allocate unhealthy devices [\w./-]{1,80})", "evicted"),
    shape(
        "nvidia-container-cli",
        r"nvidia-container-cli: (?P<message>(?:initialization|requirement|device|mount|detection|ldcache) error: .{1,200})",
        "evicted",
    ),
    *(
        shape(
            word,
            r"\s\d{1,3}/\d{1,3}\s{1,30}(?P<message>" + word + r"\S{0,40})\s{1,30}\d",
            "evicted",
            operation="status",
        )
        for word in (
            "CreateContainer",
            "RunContainerError",
            "InvalidImageName",
            "UnexpectedAdmissionError",
            "OutOf",
            "ContainerStatusUnknown",
        )
    ),
    shape(
        "could not select device driver",
        r"(?P<message>could not select device driver .{0,40}with capabilities: \[\[.{0,20}gpu.{0,20})",
        "evicted",
    ),
    shape("unresolvable CDI devices", r"(?P<message>unresolvable CDI devices .{1,160})", "evicted"),
    shape(
        "rror: pyxis: ",
        r"(?:slurmd|slurmstepd|spank-(?:epilog|prolog)|srun): error: "
        r"(?P<message>pyxis: (?!\s|printing|if the )(?!\[(?:INFO|WARN)).{1,200})",
        "evicted",
        operation="plugin",
    ),
    shape(
        "spank: required plugin ",
        r"error: (?P<message>spank: required plugin \S{1,80}: .{1,160})",
        "evicted",
        operation="plugin",
    ),
    shape(
        "The node was low on compute", r"\bEvicted: The node was low on compute resources", "evicted", operation="full"
    ),
    shape("low on resource: memory", r"The node was low on resource: memory", "evicted", operation="full"),
    shape(
        "low on resource: ",
        r"The node was low on resource: (?:ephemeral-storage|inodes|pids)",
        "evicted",
        operation="full",
    ),
    shape("devices unavailable", r"requested number of devices unavailable for (?P<device>[\w./-]{1,80})", "evicted"),
    *(  # a drain, an autoscaler's scale-down: planned, so that it explains no process that gives a reason of its own
        shape(word, pattern, "evicted", operation="planned")
        for word, pattern in (
            ("viction API", r"(?P<message>(?:Evicted by [Ee]viction API|[Ee]viction API: evicting).{0,160})"),
            ("evicting pod ", r"^(?P<message>evicting pod (?:[\w.-]{1,253}/)[\w.-]{1,253})\s*$"),
            ("node scale down", r"\bScaleDown\s.{1,200}?(?P<message>deleting pod for node scale down)"),
        )
    ),
    *(  # kubectl delete, of what runs a job's pods
        shape(
            word,
            r"^(?P<message>\w{0,20}(?:job|jobset|cluster)\.[\w.-]{2,60} \"[^\"]{1,253}\" (?:force )?deleted)"
            r"(?: from \S{1,253} namespace)?\s*$",
            "cancelled",
        )
        for word in ('job.batch "', 'jobset.x-k8s.io "', 'job.kubeflow.org "', 'job.batch.volcano.sh "', '.ray.io "')
    ),
    shape(
        "TaintManagerEviction",
        r"\bTaintManagerEviction\b.{1,200}Marking for deletion Pod",
        "evicted",
        operation="ended",
    ),
    shape("Failed to pull image", r"(?P<message>Failed to pull image .{1,200})", "evicted"),
)

BLOCKS = (
    Block(
        "Terminated",
        re.compile(r"^\s{0,20}(?:Last )?State:\s{1,20}Terminated"),
        (
            re.compile(r"\s{0,20}Reason:\s{1,20}(?P<message>\w{1,60})"),
            re.compile(r"\s{0,20}Exit Code:\s{1,20}(?P<exit>\d{1,3})\b"),
        ),
        "container_end",
        closes="all",
        needs=("exit_code", "message"),
        within_lines=3,
    ),
)
