"""The rank that a program's own logger writes at a line's head, behind stamps, levels, names and places in its source.

``2025-11-03 10:00:31 INFO [rank3] …`` and ``[10:00:31] train.py:88 rank=3 …`` name their speaker as ``[rank3]:`` does. The head
is walked token by token up to the text: a rank inside a sentence is what the line talks about. What stands before the rank stays
in the text, because its level and its time count; the rank is taken out.
"""

from __future__ import annotations

import re

WITHIN = 160  # characters: a head is no longer
MARK = "ank"  # a head without it names no rank; "Rank", "rank" and "local_rank" have it
MAX_TOKENS = 10
_SHOWN = re.compile(r"[Rr]ank[ :=_]{0,2}\d")  # spares the lines that talk about ranks, ranking or a bank the walk

_AFTER = r"(?:[ \t]{0,8}[-|:,]?(?:[ \t]{1,8}|(?=\[|$)))"
_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL"
_NODE_FIELD = r"(?:host|hostname|node)=(?P<named>(?!localhost )(?=[\w.-]{0,62}[A-Za-z])[\w.-]{1,63})"
_TOKEN = re.compile(
    r"(?:\[?\d{4}[-/]\d\d[-/]\d\d[ T_]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?\]?"
    r"|\[?(?:\d\d[-/]\d\d )?\d\d?:\d\d(?::\d\d(?:[.,]\d{1,9})?)?\]?"
    r"|\[?[IWEFD]\d{3,4} \d\d:\d\d:\d\d(?:\.\d{1,9})?"
    rf"|[\[(<]?(?i:{_LEVELS})[\])>]?"
    rf"|(?:{_LEVELS}):[\w.]{{1,80}}:"
    r"|\[?[\w./-]{1,120}\.py:\d{1,6}(?::\w{1,60})?\]?"
    r"|[A-Za-z_][\w.]{0,80}:[\w<>]{1,60}:\d{1,6}(?= {1,2}- )"  # loguru: module:function:line
    rf"|{_NODE_FIELD}(?= )"
    r"|(?:ts|time|timestamp|t|level|lvl|severity|caller|logger|component|module|service|job|run|pid)="
    r"(?:\"[^\"]{0,80}\"|[^\s\"=]{1,80})(?= )"
    r"|\[?\d{1,10}\]?"
    r"|\[[A-Za-z_][\w.:-]{0,80}\]"
    r"|[A-Za-z_]\w{0,60}(?:\.\w{1,60}){1,8}"
    r"|[A-Za-z_]\w{0,60}(?= {1,8}[-|] )"
    r"|(?P<node>(?=[\w.-]{0,62}\d)[a-z][\w.-]{0,62})(?= \[?local[_ ]rank))" + _AFTER
)
_NOT_ITSELF = (  # a rank that the line talks about: "rank 5: no heartbeat", "rank=5 is not responding"
    r"(?!(?:is|was|has|had|did|does|not?|never|failed|exited|died|ended|timed|timeout|crashed|stopped|hangs?|hung|lost|killed|left|"
    r"stuck|terminated|unreachable|unresponsive|missing|disconnected|returned|reported|joined|seems|appears|"
    r"Received SIG|Child process|[Ee]xit)\b|[Nn]ode=)"
)
_RANK = re.compile(
    r"(?:\[rank(?P<own>\d{1,7})\]:?"
    r"|(?:\[local[_ ]rank[ :=]{0,2}(?P<local>\d{1,4})\]:?|local[_ ]rank[ :=](?P<bare_local>\d{1,4})(?=[\s,:|]):?"
    r"|\[[Rr]ank[ :=_]{0,2}(?P<bracketed>\d{1,7})(?:/\d{1,7})?\]:?|\([Rr]ank[ :=_]{0,2}(?P<round>\d{1,7})\):?"
    r"|[Rr]ank[ _=]?(?P<stepping>\d{1,7})(?=:? {1,2}(?:[-|] {1,2})?(?:global[_ ]|train )?(?:step|iter)\w{0,6}[ :=]{1,2}\d):?"
    r"|rank=(?P<equals>\d{1,7})(?=[\s,:|])[,:]?|[Rr]ank[ _]?(?P<bare>\d{1,7})(?=: | {1,2}\|| - ):?)"
    rf"(?= ?+[-|]?+ ?+{_NOT_ITSELF}))(?: {{1,2}}[-|](?= ))?(?: |(?=\[)|$)"
)
_FIELDS = re.compile(rf"{_NODE_FIELD} (?=\w{{1,30}}=)")
"""The node in a row of fields behind the rank."""
_OF_JOB = ("own", "bracketed", "round", "stepping", "equals", "bare")
_BARE = ("equals", "bare", "bare_local")  # a line's first words may be a row of ranks: these count behind a stamp alone
_OF_GROUPS = (".cpp:", "ProcessGroup", "atchdog", "NCCL", "ollective", "store")
"""torch's ``[Rank 3]`` before these is a rank inside a process group, which ``log_marks`` reads."""


def spoken(text: str) -> tuple[str, dict[str, str], str] | None:
    """Return the text without the rank at its head, what names the speaker, and the stream's name; None where none does."""
    if _SHOWN.search(text, 0, WITHIN) is None:
        return None
    given: dict[str, str] = {}
    at = 0
    for _ in range(MAX_TOKENS):
        if (found := _RANK.match(text, at)) and _is_speaker(found):
            kind = found.lastgroup or ""
            given["rank" if kind in _OF_JOB else "local"] = found[kind]
            text = text[:at] + text[found.end() :]
        elif not given.keys() - {"node"} and (found := _TOKEN.match(text, at)):
            at = found.end()
            if node := found["node"] or found["named"]:
                given["node"] = node
        else:
            break
    if not given.keys() - {"node"}:
        return None
    if found := _FIELDS.match(text, at):
        given["node"] = found["named"]
    name = " ".join(f"{key}{value}" for key, value in sorted(given.items()))
    return text, given, f"[ {name}]" if at else f"[{name}]"


def _is_speaker(found: re.Match[str]) -> bool:
    if found.lastgroup in _BARE:
        return found.start() > 0
    return found.lastgroup != "bracketed" or not any(word in found.string[:300] for word in _OF_GROUPS)
