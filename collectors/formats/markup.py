"""What a thread's mark-up puts around a line of a log: code marks, bullets, quotation marks, tags, entities."""

from __future__ import annotations

import html
import re

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
_REPLY = re.compile(r"\s{0,4}(?:> ){1,4}(?!>)")
_TAGS = re.compile(r"\s{0,8}(?:</?(?:pre|code|p|br|div|span|li|td|tr|b|summary|details)(?: [^>]{0,80})?/?>)+")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|apos|#\d{1,4}|#x[0-9a-fA-F]{1,4});")


def margin_of(head: str) -> int:
    """Return how many blanks stand before every line of a text: a thread's mark-up of code, or a document's."""
    shown = [line for line in head[:MAX_CHARACTERS].splitlines() if line.strip()]
    return min((len(line) - len(line.lstrip(" \t")) for line in shown), default=0)


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
    if text[:1] in {" ", "\t"} and (indented := _INDENTED.match(text)):
        return text[indented.end() :]
    if "`" in text and (code := _CODE.fullmatch(text.rstrip())):
        return code["line"].strip()
    if (first := text.lstrip()[:1]) and first in "-*•\"'“‘" and (marked := _MARKED.match(text)):
        return text[marked.end() :].rstrip("\"'”’")
    return text
