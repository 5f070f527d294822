"""Ray's words about dead actors, nodes and workers, and those of the reinforcement-learning trainers that run on it.

Formats: Ray 2.0 to 2.50 (``ray/exceptions.py``, raylet's node and worker managers), slime's and AReaL's launchers.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_ADDRESS = r"(?P<node>[\w.:-]{1,60})"
_ID = r"[0-9a-f]{28,56}"
_DEAD = r"The actor (?:is dead|died) because "
_BEGINS = re.compile(r"ray\.exceptions\.(?:ActorDiedError|RayActorError)\b|^\s{0,8}class_name: ")
_LINES = (
    re.compile(r"\s{0,12}pid: (?P<pid>\d{1,9})\s*$"),
    re.compile(r"\s{0,12}ip: " + _ADDRESS + r"\s*$"),
)

SHAPES = (
    shape(
        "has been marked dead",
        r"and address: " + _ADDRESS + r" and node name: \S{1,100} has been marked dead",
        "node_failure",
    ),
    shape("has been marked dead", r"and ip: " + _ADDRESS + r" has been marked dead", "node_failure"),
    shape(  # who prints it is another
        "has been marked dead",
        r"The node with (?:client ID|node id)[: ].{1,200} has been marked dead",
        "node_failure",
        node=None,
    ),
    shape(
        "node manager has mistakenly",
        r"(?P<message>this node manager has mistakenly been marked (?:as )?dead.{0,200})",
        "node_failure",
    ),
    *(  # the line is of the process that waits: the node that died is another, and is not named
        shape(word, word + r": (?P<message>.{1,200})", "node_failure", node=None)
        for word in ("NodeDiedError", "LocalRayletDiedError")
    ),
    shape(  # a warning of the raylet: only what spills would fail
        "Object creation will fail if spilling",
        r"(?P<message>\S{1,200} is over [\d.]{1,6}% full, available space: .{1,80})Object creation will fail if spilling",
        "disk_warned",
    ),
    shape(
        "Failed to connect to GCS", r"(?P<message>Failed to connect to GCS (?:at|within) .{1,100})", "connection_closed"
    ),
    shape(
        "Waiting for creating a placement group",
        r"(?P<message>Waiting for creating a placement group of specs for [1-9]\d{1,5} seconds)",
        "pod_waits",
    ),
    shape(
        "No available node types can fulfill",
        r"(?P<message>No available node types can fulfill resource requests? .{1,160})",
        "pod_waits",
    ),
    shape(  # `ray status`
        " pending placement groups",
        r"^\s{0,4}(?:Demands: )?(?P<message>\{'.{1,160}\} \* \d{1,6} \(\w{4,14}\): \d{1,6}\+ pending placement groups)",
        "pod_waits",
    ),
    shape(
        "killed due to memory pressure",
        r"\b[1-9]\d{0,6} Workers .{0,40}killed due to memory pressure \(OOM\)",
        "oom_kill",
    ),
    shape(
        "Ray killed this worker",
        r"Memory on the node \(IP: " + _ADDRESS + r",.{1,400}Ray killed this worker",
        "oom_kill",
    ),
    shape(
        "System memory low at node",
        r"System memory low at node with IP "
        + _ADDRESS
        + r"\. Used memory .{1,120} exceeds threshold [\d.]{1,12}, killing latest task",
        "oom_kill",
    ),
    shape("running low on memory", r"(?P<message>Task was killed due to the node running low on memory)", "oom_kill"),
    shape("RayOutOfMemoryError", r"(?P<message>RayOutOfMemoryError: More than .{1,200})", "oom_kill"),
    shape(
        "WorkerCrashedError", r"ray\.exceptions\.WorkerCrashedError: (?P<message>.{1,300})", "worker_died", first=True
    ),
    shape(
        "Raylet is terminated",
        r"(?P<message>Raylet is terminated(?:: ip=" + _ADDRESS + r",.{0,100}?)?\. Termination is unexpected)",
        "worker_died",
        first=True,
    ),
    shape(  # its agent on the same node
        "Terminated Raylet: ip=",
        r"(?P<message>Terminated Raylet: ip=" + _ADDRESS + r", node_id=\w{1,60}\. .{0,60}The parent is dead)",
        "worker_died",
        first=True,
    ),
    shape(  # `ray list nodes`; an expected termination is a drain's or a shutdown's
        " DEAD ",
        rf"^\s{{0,4}}\d{{1,5}} {{1,4}}{_ID} {{1,4}}{_ADDRESS} {{1,40}}(?:True|False)? {{1,40}}DEAD {{1,12}}"
        r"(?P<message>Unexpected termination.{0,200})",
        "node_failure",
    ),
    *(  # the line is of the process that lost it
        shape(word, _DEAD + r"(?P<message>its \w.{0,400})", "actor_died", first=True, rank=None, node=None, pid=None)
        for word in ("The actor is dead", "The actor died because")
    ),
    shape(
        "raised in its creation task",
        r"(?:died because of|died due to) (?P<message>an error raised in its creation task, ray::.{1,160}?\.__init__\(\)) "
        r"\(pid=(?P<pid>\d{1,9})(?:, ip=" + _ADDRESS + r")?",
        "creation_failed",
    ),
    shape(
        "Health check failed for rollout",
        r"(?P<message>Health check failed for rollout engine \d{1,6})",
        "worker_died",
        first=True,
    ),
)

BLOCKS = (
    Block(
        "class_name: ",
        _BEGINS,
        (*_LINES, re.compile(_DEAD + r"(?P<message>.{0,400})")),
        "actor_died",
        closes="all",
        fields={"first": True},
        needs=("message",),
        within_lines=8,
    ),
)
