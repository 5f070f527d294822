"""Words of Slurm's daemons and clients: a controller that does not answer, nodes that Slurm itself took out of use, prologs.

Formats: Slurm 20.11 to 25.05 (``slurm_errno.c``, ``slurmctld/node_mgr.c``, ``ping_nodes.c``, ``slurmd/req.c``, ``sinfo -R``,
``scontrol show node``, ``squeue``). Of the reasons why a node is out of use only Slurm's own count: a person's are plans.
``operation`` "daemon": what a daemon says of itself; a job whose processes failed did not fail for it.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_NODE = r"(?P<node>[A-Za-z0-9][\w.-]{0,252})"
_NODES = r"(?:" + _NODE + r"|[\w.,\[\]-]{1,253})"
_REASON = (  # sinfo -R shows the first twenty characters
    r"(?P<message>(?:gres/\w{1,20} count|Kill task failed|Prolog error|Epilog error|Low (?:RealMemory|TmpDisk|CPUs|socket)|"
    r"Not responding|Node unexpectedly re|[Bb]atch job complete f|[Ss]tep complete f|ResumeTimeout reached|reboot timed out|"
    r"NHC: |HealthCheck|slurmd (?:daemon )?(?:down|died)|Duplicate jobid)\S{0,60}[^\[\n]{0,120}?)"
)
_UNANSWERED = (
    r"(?:Unable to contact slurm controller \(\w{1,12} failure\)|Socket timed out on send/recv operation|"
    r"Zero Bytes were transmitted or received|Protocol authentication error|Slurm backup controller in standby mode|"
    r"Incompatible versions of client and server code|Communication connection failure|Message (?:send|receive) failure)"
)
_CLIENT = r"(?:slurm_\w{1,40}|s(?:run|batch|alloc|info|queue|control|acct|cancel|stat|diag|prio)|slurmd|slurmstepd)"
_OF_SINFO = r"\s{1,30}\w{1,32}\s{1,10}\d{4}-\d\d-\d\dT[\d:]{8}\s{1,4}" + _NODES + r"\s*$"
_LOG = r"(?:^|\] |slurm(?:ctl|db)?d(?:\[\d{1,9}\])?: )"

SHAPES = (
    *(
        shape(
            word,
            r"(?:^|[\s\"'`])" + _CLIENT + r"(?: error)?: (?!.{0,80}retry)(?P<message>.{0,120}?" + _UNANSWERED + r")",
            "evicted",
            operation="daemon",
        )
        for word in (
            "slurm controller (",
            "send/recv operation",
            "Zero Bytes were",
            "Protocol authentication error",
            "in standby mode",
            "of client and server code",
        )
    ),
    shape(
        "Unable to register: ",
        _LOG + r"error: (?P<message>Unable to register: .{1,160})",
        "evicted",
        operation="daemon",
    ),
    shape(
        "Munge ",
        r"error: (?P<message>Munge (?:decode|encode) failed: .{1,160})",
        "evicted",
        operation="daemon",
    ),
    *(
        shape(word, r"error: (?:\w{1,60}: )?(?P<message>" + word + r".{1,200})", "evicted", operation="daemon")
        for word in ("Problem talking to the database: ", "failed to open persistent connection to host:")
    ),
    shape(
        "Node configuration differs from hardware",
        r"error: (?P<message>Node configuration differs from hardware: .{1,200})",
        "evicted",
        operation="daemon",
    ),
    shape(" fatal: ", r"^slurm(?:ctl|db)?d: fatal: (?P<message>.{1,200})", "evicted", operation="daemon"),
    *(
        shape(word, r"srun: error: (?P<message>" + word + r".{0,200})", "evicted", operation="daemon")
        for word in ("Unable to confirm allocation for job", "Application launch failed: ", 'Unable to resolve "')
    ),
    *(
        shape(
            word,
            r"slurmstepd: error: (?P<message>(?:Failed to invoke task plugins|job_manager: exiting abnormally|"
            r"exec_wait_info_create|Unable to (?:init|initialize|create) (?:cgroup|step|job)).{0,200})",
            "evicted",
            operation="plugin",
        )
        for word in ("Failed to invoke task plugins", "exiting abnormally", "stepd: error: Unable to ")
    ),
    shape(
        "execve(): ",
        r"slurmstepd: error: execve\(\): (?P<message>.{1,200}: "
        r"(?:No such file or directory|Permission denied|Exec format error))",
        "traceback",
        exception="LaunchError",
    ),
    *(
        shape(
            word,
            r"error: (?:\w{1,60}: )?\[job \d{1,12}\] (?P<message>" + word + r" status=.{1,20})",
            "evicted",
            operation="plugin",
        )
        for word in ("prolog failed", "epilog failed")
    ),
    shape(
        "Prolog launch failure",
        r"error: (?P<message>Prolog launch failure, JobId=\d{1,12})",
        "evicted",
        operation="plugin",
    ),
    shape(
        "Prolog failure on node",
        r"^(?:salloc|srun|sbatch): (?:error: )?Prolog failure on node " + _NODE,
        "node_failure",
    ),
    shape("pilog error on ", r"\bepilog error on " + _NODE + r", draining", "node_failure"),
    shape("reason set to: ", r"update_node: node " + _NODE + r" reason set to: " + _REASON + r"\s*$", "node_failure"),
    shape(
        "with reason:",
        r"Setting node " + _NODE + r" state to \w{2,12} with reason:" + _REASON + r"\s*$",
        "node_failure",
    ),
    shape("missing from batch node", r"missing from batch node " + _NODE + r" \(", "node_failure"),
    shape(" unexpectedly rebooted", r"\b[Nn]ode " + _NODE + r" unexpectedly rebooted boot_time=", "node_failure"),
    shape(
        " not responding",
        _LOG + r"error: Nodes " + _NODES + r" not responding\s*$",
        "node_failure",
        operation="unheard",
    ),
    shape(" now responding", r"\bNode " + _NODE + r" now responding", "node_returned"),
    shape(" returned to service", r"\bnode " + _NODE + r" returned to service", "node_returned"),
    *(
        shape(word, r"^" + _REASON + _OF_SINFO, "node_failure")
        for word in (
            "Not responding",
            "gres/",
            "Kill task failed",
            "log error ",
            "Low RealMemory",
            "Low TmpDisk",
            "Low CPUs",
            "Low socket",
            "Node unexpectedly",
            "complete f",
            "ResumeTimeout",
            "reboot timed out",
            "NHC: ",
        )
    ),
    *(  # sinfo --Format=reason,nodelist
        shape(word, r"^" + _REASON + r"\s{2,60}" + _NODES + r"\s*$", "node_failure")
        for word in (
            "gres/",
            "Low RealMemory",
            "Low TmpDisk",
            "Low CPUs",
            "Low socket",
            "Not responding",
            "Kill task failed",
        )
    ),
    *(  # sinfo -lN
        shape(
            word,
            r"^"
            + _NODE
            + r"\s{1,40}\d{1,5}\s{1,20}\S{1,40}\s{1,20}(?:down|drain\w{0,3}|drng|fail\w{0,3}|inval)\S{0,2}\s.{10,160}?\s"
            + _REASON
            + r"\s*$",
            "node_failure",
        )
        for word in (" down", " drain", " inval", " fail")
    ),
    shape(  # sinfo: an asterisk marks a node that does not respond; several at once may share the cause
        " down*",
        r"^\s{0,4}[\w.-]{1,64}\*?\s{1,20}up\s{1,20}\S{1,20}\s{1,20}\d{1,6}\s{1,20}down\*\s{1,20}" + _NODE + r"\s*$",
        "node_failure",
        operation="unheard",
    ),
    shape(
        " inval",
        r"^\s{0,4}[\w.-]{1,64}\*?\s{1,20}up\s{1,20}\S{1,20}\s{1,20}\d{1,6}\s{1,20}(?P<message>inval\*?\s{1,20}"
        + _NODES
        + r")\s*$",
        "evicted",
        operation="daemon",
    ),
    shape("Reason=", r"(?:^|[\s:])Reason=" + _REASON + r"\s?\[\w{1,32}@\d{4}-", "node_failure"),
    *(
        shape(word, r"\sPD\s.{1,120}\s\((?P<message>" + word + r"[^)]{0,200})\)\s*$", "pod_waits")
        for word in (
            "ReqNodeNotAvail",
            "Nodes required for job are DOWN",
            "launch failed requeued held",
            "PartitionDown",
            "NodeDown",
            "BadConstraints",
        )
    ),
)

BLOCKS = (
    Block(  # scontrol show node
        "NodeName=",
        re.compile(r"^\s{0,8}NodeName=" + _NODE + r"\s"),
        (
            re.compile(r"\s{0,8}Reason=" + _REASON + r"\s?\[\w{1,32}@\d{4}-"),
            re.compile(r"\s{0,8}State=(?P<message>DOWN\S{0,20}\+NOT_RESPONDING)\b"),
        ),
        "node_failure",
        closes="first",
        within_lines=24,
    ),
)
