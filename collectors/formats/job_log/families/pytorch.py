"""PyTorch's reports that compare ranks: the watchdog's desync report, torchfrtrace, collective fingerprints, barriers.

Formats: torch 1.13 to 2.13, ``TraceUtils.h``, ``ProcessGroupWrapper.cpp``, ``ProcessGroupGloo.cpp``, ``torch/distributed/
flight_recorder/components``; glog's fatal checks (torch, Ray); apex's loss scaler where its scale has fallen to nothing.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_RANKS = r"\[(?P<members>\d[\d, ]{0,4000})(?:\.\.\.)?\]"

SHAPES = (
    shape(
        "but didn't join",
        _RANKS + r" finished collective #(?P<last_completed>\d{1,18}), but didn't join collective "
        r"#(?P<sequence>\d{1,18})",
        "collective_behind",
    ),
    shape(  # the rendezvous of elastic launches, where the store is a service of its own
        "The connection to the etcd has failed",
        r"(?P<message>The connection to the etcd has failed)",
        "traceback",
        exception="RendezvousConnectionError",
    ),
    shape("never joined any", _RANKS + r" never joined any collectives", "collective_behind"),
    shape(
        "joined but didn't finish",
        _RANKS + r" joined but didn't finish collective #(?P<sequence>\d{1,18})",
        "collective_unfinished",
    ),
    shape(
        "Check failed: ",
        r"^(?:F\d{4}(?:\d{4})? \d\d:\d\d:\d\d\.\d{1,9} {1,4}\d{1,9} |\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} C \d{1,9} \d{1,9}\] )"
        r"[\w./-]{1,200}:\d{1,6}[\]:] {1,4}Check failed: (?P<message>.{1,400})",
        "traceback",
        exception="Check failed",
    ),
    shape(  # dmlc's logging (MXNet, XGBoost, TVM), and glog's where its stamp was left out
        "Check failed: ",
        r"^(?:\[\d\d:\d\d:\d\d\] )?(?:[\w./-]{1,200}:\d{1,6}: \[\d\d:\d\d:\d\d\] )?[\w./-]{1,200}\.(?:cc|cpp|cu|h|hpp|cuh):"
        r"\d{1,6}[\]:]:? {1,4}Check failed: (?P<message>.{1,400})",
        "traceback",
        exception="Check failed",
    ),
    shape(
        "OutOfResources: ",
        r"(?:^|errors\.)OutOfResources: (?P<message>out of resource: .{1,200})",
        "traceback",
        exception="OutOfResources",
    ),
    shape(
        "reducing loss scale to ",
        r"Skipping step, loss scaler \d{1,4} reducing loss scale to (?:0\.0|\d(?:\.\d{1,20})?e-\d{2,3})\s*$",
        "nan",
    ),
    shape(  # DeepSpeed's scaler, which can go no lower; above its least scale hysteresis keeps one for some overflows
        "Attempted loss scale: ",
        r"Skipping step\. Attempted loss scale: ([01](?:\.\d{1,9})?), reducing to \1(?![\d.])",
        "nan",
    ),
    shape("connectFullMesh failed", r"(?P<message>connectFullMesh failed with .{1,300})", "connection_closed"),
    shape(
        "thread: [",  # a paste may have lost the marks around the condition
        r"\.cuh?:\d{1,6}: .{1,300}?block: \[.{1,80}?thread: \[.{1,80}?Assertion .{1,200}? failed",
        "cuda_error",
        message="a device-side assert",
    ),
    shape(
        "Device-side assertion `",
        r"Device-side assertion `.{1,200}?' failed",
        "cuda_error",
        message="a device-side assert",
    ),
    shape(
        "from cudaGetDeviceCount()",
        r"Unexpected error from cudaGetDeviceCount\(\).{0,200}? Error (?P<code>\d{1,4}): (?P<message>[^(]{1,120})",
        "cuda_error",
    ),
    shape(
        "CUDA initialization: ",
        r"CUDA initialization: (?P<message>(?:The NVIDIA driver on your system is too old|CUDA unknown error|"
        r"CUDA driver initialization failed).{0,160})",
        "cuda_warned",
    ),
    shape(
        "client socket has timed out",
        r"(?P<message>client socket has timed out after \w{1,12} while trying to connect to .{1,160})",
        "connection_closed",
    ),
    shape(
        "(errno: 1",
        r"\[c10d\] The client socket has failed to connect to \[?(?P<host>[\w.:-]{1,253}?)\]?:(?P<port>\d{1,5}) "
        r"\(errno: (?:113|101) - (?P<code>No route to host|Network is unreachable)\)",
        "network_error",
    ),
    *(  # torch 0.3 to 1.4, and the extensions of that time
        shape(word, pattern + r"(?P<message>[a-z][^:\n]{6,120}?)(?: at /|\s*$|\.)", "cuda_error")
        for word, pattern in (
            ("THCudaCheck FAIL", r"THCudaCheck FAIL file ?= ?.{1,200} error ?= ?\d{1,4} ?: "),
            ("cuda runtime error (", r"cuda runtime error \(\d{1,4}\) ?: "),
            ("cudaCheckError() failed", r"cudaCheckError\(\) failed ?: "),
        )
    ),
    shape(
        "no kernel image is available",
        r"^(?P<message>no kernel image is available for execution on the device)",
        "cuda_error",
    ),
    shape(
        "monitoredBarrier",
        r"(?P<message>Ranks? [\d, ]{1,4000} failed to pass monitoredBarrier)",
        "communication_timeout",
    ),
    shape(
        "reached monitoredBarrier",
        r"(?P<message>successfully reached monitoredBarrier, but received errors while waiting .{1,200})",
        "communication_timeout",
    ),
    shape(
        "Detected mismatch between",
        r"(?:(?P<exception>\w{1,40}Error): )?(?P<message>Detected mismatch between collectives on ranks.{0,900})",
        "traceback",
        exception="RuntimeError",
    ),
    shape(
        "Culprit rank",
        r"Culprit rank (?P<members>\d{1,7}); Error(?: Type)?: (?P<message>.{1,200})",
        "collective_mismatch",
    ),
    shape(
        "missing ranks",
        r"Collective sequence number: (?P<sequence>\d{1,18}) has missing ranks \{(?P<members>[\d, ]{1,4000})\}",
        "collective_behind",
    ),
)

BLOCKS = (
    Block(
        "started ranks:",
        re.compile(r"#(?P<sequence>\d{1,18}) started ranks:"),
        (re.compile(r"\s{0,20}" + _RANKS + r" started (?P<operation>\w{1,40})"),),
        "collective_mismatch",
        closes="differ",
    ),
    Block(  # torch tries IPv6 and then IPv4: only where both failed is it an end
        "(errno: 98 - ",
        re.compile(r"\[c10d\] The server socket has failed to (?:listen on|bind to) .{1,160}\(errno: 98 - "),
        (
            re.compile(
                r".{0,60}\[c10d\] (?P<message>The server socket has failed to listen on any local network address)"
            ),
        ),
        "traceback",
        closes="first",
        fields={"exception": "EADDRINUSE"},
        within_lines=4,
    ),
    Block(
        "Not all ranks joining",
        re.compile(r"Not all ranks joining collective[,:]? sequence number: (?P<sequence>\d{1,18})"),
        (re.compile(r".{0,80}missing ranks: \{(?P<members>[\d, ]{1,4000})\}"),),
        "collective_behind",
        closes="first",
        within_lines=8,
    ),
)
