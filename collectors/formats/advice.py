"""Texts that advise: of what they quote, nothing has happened to a job here."""

from __future__ import annotations

import re

SHARE = 0.6  # of the lines outside quoted blocks that are sentences or headings
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_SENTENCE = re.compile(
    r"(?:#+ \w|[-*\d.>]{0,4} ?[A-Z][\w'`\"/-]*,? [\w'`\"(][^=|\[\]{}]*$|[a-z][\w'-]*(?: [\w'`\"(,;.-]+){3,}$)"
)
_STOP = re.compile(r"\b(?:the|an?|is|are|you|your|we|our|of|and|it|that|this|to|with|in|on|by)\b")
_STAMP = re.compile(r"\b\d\d:\d\d:\d\d\b")
_ADVICE = re.compile(
    r"(?i)\b(?:if (?:you|the|it|an?)|whenever|when (?:you|a|an)|for example|e\.g\.|such as|often|sometimes|usually)\b"
)

_KERNEL = r"[^\n]{0,80}(?:NVRM: |Xid |SXid |\[ {0,8}\d{1,9}\.\d{3,6}\] )"
_TESTED = re.compile(
    r"(?im)^[\W_]{0,8}(?:[\w-]{1,24} ){0,3}(?:inputs?|fixtures?|expected(?: output)?|test ?(?:data|cases?|lines?))[^\w\n]{0,6}:"
    r"[\W_]{0,6}\n\s{0,8}(?:(?:```|~~~)\w{0,12}\n)?" + _KERNEL
)
_CHANGE = re.compile(
    r"(?im)^[\W_]{0,4}(?:PR|MR|pull request|patch) (?:that|which|to) [a-z]{2,14}s?\b"
    r"|^[\W_]{0,4}this (?:PR|MR|(?:pull|merge) request|change|commit|patch)(?: also| now)? "
    r"(?!(?:was|is|has|does|causes|breaks|crashes|hangs|fails|leads|results|seems)\b)[a-z]{2,14}s\b"
)


def is_of_tests(head: str) -> bool:
    """Whether a text describes a change to a program, or shows what a test gives it, so that its kernel lines are examples."""
    return _CHANGE.search(head) is not None or _TESTED.search(head) is not None


def is_advice(head: str) -> bool:
    """Whether a text mostly consists of sentences that say what may happen: what it quotes happened to no job here."""
    outside = [
        line.strip()
        for line in _FENCED.sub("", head).splitlines()
        if line.strip() and not line.startswith(("    ", "\t"))
    ]
    said = [line for line in outside if _SENTENCE.match(line) and (line[0] == "#" or _STOP.search(line))]
    if len(said) < 2 or len(said) < SHARE * len(outside) or any(map(_STAMP.search, outside)):
        return False
    return any(map(_ADVICE.search, said))
