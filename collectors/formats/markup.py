"""What a thread's mark-up puts around a line of a log: code marks, bullets, quotation marks, tags, entities."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import pairwise

MAX_CHARACTERS = 8192
_BULLET = r"(?:[-*•] {1,4}|\d{1,2}[.)] {1,4})?"
_CODE = re.compile(r"\s{0,8}" + _BULLET + r"`{1,3}(?P<line>[^`]{8,})`{0,3}")
_STAMPED = (  # what a log's line begins with, and no sentence: a bullet or a quotation mark before it is a thread's
    r"\[\s{0,8}\d{1,10}\.\d{6}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d |\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|"
    r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d |\[rank\d{1,6}\]:|[\w.-]{1,64}:\d{1,8}:\d{1,8} \[\d{1,3}\] |NVRM: Xid \(|"
    r"(?:srun|sbatch|salloc|slurmstepd|slurmd|slurmctld): (?:error|fatal): "
)
_MARKED = re.compile(r"\s{0,8}(?:[-*•] {1,4})?[\"'“‘]?(?=" + _STAMPED + ")")
_INDENTED = re.compile(r"\s{1,16}(?=\[\s{0,8}\d{1,10}\.\d{6}\]|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d )")
_LITERAL = re.compile(
    r"""\s{0,40}(?:(?![{\s]{0,44}["'][\w@]{1,40}["']\s?:)(?:"""
    r"""[({\[ ]{0,4}[rfb]?["'`].{8,}["'`]\s?(?:[,;+\\]|[)\]}]{1,3}[,;]?)(?:\s{0,8}(?:#|//).{0,80})?$"""
    r"""|[({\[ ]{1,4}[rfb]?["'`].{8,}["'`], .{1,80}[)\]}]{1,3}[,;]?$)"""
    r"""|(?:(?:const|var|let|static|final) )?[A-Za-z_][\w.\[\]]{0,60} (?:=|:=|\+=) [rfb]?["'`].{8,}["'`][,;)]?$"""
    r"""|["']?(?:input|want|expected|given|fixture|kmsg)["']?: {1,16}["'`].{8,}["'`],?$"""
    r"""|(?:line|raw|text|in): {1,16}["'`].{8,}["'`],$)"""
)
"""A list's element, a tuple, an assignment with blanks as formatters set them, a field of a test's case; no object of JSON."""
_LABEL = re.compile(  # what a form, or a reporter, calls the line that follows
    r"(?i)\s{0,8}(?:[-*•] )?(?:\*\*|__?|<b>)(?:(?:the|full|actual|relevant) )?"
    r"(?:errors?|exception|error[ _](?:message|log|output|trace)|logs?|log output|output|stack ?trace|traceback|message|actual|"
    r"actual (?:behaviou?r|result|output)|stderr)(?:\*\*:?|__?:?|:\*\*|:__?|</b>:?|:</b>)\s{1,4}(?=\S)"
)
_REPLY = re.compile(r"\s{0,4}(?:> ){1,4}(?!>)")
_TAGS = re.compile(r"\s{0,8}(?:</?(?:pre|code|p|br|div|span|li|td|tr|b|summary|details)(?: [^>]{0,80})?/?>)+")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|apos|#\d{1,4}|#x[0-9a-fA-F]{1,4});")


_ESCAPES = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_ESCAPELESS = re.compile(r"\[(?:[01]|(?:[01];)?[39]\d|[39]\d;[01])m")
_OF_FILE = re.compile(  # what grep writes before the lines of a log; of a document they would be quotations
    r"(?:[\w.@+~-]{0,80}/){0,12}[\w.@+~-]{0,60}?(?:log|out|err|stdout|stderr)(?:[._-][\w-]{1,24}){0,2}[:-]\d{1,9}[:-]"
)
_COUNTED = re.compile(r"(?=[ \d]{6,9}\t) {0,5}(?P<number>\d{1,9})\t")  # cat -n
_LEAST, _SHARE, _MOST_SHARE = 2, 0.3, 0.8


@dataclass(frozen=True, slots=True)
class Margin:
    """What stands before every line of a text: blanks of a thread's code, a file's name and number, the lines' count."""

    blanks: int = 0
    prefix: re.Pattern[str] | None = None
    coloured: bool = False

    @classmethod
    def of(cls, head: str) -> Margin:
        """Compare the lines of a text's head; between them may be a person's sentences."""
        shown = [line for line in head[:MAX_CHARACTERS].splitlines() if line.strip()]
        blanks = min((len(line) - len(line.lstrip(" \t")) for line in shown), default=0)
        of_file = sum(_OF_FILE.match(line) is not None for line in shown)
        coloured = "\x1b[" in head or "[0m" in head
        if of_file >= _SHARE * len(shown) and of_file >= min(_LEAST, len(shown)) > 0:
            return cls(blanks, _OF_FILE, coloured)
        counted = [int(found["number"]) for line in shown if (found := _COUNTED.match(line))]
        follow = sum(below == above + 1 for above, below in pairwise(counted))
        is_counted = follow >= _LEAST and follow >= _MOST_SHARE * (len(shown) - 1)
        return cls(blanks, _COUNTED if is_counted else None, coloured)

    @property
    def is_there(self) -> bool:
        """Whether there is anything to take off."""
        return self.blanks > 0 or self.prefix is not None or self.coloured

    def off(self, text: str) -> str:
        """Return the line without the margin, and without a terminal's colours."""
        if self.prefix is not None and (found := self.prefix.match(text)):
            text = text[found.end() :]
        elif self.blanks and text[: self.blanks].isspace():
            text = text[self.blanks :]
        if "\x1b" in text:
            text = _ESCAPES.sub("", text)
        return _ESCAPELESS.sub("", text) if "[0m" in text else text


def is_literal(text: str) -> bool:
    """Whether a line is a string of a program's source, or a row of its test's data: in a list, an assignment, a field."""
    return ('"' in text or "'" in text or "`" in text) and _LITERAL.match(text[:MAX_CHARACTERS].rstrip()) is not None


def unmarked(text: str) -> str:
    """Return the line without the mark-up of a thread; what stands within a sentence stays as it is."""
    text = text[:MAX_CHARACTERS]
    if "&" in text and _ENTITY.search(text):
        text = html.unescape(text)
    if text.lstrip()[:1] == ">" and (reply := _REPLY.match(text)):
        text = text[reply.end() :]
    if text.lstrip()[:1] == "<" and (tags := _TAGS.match(text)):
        text = text[tags.end() :]
    if ("*" in text or "_" in text or "<b>" in text) and (label := _LABEL.match(text)):
        text = text[label.end() :]
    if text[:1] in {" ", "\t"} and (indented := _INDENTED.match(text)):
        return text[indented.end() :]
    if "`" in text and (code := _CODE.fullmatch(text.rstrip())):
        return code["line"].strip()
    if (first := text.lstrip()[:1]) and first in "-*•\"'“‘" and (marked := _MARKED.match(text)):
        return text[marked.end() :].rstrip("\"'”’")
    return text
