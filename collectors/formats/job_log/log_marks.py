"""A running rank's own words of trouble: the NCCL watchdog's, NCCL's, gloo's, CUDA's, the interpreter's.

Line layouts are those of torch 1.13 to 2.13 and NCCL 2.14 to 2.29 as people posted them. ``[Rank 7]`` and
``[PG ID 3 PG GUID 5(mesh_tp) Rank 7]`` carry the rank *inside the group* and the prefix ``[rank7]:`` the global one, so
that the first two name a rank only where the group is the whole world.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from collectors.formats.job_log import components, families, shapes, statements
from collectors.formats.job_log.families import daemons
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.launchers import WORDS
from collectors.formats.job_log.shapes import event
from collectors.formats.job_log.tracebacks import BEGINNINGS, LAST_LINES
from collectors.formats.quotations import OPENERS, is_sampled, is_sentence
from collectors.records import LogEvent

_GROUP = re.compile(
    r"\[PG ID (?P<id>\d+) PG GUID (?P<guid>[\w:-]+)(?:\((?P<desc>[^)]*)\))? Rank (?P<rank>\d+)\]"
    r"|\[PG (?:ID )?(?P<old>\d+)(?: \((?P<old_desc>[^)]*)\))? Rank (?P<old_rank>\d+)\]"
)
_IN_GROUP = re.compile(r"\[Rank (\d+)\]")
_STAMPED_BY_TORCH = re.compile(r"\[[EWIF]\d{3,4} ")
"""torch writes ``[rank7]:`` before such a stamp: where that is cut off, the rank in the line is one inside an unknown group."""
_WORK = re.compile(r"WorkNCCL\(SeqNum=(\d{1,19}), OpType=(\w{1,64})(?:[^()]{0,400}Timeout\(ms\)=(\d+))?\)")
_RAN = re.compile(r"\) ran for (\d+) milliseconds")
_PROGRESS = re.compile(
    r"[Ll]ast enqueued (?:NCCL )?work: (-?\d+),(?: last started (?:NCCL )?work: -?\d+,)? last completed (?:NCCL )?work: (-?\d+)"
)
_AT_WORK = re.compile(r"(?:watchdog at work(?: sequence id)?|Timeout at NCCL work): (\d+)")
_DUMP_FROM = re.compile(r"collective timeout from\s+(?:this local rank|rank (\d+))")
_PEER = re.compile(
    r"(?:[Cc]onnection (?:closed|reset) by (?:remote )?peer|Call to \w+ (?:from|to)|connect to|remote peer|peer address)"
    r"[:\s]{1,8}\[?(?P<host>[0-9A-Za-z_.:-]{1,255}?)\]?(?:<(?P<a>\d+)>|[:|](?P<b>\d+))(?![\d:])"
)
_GLOO_TIMEOUT = re.compile(r"Timed out waiting (\d+)ms for (\w+) operation")
_BETWEEN = (
    r"(?:(?!\b(?:and|but|when|where|with|without|no|not|or|the|number|print\w*|because|if|so|we|this|that) )[^\n\d])"
)
"""A letter between a loss and its value; a sentence that goes on from the one to another subject gives none."""
_LOSS = re.compile(
    r"(?i)(?:\b(?P<of>[a-z][\w-]{0,31}) )?(?:\b|(?<![a-z\d_])(?P<part>[a-z][a-z\d]{0,20}(?:_[a-z\d]{1,20}){0,4})_)"
    r"(?P<whole>(?:train(?:ing)?|total|lm)[_/ ])?loss\b(?! ?scal)"
    r"(?:"
    + _BETWEEN
    + r"{0,30}?(?:[\s:=|]|tensor\()(?P<none>nan|[-+]?inf)\b|[^\w\n]{0,6}(?:tensor\()?[-+]?\.?(?P<number>\d))"
    r"|\b(?P<adjective>nan|inf) loss\b(?!\W{0,3}\d)"
)
"""A loss and its value. A gradient norm that is none is no mark: fp16 training overflows now and then, and skips the step."""
_WHOLE = frozenset({"", "nan", "inf", "train", "training", "total", "lm"})
_OF_EVALUATION = frozenset({"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev"})
_MODE = re.compile(
    r"(?i)(?<![\w./-])(?:(?P<train>train|training)|val|valid|validation|eval|evaluation|evaluating|test|testing|dev)"
    r"(?![\w.-]|/(?!loss))"
)
_EVALUATION_ROW = re.compile(r"""(?i)['"](?:phase|split|mode|stage)['"]\s*:\s*['"](?:val|eval|test)""")

DEFAULT_GROUP = "default_pg"


def peer_of(text: str) -> str | None:
    """The peer an error names, ``10.0.0.7:4242``: gloo writes ``[ip]:port``, NCCL ``host<port>``."""
    found = _PEER.search(text)
    return f"{found['host']}:{found['a'] or found['b']}" if found else None


def timeout_of(text: str) -> int | None:
    """The milliseconds gloo waited before it gave up."""
    found = _GLOO_TIMEOUT.search(text)
    return int(found[1]) if found else None


def _whose(line: Line) -> dict[str, Any]:
    """Rank and group as the line gives them; a rank inside a group is a rank of the job only in the world group."""
    found = _GROUP.search(line.text)
    named: dict[str, Any] = {}
    world, inside = False, None
    if found and found["guid"]:
        # The unique id is the recorder's group name; the local id differs from rank to rank.
        named["group"] = found["guid"]
        world, inside = found["desc"] == DEFAULT_GROUP or found["guid"] == "0", int(found["rank"])
    elif found:
        named["group"] = f"local:{found['old']}"
        world = found["old"] == "0" or found["old_desc"] == DEFAULT_GROUP
        inside = int(found["old_rank"])
    elif rank := _IN_GROUP.search(line.text):
        world, inside = _STAMPED_BY_TORCH.match(line.text) is None, int(rank[1])
    if line.rank is None and world and line.task is None:
        named["rank"] = inside
    elif line.rank is None:
        named["group_rank"] = inside
    return named


def _progress(text: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if found := _PROGRESS.search(text):
        fields["last_enqueued"], fields["last_completed"] = int(found[1]), int(found[2])
    if found := _AT_WORK.search(text):
        fields["sequence"] = int(found[1])
    if found := _WORK.search(text):
        fields["sequence"], fields["operation"] = int(found[1]), found[2]
        fields["timeout_ms"] = int(found[3]) if found[3] else None
    if found := _RAN.search(text):
        fields["elapsed_ms"] = int(found[1])
    return fields


def _watchdog(line: Line) -> Iterator[LogEvent]:
    text = line.text
    fields = {**_progress(text), **_whose(line)}
    if "Watchdog caught collective operation timeout" in text:
        yield event(line, "watchdog_timeout", **fields)
    elif (
        "watchdog got stuck" in text
        or "Could not acquire GIL" in text
        or "GIL induced hang" in text
        or ("Heartbeat monitor timed out" in text)
    ):
        yield event(line, "watchdog_stuck", **fields)
    elif "dump signal" in text or "signal dumping" in text or "set the dump signal" in text:
        source = _DUMP_FROM.search(text)
        peer = f"rank {source[1]}" if source and source[1] else None
        first = True if ("First" in text or "this local rank" in text) else None
        yield event(line, "watchdog_dump", peer=peer, first=first, **fields)
    elif "CUDA error" in text:
        yield event(line, "cuda_error", message=text[-1000:], **fields)
    elif "NCCL error" in text or "async exception" in text:
        yield event(line, "nccl_error", peer=peer_of(text), message=text[-1000:], **fields)
    elif "last_enqueued" in fields:
        yield event(line, "watchdog_timeout", **fields)
    elif "terminated with exception" in text or "taking the entire process down" in text:
        yield event(line, "watchdog_abort", **fields)


_MARKS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("CUDA out of memory", "oom", {}),
    ("CUDA error:", "cuda_error", {}),
    ("CUDA error (", "cuda_error", {}),
    ("Cuda failure", "cuda_error", {}),
    ("CUDNN_STATUS_", "cuda_error", {}),
    ("GPU has fallen off the bus", "cuda_error", {}),
    ("GPU is lost", "cuda_error", {}),
    ("uncorrectable ECC error", "cuda_error", {}),
    ("No CUDA GPUs are available", "cuda_error", {}),
    ("system not yet initialized", "cuda_error", {"code": "802"}),
    ("is killed by signal: ", "worker_killed", {"exception": "RuntimeError"}),
    ("insufficient shared memory (shm)", "worker_killed", {"exception": "RuntimeError"}),
    ("unable to write to file </torch_", "worker_killed", {"exception": "RuntimeError"}),
    ("NVML: Unknown Error", "cuda_error", {}),
    ("Unable to determine the device handle", "cuda_error", {}),
    ("Fatal Python error: Segmentation fault", "exit", {"signal": 11}),
    ("Fatal Python error: Bus error", "exit", {"signal": 7}),
    ("Fatal Python error: Aborted", "exit", {"signal": 6}),
    ("Fatal Python error", "fatal_python", {}),
    ("*** SIGSEGV", "exit", {"signal": 11}),
    ("*** SIGBUS", "exit", {"signal": 7}),
    ("*** SIGABRT", "exit", {"signal": 6}),
    ("Signal: Segmentation fault (11)", "exit", {"signal": 11}),
    ("Signal: Bus error (7)", "exit", {"signal": 7}),
    ("Segmentation fault: address not mapped", "exit", {"signal": 11}),
    ("ncclRemoteError", "nccl_error", {}),
    ("ncclSystemError", "nccl_error", {}),
    ("ncclUnhandledCudaError", "nccl_error", {}),
    ("ncclInternalError", "nccl_error", {}),
    ("ncclInvalidUsage", "nccl_error", {}),
    ("ncclInvalidArgument", "nccl_error", {}),
    ("NCCL WARN", "nccl_warning", {}),
    ("Connection closed by remote peer", "connection_closed", {}),
    ("onnection closed by peer", "connection_closed", {}),
    ("onnection reset by peer", "connection_closed", {}),
    ("Timed out waiting", "communication_timeout", {}),
    ("Received sigquit from a child process", "closing_signal", {}),
)
"""Words of a line → event, first match wins. ``NCCL WARN`` alone is chatter unless it names a peer or a CUDA failure."""


def _shortest(words: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out each word that contains another: the other finds its lines too."""
    return tuple(word for word in dict.fromkeys(words) if not any(other in word for other in words if other != word))


TROUBLE = _shortest((
    *BEGINNINGS, *LAST_LINES, *OPENERS, "-- Process", "ProcessGroup", "atchdog", "WorkNCCL", *WORDS,
    *(words for words, _, _ in _MARKS),
    *shapes.words_of((*families.SHAPES, *families.BLOCKS)),
))  # fmt: skip
"""A line with none of these begins no event, unless it reports a loss that is none."""
TROUBLE_WORDS = frozenset(TROUBLE)
OF_STATEMENTS = (*TROUBLE, *statements.MARKERS, *statements.PROGRAMS)
NO_NUMBER = ("nan", "NaN", "inf ")


def may_hold(text: str) -> bool:
    """Whether a line may hold an event: nearly none does."""
    return any(word in text for word in TROUBLE)


_DENIED = re.compile(
    r"(?i)\b(?:zero|no|0|without(?: any)?|access to(?: the| a| any)?) $"
)  # "access to GPU is lost" is a container's
_TALK = re.compile(r"(?<!NCCL )\b(?:DEBUG|INFO)\b")
_TALK_WITHIN = 120  # characters: a logger's level is in its prefix


def _is_talk(text: str, at: int) -> bool:
    """Whether the words at this place are a logger's advice: below its DEBUG or INFO."""
    return _TALK.search(text[: min(at, _TALK_WITHIN)]) is not None


def _named(found: LogEvent) -> LogEvent:
    """Add to an exception the error that its message names."""
    if found.event != "traceback" or found.code is not None:
        return found
    return msgspec.structs.replace(found, code=statements.code_of(f"{found.exception}: {found.message or ''}"))


def _warned(line: Line) -> Iterator[LogEvent]:
    """Give the error that a warning of NCCL's names: what NCCL goes on after and what ends it are at one level."""
    if (code := statements.code_of(line.text)) is not None:
        yield event(line, "nccl_warned", code=code, message=line.text.strip()[:1000])


def events_of(line: Line) -> Iterator[LogEvent]:
    """Give the events of one line that belongs to no traceback and to no launcher."""
    text = line.text
    by_daemon = False
    if line.program and daemons.PROGRAMS.fullmatch(line.program):
        named = replace(line, text=f"{line.program}: {text}")
        if shaped := shapes.events(daemons.SHAPES, named):
            yield from shaped
            return
        by_daemon = True
    if shaped := shapes.events(families.SHAPES, line):
        yield from (_named(each) for each in shaped)
        return
    if "ProcessGroup" in text or "atchdog" in text or "WorkNCCL" in text:
        found = list(_watchdog(line))
        yield from found
        if found:
            return
    for words, name, fields in _MARKS:
        if words in text:
            if _DENIED.search(text[: text.index(words)][-20:]) or is_sentence(text):
                continue
            peer = peer_of(text)
            if name == "nccl_warning" and peer is None:
                yield from _warned(line)
                return
            if (
                f'("{words}' in text
                or f"('{words}" in text
                or _is_talk(text, text.index(words))
                or statements.is_passed(text)
            ):
                return  # a program's source or a logger's advice quotes it
            said = "connection_closed" if name == "nccl_warning" else name
            if said == "cuda_error" and "NCCL WARN" in text:
                said = "nccl_error"  # some of what NCCL tries at start-up fails and is done without
            yield event(line, said, **fields, peer=peer, timeout_ms=timeout_of(text), message=text.strip()[:1000])
            return
    if by_daemon and statements.is_passed_over(text):
        return  # what its machine's daemon looked for and did not find is no exception of the job's
    stated = list(statements.events_of(line))
    if all(each.code in statements.PASSED_OVER for each in stated):  # what they say by themselves is nothing
        stated = list(components.events_of(line)) or stated
    if stated:
        yield from stated
        return
    if ("nan" in text or "NaN" in text or "inf" in text) and loss_is_number(text) is False:
        value = _LOSS.search(text)
        if value is None or not is_sampled(text, value.end() - 1):
            yield event(line, "nan")


def loss_is_number(text: str) -> bool | None:
    """Return whether the training loss of a line is a number; None where the line gives none.

    The loss of the whole model, or one without another word before it, counts before that of a part ("kl loss").
    """
    text = text.partition("Attempted loss scale")[0]  # DeepSpeed's scaler, whose line may follow a bar on one line
    of_part = None
    for found in _LOSS.finditer(text):
        of = (found["of"] or found["part"] or "").lower()
        if of == "if" or of.split("_", 1)[0] in _OF_EVALUATION or is_evaluation(text, found.end()):
            continue
        is_number = found["number"] is not None
        if found["whole"] or of in _WHOLE:
            return is_number
        of_part = is_number if of_part is None else of_part
    return of_part


def is_evaluation(text: str, end: int) -> bool:
    """Whether the newest word for a mode before ``end`` is one for validation, or a JSON row is marked so."""
    if "{" in text and _EVALUATION_ROW.search(text):
        return True
    modes = [mode["train"] for mode in _MODE.finditer(text, 0, end)]
    return bool(modes) and modes[-1] is None
