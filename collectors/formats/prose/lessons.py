"""Lessons: guides, answers, catalogues of errors and questions often asked. They quote errors that happened to no job here.

A lesson shows itself in several ways: headings of causes and cures, sentences to a reader who may meet an error, sentences of
when an error occurs in general, lines that begin with a command, words of the guide that it is. Two kinds must agree. A text
with a clock's stamp, or in which a person reports what they met, is none.
"""

from __future__ import annotations

import re

from collectors.formats.prose.advice import STAMP

LOOKED_AT = 8192  # characters
LEAST_KINDS, LEAST_COMMANDS = 2, 2
_MESSAGE = re.compile(r"(?m)^[\s>]{0,8}(?:\w{1,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): \S.*")
"""An exception's own line, which may teach: torch's do."""
_HEADING = re.compile(
    r"(?im)^\W{0,8}(?:\d{1,2}[.)] )?(?:"
    r"what (?:(?:the|this|these|an?) )?(?:\w+ )?(?:errors?|messages?) (?:looks? like|means?)"
    r"|what you (?:will )?see|what causes\b.{0,60}"
    r"|(?:possible |common |the )?(?:causes?|reasons?|fix(?:es)?|solutions?|workarounds?|symptoms?|root causes?)"
    r"(?: (?:and|&) (?:causes?|reasons?|fix(?:es)?|solutions?|workarounds?))?|reasons include|quick ?fix|dead ends"
    r"|how to (?:fix|resolve|solve|diagnose|avoid|debug|handle|troubleshoot)\b.{0,80}"
    r"|(?:\S{1,40} ){0,5}troubleshooting(?: guide)?"
    r"|(?:\S{1,40} ){0,3}FAQs?|known issues|(?:step|method|solution) \d{1,2}\b.{0,60}"
    r"|常见原因.{0,20}|可能的?原因.{0,20}|根本原因.{0,20}|解决(?:方案|方法|办法).{0,20}|问题描述|错误信息"
    r"|как исправить.{0,120}|причины.{0,40}|решени[ея].{0,40})\W{0,4}$"
)
_TO_READER = re.compile(
    r"(?i)\byou(?:'ll| will| may| might| could|'re likely to) (?:also |then |often |sometimes |probably )?"
    r"(?:see|get|encounter|hit|run into|face|find|notice|receive)\b"
    r"|\bif you(?:'re|'ve| are| have)? (?:see|get|got|encounter|hit|run into|face|receiv\w+|seeing|getting|encounter\w+|facing)\b"
    r"|\bwhen you (?:see|get|encounter|run|use|try)\b"
    r"|(?:可能|很容易|经常)会?(?:遇到|出现|看到|偶然发现)|如果(?:你|您)|если вы|когда вы"
)
_IN_GENERAL = re.compile(
    r"(?i)\b(?:this|the|these|such|an?) (?:[`\w.: -]{1,80} )?(?:error|exception|message|warning|failure|issue)s? "
    r"(?:\([^)]{0,80}\) )?"
    r"(?:usually |often |typically |generally |can |may |also )*"
    r"(?:occurs? (?:when|if|because|due)|happens? (?:when|if|because|due)|indicates?"
    r"|means?|arises?|is (?:raised|thrown|shown|printed) when"
    r"|is a common|appears when|signals?|results? from|stems?)\b"
    r"|\b(?:throws?|raises?) an? .{0,80} when\b|\bis a common (?:issue|error|problem)\b"
    r"|(?:此|该|这个)错误.{0,40}(?:时|因为|由于|通常)|эта ошибка"
)
_COMMAND = re.compile(
    r"(?m)^\s{0,8}(?:[-*•+✓] |\d{1,2}[.)] |Step \d{1,2}: )?\*{0,2}"
    r"(?:Reduce|Lower|Use|Try|Check|Set|Increase|Enable|Disable|Update|Upgrade|Install|Reinstall|Make sure|Ensure|Verify|Add|Run|"
    r"Clear|Monitor|Avoid|Consider|Restart|Switch|Limit|Free|Remove|Replace|Call|Move|Downgrade|Adjust|Configure)\b"
    r"(?! (?:from|version))"
)
_OF_A_GUIDE = re.compile(
    r"(?i)\bhere(?:'s| is| are) (?:how|some|a few|what)\b|\b(?:this|the following) (?:guide|article|tutorial)\b"
    r"|\bend of this (?:article|guide)\b|\b(?:complete|troubleshooting|ultimate|beginner'?s) guide\b|本文|教程|руководств"
    r"|\bcould trigger this\b|\bcode snippet (?:you|that)\b"
)
_REPORTS = re.compile(
    r"\b(?:I|I'm|I've|[Ww]e|[Mm]y|[Oo]ur|me|us|mine|[Ii]ch|[Ww]ir|[Uu]ns|[Uu]nsere?[nmrs]?|[Mm]eine?[nmrs]?)\b|[\u6211\u8bf7]"
)


def is_lesson(head: str) -> bool:
    """Whether a text teaches of errors: what it quotes happened to no job here."""
    text = _MESSAGE.sub("", head[:LOOKED_AT])
    if _REPORTS.search(text) or STAMP.search(text):
        return False
    headings = len({found[0].strip().lower() for found in _HEADING.finditer(text)})
    commands = len(_COMMAND.findall(text)) >= LEAST_COMMANDS
    others = sum(each.search(text) is not None for each in (_TO_READER, _IN_GENERAL, _OF_A_GUIDE))
    return min(headings, 2) + commands + others >= LEAST_KINDS
