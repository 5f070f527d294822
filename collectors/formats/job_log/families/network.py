"""NCCL's, RCCL's and other transports' words about the network: a port that fails, a peer that does not answer, a socket.

Formats: NCCL 2.4 to 2.29, ``src/transport/net_ib*``, ``src/misc/socket.cc`` and ``shmutils.cc``; aws-ofi-nccl 1.5 to 1.16; UCX
1.5 to 1.19, ``ib_mlx5_log.c``; NVSHMEM 3; DeepEP, whose kernels trap where a peer does not answer. NCCL's numbers are
``ibv_wc_status``: 12 is a peer that did not acknowledge, 5 a request that was flushed after another failed, the others are
the program's or the driver's.
"""

from __future__ import annotations

from collectors.formats.job_log.families import fabric_setup
from collectors.formats.job_log.shapes import shape

_PEER = r"(?P<host>[\w.:%-]{1,253}?)<(?P<port>\d{1,5})>"
_COMPLETION = (
    r"NET/IB\w{0,4} ?: ?Got completion from peer " + _PEER + r" with (?:status|error)[ =](?:IBV_WC_\w{1,40}\()?"
)
_ALONE = r"NET/IB\w{0,4} ?: ?Got completion with (?:status|error)[ =](?:IBV_WC_\w{1,40}\()?"
_CONNECT = r"[Cc]onnect(?:ing)?(?: to " + _PEER + r")? (?:failed|returned)(?: ?: ?| )(?:\d{1,3}\()?"
_CALL = r"Call to (?:recv from|send to) " + _PEER + r" failed : "
UNREACHED = (  # by strerror(3); a paste may cut the line's end. Refused and reset are the answers of a host that was reached.
    r"(?P<code>No route to(?: host|\s*$)|Network is (?:unreachable|down)|Host is (?:unreachable|down)|Connection timed out|"
    r"Software caused connection abort)"
)
_MISUSED = (  # what NCCL finds wrong with the calls of its user
    r"NET/\w{1,12} ?: .{0,160}collective mismatch error|NET/\w{1,12} ?: .{0,160}message truncated ?: receiv|"
    r"Your program may be hanging, this may be caused by a collective mismatch|Mismatched collective detected|"
    r"Mismatched NCCL version detected|Bootstrap Root ?: mismatch in rank count|"
    r"Bootstrap Root ?: rank \d{1,7} of \d{1,7} ranks has already checked in|"
    r"Duplicate GPU detected ?: rank \d{1,7} and rank \d{1,7} both on|"
    r"\w{1,40} : (?:invalid (?:root|type|reduction operation|rank|device|nranks)|\w{1,40} is not a valid pointer|"
    r"\w{1,40} allocated on device \d{1,3} mismatchs with)|Invalid rank requested"
)
_UCX = (
    r"(?:\[\d{9,11}\.\d{6}\] )?\[?(?P<node>[\w.-]{1,253}):(?P<pid>\d{1,9}) {0,2}:[\d:]{1,20}\] {1,8}ib_mlx5_log\.c:\d{1,6} {1,4}"
    r"(?:UCX {1,4}ERROR )?(?:FATAL: )?"
)
_MODIFY = r"(?:ibv_modify_qp failed with|[Ff]ailed to modify QP to \w{2,4}:) ?(?:error )?(?:\d{1,3} )?"

SHAPES = (
    *(
        shape(
            word,
            r"(?:NCCL WARN |^)(?P<message>(?:" + _MISUSED + r").{0,200})",
            "nccl_error",
            exception="ncclInvalidUsage",
        )
        for word in ("NCCL WARN", "collective mismatch", "Bootstrap Root", "Duplicate GPU", "message truncated")
    ),
    shape(
        "NET/IB",
        r"NET/IB ?: (?:(?P<device>[\w.-]{1,40}(?::\d{1,3})?):? )?"
        r"(?:Got async (?:fatal |error )?event|async (?:fatal )?event(?: on .{1,60}?)?) ?:? ?"
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
    shape("Call to ibv_", r"Call to ibv_post_\w{0,20} failed with (?P<message>error .{1,80})", "nccl_error"),
    shape(
        "completed with error. RC",
        r"NET/OFI .{0,60}completed with error\. RC: \d{1,5}\. (?:Flags: \d{1,20}\. )?Error: (?:\d{1,6} \()?"
        r"(?P<code>[^.(]{0,40}(?:[Uu]nresponsive|[Uu]nreachable|[Rr]etr(?:y|ies))[^.(]{0,80})",
        "network_error",
    ),
    shape(
        "completed with error. RC",
        r"NET/OFI .{0,60}(?P<message>completed with error\. RC: .{0,80}(?:[Ff]lush|[Cc]ancel|[Aa]bort|[Rr]eset).{0,160})",
        "nccl_error",
    ),
    shape(
        "completed with error. RC", r"NET/OFI .{0,60}(?P<message>completed with error\. RC: .{1,200})", "network_error"
    ),
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
    shape(  # `rdma link`
        " physical_state ",
        r"^\s{0,8}(?:link )?(?P<device>[\w.-]{1,40}/\d{1,3}) .{0,160}?\bstate (?P<code>\w{1,20}) physical_state \w{1,20}",
        "port_state",
    ),
    shape(  # UCX's own handler of signals (src/ucs/debug/debug.c)
        "Caught signal ",
        r"^\[?(?P<node>[\w.-]{1,253}):(?P<pid>\d{1,9}) {0,2}:[\d:]{1,20}\] {1,4}Caught signal (?P<signal>\d{1,2}) \(",
        "exit",
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
        "/nccl-",
        r"(?P<message>(?:failed to extend|while creating shared memory segment) /dev/shm/nccl-.{1,160})",
        "worker_killed",
        exception="OSError",
    ),
    shape(
        "NCCL WARN Call to ",
        r"NCCL WARN Call to (?:posix_fallocate|ftruncate|shm_open|mmap)\w{0,4} failed ?: (?P<message>No space left on device)",
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
    *fabric_setup.EARLY,
    *(
        shape(word, _CONNECT + UNREACHED + r"(?!, retrying)", "network_error")
        for word in ("onnect to ", "onnect failed", "onnect returned")
    ),
    shape(
        "NCCL WARN Connect to",
        r"NCCL WARN Connect to (?P<host>[\w.:%-]{1,253}) failed ?: " + UNREACHED,
        "network_error",
    ),
    shape(
        "ssh: connect to host",
        r"ssh: connect to host (?P<host>\S{1,253}) port (?P<port>\d{1,5}): " + UNREACHED,
        "network_error",
    ),
    *(
        shape(word, r"^" + word + r"(?:address )?(?P<host>[\w.:%-]{1,253}).{0,40}?: " + UNREACHED, "network_error")
        for word in ("nc: connect to ", "telnet: connect to ")
    ),
    shape(
        "Unreachable",
        r"^From (?P<host>[\w.:-]{1,253})(?: \(\S{1,60}\))? icmp_seq=\d{1,9} (?P<code>Destination (?:Host|Net) Unreachable)",
        "network_error",
    ),
    shape("Call to recv", _CALL + UNREACHED, "network_error"),
    shape("Call to send", _CALL + UNREACHED, "network_error"),
    shape("exceeded timeouts (", r"socket\w{1,20}: (?P<code>exceeded timeouts) \(\d{1,6}\)", "network_error"),
    # The last of its attempts, at NCCL's level INFO: what fails after it is left out of many a paste.
    shape("retrying (", _CONNECT + UNREACHED + r", retrying \((\d{1,5})/\4\)", "network_error"),
    shape("onnection refused", _CONNECT + r"(?P<message>Connection refused)(?!, retrying)", "connection_closed"),
    shape("exceeded retries (", r"socket\w{1,20}: (?P<message>exceeded retries) \(\d{1,6}\)", "connection_closed"),
    shape("Failed status 1", r"Failed status (?P<code>12|13): wr_id \d{1,20} syndrom", "network_error"),
    shape(
        "libfabric:",
        r"libfabric:\d{1,10}:\d{1,12}:.{1,200}err: \d{1,5}, message: (?P<code>Un(?:reachable|responsive) remote)",
        "network_error",
    ),
    *fabric_setup.LATE,
)
BLOCKS = fabric_setup.BLOCKS
