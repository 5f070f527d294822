"""Open MPI's, PRRTE's and Horovod's words about lost daemons, aborts and stalled ranks.

Formats: Open MPI 3 to 5, PRRTE 2 and 3 (their help files), MPICH's abort, ALPS, PALS and jsrun, Horovod 0.15 to 0.28
(``stall_inspector.cc``, ``safe_shell_exec``).
"""

from __future__ import annotations

import re

from collectors.formats.job_log.families.network import UNREACHED
from collectors.formats.job_log.shapes import Block, shape

SHAPES = (
    shape(
        "MPI_ABORT was invoked", r"MPI_ABORT was invoked on rank (?P<rank>\d{1,7}) in communicator", "exit", first=True
    ),
    shape("missing ranks:", r"\[missing ranks: ?(?P<members>\d[\d, ]{0,4000})\]", "collective_behind"),
    shape(
        "[ready ranks:",
        r"(?P<operation>[\w./:-]{1,300}) \[ready ranks: ?(?P<members>\d[\d,\s]{0,4000})\]",
        "collective_unfinished",
        every=True,
    ),
    shape(
        "exit with status code", r"^Process (?P<rank>\d{1,7}) exit with status code (?P<exit>[1-9]\d{0,2})\.", "exit"
    ),
    shape(
        "after failure of Process",
        r"remaining workers after failure of Process (?P<rank>\d{1,7})\.",
        "exit",
        first=True,
    ),
    shape(
        "application called MPI_Abort(",
        r"application called MPI_Abort\(.{1,60}, (?P<exit_code>-?\d{1,3})\) - process (?P<rank>\d{1,7})",
        "exit",
        first=True,
    ),
    shape(
        " died from signal ",
        r"^(?P<node>[\w.-]{1,253}): rank (?P<rank>\d{1,7}) died from signal (?P<signal>\d{1,2})\b",
        "exit",
    ),
    shape(
        "(first noticed rank ",
        r"One or more process \(first noticed rank (?P<rank>\d{1,7})\) terminated with signal (?P<signal>\d{1,2})\b",
        "exit",
        first=True,
    ),
    shape(
        "has exited due to process rank",
        r"(?:mpirun|mpiexec|orterun|prterun)(?:\.real)? has exited due to process rank (?P<rank>\d{1,7}) with PID \S{1,20}"
        r"(?: on node (?P<node>[\w.-]{1,253}))?",
        "exit",
        first=True,
    ),
    shape(  # of a call that failed, most often for want of a peer
        "Fatal error in ",
        r"Abort\(-?\d{1,12}\) on node (?P<rank>\d{1,7}) \(rank \d{1,7} in comm \d{1,12}\): (?P<message>Fatal error in .{1,160})",
        "connection_closed",
    ),
    shape("OOM killer terminated", r"\bApid \d{1,12}: (?P<message>OOM killer terminated this process)", "oom_kill"),
    shape("connect() to ", r"connect\(\) to (?P<host>[\w.:%-]{1,253}) failed: " + UNREACHED, "network_error"),
    shape(
        "was unable to ",
        r"(?P<message>(?:mpirun|mpiexec|prterun) was unable to (?:find the specified|launch the specified appl).{0,160})",
        "traceback",
        exception="LaunchError",
    ),
    shape(
        "not enough slots",
        r"(?P<message>There are not enough slots available in the system.{0,160})",
        "traceback",
        exception="LaunchError",
    ),
    shape(
        "*** MPI_ERR_",
        r"\*\*\* (?P<exception>MPI_ERR_(?:TRUNCATE|COUNT|TYPE|TAG|COMM|RANK|BUFFER|ARG|OP|ROOT|GROUP)): (?P<message>.{1,160})",
        "traceback",
    ),
    shape(
        "SSH was not successful from",
        r"(?P<message>SSH was not successful from the local host to host .{1,120})",
        "connection_closed",
    ),
    shape("Horovod has been shut down", r"(?P<message>Horovod has been shut down)", "connection_closed"),
)

BLOCKS = (
    Block(
        "anks:",
        re.compile(r"(?:Missing|Stalled) ranks:\s*$"),
        (re.compile(r"(?P<members>\d{1,7}): \[(?P<operation>[^\]]{0,400})"),),
        "collective_behind",
        if_differ="collective_mismatch",
    ),
    Block(  # "An MPI communication peer process has unexpectedly disconnected."
        "Local host:",
        re.compile(r"^\s{0,8}Local host:\s{1,8}(?P<host>[\w.-]{1,253})\s*$"),
        (
            re.compile(r"\s{0,8}Local PID:\s{1,8}\d{1,9}\s*$"),
            re.compile(r"\s{0,8}Peer host:\s{1,8}(?P<node>[\w.-]{1,253})\s*$"),
        ),
        "worker_died",
        closes="all",
        needs=("node",),
        fields={"first": True, "rank": None, "pid": None},  # of the peer; the prefix is that of who lost it
    ),
    Block(
        "connect() to ",
        re.compile(r"Message:\s{1,8}connect\(\) to (?P<host>[\w.:%-]{1,253}) failed"),
        (re.compile(r"\s{0,8}Error:\s{1,8}" + UNREACHED),),
        "network_error",
        closes="first",
    ),
    Block(
        "has lost communication with a remote daemon",
        re.compile(r"has lost communication with a remote daemon"),
        (re.compile(r"\s{0,8}Remote daemon: .{1,120} on node (?P<node>[\w.-]{1,253})"),),
        "daemon_lost",
        closes="first",
        within_lines=4,
    ),
    Block(
        "has lost communication with its daemon",
        re.compile(r"has lost communication with its daemon located on node:"),
        (re.compile(r"\s{0,8}hostname: {1,8}(?P<node>[\w.-]{1,253})"),),
        "daemon_lost",
        closes="first",
        within_lines=4,
    ),
    Block(
        "noticed that process rank",
        re.compile(
            r"noticed that process rank (?P<rank>\d{1,7}) with PID \d{1,9} on node (?P<node>[\w.-]{1,253}) exited on\s*$"
        ),
        (re.compile(r"\s{0,8}signal (?P<signal>\d{1,2})\b"),),
        "exit",
        closes="first",
        fields={"first": True},
    ),
)
