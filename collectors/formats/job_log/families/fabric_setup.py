"""What the software of the network says of a resource or a setting that it was refused: verbs, libfabric, UCX, MPI, NCCL.

Formats: ``misc/ibvwrap.cc``, ``graph/*`` and ``misc/nvmlwrap.cc`` of NCCL 2.4 to 2.29, aws-ofi-nccl 1.0 to 1.16 (``NET/OFI``),
the prefix of libfabric's log (``libfabric:pid:time::provider:subsystem:function():line<level>``), UCX 1.5 to 1.19, Open MPI 4 and
5, MPICH's ``ch4:ofi``, perftest 4 to 25. ``fabric_error`` states a refusal, ``fabric_warned`` one that a run may do without, and
``fabric_ready`` that a network was found after all. ``nccl_gave_up`` is a line of NCCL's trace of a failed call.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, Shape, shape

_TALK = r"^(?!.{0,160}(?: NCCL INFO | UCX {1,4}(?:WARN|DIAG|INFO|DEBUG|TRACE)|\b(?:INFO|DEBUG|TRACE)\b))"
_VERB = (
    r"(?:ibv_(?:reg|create|modify|alloc|open|query|exp_create|exp_query|cmd_create|get_device)\w{0,30}|rdma_create\w{1,20}|"
    r"(?:mlx5|efa|mana)dv_\w{3,40})"
)
_NO = r"(?:failed|returned -?[1-9]\d{0,3})\b"
_WORDS_OF_REFUSAL = (
    r"[Cc]ould ?n[o']t|[Cc]annot|[Uu]nable to|[Ff]ailed|[Ff]ailure|[Ee]rror|ERROR|not supported|[Nn]ot found"
)
_LIBFABRIC = r"libfabric:\d{1,10}:\d{1,12}:.{0,40}:.{1,200}?<(?:warn|critical)> ?"
_UCX = r"UCX {1,4}ERROR "
_UCX_REFUSED = r"(?:iface=.{1,40}: )?(?:[Ff]ailed to (?:create|register|allocate|open) |no [\w ]{1,40} transports? )"
_QUEUE = r"(?:QPs?|CQs?|MRs?|PDs?|AHs?|IB resources|device attributes|HCA|IB context|memory region)\b"
_REFUSED_TO = (
    r"(?:(?:Unable|Failed) to (?:create|modify|allocate|register|open)|Couldn't (?:create|allocate|get|register|open)) "
)
_COMPONENT = r"\b(?:pml|osc|btl|mtl|coll|spml|scoll)_(?:ucx|ofi|uct|openib)\w{0,16}\.c:\d{1,6}:? {1,4}Error: "
_OWN_EVENT = (  # of a queue pair, by ibv_event_type_str: what it was asked, or the memory behind it, was not allowed
    r"(?:(?:local work queue catastrophic|invalid request local work queue|local access violation work queue|CQ|SRQ catastrophic)"
    r" error)"
)

EARLY: tuple[Shape, ...] = (  # before what is read of a request that did not complete
    shape("nvml", r"NCCL WARN (?P<message>(?:Call to )?nvml\w{3,60}(?:\(.{0,80}?\))? failed.{0,200})", "nvml_error"),
    *(
        shape(word, _TALK + r".{0,160}?\b(?P<message>" + _VERB + r"(?:\(.{0,160}?\))?:? " + _NO + r".{0,240})", "fabric_error")
        for word in ("ibv_", "5dv_", "adv_", "rdma_create")
    ),
    *(
        shape(word, r"(?:\bWARN |^)(?P<message>" + said + r".{0,200})", "fabric_error")
        for word, said in (
            ("ocket creation failed", r"Socket creation failed ?: "),
            ("Bootstrap : no ", r"Bootstrap : no .{1,40} interface found"),
            ("is neither AF_INET", r"\w{1,40}: .{0,120}with family \d{1,6} is neither AF_INET"),
        )
    ),
    shape("failed on ibv_", r"(?P<message>failed on ibv_cmd_\w{3,40} with \d{1,5})", "fabric_error"),
    shape("UCX", _UCX + r"(?P<message>" + _UCX_REFUSED + r".{1,240})", "fabric_error"),
    shape(".c:", _COMPONENT + r"(?P<message>.{1,200})", "fabric_error"),
    shape("OFI ", r"(?P<message>\bOFI (?!poll)\w[\w ()]{2,60} failed \(\w{1,40}\.[ch]:.{1,200})", "fabric_error"),
    shape("graph/", r"\bgraph/\w{1,20}\.\w{1,3}:\d{1,6} NCCL WARN (?P<message>.{1,200})", "fabric_warned"),
    shape("graph/", r"NCCL INFO (?P<message>graph/\w{1,20}\.\w{1,3}:\d{1,6} -> [2-4])\b", "fabric_error"),
    shape(
        "Got async",
        r"NET/IB ?: (?:(?P<device>[\w.-]{1,40}(?::\d{1,3})?):? )?Got async (?:fatal |error )?event ?: ?(?P<code>"
        + _OWN_EVENT + r")",
        "fabric_error",
    ),
    *(
        shape(word, r"^(?P<message>" + re.escape(word) + r".{1,160})", "fabric_error")
        for word in ("Libfabric error: (", "EFA internal error: (")
    ),
    shape("prov/", r"^(?P<message>.{1,400}?) (?:\./)?prov/\w{2,20}/src/[\w./-]{1,80}\.[ch]:\d{1,6}\s*$", "fabric_error"),
    *(  # perftest
        shape(word, r"^\s{0,3}(?P<message>" + _REFUSED_TO + r".{0,60}\b" + _QUEUE + r".{0,80})$", "fabric_error")
        for word in ("Unable to ", "Failed to ", "Couldn't ")
    ),
    # ibv_wc_status of perftest's own request: its length, its queue pair, or memory that a side did not let the other use
    shape("Failed status ", r"(?P<message>Failed status (?:[1-4]|7|8|9|10|11): wr_id \d{1,20} syndrom)", "fabric_error"),
)  # fmt: skip

LATE: tuple[Shape, ...] = (
    shape(
        "NET/OFI ",
        r"(?:NCCL WARN |^(?:WARN: Function: .{1,80} Line: \d{1,6}: )?)(?P<message>NET/OFI .{0,160}?(?:"
        + _WORDS_OF_REFUSAL + r").{0,200})",
        "fabric_error",
    ),
    shape(
        "libfabric:",
        _LIBFABRIC + r"(?P<message>.{0,160}?(?:output empty list|[Ii]nvalid|No such|No data|[Mm]issing|" + _WORDS_OF_REFUSAL
        + r").{0,200})",
        "fabric_warned",
    ),
    shape(".cc:", r"NCCL INFO (?P<message>[\w/.-]{3,60}\.(?:cc|h|cu|cpp|c):\d{1,6} -> [1-7])\b", "nccl_gave_up"),
    *(
        shape(word, pattern, "fabric_ready")
        for word, pattern in (
            ("NCCL INFO Using ", r"NCCL INFO Using (?:network|non-device net plugin)\b"),
            ("NCCL INFO NET/", r"NCCL INFO NET/(?:Socket|IB\w{0,4}) ?: Using "),
            ("Init COMPLETE", r"NCCL INFO .{0,200}Init COMPLETE"),
            ("NCCL INFO Connected all", r"NCCL INFO Connected all (?:rings|trees)"),
            ("is not available, please use", r"UCX {1,4}WARN .{0,20}\btransports? .{1,80} (?:is|are) not available, please use"),
        )
    ),
)  # fmt: skip

BLOCKS = (
    Block(  # Open MPI's help texts of its OFI components
        "failed an OFI Libfabric library call",
        re.compile(r"^Open MPI failed an OFI Libfabric library call \((?P<operation>\w{1,40})\)"),
        (
            re.compile(r"\s{0,8}Local host:\s{1,8}(?P<node>[\w.-]{1,253})"),
            re.compile(r"\s{0,8}Location:\s"),
            re.compile(r"\s{0,8}Error:\s{1,8}(?P<message>.{1,120})"),
        ),
        "fabric_error",
        closes="all",
        needs=("message",),
        within_lines=10,
    ),
)
