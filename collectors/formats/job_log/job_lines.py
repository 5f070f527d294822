"""The prefix of a log line names its process, and often the time: launchers write the one, loggers the other.

``[rank7]:`` is torch's own and carries the global rank. ``[default7]:`` is torchrun's ``--tee`` and carries only the local
rank; ``[trainer0|7]:`` is its documented template with both. ``12: `` is ``srun -l`` and carries a task number, which is
a rank only where srun started one task a rank. ``[1,7]<stderr>:`` is mpirun. ``(WorkerDict pid=1234, ip=…)`` is Ray.
They nest, so all are peeled, outermost first; together they are the *stream* whose lines belong together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from collectors.formats.text_lines import iso_seconds, utc_seconds

MAX_LINE_CHARACTERS = 8192
MAX_PREFIXES = 6
SRUN_SHARE = 0.6  # of the head's lines must be numbered before `12: ` is believed to be srun's label

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Unanchored, but match() keeps each at the line's start.
_BRACKETED = (
    re.compile(r"\[rank(?P<rank>\d{1,7})\]:\s?"),
    re.compile(
        r"\[(?!(?:epoch|step|iter|iteration|stage|phase|layer|batch|level)\d)(?P<role>[A-Za-z_]+)(?P<local>\d{1,4})(?:\|(?P<rank>\d{1,7}))?\]:\s?"
    ),
    re.compile(r"\[\d+,(?P<rank>\d{1,7})\]<(?:stdout|stderr|stddiag)>:\s?"),
    re.compile(r"\[(?P<pod>pod/[\w./-]{1,200})\]\s"),
)
_RAY = re.compile(
    r"\((?P<actor>[A-Za-z_][\w.:<>\[\]-]{0,80}) (?:rank=\d+ )?pid=(?P<pid>\d{1,9})(?:, ip=[^)]{1,60})?\)\s?"
)
_PDSH = re.compile(r"(?P<node>[A-Za-z0-9][\w.-]{0,62}):\s(?=\[(?:rank|[a-z]+)\d+\]:)")
_CONTAINER = re.compile(
    r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))\s(?:(?:stdout|stderr)\s[FP]\s)?"
)
_SRUN = re.compile(r"\s{0,7}(\d{1,7}): ?")

# torch writes the month without a leading zero since 2.3 ("E321 02:07:08.408271257"), glog with it ("E0321").
_GLOG = re.compile(r"\[?[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(\.\d{1,9})?")
_ISO = re.compile(
    r"(\d{4})[-/](\d\d)[-/](\d\d)[ T_](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?(?![\d:])"
)
_US = re.compile(r"\b(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)")
_STAMP_WITHIN = 80  # characters: a time deeper in the line is what the line talks about, not when it was written


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
    stamp: str | None = None  # a container runtime's, in the prefix
    seen_at: float | None = None  # when the file was written, UTC seconds

    @property
    def at(self) -> float | None:
        """When the line was written; worked out only when asked, because most lines never are."""
        stamped = instant(self.stamp) if self.stamp else None
        return stamped if stamped is not None else written_at(self.text, self.seen_at)


def peel(number: int, text: str, *, numbered: bool = False, seen_at: float | None = None) -> Line:
    """Take the prefixes off one line. ``numbered``: srun labelled the file. ``seen_at`` gives glog stamps their year."""
    rest = text[:MAX_LINE_CHARACTERS].rstrip("\r\n")
    if "\x1b" in rest:
        rest = _ANSI.sub("", rest)
    stream: list[str] = []
    found: dict[str, str] = {}
    if numbered and (label := _SRUN.match(rest)):
        found["task"], rest = label[1], rest[label.end() :]
        stream.append(f"task {label[1]}")
    for _ in range(MAX_PREFIXES):
        match = _prefix(rest)
        if match is None:
            break
        found.update({name: value for name, value in match.groupdict().items() if value is not None})
        if match.re is not _CONTAINER:
            stream.append(match[0].strip())
        rest = rest[match.end() :]
    return Line(
        number, rest, " ".join(stream), _whole(found, "rank"), _whole(found, "local"), _whole(found, "pid"),
        found.get("node"), _whole(found, "task"), found.get("stamp"), seen_at,
    )  # fmt: skip


def _prefix(text: str) -> re.Match[str] | None:
    """The launcher's prefix at the start of the text; its first character decides which it can be."""
    first = text[:1]
    if first == "[":
        return next((match for pattern in _BRACKETED if (match := pattern.match(text))), None)
    if first == "(":
        return _RAY.match(text)
    found = _CONTAINER.match(text) if first.isdigit() else None
    return found or (_PDSH.match(text) if ": [" in text[:70] else None)


def is_numbered(head: str) -> bool:
    """Whether srun labelled the lines: nearly all begin with a number and a colon, as no logger's do."""
    shown = [line for line in head.splitlines()[:400] if line.strip()]
    return len(shown) > 0 and sum(1 for line in shown if _SRUN.match(line)) >= SRUN_SHARE * len(shown)


def written_at(text: str, seen_at: float | None) -> float | None:
    """The instant that the line's own stamp gives, as UTC seconds; None where it has none."""
    return instant(text[:_STAMP_WITHIN]) or _glog(text, seen_at)


def instant(text: str) -> float | None:
    """The first full date and time in the text; local times are read as UTC, because no log names its zone."""
    if found := _ISO.search(text):
        return iso_seconds(found.groups())
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
