"""Rules that watch for faults: alerts and patterns for logs. They quote lines that no machine has written yet."""

from __future__ import annotations

import re

from collectors.formats.prose.advice import STAMP

WHY = "a task for a program that watches for faults: what it quotes is what is to be found"
_HEADING = re.compile(
    r"(?im)^\W{0,6}(?:\d{1,2}[.)] )?(?:objectives?|acceptance criteria|(?:anomaly |detection )?rule definition|matching method|"
    r"proposed (?:rule|check|detector|pattern)s?|definition of done|deliverables)\W{0,4}$"
)
_ASKED = re.compile(
    r"(?i)\b(?:add|implement|create|introduce|extend|define) (?:a |an |the )?(?:new )?(?:[\w/-]{1,24} ){0,6}"
    r"(?:rules?|detectors?|detection|patterns?|alerts?|matchers?|parsers?)\b"
)
SHARE, LEAST = 0.6, 4  # of the lines that are not empty; lines
_RULE = re.compile(
    r"(?m)^\s{0,40}(?:- )?[\"']?(?:alert|expr|annotations|regexp?|(?:log_?)?patterns?|match_?re)[\"']?\s{0,8}[:=](?:\s|$)"
)
_SETTING = re.compile(
    r"\s{0,40}(?:#|\[[\w.\" -]{1,80}\]\s*$|(?:- )?[\"']?[a-z][\w./-]{0,60}[\"']?\s{0,8}[:=](?:\s|$)|- [\"']|[{}\[\]],?\s*$)"
)


def is_watch_rules(head: str) -> bool:
    """Whether a text is a file of such rules: settings without a clock's stamp, of which one is a pattern or an expression."""
    lines = [line for line in head.splitlines() if line.strip()]
    if len(lines) < LEAST or not _RULE.search(head) or STAMP.search(head):
        return False
    return sum(_SETTING.match(line) is not None for line in lines) >= SHARE * len(lines)


def is_task(head: str) -> bool:
    """Whether a text asks for such a rule, under the headings of a task."""
    return _HEADING.search(head) is not None and _ASKED.search(head) is not None
