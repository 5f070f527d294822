"""A line that states an error in words that are the same in every program, and that no other shape reads.

It states one where a logger calls it an error, where it has the form of an exception, of a failed call or of ``perror(3)``.
It is weaker evidence than a line of a known program: what it says is known, and not what became of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.shapes import event
from collectors.formats.job_log.vocabularies import Found, find, holds_any, is_apart, is_explained
from collectors.formats.job_log.vocabularies.outside import NOT_REACHED
from collectors.formats.quotations import is_quoted
from collectors.records import LogEvent

STATED = "stated"
REFUSED = "refused_"
"""What the names of refusals begin with."""
MARKERS = (
    "rror", "ERR", "ailed", "ailure", "atal", "FATAL", "FAILED", "CRIT", "SEVERE", "what():", "xception", "nable to", "annot",
    "panic", "bort", "ssertion", "ut of memory", "returned", "ould not", "STATUS", "RESULT", "Errno", "errno",
    "mismatch for ", "(s) in state_dict", "xpected all ", "mat1 and mat2", "xpected scalar", "size of tensor a",
)  # fmt: skip
"""A line with none of these states no error, unless a program says by its name what failed."""
PROGRAMS = ("ssh: ", "curl: ", "mount", "docker: ")
PASSED_OVER = frozenset({
    "ENOENT", "EEXIST", "ENOTDIR", "EISDIR", "EBUSY", "ESRCH", "ECHILD", "EINTR", "EINVAL", "ENODEV", "ENXIO", "ENOTTY", "EPERM",
})  # fmt: skip
"""What scripts meet and go on after: it counts where a logger or an exception states it."""
HEAD = 160  # characters: a logger's level stands in them
LEAST_OF_LIST = 3  # entries beside one another
MOST_NAMED = 2  # errors of one line: one that names more lists them

_KEY = r"\b(?:level|severity|lvl)[\"']?\s?[=:]\s?[\"']?"
_FATAL = r"(?:fatal error|error|err|fatal|crit|critical|panic|failure)"
_LESSER = r"(?:warning|warn|note|hint|info|notice|debug|trace)"
_LEVEL = re.compile(
    r"(?P<error>\b(?:ERROR|FATAL|CRITICAL|SEVERE|PANIC|EMERG)\b|\[?[EF]\d{3,8} \d\d:\d\d"
    rf"|(?i:{_KEY}{_FATAL}\b|^\W{{0,4}}{_FATAL}\W{{0,3}}[:\]|>-]|[\[<]{_FATAL}[\]>]))"
    r"|(?P<other>(?<![=\w])(?:WARN|WARNING|INFO|DEBUG|TRACE|NOTICE|VERBOSE|HINT)\b|\[?[IWD]\d{3,8} \d\d:\d\d"
    r"|: [IWD] (?:external|tensorflow)/"  # TensorFlow and XLA
    rf"|(?i:{_KEY}{_LESSER}\w{{0,8}}\b|^\W{{0,4}}{_LESSER}\W{{0,3}}[:\]|>-]|[\[<]{_LESSER}[\]>]))"
)
_EXCEPTION = re.compile(
    r"^\W{0,4}(?:[\w$]{1,60}(?:\.|::)){0,8}_?[A-Z]\w{0,60}(?:Error|Exception|Failure|Timeout|Fault)\b.{0,20}?: |what\(\): |"
    r"^\W{0,4}\d{3} (?:Client|Server) Error: |"
    r"^terminate called|^Caused by: |^panic: |' panicked at |[Uu]nhandled [Ee]xception|^[Aa]borted?\b"
)
_FAILED = re.compile(
    r"(?i)\b(?:errors?|errno|failed|failure|fatal|fails|unable to|could ?n[o']t|can(?:not|'t)|abort(?:ed|ing)|exception|"
    r"returned|status|result|code|rc|died|crashed|unexpected(?:ly)?)\b(?:[^.?!]|[.?!](?!\s+[A-Z])){0,200}$"
)
_RUNTIME = re.compile(r"\W{0,4}(?:CUDA|HIP|NPU|XPU|HPU|MUSA|MLU|TPU) ")
_OF_PROGRAM = re.compile(
    r"^(?:[\w./+@-]{1,80}(?:\[\d{1,9}\])?|/\S{1,160}: line \d{1,6}): (?:\(\d{1,3}\) )?(?:\S.{0,240}: )?\"?$"
)
_PASSED = re.compile(
    r"(?i)\b(?:re-?tr(?:y(?! count)|ies(?! exceeded)|ying|ied)|try(?:ing)? again|will try|attempt \d|"
    r"attempts? (?:left|remaining)|back-?off|"
    r"fall(?:s|ing)? ?back|fallback|ignor(?:e|es|ed|ing)|skip(?:s|ped|ping)?|non-?fatal|recover(?:s|ed|ing|y)|"
    r"continu(?:e|es|ing)|harmless|expected|(?:no|without|0|zero) (?:errors?|failures?)|"
    r"error(?:s|_count|_rate)?[\"']?\s?[:=]\s?0\b|disabled|optional|resolved|fixed|reconnect(?:ed|ing)?|assertRaises|pytest|cuInit)\b"
)
"""What is tried again, done without or of a test; TensorFlow's "failed call to cuInit" is of a host without GPUs."""
_ERROR_IN = re.compile(r"rror|xception|ailed")
_SOURCE = re.compile(
    r"[;{]\s*$|^\s*(?:#\s?define|case |except\b|raise |throw |catch\b|if\b|elif |else\b|return\b|import |from |assert|"
    r"def |class |const |enum |static |@|\*|//|\||export |\w+ = )|=>|&&|\|\||\) \{|\\n\"|<<|\w\(.{0,80}\);"
)
_PEER = re.compile(
    r"(?i)\b(?:to|from|with|peer|remote|server|address|dial tcp|endpoint)(?: host)?[ :=]{1,3}[\"'`\[(]?(?:\w{2,8}://)?"
    r"(?P<host>(?:\d{1,3}\.){3}\d{1,3}|[a-z][\w-]{0,62}(?:\.[\w-]{1,62}){1,8}|[a-z][a-z-]{0,40}\d[\w-]{0,40})"
    r"[\"'`\])]?(?:(?::| port |<)(?P<port>\d{1,5}))?"
)
_DEVICE = re.compile(
    r"(?i)\b(?P<pci>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b|\b(?P<port>mlx\d_\d{1,2}(?:[:/]\d)?)\b"
    r"|\b(?:gpu|cuda|npu|hpu|xpu|device)[ :#=-]{1,2}(?P<number>\d{1,3})\b"
)
_NODE = re.compile(
    r"(?i)(?<!to )(?<!from )(?<!remote )\b(?:host(?:name)?|node)[ =:]{1,3}(?P<node>[a-z][a-z.-]{0,40}\d[\w.-]{0,60}\w)\b(?!:)"
)
_RANK = re.compile(r"(?i)(?<!local )(?<!local_)\b(?:global_?)?rank[ =:]{1,3}(?P<rank>\d{1,7})\b")


def may_state(text: str) -> bool:
    """Whether a line may state an error, whatever its numbers are; sure of the lines that cannot."""
    marked = any(marker in text for marker in MARKERS) or text.startswith(PROGRAMS)
    return marked and holds_any(text)


def marker_of(text: str) -> str:
    """Return the word of a line by which it may state an error."""
    return next((word for word in (*MARKERS, *PROGRAMS) if word in text), "")


def events_of(line: Line) -> Iterator[LogEvent]:
    """Yield the errors that a line states; none for one that talks about them."""
    text = line.text
    level = _LEVEL.search(text, 0, HEAD)
    if (
        (level is not None and level["other"] is not None and "NCCL WARN" not in text)
        or _PASSED.search(text)
        or _SOURCE.search(text)
    ):
        return
    found = list(find(text))
    if not found or len({each.name for each in found}) > MOST_NAMED:
        return
    for one in found:
        if (level is not None or _states(text, one) or is_explained(one, text)) and not is_quoted(text, one.start):
            yield event(line, STATED, code=one.name, message=text.strip()[:1000], **_slots(line))


def is_passed(text: str) -> bool:
    """Whether a line warns of what its program goes on after."""
    level = _LEVEL.search(text, 0, HEAD)
    return level is not None and level["other"] is not None and "NCCL" not in text and _PASSED.search(text) is not None


def is_lesser(text: str) -> bool:
    """Whether a logger wrote a line at a level below an error's, and the line names none."""
    level = _LEVEL.search(text, 0, HEAD)
    return level is not None and level["other"] is not None and "NCCL WARN" not in text and not _ERROR_IN.search(text)


def is_passed_over(text: str) -> bool:
    """Whether all errors that a line names are such as programs meet and go on after."""
    names = {found.name for found in find(text)}
    return bool(names) and names <= PASSED_OVER


def code_of(said: str) -> str | None:
    """Return the error that an exception names, the last of its first line; None where it names none."""
    line = said.partition("\n")[0]
    names = [found.name for found in find(line) if found.name not in PASSED_OVER]
    return names[-1] if names and len(set(names)) <= MOST_NAMED else None


def listed(events: Iterable[LogEvent]) -> set[int]:
    """Return the lines of a list of errors: adjacent ones that each begin with another name, and that no process stamped."""
    entries = {int(event.source): name for event in events if (name := _entry(event))}
    found: set[int] = set()
    for line in entries:
        near = {line + at for at in range(-2, 3) if line + at in entries}
        if len({entries[each] for each in near}) >= LEAST_OF_LIST:
            found |= near
    return found


def _entry(event: LogEvent) -> str | None:
    """Return the name that an event's line begins with, as an entry of a list does."""
    if (event.rank, event.node, event.pid, event.at) != (None, None, None, None) or event.frames:
        return None
    first = next(find(event.text), None)
    return first.name if first and not event.text[: first.start].strip(" \t0123456789-*#.:|=`(") else None


def _states(text: str, found: Found) -> bool:
    """Whether what stands before an error makes the line a statement of it."""
    before = text[: found.start]
    is_text = text[found.start : found.end].lower() != found.name.lower()
    if found.name.startswith(REFUSED):  # a sentence of its own
        return not before.strip(" \t>-*") or before.endswith(": ")
    if _EXCEPTION.search(text):
        return True
    if found.name in PASSED_OVER:
        return False
    if found.name == NOT_REACHED and _OF_PROGRAM.match(before):
        return True  # with its address
    if (_FAILED.search(before[-240:]) and (is_text or is_apart(text, found.start))) or (
        is_text and _RUNTIME.fullmatch(before)
    ):
        return True
    return is_text and _OF_PROGRAM.match(before) is not None and not text[found.end :].strip(" .\"'()0123456789")


def _slots(line: Line) -> dict[str, Any]:
    """Return what a line says of whom it is about: a peer, a device, a node and a rank where it names one."""
    slots: dict[str, Any] = {}
    text = line.text
    if found := _PEER.search(text):
        slots["peer"] = f"{found['host']}:{found['port']}" if found["port"] else found["host"]
    if found := _DEVICE.search(text):
        slots["device"] = (found["pci"] or found["port"] or found["number"]).lower()
    if line.node is None and (found := _NODE.search(text)):
        slots["node"] = found["node"]
    ranks = {each["rank"] for each in _RANK.finditer(text)}
    if line.rank is None and len(ranks) == 1:
        slots["rank"] = int(ranks.pop())
    return slots
