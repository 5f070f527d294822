"""Log events → one failure a rank: what each rank logs of its own end, apart from what it logs of others.

A process that dies by itself logs why, or is killed; every other one then loses a connection, times out, or is ended by
its launcher. Those are *echoes*. Which is which is decided by what the words mean (``knowledge/crash.toml``), never by
which line is the oldest: the launcher notices victims first as often as not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from analyzers.diagnosis.crash.beside import Beside
from analyzers.diagnosis.crash.cut_messages import is_cut
from analyzers.diagnosis.crash.device_memory import held_by_others
from analyzers.diagnosis.crash.exits import CLEANUP_SECONDS
from analyzers.diagnosis.crash.statements import OF_WORDS
from analyzers.model.finding import Evidence
from collectors.records import Frame, KernelEvent, LogEvent, pci_address

OWN = (
    "device_lost", "no_switches", "device_absent", "device_program", "device_fault", "device_cut", "device_assert",
    "device_memory", "device_shared", "shared_memory", "host_memory", "loader", "network_port", "file_system", "mismatch",
    "misuse", "launch", "node_check", "node_check_open", "port_taken", "clock", "system_files", "open_files", "not_there",
    "user", "storage", "data", "service", "resolver", "numeric", "fabric", "platform_part", "file_system_part", "crashed",
    "killed", "aborted", "ended_itself", "exit", "daemon_lost",
)  # fmt: skip
"""Kinds that can be a rank's own failure, the most telling first: an earlier one explains a later one."""

SPOKEN = OWN[: OWN.index("crashed")]
"""Own kinds that the rank itself put into words."""
_OF_NO_PROCESS = frozenset({
    "", "launcher", "step_ended", "waits_for_place", "got_place", "node_returned",
    "preempted", "time_limit", "cancelled", "node_failure", "node_drained", "node_differs", "node_unheard", "shutdown",
    "numeric_line", "collective",
})  # fmt: skip
SURVIVED = frozenset({
    "port_taken", "clock", "system_files", "open_files", "not_there", "user", "file_system", "storage", "data", "service",
    "resolver",
})  # fmt: skip
"""Kinds of exceptions that a program may handle, and go on after."""
WORDED_BY_PROGRAM = SURVIVED | {"numeric"}
NO_NAMES = frozenset({"LaunchError", "ncclInvalidUsage"})
"""Names that the reader of a line gave to what the line itself calls by no name."""
BARE_ENDS = frozenset({"exit", "torchrun_failure", "worker_died", "actor_died"})
"""Events in which another process reports an end, and that give no reason."""
ECHOES = frozenset({"echo", "watchdog", "network"})
TEXT_CHARACTERS = 240
CLEANUP_WITHIN_SECONDS = 120.0  # of another process's failure: later a SIGKILL in a launcher's report is another story
DEVICE_FAULTS = frozenset({"xid", "off_bus", "gpu_lost", "gpu_uncorrected"})
_PROGRAM = re.compile(r"python|pt_|torchrun|ray::")
STOPPED = frozenset({"gsp_timeout", "gpu_needs_reset", "gpu_lost", "off_bus"})
"""What the kernel says of a GPU that no process can use from then on."""
_MATHS = re.compile(r"CU(?:DNN_STATUS_|BLAS_STATUS_)(?:INTERNAL_ERROR|NOT_INITIALIZED)")
_PCI = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


@dataclass(slots=True)
class Failure:
    """What the logs hold of one process. ``kind``: its own failure, "echo", "terminated", or "" for nothing."""

    rank: int | None
    node: str | None
    kind: str = ""
    classified: list[tuple[str, LogEvent]] = field(default_factory=list)
    event: LogEvent | None = None  # the one that decided the kind
    first: bool = False  # its launcher reports that it failed first
    closed: bool = False  # its launcher ended it
    handled: bool = False  # it went on after the exception, until a communication error ended it

    @property
    def signature(self) -> tuple[str, ...]:
        """What two ranks share that failed in the same way; the message is left out, for it may name the rank."""
        event = self.event
        if event is None or event.exception is None or self.kind not in WORDED_BY_PROGRAM:
            return (self.kind,)  # an asynchronous error shows up in whatever call comes next
        inner = own_frame(event)
        return (self.kind, last_name(event.exception), *((inner.file, inner.function) if inner else ()))

    @property
    def local(self) -> str:
        """How a process without a rank is called by its number on its node; "" where that is unknown."""
        known = (local_name(event) for _, event in self.classified) if self.rank is None else ()
        return next(filter(None, known), "")

    def what(self) -> str:
        """The failure in a few words, as the log puts it."""
        event = self.event
        if event is None:
            return self.kind
        if event.exception:
            message = (event.message or "").splitlines()
            named = "" if event.exception in NO_NAMES else f"{last_name(event.exception)}: "
            said = named + message[0].removeprefix(named) if message else named.removesuffix(": ")
            inner = own_frame(event)
            return clip(said) + (f" in {inner.function} ({inner.file}:{inner.line})" if inner and inner.file else "")
        if event.event == "oom_kill":
            return clip(event.message or event.text)  # its line seldom gives the signal's number
        if event.signal is not None:
            return f"signal {event.signal}"
        return f"exit code {event.exit_code}" if event.exit_code is not None else clip(event.message or event.text)

    def evidence(self) -> tuple[Evidence, ...]:
        """The line that decided, and the launcher's where there is one."""
        mine = [event for kind, event in self.classified if event is self.event or kind == self.kind]
        ordered = sorted({event.source: event for event in mine}.values(), key=lambda event: event is not self.event)
        return tuple(evidence_of(event) for event in ordered[:3])


def own_frame(event: LogEvent) -> Frame | None:
    """The innermost frame outside installed packages: libraries raise, but programs call them."""
    installed = ("site-packages", "dist-packages", "/lib/python", "<frozen", "<string>")
    own = (frame for frame in event.frames if not any(mark in frame.file for mark in installed))
    return next(own, event.frames[0] if event.frames else None)


def last_name(exception: str) -> str:
    """``torch.OutOfMemoryError`` → ``OutOfMemoryError``; ``RayTaskError(ValueError)`` → ``RayTaskError``."""
    return exception.split("(", maxsplit=1)[0].rsplit(".", 1)[-1]


def _wrapped(exception: str) -> str | None:
    """``RayTaskError(ValueError)`` → ``ValueError``: what the task raised, in a wrapper that says nothing of its own."""
    return exception.rpartition("(")[2].rstrip(")") if exception.endswith(")") else None


def clip(text: str) -> str:
    """The first line of a text, bounded."""
    return text.strip().splitlines()[0][:TEXT_CHARACTERS] if text.strip() else ""


def evidence_of(event: LogEvent) -> Evidence:
    """One event as a sentence with its place."""
    who = f"rank {event.rank}" if event.rank is not None else local_name(event)
    whose = f"{who}: " if who else ""
    return Evidence(text=whose + clip(event.text or event.message or event.event), source=event.source, at=event.at)


def local_name(event: LogEvent) -> str:
    """``local rank 5 of gpu-7`` for a process whose number on its node is all that is known; "" for others."""
    if event.rank is not None or event.local_rank is None:
        return ""
    return f"local rank {event.local_rank}" + (f" of {event.node}" if event.node else "")


def place(source: str) -> tuple[str, int]:
    """Split "train.log:812" so that lines of one file can be ordered."""
    name, _, line = source.rpartition(":")
    return (name, int(line)) if line.isdigit() else (source, 0)


def kind_of(event: LogEvent, table: Mapping[str, Any]) -> str:
    """The kind that the first fitting rule gives; "" where none fits."""
    if event.event in OF_WORDS or (event.event == "traceback" and event.exception is None):
        return ""  # what its name means is asked for apart; a traceback was cut off before it said what it was
    if any(frame.function in table.get("exit_handlers", ("__del__",)) for frame in event.frames):
        return ""  # Python goes on after what a destructor or a handler of its exit raises
    if any(frame.function in table.get("signal_handlers", ()) for frame in event.frames):
        return "terminated"
    if is_cut(event, table):
        return "device_cut"
    said = said_by(event)
    name = (_wrapped(event.exception) or last_name(event.exception)) if event.exception else None
    for rule in table.get("rule", ()):
        fits = (
            ("events" not in rule or event.event in rule["events"])
            and (
                "exceptions" not in rule
                or (name is not None and ("*" in rule["exceptions"] or name in rule["exceptions"]))
            )
            and ("suffixes" not in rule or (name is not None and name.endswith(tuple(rule["suffixes"]))))
            and ("signals" not in rule or event.signal in rule["signals"])
            and ("words" not in rule or any(word in said for word in rule["words"]))
            and ("functions" not in rule or any(frame.function in rule["functions"] for frame in event.frames[:2]))
        )
        if fits:
            return _unless_unwound(str(rule["kind"]), event, table)
    return ""


def said_by(event: LogEvent) -> str:
    """Return all words of an event, in lower case."""
    return " ".join((event.exception or "", event.message or "", event.text)).lower()


def classify(
    events: Sequence[LogEvent], table: Mapping[str, Any], kernel: Sequence[KernelEvent] = ()
) -> Iterator[tuple[str, LogEvent]]:
    """Yield each event with its kind, by what the others say: a kernel that gave up on a peer ends in a device's fault."""
    trapped = any(event.code == "trap" for event in events)
    share = float(table.get("device_shared_from", 1.0))
    reported = [event for event in events if event.event == "torchrun_failure" and event.at is not None]
    lost_another = {event.peer for event in events if event.event == "worker_died" and event.peer}
    flapping = _flapping(events)
    short = any(event.event in {"memory_warned", "oom"} for event in events)
    refused = short and any(_is_without_handle(event) for event in events)
    raised = [each for each in events if each.event == "traceback" and kind_of(each, table) not in {"", "launcher"}]
    idle = any(kind_of(each, table) == "no_switches" for each in events)
    thrown = {_source(each) for each in events if each.event == "traceback" and each.exception and not _wraps(each)}
    beside = Beside(events)
    for event in events:
        kind = beside.kind_of(kind_of(event, table), event)
        if _wraps(event) and _source(event) in thrown:
            kind = "launcher"  # the worker's own exception follows it
        if event.event == "worker_died" and event.node in lost_another:
            kind = "echo"  # it reports the end of another itself
        if event.event == "port_state" and event.code == "DOWN" and event.device in flapping:
            kind = "network_port"
        if refused and (event.event == "memory_warned" or (kind == "device_fault" and _is_without_handle(event))):
            kind = "device_memory"  # a library's handle could not be made for want of memory
        if kind == "device_absent" and idle and "abric" in event.text:
            kind = "launcher"  # the service ends because there is no switch to manage
        if event.event == "creation_failed" and raised:
            kind = "launcher"  # what its constructor raised is there itself
        if kind == "device_memory" and max(map(held_by_others, (event.message or "", event.text))) >= share:
            kind = "device_shared"
        if kind == "killed" and _is_cleanup(event, reported):
            kind = "closing"
        if kind == "device_fault" and trapped and "unspecified launch failure" in f"{event.message} {event.text}":
            kind = "echo"
        of_kernel = (kind == "device_lost" and _is_the_kernels(event, kernel, DEVICE_FAULTS)) or (
            kind == "device_absent" and _is_the_kernels(event, kernel, STOPPED)
        )
        yield "" if of_kernel else kind, event


def _flapping(events: Sequence[LogEvent]) -> set[str | None]:
    """Return the ports that one text shows both down and in another state; one that is always down may be unused."""
    states: dict[str | None, set[str | None]] = defaultdict(set)
    for event in events:
        if event.event == "port_state":
            states[event.device].add(event.code)
    return {device for device, shown in states.items() if "DOWN" in shown and len(shown) > 1}


def _wraps(event: LogEvent) -> bool:
    """Whether a data loader raises again what one of its workers raised."""
    return event.event == "traceback" and "in DataLoader worker process" in (event.message or "").partition("\n")[0]


def _is_without_handle(event: LogEvent) -> bool:
    return event.event == "cuda_error" and _MATHS.search(f"{event.message} {event.text}") is not None


def _source(event: LogEvent) -> tuple[int | None, str | None, str]:
    return event.rank, event.node, place(event.source)[0]


def _is_cleanup(event: LogEvent, reported: Sequence[LogEvent]) -> bool:
    """Whether a launcher's report gives a SIGKILL an instant so long after another failure that the launcher sent it."""
    if event.event != "torchrun_failure" or event.first or event.at is None:
        return False
    ago = (event.at - (one.at or 0.0) for one in reported if one.rank != event.rank)
    return any(CLEANUP_SECONDS <= each <= CLEANUP_WITHIN_SECONDS for each in ago)


def _is_the_kernels(event: LogEvent, kernel: Sequence[KernelEvent], kinds: Collection[str]) -> bool:
    """Whether a failed GPU, of a process and a node that no line names, is the one that the kernel's lines beside it name."""
    beside = [one for one in kernel if one.event in kinds and place(one.source)[0] == place(event.source)[0]]
    if event.rank is not None or event.node is not None or not beside:
        return False
    named = {pci_address(address) for address in _PCI.findall(event.text)}
    return len({(one.node, one.pci) for one in beside}) == 1 if not named else named <= {one.pci for one in beside}


def _unless_unwound(kind: str, event: LogEvent, table: Mapping[str, Any]) -> str:
    """A look-up that failed and was being handled when communication broke is the wrapping of an echo."""
    control = event.exception is not None and last_name(event.exception) in table.get("control_flow", ())
    if not control or "during handling of which came" not in event.text:
        return kind
    after = event.text.rsplit("during handling of which came", 1)[1]
    then = LogEvent(event="traceback", exception=after.strip(" )").rsplit(", ", 1)[-1])
    return "echo" if kind_of(then, table) == "echo" else kind


def failures_of(
    classified: Sequence[tuple[str, LogEvent]], kernel: Sequence[KernelEvent], nodes: Mapping[int, str]
) -> list[Failure]:
    """Return one failure for each process in the logs, ranks in order; a process without a rank stands for itself."""
    grouped: dict[tuple[int, str], Failure] = {}
    for kind, event in classified:
        if kind in _OF_NO_PROCESS:
            continue
        key = (event.rank, "") if event.rank is not None else (-1, f"{event.node}/{event.local_rank}/{event.pid}")
        failure = grouped.setdefault(key, Failure(event.rank, event.node))
        placed = nodes.get(event.rank) if event.rank is not None else None
        failure.node = placed or failure.node or event.node
        failure.classified.append((kind, event))
    for failure in grouped.values():
        _decide(failure)
    _end_what_came_later(list(grouped.values()))
    for failure in grouped.values():
        _explained_by_kernel(failure, kernel, set(nodes.values()))
    return [grouped[key] for key in sorted(grouped)]


def _decide(failure: Failure) -> None:
    by_kind: dict[str, list[LogEvent]] = defaultdict(list)
    for kind, event in failure.classified:
        by_kind[kind].append(event)
        failure.first = failure.first or (event.first is True and event.event in BARE_ENDS)
    failure.closed = "closing" in by_kind
    spoken = [kind for kind in SPOKEN if by_kind[kind]]
    echoed = any(by_kind[kind] for kind in ECHOES)
    if spoken:
        _choose(failure, spoken[0], by_kind[spoken[0]])
        failure.handled = spoken[0] in SURVIVED and _went_on(failure, by_kind["echo"])
    elif echoed:
        _choose(failure, "echo", [event for kind in sorted(ECHOES) for event in by_kind[kind]])
    else:
        dumb = next((kind for kind in OWN if by_kind[kind]), "terminated" if by_kind["terminated"] else "")
        # What the launcher ended after it had seen another fail is a victim, even if it took a SIGKILL to end it.
        ended = failure.closed and not failure.first and dumb in {"killed", "aborted", "exit", ""}
        _choose(failure, "terminated" if ended else dumb, by_kind[dumb])


def _end_what_came_later(failures: Sequence[Failure]) -> None:
    """Make victims of the processes whose wordless ends a launcher reports well after the one that it saw first.

    By then it had asked them to end. One that the launcher saw first because it lost a peer shows no such order.
    """
    began = [
        (place(event.source)[0], at)
        for failure in failures
        if failure.first and failure.kind in OWN
        for event, at in _reported_ends(failure)
        if event.first
    ]
    for failure in failures:
        ends = _reported_ends(failure)
        if failure.first or failure.kind not in OWN or failure.kind in SPOKEN or not ends:
            continue
        if all(any(file == place(event.source)[0] and at - since >= CLEANUP_SECONDS for file, since in began)
               for event, at in ends):  # fmt: skip
            failure.kind, failure.closed = "terminated", True


def _reported_ends(failure: Failure) -> list[tuple[LogEvent, float]]:
    """Return the ends of a process in its launcher's summary, with their instants."""
    ends = [event for _, event in failure.classified if event.event == "torchrun_failure"]
    return [(event, event.at) for event in ends if event.at is not None]


def _choose(failure: Failure, kind: str, events: Sequence[LogEvent]) -> None:
    failure.kind = kind
    # The process's own words before the launcher's, the last of them: what it survived did not end it.
    own = [event for event in events if event.event not in {"torchrun_failure", "exit"}] or list(events)
    failure.event = max(own, key=lambda event: place(event.source), default=None)


def _went_on(failure: Failure, echoes: Sequence[LogEvent]) -> bool:
    """Return whether a communication error came after the exception, in the same file or by the clock."""
    mine = failure.event
    if mine is None:
        return False
    for echo in echoes:
        (file, line), (other, later) = place(mine.source), place(echo.source)
        if echo.event == "traceback" and file == other and later > line:
            return True
    return False


def _explained_by_kernel(failure: Failure, kernel: Sequence[KernelEvent], nodes: set[str]) -> None:
    """A SIGKILL with an out-of-memory line for that process, or for its node alone, is no mystery.

    A service that watches memory sends SIGTERM first, and kills a whole unit whose name shows no process.
    """
    if failure.kind not in {"killed", "terminated"}:
        return
    pids = {event.pid for _, event in failure.classified if event.pid is not None}
    for event in kernel:
        same_node = event.node is not None and event.node == failure.node
        named = event.pid in pids and (same_node or None in {event.node, failure.node})
        if event.event != "oom_kill" or (failure.kind == "terminated" and not named):
            continue
        # A shell's bare "Killed" names no process: the kernel's lines in the same paste do, or a unit of its only node.
        nameless = failure.rank is None and failure.node is None and not pids and failure.event is not None
        beside = nameless and place(event.source)[0] == place(failure.event.source if failure.event else "")[0]
        same_node = same_node or (nameless and event.pid is None and nodes == {event.node})
        if beside and _PROGRAM.match(event.process or ""):
            failure.kind = ""  # the kernel's line is a claim of its own
            return
        if same_node or beside or named:
            failure.kind = "host_memory"
            failure.classified.append(
                ("host_memory", LogEvent(source=event.source, at=event.at, event="oom_kill", text=event.text))
            )
            return


def shows_itself(failure: Failure) -> bool:
    """Whether the process's own handler of signals reported its crash, as those of Python, UCX and Open MPI do."""
    return any(
        word in event.text
        for _, event in failure.classified
        for word in ("Fatal Python error", "Caught signal ", "Signal: ")
    )
