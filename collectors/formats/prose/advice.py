"""Texts that advise: of what they quote, nothing has happened to a job here."""

from __future__ import annotations

import re

SHARE = 0.6  # of the lines outside quoted blocks that are sentences or headings
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_MESSAGE = re.compile(
    r"(?m)^[\s>]{0,8}(?:\[rank\d{1,7}\]: ?)?(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S.*"
    r"(?:\n(?!\s*$).+){0,24}"
)
"""An exception and the lines of its message, which may advise: torch's do."""
_SENTENCE = re.compile(
    r"(?:#+ \w|[-*\d.>]{0,4} ?[A-Z][\w'`\"/-]*,? [\w'`\"(][^=|\[\]{}]*$|[a-z][\w'-]*(?: [\w'`\"(,;.-]+){3,}$)"
)
_STOP = re.compile(r"\b(?:the|an?|is|are|you|your|we|our|of|and|it|that|this|to|with|in|on|by)\b")
STAMP = re.compile(r"(?:\b|\dT)\d\d:\d\d:\d\d(?!\d)")
_ADVICE = re.compile(
    r"(?i)\b(?:if (?:you|the|it|an?)|whenever|when (?:you|a|an)|for example|e\.g\.|such as|often|sometimes|usually)\b"
)

_CAUSES = re.compile(r"(?m)^\W{0,6}(?:可能的?原因|常见原因|[Pp]ossible (?:causes|reasons)|[Cc]ommon causes)\W{0,6}$")
"""A heading above a list of what may have happened to others."""

_KERNEL = r"[^\n]{0,80}(?:NVRM: |Xid |SXid |\[ {0,8}\d{1,9}\.\d{3,6}\] )"
_TESTED = re.compile(
    r"(?im)^[\W_]{0,8}(?:[\w-]{1,24} ){0,3}(?:inputs?|fixtures?|expected(?: output)?|test ?(?:data|cases?|lines?))[^\w\n]{0,6}:"
    r"[\W_]{0,6}\n\s{0,8}(?:(?:```|~~~)\w{0,12}\n)?" + _KERNEL
)
_CHANGE = re.compile(
    r"(?im)^Stack from (?:\[?ghstack|__->__)|^Differential Revision: \W{0,3}D\d|^Pull Request resolved: "
    r"|^[\W_]{0,4}(?:PR|MR|pull request|patch) (?:that|which|to) [a-z]{2,14}s?\b"
    r"|^[\W_]{0,4}(?:before|after|without|with) this (?:PR|MR|pull request|change|patch|commit)\b"
    r"|^[\W_]{0,4}this (?:PR|MR|(?:pull|merge) request|change|commit|patch)(?: also| now)? "
    r"(?!(?:was|is|has|does|causes|breaks|crashes|hangs|fails|leads|results|seems)\b)[a-z]{2,14}s\b"
)
_EXPLAINED = re.compile(r"(?m)^> ?NVRM: [^\n]{1,600}\n[-*] ")
"""A driver's line that a thread quotes above an item of a list, in which it says what the line means."""
_OURS = re.compile(
    r"(?i)\b(?:I|we)(?: am| are|'m|'re| have been)? (?:\w+ )?(?:get|got|getting|hit|hitting|facing|faced|encounter(?:ed|ing)?)\b"
    r"(?![^.?!]{0,200}\b(?:if|when|whenever) (?:you|we|a|the)\b)"
)


_HUNK = re.compile(r"@@ -\d{1,7}(?:,\d{1,7})? \+\d{1,7}(?:,\d{1,7})? @@")
_DIFF_FENCE = re.compile(r"\s{0,8}(?:```|~~~)(?:diff|patch|suggestion)\b")


def changed_lines(head: str) -> frozenset[int]:
    """Return the lines, counted from 1, of a change to files: a program's source or a document, and no job's output."""
    found: set[int] = set()
    fenced = hunk = False
    for number, line in enumerate(head.splitlines(), 1):
        ends = fenced and line.lstrip().startswith(("```", "~~~"))
        fenced = not ends and (fenced or _DIFF_FENCE.match(line) is not None)
        hunk = _HUNK.match(line) is not None or (hunk and line[:1] in {"+", "-", " ", "\\"})
        if fenced or hunk:
            found.add(number)
    return frozenset(found)


_TITLE_OF_CHANGE = re.compile(
    r"\s{0,8}(?:#{1,3} )?(?:feat|chore|docs|tests?|ci|refactor|build|style)(?:\([\w ./-]{1,40}\))?!?: \S"
)
"""The title of a change, as conventional commits have it; one of a repair may report what it repairs."""


def is_of_tests(head: str) -> bool:
    """Whether a text describes a change to a program, or shows what a test gives it, so that its kernel lines are examples."""
    explained = len(_EXPLAINED.findall(head)) > 1
    titled = _TITLE_OF_CHANGE.match(head) is not None
    return explained or titled or _CHANGE.search(head) is not None or _TESTED.search(head) is not None


def is_reported(head: str) -> bool:
    """Whether a person says that they met what a text shows."""
    return _OURS.search(head) is not None


def is_advice(head: str) -> bool:
    """Whether a text mostly consists of sentences that say what may happen: what it quotes happened to no job here."""
    outside = [
        line.strip()
        for line in _MESSAGE.sub("", _FENCED.sub("", head)).splitlines()
        if line.strip() and not line.startswith(("    ", "\t"))
    ]
    if _CAUSES.search(head) and not any(map(STAMP.search, outside)):
        return True
    said = [line for line in outside if _SENTENCE.match(line) and (line[0] == "#" or _STOP.search(line))]
    if len(said) < 2 or len(said) < SHARE * len(outside) or any(map(STAMP.search, outside)):
        return False
    return any(map(_ADVICE.search, said)) and not any(map(_OURS.search, said))
