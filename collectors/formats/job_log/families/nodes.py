"""Words of Kubernetes about its nodes and their disks: conditions, taints, evictions for storage, devices marked unhealthy.

Formats: Kubernetes 1.20 to 1.34 (``kubelet/eviction/helpers.go``, ``nodestatus/setters.go``, ``kubectl describe node``, the
node controller's events), NVIDIA's device plugin 0.9 to 0.17 (``rm/health.go``), which passes over the programs' own Xids.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_NODE = r"(?P<node>[A-Za-z0-9][\w.-]{0,252})"
_UNREADY = (
    r"\s{0,8}Ready\s{1,30}(?:False\s.{1,160}?KubeletNotReady|Unknown\s.{1,160}?NodeStatusUnknown)\s{1,30}"
    r"(?P<message>\S.{0,200})"
)
_TAKEN = r"(?:\s{0,8}Taints:)?\s{1,30}node\.kubernetes\.io/(?:unreachable|not-ready):No(?:Execute|Schedule)\s*$"

SHAPES = (
    shape("KubeletNotReady", r"^" + _UNREADY, "node_failure", operation="unheard"),
    *(
        shape(
            word,
            r"^\s{0,8}" + word + r"\s{1,30}True\s.{1,160}?(?P<message>KubeletHas\w{1,40}\s.{1,100})",
            "evicted",
            operation="daemon",
        )
        for word in ("DiskPressure", "MemoryPressure", "PIDPressure")
    ),
    shape(
        "-pressure:No",
        r"^(?:\s{0,8}Taints:)?\s{1,30}(?P<message>node\.kubernetes\.io/(?:disk|memory|pid)-pressure:No(?:Execute|Schedule))\s*$",
        "evicted",
        operation="daemon",
    ),
    shape(  # the kubelet's own log
        " node has conditions: [",
        r"\bFailed to admit pod \S{1,253} - node has conditions?: \[(?P<message>\w{3,40}Pressure)",
        "evicted",
        operation="full",
    ),
    shape(
        "NodeHas",
        r"\bNodeHas(?:Disk|InsufficientMemory|InsufficientPID)\w{0,12}\s.{1,160}?\s(?P<message>Node \S{1,253} status is now: "
        r"NodeHas(?:DiskPressure|InsufficientMemory|InsufficientPID))",
        "evicted",
        operation="full",
    ),
    shape(
        "EvictionThresholdMet",
        r"\bEvictionThresholdMet\s.{1,160}?\s(?P<message>Attempting to reclaim [\w.-]{3,40})",
        "evicted",
        operation="full",
    ),
    *(
        shape(
            word,
            r"\b" + word + r"\s.{1,160}?\s(?P<message>(?:Failed to garbage collect|failed to garbage collect).{1,200})",
            "evicted",
            operation="daemon",
        )
        for word in ("FreeDiskSpaceFailed", "ImageGCFailed")
    ),
    shape(
        "Kubelet stopped posting node status",
        r"Reason: ?NodeStatusUnknown,? Message: ?(?P<message>Kubelet stopped posting node status)",
        "node_failure",
        operation="unheard",
    ),
    shape(
        "hasn't been updated for",
        r"\bnode " + _NODE + r" hasn't been updated for ",
        "node_failure",
        operation="unheard",
    ),
    shape(
        "skipping pod synchronization",
        r"skipping pod synchronization - (?!.{0,400}(?:may not have completed yet|has yet to be))(?P<message>\[.{1,300})",
        "evicted",
        operation="daemon",
    ),
    *(
        shape(word, r"(?:Message|Error):\s{1,20}(?P<message>" + word + r".{1,300})", "evicted")
        for word in (
            "failed to create containerd task",
            "failed to create shim task",
            "OCI runtime create failed",
            "failed to start container",
        )
    ),
    *(
        shape(
            word,
            r"^(?!.{0,400}(?i:\bif |when ))(?:.{0,300}?\s)?(?P<message>" + word + r".{1,300})",
            "stated",
            code="PART_OF_PLATFORM",
        )
        for word in (
            "failed to create containerd task: ",
            "failed to create shim task: ",
            "OCI runtime create failed: ",
        )
    ),
    shape(  # the node health check of the LBNL
        "Health check failed:",
        r"\bnhc(?:\[\d{1,9}\])?: {1,3}Health check failed: {1,3}(?P<message>check_\w{1,60}: .{1,200})",
        "node_failure",
    ),
    shape(
        "is unresponsive",
        r"Node " + _NODE + r" which was running pod \S{1,253} is unresponsive",
        "node_failure",
    ),
    shape("NodeReady", r"\bNode " + _NODE + r" status is now: NodeReady", "node_returned"),
    shape(
        "etwork not ready: NetworkReady=false",
        r"(?P<message>[Nn]etwork not ready: NetworkReady=false reason:.{1,200})",
        "evicted",
        operation="daemon",
    ),
    shape(
        "Container runtime network not ready",
        r"\"Container runtime network not ready\" networkReady=\"?(?P<message>NetworkReady=false.{1,200})",
        "evicted",
        operation="daemon",
    ),
    shape(
        "Eviction manager: ",
        r"\"Eviction manager: (?P<message>(?:attempting to reclaim|must evict pod|pods? .{0,40}evicted)\b.{1,160})",
        "evicted",
        operation="daemon",
    ),
    shape(
        "XidCriticalError: ",
        r"(?P<message>XidCriticalError: Xid=(?P<code>\d{1,4}) on Device=.{1,120}will go unhealthy)",
        "diagnostic_failed",
    ),
    shape(
        "device marked unhealthy",
        r"(?P<message>'nvidia\.com/\S{1,40}' device marked unhealthy: .{1,80})",
        "diagnostic_failed",
    ),
)

BLOCKS = (
    Block(  # kubectl describe node
        "Name:  ",
        re.compile(r"^Name:\s{2,30}" + _NODE + r"\s*$"),
        (re.compile(_UNREADY), re.compile(_TAKEN)),
        "node_failure",
        closes="first",
        fields={"operation": "unheard"},
        within_lines=80,
    ),
)
