"""Where a kernel log's line came from and when: the prefixes of kmsg, dmesg, journald and syslog, taken off the text.

One line is split at a time and knows no other line. Instants are UTC seconds. A stamp without a zone (``dmesg -T``,
syslog) is read as UTC, since the log does not name the machine's zone; a stamp without a year is returned as
``yearless_at`` and dated by the caller, who may know when the file was written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import msgspec

from collectors.formats.text_lines import iso_seconds, utc_seconds

_MONTH_NAMES = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
YEARLESS_REFERENCE_YEAR = 2000  # a leap year, so that 29 February is a day
KERNEL = "kernel"
ODD = "odd stamp"  # the form of a line with such a date

_OTHER_LANGUAGES = (  # as journalctl and rsyslog write them where the locale asks for it
    "ene gen janv",
    "fev fév févr",
    "Mär Mrz mrt mars mär",
    "abr avr avril",
    "Mai mai mag mei",
    "giu juin",
    "lug juil",
    "ago août",
    "set sept",
    "Okt okt out ott",
    "",
    "Dez dez dic déc",
)
MONTHS |= {name.lower(): number for name, number in list(MONTHS.items())}
MONTHS |= {name: number for number, names in enumerate(_OTHER_LANGUAGES, 1) for name in names.split()}
_MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + r")\.?"
_CALLER = r"(?:\s?\[\s*[TC]\d+\])?"  # CONFIG_PRINTK_CALLER: "[    T1]"
_ISO = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?\s?(Z|UTC|[+-]\d\d:?\d\d)?"
_TAG = r"(?P<host>[\w.:-]{1,255})\s+(?P<tag>[^\s:\[]{1,64})(?:\[(?P<pid>\d{1,10})\])?:\s?"

KMSG = re.compile(r"\d{1,5},\d{1,20},(\d{1,18}),[^;]{0,64};")
DMESG = re.compile(r"\[\s*(\d{1,10}\.\d{6})\]" + _CALLER + " ?")
AFTER_TAG = re.compile(
    r"\[\s*(\d{1,10}(?:\.\d{1,9})?)\]" + _CALLER + " ?"
)  # "kernel:" before it shows whose stamp it is
SHORT_DMESG = re.compile(  # cut to fewer decimals: before a driver's own words, or the kernel's of memory, alone
    r"\[\s{0,8}(\d{1,10}(?:\.\d{1,5})?)\] {1,2}(?=NVRM: |(?:Memory cgroup o|O)ut of memory: Kill|"
    r"oom-kill:constraint=|nvidia[-_\w]{0,20}[:@ ]|\w[\w-]{1,20} [0-9a-f]{4}:[0-9a-f]{2}:)"
)
RELAYED = re.compile(r"(?:(?:stdout|stderr) [FP] )?" + DMESG.pattern)  # what a container printed of the kernel's lines
DMESG_WALL = re.compile(rf"\[(?:\w{{3}}) ({_MONTH})\s+(\d{{1,2}}) (\d\d):(\d\d):(\d\d) (\d{{4}})\]" + _CALLER + " ?")
DMESG_HUMAN = re.compile(
    rf"\[(?:(?:[A-Z]\w{{2}} )?{_MONTH}\s{{0,2}}\d{{1,2}} \d\d:\d\d(?::\d\d)?|\s*\+\d+\.\d{{6}})\] ?"
)
# dmesg -x; Talos writes the machine's address before and a colon after the stamp.
DECODED = re.compile(
    r"(?:(?P<host>[\w.-]{1,253}): )?(?:kern|user|daemon|syslog)\s{0,8}:\s{0,8}\w{1,8}\s{0,8}:\s{1,8}(?=\[|\d{4}-\d\d-\d\d[T ])"
)
BRACKET_ISO = re.compile(r"\[" + _ISO + r"\] ?")
_SYSLOG_STAMP = rf"({_MONTH})\s+(\d{{1,2}}) (\d\d):(\d\d):(\d\d)(?:\.(\d{{1,9}}))?"
SYSLOG = re.compile(rf"{_SYSLOG_STAMP} (?P<rest>{_TAG})")
SYSLOG_HOSTLESS = re.compile(rf"{_SYSLOG_STAMP} {{1,2}}(?P<rest>(?P<host>)(?P<tag>kernel): ?)")  # its host was left out
ISO_SYSLOG = re.compile(rf"(?:\w{{3}} )?{_ISO}\s+(?P<rest>{_TAG})")
ISO_DMESG = re.compile(_ISO + _CALLER + " ")
RFC_5424 = re.compile(rf"1 {_ISO} (?P<host>\S{{1,255}}) (?P<tag>\S{{1,64}}) \S+ \S+ (?:-|\[[^\]]{{0,2000}}\]) ?")
UNIX_SYSLOG = re.compile(rf"(\d{{9,11}}\.\d{{6}}) (?P<rest>{_TAG})")
BARE_TAG = re.compile(  # of a date and a host, a paste may keep the time or the host alone
    r"(?:\d\d:\d\d:\d\d(?:\.\d{1,9})? )?kernel:\s?|[\w.-]{1,63} kernel:\s?(?=\[\s*\d{1,10}\.\d{6}\])"
)
_OF_DATE = r"(?=\[?[\w.:,/+-]{0,40}\d)\[?[\w.:,/+-]{1,40}\]?"
ODD_STAMP = re.compile(  # numbers, and names of months and zones
    rf"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?=\[?\S{{0,40}}\d)(?:(?:{_OF_DATE}|[A-Z][A-Za-z]{{1,3}})\s{{1,3}}){{1,5}}"
    r"[\w.-]{1,63}\s{1,3}kernel:\s?(?=\S)"
)
"""A date in a form of its own, and a host: such a line has no instant."""
PRIORITY = re.compile(r"<\d{1,3}>")
MONOTONIC_HOST = re.compile(_TAG)
ESCAPED = re.compile(r"\\x([0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One line without its prefix. ``form`` names the prefix; "" where there was none. ``tag``: who logged it."""

    text: str
    form: str = ""
    tag: str = KERNEL
    host: str | None = None
    at: float | None = None
    yearless_at: float | None = None
    monotonic_at: float | None = None
    boot_id: str | None = None


class _Journal(msgspec.Struct, rename={"message": "MESSAGE", "identifier": "SYSLOG_IDENTIFIER"}):
    message: str | list[object] | None = None
    identifier: object = None
    transport: object = msgspec.field(name="_TRANSPORT", default=None)
    unit: object = msgspec.field(name="_SYSTEMD_UNIT", default=None)
    host: object = msgspec.field(name="_HOSTNAME", default=None)
    boot_id: object = msgspec.field(name="_BOOT_ID", default=None)
    realtime: object = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)
    source_realtime: object = msgspec.field(name="_SOURCE_REALTIME_TIMESTAMP", default=None)
    monotonic: object = msgspec.field(name="__MONOTONIC_TIMESTAMP", default=None)
    source_monotonic: object = msgspec.field(name="_SOURCE_MONOTONIC_TIMESTAMP", default=None)


_journal = msgspec.json.Decoder(_Journal)


def split(line: str) -> KernelLine:
    """Take the prefix off a line; a line that has none comes back whole, with ``form`` empty."""
    if line.startswith(("{", "\x1e{")):
        return _from_journal(line.lstrip("\x1e")) or KernelLine(line)
    line = line.removeprefix("> ")  # of a quotation in a thread
    if line.startswith("<") and (priority := PRIORITY.match(line)):
        line = line[priority.end() :]
    if decoded := DECODED.match(line):
        within = split(line[decoded.end() :])
        text = within.text.removeprefix(": ")
        return replace(within, text=text, form="dmesg -x", host=decoded["host"]) if within.form else KernelLine(line)
    for reading in _READINGS:
        if found := reading(line):
            return found
    return KernelLine(line)


def dated(yearless_at: float, written_at: float | None) -> float | None:
    """Date a stamp without a year: the latest year that does not put it more than a day after the file was written."""
    if written_at is None:
        return None
    stamp = datetime(YEARLESS_REFERENCE_YEAR, 1, 1, tzinfo=UTC) + timedelta(seconds=yearless_at)
    try:
        latest = datetime.fromtimestamp(written_at, UTC) + timedelta(days=1)
    except (ValueError, OverflowError, OSError):
        return None
    for year in range(latest.year, max(latest.year - 8, 1), -1):  # eight years back there is always a leap year
        try:
            candidate = stamp.replace(year=year)
        except ValueError:
            continue
        if candidate <= latest:
            return candidate.timestamp()
    return None


def _kmsg(line: str) -> KernelLine | None:
    if not (found := KMSG.match(line)):
        return None
    text = ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), line[found.end() :])
    return KernelLine(text, "kmsg", monotonic_at=int(found[1]) / 1e6)


def _dmesg(line: str) -> KernelLine | None:
    if found := DMESG.match(line) or SHORT_DMESG.match(line):
        text, seconds = line[found.end() :], float(found[1])
        tagged = MONOTONIC_HOST.match(text)  # journalctl -o short-monotonic: "[12.345678] host kernel: text"
        if tagged and tagged["tag"] == KERNEL:
            return KernelLine(text[tagged.end() :], "dmesg", host=tagged["host"], monotonic_at=seconds)
        return KernelLine(text, "dmesg", monotonic_at=seconds)
    if found := DMESG_WALL.match(line):
        at = utc_seconds((int(found[6]), MONTHS[found[1].rstrip(".")], int(found[2])), (found[3], found[4], found[5]))
        return KernelLine(line[found.end() :], "dmesg -T", at=at)
    if found := DMESG_HUMAN.match(line):
        return KernelLine(line[found.end() :], "dmesg -H")
    return None


def _syslog(line: str) -> KernelLine | None:
    if not (found := SYSLOG_HOSTLESS.match(line) or SYSLOG.match(line)):
        return None
    date = (YEARLESS_REFERENCE_YEAR, MONTHS[found[1].rstrip(".")], int(found[2]))
    stamp = utc_seconds(date, (found[3], found[4], found[5]), found[6] or "")
    origin = datetime(YEARLESS_REFERENCE_YEAR, 1, 1, tzinfo=UTC).timestamp()
    return _tagged(line, found, "syslog", None, None if stamp is None else stamp - origin)


def _dated_syslog(line: str) -> KernelLine | None:
    if found := ISO_SYSLOG.match(line):
        return _tagged(line, found, "syslog", iso_seconds(found.groups()))
    if found := RFC_5424.match(line):
        return _tagged(line, found, "syslog", iso_seconds(found.groups()))
    if found := UNIX_SYSLOG.match(line):
        return _tagged(line, found, "syslog", float(found[1]))
    return None


def _tagged(line: str, found: re.Match[str], form: str, at: float | None, yearless: float | None = None) -> KernelLine:
    text, monotonic = line[found.end() :], None
    if found["tag"] == KERNEL and (stamp := AFTER_TAG.match(text)):  # "host kernel: [12345.678901] text"
        text, monotonic = text[stamp.end() :], float(stamp[1])
    return KernelLine(text, form, found["tag"], found["host"] or None, at, yearless, monotonic)


def _dated_dmesg(line: str) -> KernelLine | None:
    found = ISO_DMESG.match(line) or BRACKET_ISO.match(line)
    if not found:
        return None
    if stamp := RELAYED.match(line, found.end()):
        return KernelLine(line[stamp.end() :], "dmesg", at=iso_seconds(found.groups()))
    return KernelLine(line[found.end() :], "dmesg iso", at=iso_seconds(found.groups()))


def _bare_tag(line: str) -> KernelLine | None:
    odd = None if (found := BARE_TAG.match(line)) else ODD_STAMP.match(line)
    if not (found := found or odd):
        return None
    stamp = AFTER_TAG.match(line, found.end())
    text = line[stamp.end() if stamp else found.end() :]
    return KernelLine(text, ODD if odd else "tag", monotonic_at=float(stamp[1]) if stamp else None)


_READINGS = (_kmsg, _dmesg, _syslog, _dated_syslog, _dated_dmesg, _bare_tag)


def _from_journal(line: str) -> KernelLine | None:
    try:
        entry = _journal.decode(line)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if entry.realtime is None and entry.monotonic is None and entry.transport is None:
        return None  # some other JSON
    identifier = _word(entry.identifier) or ""
    # Any user may write under any identifier; the fields that begin with "_" are journald's own.
    tag = KERNEL if entry.transport == KERNEL else identifier if entry.unit == f"{identifier}.service" else ""
    return KernelLine(
        _message(entry.message),
        "journal",
        tag,
        _word(entry.host),
        _micros(entry.source_realtime) or _micros(entry.realtime),
        monotonic_at=_micros(entry.source_monotonic) or _micros(entry.monotonic),
        boot_id=_word(entry.boot_id),
    )


def _word(value: object) -> str | None:
    return value[:255] if isinstance(value, str) and value else None


def _micros(value: object) -> float | None:
    digits = str(value)
    return int(digits) / 1e6 if len(digits) <= 18 and digits.isascii() and digits.isdigit() else None


def _message(value: str | list[object] | None) -> str:
    """Decode MESSAGE: a string, or the array of byte values that journald writes for text with control characters."""
    if isinstance(value, list):
        if all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
            return bytes(value).decode("utf-8", "replace")  # type: ignore[arg-type]
        return "\n".join(part for part in value if isinstance(part, str))
    return value or ""
