"""What a person's sentence reports: the line of a log within it ("after two hours it fails with `…`").

A sentence that supposes, asks, advises, or is of others or of the past, reports nothing: what it quotes stays a quotation.
"""

from __future__ import annotations

import re

MAX_CHARACTERS = 2048
_BEGINS = re.compile(r"\s{0,8}(?:[-*•>] {0,4}|\d{1,2}[.)] )?(?:\*\*)?[A-Za-z]")
_STAMPED = re.compile(r"\d\d:\d\d:\d\d|\b(?:INFO|DEBUG|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|[=|{}<>\[\]]|https?:")
_TELLS = (
    r"(?:[Gg]et(?:s|ting)?|[Gg]ot|gives?|gave|sees?|seeing|saw|hits?|hitting|receiv(?:es?|ed|ing)|throws?|threw|raises?|raised|prints?|"
    r"printed|shows?|showed|says?|said|reports?|reported|logs?|logged|contains?|stops?|stopped|die[sd]?|crash(?:es|ed|ing)?|"
    r"fail(?:s|ed|ing|ure)?|exit(?:s|ed|ing)?|abort(?:s|ed)?|[Ee]victed|ended|ends|returns?|returned|encounter(?:s|ed|ing)?|fac(?:e|ing)|"
    r"killed|drained|complains?|gone)"
)
_ERROR = (
    r"(?:(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception)\b:|NVRM: |\[Errno \d|CUDA error: |NCCL WARN |NCCL error|"
    r"Watchdog caught |NET/IB\w{0,4} ?: ?Got |"
    r"s(?:run|batch|alloc|lurmstepd): error: |slurm_load_\w{1,20}|The node was low on |\d{1,6}/\d{1,6} nodes are available: )"
)
_REPORT = re.compile(
    r"^(?P<before>.{0,400}?\b" + _TELLS + r"\b[\w ,.'’()-]{0,80}?[:,]?\s{1,4})"
    r"(?:(?P<sign>[\"`“‘']{1,3})(?P<quoted>.{12,1600}?)(?:(?:(?P=sign)|[”’])(?=[\s.,;:!?)]|$)|$)"
    r"|(?P<bare>" + _ERROR + r".{1,1600}))(?P<behind>.{0,600})$"
)
_OURS = re.compile(
    r"(?:\b(?:[Ii]|[Ww]e|[Mm]y|[Oo]ur|me|us)\b"
    r"|^\s{0,8}(?:[-*•>] )?(?:Got|Getting|Seeing|Hitting|Encountered|Facing)\b"
    r"|^\s{0,8}(?:[-*•>] )?(?:It|Training|Fine-?tuning|Inference|"
    r"(?:The|This) (?:job|run|training|script|program|process|server|engine)) "
    r"(?:then |always |still |now |just )?(?:crashes|crashed|fails|failed|dies|died|stops|stopped|exits|exited|aborts|aborted)\b"
    r"|(?i:^\W{0,8}(?:observed|actual|current) behaviou?r\W)"
    r"|^\s{0,8}(?:[-*•] )?(?:[Tt]he )?(?:[Kk]ernel(?: log)?|dmesg|[Jj]ournal|[Ss]yslog)(?: of [\w.-]{1,64})? "
    r"(?:then |now |also )?(?:says|shows|showed|reports|reported|logs|logged|prints|printed)\b)"
)
_HAPPENED = re.compile(
    r"(?i)\b(?:after (?:about |some |a |an |the |only |~)?(?:few |couple of )?"
    r"(?:\d|hour|minute|day|step|epoch|update|upgrade|reboot|restart)|"
    r"since (?:yesterday|this|today|the|last|\w{3,6}day)|this morning|today|yesterday|tonight|randomly|"
    r"every time|the following (?:error|exception)|at (?:step|iteration|epoch)|on (?:all|both|every|each|one|two|\d))\b"
)
_OF_TROUBLE = re.compile(
    r"(?i)error|errno|stale|exception|fail|fatal|xid|nccl|no space|quota|killed|evict|timed out|low on|abort|unable|not found|"
    r"no module|no kernel"
)
SUPPOSED = re.compile(
    r"(?i)\b(?:if|whenever|when (?:you|your|a|an|any|there|one|two)|in case|unless|until|should|would|"
    r"could(?!n)|can(?!'t|not)|may|might|will|"
    r"sometimes|usually|often|e\.g|such as|like|for (?:example|instance)|instead|rather|want|wish|expect\w*|ignored?|harmless|"
    r"fix(?:es|ed|ing)?|no longer|any ?more|(?:not|n't) (?:get|see|raise|throw|print|fail)\w*|without|had|"
    r"last (?:week|month|year|time)|previously|before(?! the\b)|formerly|used to|others?|some (?:people|users)|people|users?|"
    r"you|your|"
    r"how|why|what|which|does|do|explains?|means?|tests?|asserts?|verif\w+|simulat\w+|inject\w*|mock\w*|"
    r"handle[sd]?|catch(?:es)?|caught|retr(?:y|ies)|avoids?|prevents?|work ?arounds?|document\w*|docs?|"
    r"parse[sd]?|match(?:es)?|detects?|alerts?|grep|search(?:es)?|looks? for|dataset|prompt|answer|model)\b"
)
TO_COME = re.compile(
    r"(?i)\b(?:(?:is|are|was|were|be) (?:planned|scheduled for)|planned (?:\w+ )?(?:maintenance|outage|downtime|restart|reboot)|"
    r"upcoming|tomorrow|next (?:week|month|\w{3,6}day)|will be|imagin(?:e|ing)|hypothetical\w*|what happens|happens to the|"
    r"suppos(?:e|ing) (?:that|we|you|the|an?|one)|let's|(?:plan|going) to|in theory)\b|^\W{0,8}(?i:proposal|planned)\b"
)
"""A sentence of what is planned or imagined."""
_BEHIND = re.compile(
    r"(?i)^[^.?!]{0,300}\?|\b(?:is|are|was|were|got) (?:(?:now|no longer|already|only) )?(?:\w+ )?"
    r"(?:gone|fixed|resolved|solved|expected|harmless|handled|retried|ignored|raised|shown|printed)\b|\bmeans\b|\bdisappear"
)


def reported(text: str) -> str:
    """Return the line of a log that a sentence reports as having happened; any other text as it is."""
    if len(text) > MAX_CHARACTERS or not _BEGINS.match(text):
        return text
    found = _REPORT.match(text)
    if found is None:
        return text
    before, said = found["before"], found["quoted"] or found["bare"]
    clause = re.split(r"[.!?;] |, (?=(?:I|we|it|but|and) )", before)[-1]
    if _STAMPED.search(before) or SUPPOSED.search(clause) or _BEHIND.search(found["behind"]):
        return text
    if found["quoted"] and not _OF_TROUBLE.search(said):
        return text
    if not _OURS.search(before) and not _HAPPENED.search(before):
        return text
    return said.partition(" Traceback (most recent call")[0].strip().rstrip('`"”')
