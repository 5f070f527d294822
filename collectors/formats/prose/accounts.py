"""What a person reports a failure, in a text of which no line shows why: a thread's title, a sentence, an answer that solved it.

It is the weakest evidence that is read, and decides only where the lines of programs leave the cause open. A sentence that
supposes, asks, wishes, denies, or is of others reports nothing, nor does one of a text that describes a change or advises.
Where the sentences of a text name more than two errors, none is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from collectors.formats import Input
from collectors.formats.job_log import statements, vocabularies
from collectors.formats.prose import account_words
from collectors.formats.prose.advice import is_advice, is_of_tests
from collectors.formats.prose.lessons import is_lesson
from collectors.formats.prose.reports import SUPPOSED, TO_COME
from collectors.formats.prose.titles import ASKS, TALKS, without_tags
from collectors.records import ACCOUNT, KernelEvent, LogEvent

LOOKED_AT = 8192  # characters of a text
MAX_LINE, MAX_TITLE = 2000, 240
LEAST_WORDS = 4
MOST_NAMED = 2
_FENCE = re.compile(r"\s{0,8}(?:```|~~~)")
_OF_A_LIST = re.compile(r"\s{0,8}(?:[-*+\"'(]|\d{1,3}[.)\s])")
_TITLE_MARK = re.compile(r"^#{1,3} ")
_OF_A_PROGRAM = re.compile(
    r"\d\d:\d\d:\d\d|\b(?:INFO|DEBUG|WARN(?:ING)?|ERROR|CRITICAL|FATAL)\b|[{}<>|│$\t]|;\s*$|[a-z_]\w*\(|://|NVRM: |\bXid\b"
    r"|\bSkipping step\b"
    r"|\b\w*(?:rror|xception|[a-z][A-Z]\w{0,40})\w{0,20}\"?: |thrown while|\.\.\.$"
    r"|\.(?:h|c|cc|cpp|cu|py|go|md|rst|ya?ml|txt):\d"
    r"|^\s{0,8}\[rank\d|\b(?:step|iter(?:ation)?|epoch)s?\b[ :=#]{0,3}\d[^.]{0,60}\bloss\b"
    r"|^\s{0,8}(?:File \"|at |\.\.\.|import |from \S+ import|[-+>]{1,2} +(?:fixed|added)|\+ )"
)
"""What a program printed, and the other readers have judged; and what is of a program's source or of a list of its changes."""
_PLAIN = re.compile(
    r"[(\"'*_]{0,3}[A-Za-zÄÖÜäöüß][A-Za-zÄÖÜäöüß'’-]*[)\"'*_.,:;!?]{0,3}|\d{1,6}[.,:%]?|[\u4e00-\u9fff].*"
)
PLAIN_SHARE = 0.7  # of the words of a line that a person wrote
_WORD = re.compile(r"[A-Za-z][\w'’-]*|[\u4e00-\u9fff]{2}")
_COMMON = re.compile(
    r"(?i)\b(?:der|das|ist|und|nicht|wir|ich|auf|nach|beim|unser\w{0,2}|meine?|kein\w{0,2}|seit|"
    r"the|an?|is|are|was|were|i|we|my|our|it|this|that|when|after|with|on|in|of|to|and|but|has|have|not|only|all|each|every)\b"
    r"|[\u4e00-\u9fff]{4}"
)
SENTENCES = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])")
_CODE = re.compile(r"`([^`\n]{1,200})`")
_QUOTES, _ARROW = re.compile(r"[\"“”]"), re.compile(r"\s*(?:-+>|=>|→)\s*")
_NEGATION = re.compile(r"(?i)\b(?:do|does)(?: not|n't)\b")
_EXCEPTION = re.compile(r"(?:rror|xception)\w{0,20}: ")
_ASIDE = re.compile(r" \([^()]{1,80}\)")
CHANGES = re.compile(
    r"(?im)^\W{0,6}(?:feat|fix|chore|docs?|refactor|test|perf|ci|build)(?:\([^)\n]{1,40}\))?!?: "
    r"|^\W{0,6}(?:# )?(?:description|proposed (?:solution|change)|solution|what would you like to be added|motivation|test plan|"
    r"feature request|is your feature request|executive summary|notice|release notes|changelog|tests|checklist)\W{0,4}$"
    r"|\A\W{0,6}(?:closes|resolves) \W{0,2}\d|^\W{0,6}what changed\b"
    r"|^\W{0,6}(?:why are these changes needed|key changes|LGTM|looks good to me|goals?:|sections:|part of the epic)"
    r"|\A\W{0,6}(?:\[[\w ]{1,16}\] )?(?:enable|disable|prevent|avoid|allow|ensure|reading|fail fast|make (?:sure|the)) \w"
    r"|\A\W{0,6}(?:\w+ )?(?:adds?|fix(?:es|ed)?|implements?|introduces?|improves?|refactors?|removes?|updates?|supports?) \w"
    r"|^\W{0,6}(?:NOTICE|FAQ|Changelog|Release notes)\b|\b(?:what would you like|this (?:pr|pull request|patch|commit) )"
)
_FORM = re.compile(
    r"(?im)^\W{0,6}(?:describe the (?:bug|issue)|bug description|your current environment|"
    r"what happened(?: \+ what you expected to happen)?|(?:steps )?to reproduce|how to reproduce|reproduction|"
    r"(?:actual|observed|current) behaviou?r|error (?:message|log)s?)\W{0,4}$"
)
_OF_FORMS = re.compile(
    r"(?i)^\W{0,6}(?:# )?(?:description|proposed (?:solution|change)|solution|tests|checklist|NOTICE|Release notes)\W{0,4}$"
)
"""Headings of a tracker's form for bugs, and those that it shares with the description of a change."""
_SOLVED = re.compile(
    r"(?i)\b(?:turn(?:s|ed) out|figured (?:it |this )?out|the (?:root )?(?:cause|reason|problem|issue|culprit) (?:was|is)|"
    r"root cause|caused by|due to|(?:was|is) because|(?:solved|fixed|resolved) (?:it |this )?by|after (?:replacing|swapping)|"
    r"found (?:out )?that)\b"
)
OURS = re.compile(
    r"\b(?:I|I'm|I've|[Ww]e|[Mm]y|[Oo]ur|me|us|mine|[Ii]ch|[Ww]ir|[Uu]ns|[Uu]nsere?[nmrs]?|[Mm]eine?[nmrs]?)\b"
    r"|[\u6211\u8bf7]|报错|退出了|崩溃了|中断了|用的是"
)
_QUOTED = re.compile(r"^\s{0,4}>")
_HEDGED = re.compile(
    r"(?i)\b(?:maybe|perhaps|probably|possibl[ey]|i (?:think|guess|suspect|wonder|assume)|not sure|seems?|suspect\w*|likely|or)\b"
)
_OPEN = re.compile(r"(?i)\b(?:if|should|would|could|might|may|can you|how|why|what|which)\b")
"""What is left open in a sentence that says what it turned out to be."""
_SAYS = re.compile(
    r"(?i)\b(?:fail(?:s|ed|ing|ure)?|crash\w*|throws?|threw|raises?|raised|reports?|reported|get|gets|got|getting|die[sd]?|dead|"
    r"kill(?:s|ed)|abort\w*|ends? (?:with|in)|ended (?:with|in)|terminat\w+|hits?|error|exception|exits?|exited|broken|stuck|"
    r"hang(?:s|ing)?|returns?|returned)\b"
)
_DENIED = re.compile(
    r"(?i)\b(?:not|no|never|without|impossible|unlikely|cannot|can't|won't|isn't|wasn't|don't|didn't|doesn't|rule[sd]? out|"
    r"instead of|rather than|free of|avoid\w*|prevent\w*|no longer|false alarm|unlike)\b(?:\s+[\w'’]{1,20}){0,2}\s*$"
)
_Said = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Stated:
    """A sentence that reports an error: its line, its words, and the error's name."""

    line: int
    said: str
    name: str


def is_change(text: str) -> bool:
    """Whether a text describes a change to a program; the form in which a bug is reported has some of the same headings."""
    found = (each[0].strip() for each in CHANGES.finditer(text))
    return any(not _OF_FORMS.match(said) for said in found) if _FORM.search(text) else CHANGES.search(text) is not None


def events(input: Input) -> Iterator[LogEvent]:
    """Yield what the sentences of a text report, an event for each error that they name."""
    seen: set[str] = set()
    for stated in statements_in(input.head[:LOOKED_AT].decode(errors="replace")):
        if stated.name not in seen:
            seen.add(stated.name)
            yield LogEvent(
                source=f"{input.source}:{stated.line}", event=ACCOUNT, code=stated.name, text=stated.said[:500],
                message=stated.said[:1000], node=input.node,
            )  # fmt: skip


def beside(input: Input, titled: Iterable[KernelEvent | LogEvent]) -> Iterator[LogEvent]:
    """Yield what a text's title, else its sentences, report beside lines that a program printed: words, which weigh less."""
    named = [each for each in titled if isinstance(each, LogEvent) and (each.code or each.exception)]
    if named:
        yield from (msgspec.structs.replace(each, event=ACCOUNT) for each in named)
    else:
        yield from events(input)


def statements_in(head: str) -> list[Stated]:
    """Return what a text reports: by what it turned out to be, else by its title, its sentences, or the answers of others."""
    if (is_advice(head) and not OURS.search(head)) or is_lesson(head):
        return []
    if is_of_tests(head) or is_change(head) or ASKS.search(head):
        return []
    title, sentences, answers = _parts(head)
    solved = [(number, said) for number, said in (*sentences, *answers) if _SOLVED.search(said)]
    for said_in, supposed in ((solved, _OPEN), (title, TALKS), (sentences, SUPPOSED), (answers, SUPPOSED)):
        if said_in is not title and not OURS.search(head):
            continue  # a document's sentences say what may happen to everybody
        if found := _all_stated(said_in, supposed):
            beside = _all_stated(sentences, SUPPOSED) if said_in is title else []
            return found if len({each.name for each in (*found, *beside)}) <= MOST_NAMED else []
    return []


def _all_stated(said_in: list[_Said], supposed: re.Pattern[str]) -> list[Stated]:
    return [stated for number, said in said_in if (stated := _stated(number, said, supposed))]


def _parts(head: str) -> tuple[list[_Said], list[_Said], list[_Said]]:
    """Return the title, the sentences and the quoted answers of a text, each with its line, without a program's lines."""
    title: list[_Said] = []
    sentences: list[_Said] = []
    answers: list[_Said] = []
    fenced, first = False, True
    for number, line in enumerate(head.splitlines(), 1):
        if _FENCE.match(line):
            fenced, first = not fenced, False
            continue
        if fenced or not line.strip() or len(line) > MAX_LINE:
            continue
        begins, first = first, False
        if begins and without_tags(_TITLE_MARK.sub("", line.strip())) is None:
            return [], [], []  # a wish
        if begins and (said := _title(line)) is not None:
            title.append((number, said))
        elif is_prose(line):
            into = answers if _QUOTED.match(line) else sentences
            into += [(number, said) for said in SENTENCES.split(_QUOTED.sub("", line))]
    return title, sentences, answers


def _title(line: str) -> str | None:
    """Return what a title says without its tags; None for what is a sentence or a program's line."""
    said = without_tags(_TITLE_MARK.sub("", line.strip()))
    if (
        said is None
        or len(said) > MAX_TITLE
        or len(SENTENCES.split(said)) > 1
        or said.rstrip().endswith((".", "。", ":"))
    ):
        return None
    said = _QUOTES.sub("", _ARROW.sub(", ", said))
    bare = _CODE.sub(r"\1", said)
    return said if _WORD.search(said) and not _OF_A_PROGRAM.search(bare) and not _OF_A_LIST.match(bare) else None


def is_prose(line: str) -> bool:
    """Whether a person wrote a line: mostly plain words, and nothing of a program."""
    bare = _CODE.sub("it", line)
    bare = _QUOTED.sub("", bare)
    words = bare.split()
    plain = sum(_PLAIN.fullmatch(word) is not None for word in words)
    return (
        not _OF_A_PROGRAM.search(bare)
        and plain >= PLAIN_SHARE * len(words)
        and len(_WORD.findall(bare)) >= LEAST_WORDS
        and _COMMON.search(bare) is not None
    )


def _stated(number: int, said: str, supposed: re.Pattern[str]) -> Stated | None:
    """Return what a sentence reports; None where it supposes, asks, denies, or names nothing."""
    said = _ASIDE.sub("", said)
    outside = _NEGATION.sub("", _CODE.sub("it", said))
    asks = said.rstrip(" `\"')").endswith(("?", "？"))
    if asks or supposed.search(outside) or TO_COME.search(outside) or _EXCEPTION.search(said):
        return None
    plain = said.replace("`", "")
    if found := account_words.find(plain):
        name, before = found[0], plain[: found[1].start()]
        return None if _HEDGED.search(before) or _DENIED.search(before) else Stated(number, said.strip(), name)
    names = {each.name for each in vocabularies.find(plain)} - statements.PASSED_OVER
    # A title needs no verb.
    says = (supposed is TALKS or _SAYS.search(outside)) and not _HEDGED.search(outside)
    return Stated(number, said.strip(), names.pop()) if says and len(names) == 1 else None
