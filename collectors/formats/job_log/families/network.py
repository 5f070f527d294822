"""NCCL's, RCCL's and other transports' words about the network: a port that fails, a peer that does not answer, a socket.

Formats: NCCL 2.4 to 2.29, ``src/transport/net_ib*``, ``src/misc/socket.cc`` and ``shmutils.cc``; aws-ofi-nccl 1.5 to 1.16; UCX
1.5 to 1.19, ``ib_mlx5_log.c``; NVSHMEM 3; DeepEP, whose kernels trap where a peer does not answer. NCCL's numbers are
``ibv_wc_status``: 12 is a peer that did not acknowledge, 5 a request that was flushed after another failed, the others are
the program's or the driver's.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import shape

_PEER = r"(?P<host>[\w.:%-]{1,253}?)<(?P<port>\d{1,5})>"
_COMPLETION = (
    r"NET/IB\w{0,4} ?: ?Got completion from peer " + _PEER + r" with (?:status|error)[ =](?:IBV_WC_\w{1,40}\()?"
)
_ALONE = r"NET/IB\w{0,4} ?: ?Got completion with (?:status|error)[ =](?:IBV_WC_\w{1,40}\()?"
_CONNECT = r"[Cc]onnect(?:ing)? to (?P<host>[\w.:%-]{1,253}?)<(?P<port>\d{1,5})> (?:failed|returned)"
_UCX = (
    r"(?:\[\d{9,11}\.\d{6}\] )?\[?(?P<node>[\w.-]{1,253}):(?P<pid>\d{1,9}) {0,2}:[\d:]{1,20}\] {1,8}ib_mlx5_log\.c:\d{1,6} {1,4}"
    r"(?:UCX {1,4}ERROR )?(?:FATAL: )?"
)
_MODIFY = r"(?:ibv_modify_qp failed with|[Ff]ailed to modify QP to \w{2,4}:) ?(?:error )?(?:\d{1,3} )?"

SHAPES = (
    shape(
        "has already checked in",
        r"Bootstrap Root ?: (?P<message>rank \d{1,7} of \d{1,7} ranks has already checked in)",
        "nccl_error",
    ),
    shape(
        "Duplicate GPU detected",
        r"(?P<message>Duplicate GPU detected ?: rank \d{1,7} and rank \d{1,7} both on)",
        "nccl_error",
    ),
    shape("Mismatched collective", r"NCCL WARN (?P<message>Mismatched collective detected)", "nccl_error"),
    shape(
        "NET/IB",
        r"NET/IB ?: (?:(?P<device>[\w.-]{1,40}(?::\d{1,3})?):? )?"
        r"(?:Got async (?:fatal )?event|async fatal event on .{1,60}?) ?:? ?"
        r"(?P<code>port error|local catastrophic error|device fatal)",
        "network_error",
    ),
    shape(
        "async fatal event on QP",
        r"NET/IB ?: (?:(?P<device>[\w.-]{1,40}(?::\d{1,3})?):? )?async fatal event on QP .{1,60}?: (?P<code>[a-z ]{1,80})",
        "nccl_error",
    ),
    shape("completion from peer", _COMPLETION + r"(?P<code>12|13)\b", "network_error"),
    shape("completion from peer", _COMPLETION + r"(?P<code>5)\b", "connection_closed"),
    shape("completion from peer", _COMPLETION + r"(?P<code>\d{1,2})\b", "nccl_error"),
    shape("Got completion with", _ALONE + r"(?P<code>12|13)\b", "network_error"),
    shape("Got completion with", _ALONE + r"(?P<code>5)\b", "connection_closed"),
    shape(
        "Call to ibv_",
        r"Call to ibv_(?:reg_mr|create_[cq]q)\w{0,20} failed with error (?P<message>Cannot allocate memory)",
        "nccl_error",
    ),
    shape(
        "completed with error. RC",
        r"NET/OFI .{0,60}completed with error\. RC: \d{1,5}\. (?:Flags: \d{1,20}\. )?Error: (?:\d{1,6} \()?"
        r"(?P<code>[^.(]{0,40}(?:[Uu]nresponsive|[Uu]nreachable|[Rr]etr(?:y|ies))[^.(]{0,80})",
        "network_error",
    ),
    shape("completed with error. RC", r"NET/OFI .{0,60}(?P<message>completed with error\. RC: .{1,200})", "nccl_error"),
    shape(
        "Transport retry count exceeded",
        r"^"
        + _UCX
        + r"(?:Error on .{1,60}: )?(?P<code>Transport retry count exceeded)(?: on (?P<device>mlx\w{1,20}:\d{1,3}))?",
        "network_error",
    ),
    shape(
        "_mlx5_log.c:",
        r"^" + _UCX + r"(?P<message>(?:Remote|Local) .{1,200} on mlx\w{1,20}:\d{1,3}.{0,80})",
        "nccl_error",
    ),
    shape(
        "ibv_modify_qp failed",
        r"/(?:ibrc|ibgda|ibdevx)\.cpp:\d{1,6}: non-zero status: (?P<code>110) ibv_modify_qp failed",
        "network_error",
    ),
    shape(
        "nvshmem",
        r"/(?:ibrc|ibgda|ibdevx|ucx|transport|transport_ib_common|init|team|mem)\.(?:cpp|cu):(?:\w{1,60}:)?\d{1,6}: "
        r"(?P<message>(?:non-zero status: [1-9]\d{0,3}|NULL value) .{1,160})",
        "nccl_error",
    ),
    shape(
        "Unable to initialize any transports",
        r"nvshmemi_transport_init:\d{1,6}: (?P<message>Unable to initialize any transports)",
        "nccl_error",
    ),
    shape(
        "DeepEP timeout",
        r"(?P<message>DeepEP (?:\w{1,20} )?timeout (?:check failed|for |\().{0,200})",
        "communication_timeout",
        code="trap",
    ),
    shape(
        "NCCL WARN Error",
        r"NCCL WARN Error:? (?P<message>(?:failed to extend|while creating shared memory segment) /dev/shm/nccl-.{1,160})",
        "worker_killed",
        exception="OSError",
    ),
    shape("socketFinalizeAccept", r"(?P<message>socketFinalizeAccept: wrong (?:type|magic) .{1,60})", "nccl_error"),
    shape(
        "Failed to execute operation",
        r"(?P<message>\[Proxy Service \d{1,7}\] Failed to execute operation \w{1,40} from rank .{1,60})",
        "nccl_error",
    ),
    shape("IpcGetMemHandle failed", r"(?P<message>(?:hip|cuda)IpcGetMemHandle failed .{1,60})", "nccl_error"),
    shape(
        "modify", _MODIFY + r"(?P<code>Connection timed out|Network is unreachable|No route to host)", "network_error"
    ),
    shape("ibv_modify_qp failed", r"(?P<message>ibv_modify_qp failed with .{1,200})", "nccl_error"),
    shape("route to host", _CONNECT + r" ?:? ?(?P<code>No route to host)", "network_error"),
    shape("onnection timed out", _CONNECT + r" ?:? ?(?P<code>Connection timed out)\s*$", "network_error"),
)
