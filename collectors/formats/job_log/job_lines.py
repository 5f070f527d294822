"""The prefix of a log line names its process, and often the time: launchers write the one, loggers the other.

``[rank7]:`` is torch's own and carries the global rank. ``[default7]:`` is torchrun's ``--tee`` and carries only the local
rank; ``[trainer0|7]:`` is its documented template with both. ``12: `` is ``srun -l`` and carries a task number, which is
a rank only where srun started one task a rank. ``[1,7]<stderr>:`` is mpirun. ``(WorkerDict pid=1234, ip=…)`` is Ray.
They nest, so all are peeled, outermost first; together they are the *stream* whose lines belong together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import pairwise
from typing import Any

import msgspec

from collectors.formats.job_log import speakers
from collectors.formats.quotations import is_row
from collectors.formats.text_lines import iso_seconds, utc_seconds

MAX_LINE_CHARACTERS = 8192
MAX_PREFIXES = 8
MAX_NESTED = 3  # objects of JSON around a message
SRUN_SHARE = 0.6  # of the head's lines must be numbered before `12: ` is believed to be srun's label

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_ESCAPELESS = re.compile(
    r"\[\d{1,2}m(\([^()]{1,200}\))\x20?\[0m"
)  # Ray's colours, where a paste lost the escape characters
STAMPED = "[ "  # what is left in a stream's name of a stamp with coordinates: "[ DP0 TP3]"
_STAMPED = r"\[(?P<stamp>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)"
_PARALLEL = r"(?: (?:DP|TP|PP|EP|CP|ATTN_\w{2,6}|MOE_\w{2,6})\d{1,5})+"
_GO_LOG = re.compile(r"(?P<stamp>\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) (?=[A-Za-z])")  # Go's package "log"
_CAPNSLOG = re.compile(r"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) [CEWNID] \| ")  # etcd's and Rook's logger
_CONTAINER = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})? ?(?:Z|[+-]\d\d:\d\d)):?\s(?:(?:stdout|stderr)\s[FP]\s)?"
)
# What one layer of prefix gives: rank (the job's), local (on its node), node, pid, task, stamp; no group, only the process.
# Unanchored, but match() keeps each at the line's start. By the layer's first character: "[", "(", a digit, a letter.
_LAYERS: dict[str, tuple[re.Pattern[str], ...]] = {
    "[": (
        re.compile(r"\[rank(?P<rank>\d{1,7})\]:\s?"),
        re.compile(
            r"\[(?!(?:epoch|step|iter|iteration|stage|phase|layer|batch|level)\d)(?P<role>[A-Za-z_]+)(?P<local>\d{1,4})(?:\|(?P<rank>\d{1,7}))?\]:\s?"
        ),
        re.compile(r"\[\d+,(?P<rank>\d{1,7})\]<(?:stdout|stderr|stddiag)>:\s?"),  # mpirun
        re.compile(r"\[(?P<rank>\d{1,7})\]<(?:stdout|stderr)>:\s?"),  # horovodrun
        re.compile(r"\[(?P<pod>pod/[\w./-]{1,200})\]\s"),
        re.compile(  # Determined: the container, and the rank where one is known
            r"\[(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z)\] [0-9a-f]{8} (?:\[rank=(?P<rank>\d{1,7})\] )?\|\| "
        ),
        re.compile(_STAMPED + r" TP(?P<rank>\d{1,5})\]\s"),  # SGLang: with no other coordinate it is the rank
        re.compile(_STAMPED + _PARALLEL + r"\]\s"),  # SGLang: coordinates, no rank of the job
        re.compile(_STAMPED + r"\]\s(?=\(\w|\[rank\d|\[PG |\[\d{3,9}\] |[\w.<>-]{1,253}:\d{1,9}:\d{1,9} \[)"),
        re.compile(r"\[\d{3,9}\]\s(?=\[(?:rank\d|PG |Rank \d|[EWIF]\d{3}))"),  # whose number it is, no line says
        re.compile(r"\[(?P<node>[A-Za-z][\w.-]{0,62}):(?P<pid>\d{2,9})\]\s"),  # Open MPI
        re.compile(r"\[(?P<node>[A-Za-z][\w.-]{0,62}):local(?:_?rank)?[ _=:]?(?P<local>\d{1,4})\]:?\s"),
    ),
    "(": (
        re.compile(  # SkyPilot: its rank is the node's
            r"\((?:(?P<node>head|worker\d{1,5}), rank=\d{1,6}|[A-Za-z][\w.-]{0,40}), pid=\d{1,9}(?:, ip=[\w.:-]{1,60})?\)\s"
        ),
        re.compile(
            r"\((?P<actor>[A-Za-z_][\w.:<>\[\]=-]{0,80}) (?:rank=(?P<rank>\d{1,7}) )?"
            r"pid=(?P<pid>\d{1,9})(?:, ip=(?P<node>[\w.:-]{1,60}))?\)\s?"
        ),
        re.compile(
            r"\((?P<actor>raylet|autoscaler|pid=\w{1,20})(?:, ip=(?P<node>[\w.:-]{1,60})| \+[\dhms]{1,12})?\)\s"
        ),
    ),
    "0": (_CONTAINER, _GO_LOG, _CAPNSLOG, re.compile(r"\d{1,7}[ \t:|]{1,4}(?=\[rank\d{1,7}\]:)")),
    ">": (re.compile(r"> ?"),),  # a quotation in a thread
    " ": (re.compile(r"[ \t]{1,16}(?:\d{1,7}[ \t:|]{1,4})?(?=\[rank\d{1,7}\]:)"),),  # an editor's margin
}
_PDSH = re.compile(  # a number alone is srun's task
    r"(?=[\w.-]{0,62}[A-Za-z.])(?P<node>[A-Za-z0-9][\w.-]{0,62}):\s"
    r"(?=\[(?:rank|[a-z]+)\d{1,7}\]:|\[\d{4}-\d\d-\d\d |Traceback|  File \"|(?<=\d: )(?:INFO|WARN|ERROR|\w{1,60}Error): )"
)
_NCCL = re.compile(
    r"(?P<node>[A-Za-z0-9.<][\w.<>-]{0,253}):(?P<pid>\d{1,9}):\d{1,9} \[\d{1,3}\] "
)  # its device is CUDA's
_REDACTED = ("<", ".")  # what a reporter leaves of a host's name: "<cluster>:920:1145", "...-48:34050:34121"
_MPIRUN_DATED = re.compile(  # mpirun --timestamp-output
    r"(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\[\d+,(?P<rank>\d{1,7})\]<(?:stdout|stderr|stddiag)>:\s?"
)
_COMPOSE = re.compile(r"[\w.-]{1,60}-\d{1,5} +\| ")
_SYSLOG = re.compile(
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?) (?P<node>[\w.-]{1,253}) "
    r"(?P<program>[\w./@-]{1,64})(?:\[(?P<pid>\d{1,10})\])?: ?"
)
_SRUN = re.compile(r"\s{0,7}(\d{1,7}):(?!\d\d(?!\d)) ?")  # not a clock's hour
_FENCE = ("```", "~~~")

_FIELD = re.compile(  # a field of JSON that was printed over several lines, as torchelastic's error file is
    r"\s{0,40}\"(?:message|msg|err|error|exception|reason|details?)\"\s?: \"(?P<said>(?:[A-Za-z_]\w{0,60}\.){0,8}"
    r"_?[A-Z]\w{0,60}(?:Error|Exception): .{1,4000}?)\"?\s?\}{0,3},?$"
)
_STAMPS_ALONE = (_CONTAINER, _GO_LOG, _CAPNSLOG)
_MESSAGES = ("log", "message", "msg", "MESSAGE")
_HOSTS = ("host", "hostname", "node", "node_name")
_HOST = re.compile(r"(?!localhost$|127\.|0\.0\.)[A-Za-z0-9][\w.-]{0,252}")
_STAMPS = ("time", "ts", "timestamp", "asctime", "@timestamp")
_TALKING = frozenset({"info", "debug", "trace", "notice"})

# torch writes the month without a leading zero since 2.3 ("E321 02:07:08.408271257"), glog with it ("E0321").
_GLOG = re.compile(r"\[?[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?")
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[ T_,](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?(?![\d:])"
)
_COMPACT = re.compile(r"\b(\d{4})(\d\d)(\d\d)-(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(?![\d:])")  # AReaL's
_US = re.compile(r"\b(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
STAMP_WITHIN = 80  # characters: a time deeper in the line is what the line talks about, not when it was written


@dataclass(frozen=True, slots=True)
class Line:
    """One line without its prefixes; ``stream`` is what it shares with the lines of the same process."""

    number: int
    text: str
    stream: str = ""
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    node: str | None = None
    task: int | None = None
    program: str | None = None  # by syslog's tag
    stamp: str | None = None  # a container runtime's, in the prefix
    seen_at: float | None = None  # when the file was written, UTC seconds

    @property
    def is_stamped(self) -> bool:
        """Whether its prefix or its text says when it was written, be it without a year."""
        return self.stamp is not None or self.at is not None

    @property
    def at(self) -> float | None:
        """When the line was written; worked out only when asked, because most lines never are."""
        stamped = instant(self.stamp) if self.stamp else None
        return stamped if stamped is not None else written_at(self.text, self.seen_at)


class Numbers(Enum):
    """What the numbers are with which nearly all lines of a log begin."""

    NONE = ""
    TASKS = "tasks"  # srun's label
    LINES = "lines"  # of a file, a list


def peel(number: int, text: str, *, numbered: Numbers = Numbers.NONE, seen_at: float | None = None) -> Line:
    """Take the prefixes off one line, its number too. ``seen_at`` gives glog stamps their year."""
    rest = text[:MAX_LINE_CHARACTERS].rstrip("\r\n")
    found: dict[str, str] = {}
    if rest.startswith("{") and (message := message_of(rest)) is not None:
        found, rest = message
    if rest.startswith("[") and (coloured := _ESCAPELESS.match(rest)):
        rest = coloured[1] + rest[coloured.end() :]
    while rest.startswith("^C"):  # a terminal's echo of the key
        rest = rest[2:]
    if "\x1b" in rest:
        rest = ANSI.sub("", rest)
    stream: list[str] = []
    if numbered is not Numbers.NONE and (label := _SRUN.match(rest)):
        rest = rest[label.end() :]
        if numbered is Numbers.TASKS:
            found["task"] = label[1]
            stream.append(f"task {label[1]}")
    for _ in range(MAX_PREFIXES):
        match = _layer(rest)
        if match is None:
            break
        found.update({name: value for name, value in match.groupdict().items() if value is not None})
        if match.re not in _STAMPS_ALONE:  # a stamp differs from line to line; the layer without it is the process's
            stream.append(match[0].replace(found.get("stamp", "\n"), "").strip())
        rest = rest[match.end() :]
    own = "rank" not in found or any(
        "<std" in part for part in stream
    )  # mpirun's label gives way to what the program says
    if own and rest.find(speakers.MARK, 0, speakers.WITHIN) >= 0 and (speaker := speakers.spoken(rest)):
        rest = speaker[0]
        found.update(speaker[1])
        stream.append(speaker[2])
    if '": "' in rest[:80] and (said := _FIELD.match(rest)):
        rest = said["said"].partition("\\n")[0]
    name = " ".join(part for part in stream if part not in {"", "[]"})
    return Line(
        number, rest, name, _whole(found, "rank"), _whole(found, "local"), _whole(found, "pid"), found.get("node"),
        _whole(found, "task"), found.get("program"), found.get("stamp"), seen_at,
    )  # fmt: skip


def message_of(row: str) -> tuple[dict[str, str], str] | None:
    """Return what a line of JSON logs, and its rank and stamp; None for a row of data, and for what is mere information.

    Docker's ``{"log": …, "stream": …, "time": …}``, and the objects of structured loggers.
    """
    try:
        entry = msgspec.json.decode(row)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    for _ in range(MAX_NESTED):
        inner = _nested(entry) if isinstance(entry, dict) else None
        if inner is None:
            break
        entry = inner
    if not isinstance(entry, dict) or is_row(entry):
        return None
    if str(entry.get("level", "")).lower() in _TALKING:
        return (speaker, row) if (speaker := _speaker_of(entry)) else None
    message = next((entry[key] for key in _MESSAGES if isinstance(entry.get(key), str)), None)
    if not message:
        return None
    stamp = next((entry[key] for key in _STAMPS if isinstance(entry.get(key), str)), None)
    found = {"stamp": stamp} if stamp else {}
    return {**found, **_speaker_of(entry)}, str(message).rstrip("\r\n")


def _speaker_of(entry: dict[str, Any]) -> dict[str, str]:
    """Return the rank that an object names, and its host: without a rank a host is what the line talks about."""
    rank = entry.get("rank", entry.get("global_rank"))
    if not isinstance(rank, int) or not 0 <= rank < 10_000_000:
        return {}
    named = (entry[key] for key in _HOSTS if isinstance(entry.get(key), str))
    node = next((name for name in named if _HOST.fullmatch(name)), None)
    return {"rank": str(rank)} | ({"node": node} if node else {})


def _nested(entry: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object that an object holds in the place of a message, or as all that it holds."""
    values = [entry[key] for key in _MESSAGES if key in entry] or (list(entry.values()) if len(entry) == 1 else [])
    return next((value for value in values if isinstance(value, dict)), None)


def _layer(text: str) -> re.Match[str] | None:
    """The outermost layer of prefix; its first character decides which it can be."""
    first = text[:1]
    layers = _LAYERS.get("0" if first.isdigit() else " " if first == "\t" else first, ())
    if found := next((match for pattern in layers if (match := pattern.match(text))), None):
        return found
    if not first.isalnum() and first not in _REDACTED:
        return None
    if "]<std" in text[:50] and (found := _MPIRUN_DATED.match(text)):
        return found
    if " NCCL " in text and (found := _NCCL.match(text)):
        return found
    if ": " in text[:70] and (found := _PDSH.match(text)):
        return found
    if "| " in text[:70] and (found := _COMPOSE.match(text)):
        return found
    return _SYSLOG.match(text) if text[3:4] == " " and text[9:10] == ":" else None


def numbers_of(head: str) -> Numbers:
    """Return what the numbers are with which nearly all lines begin; a clock's hours are none.

    srun labels the lines of a fixed set of tasks, each of which prints several. Numbers that only ascend are of lines, unless
    they are 0, 1, 2 …: each task may have printed one. Of a thread, the lines in its blocks of code count.
    """
    lines = head.splitlines()[:400]
    if any(line.startswith(_FENCE) for line in lines):
        lines = [line for inside, line in _by_blocks(lines) if inside]
    shown = [line for line in lines if line.strip()]
    numbers = [int(label[1]) for line in shown if (label := _SRUN.match(line))]
    if not numbers or len(numbers) < SRUN_SHARE * len(shown):
        return Numbers.NONE
    ascend = len(numbers) > 1 and all(before < after for before, after in pairwise(numbers))
    return Numbers.LINES if ascend and numbers != list(range(len(numbers))) else Numbers.TASKS


def _by_blocks(lines: list[str]) -> Iterator[tuple[bool, str]]:
    """Yield the lines of a thread, each with whether it stands in a block of code."""
    inside = False
    for line in lines:
        if line.startswith(_FENCE):
            inside = not inside
        else:
            yield inside, line


def written_at(text: str, seen_at: float | None) -> float | None:
    """The instant that the line's own stamp gives, as UTC seconds; None where it has none."""
    head = text[:STAMP_WITHIN]
    return (instant(head) or _glog(text, seen_at)) if ":" in head else None


def instant(text: str) -> float | None:
    """The first full date and time in the text; local times are read as UTC, because no log names its zone."""
    if found := _ISO.search(text):
        return iso_seconds(found.groups())
    if found := _COMPACT.search(text):
        return iso_seconds((*found.groups(), None))
    if found := _US.search(text):
        return utc_seconds((int(found[3]), int(found[1]), int(found[2])), (found[4], found[5], found[6]))
    return None


def _glog(text: str, seen_at: float | None) -> float | None:
    """The instant of a glog stamp, which has no year: the latest such date that is not after the file was written."""
    found = _GLOG.match(text)
    if found is None or seen_at is None:
        return None
    year = datetime.fromtimestamp(seen_at, UTC).year
    fraction = (found[6] or "").lstrip(".")
    for candidate in (year + 1, year, year - 1):
        at = utc_seconds((candidate, int(found[1]), int(found[2])), (found[3], found[4], found[5]), fraction)
        if at is not None and at <= seen_at + 86_400:  # a day: the log may be written in another zone
            return at
    return None


def _whole(found: dict[str, str], name: str) -> int | None:
    return int(found[name]) if name in found else None
