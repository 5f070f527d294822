"""Words of trouble that a line quotes: a sample's text, a row of data, a sentence, a list, a program's source.

A program that fails prints its error at the beginning of a line, after what launchers and loggers write before it, or as the
value of a key for messages. Behind any other key, within a sentence or in a document's mark-up the same words are talked about.
Every quantifier is bounded, for a line may be hostile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LOOKED_AT, SENTENCE = 2048, 600  # characters before the words, and from them on
HEADING_WITHIN = 160  # characters: deeper in a line stands what it says
_WORD = re.compile(r"\w{1,200}$")
_CONTENT = (  # keys and headings below which stands what a model read or wrote
    r"(?:(?:model|generated|decoded|input|output|target|raw|gold|sampled|user|eval|val|test|train|ground)[_ -]?)?"
    r"(?:sample|prompt|completion|response|generation|generated|question|answer|query|instruction|text|prediction|chosen|rejected|"
    r"truth|hypothesis|rollout|solution|conversation|dialogue|dialog|assistant|human|user|decoded|example)s?"
)
_NUMBERED = r"(?:[ _#-]?\[?\d{1,6}\]?)?"
_HEADED = re.compile(
    rf"(?i)(?:^|[\])>|:] |\d |- )[\[({{<\"'*]{{0,2}}{_CONTENT}{_NUMBERED}[\"'*]{{0,2}}(?:\s?[:=]|[\])>])(?!//)"
)
"""A heading at the beginning of a line, or after a logger's prefix: ``sample 3: …``, ``[response] …``, ``{"text": …``."""
_OF_MESSAGES = re.compile(
    r"(?i)(?:err|error|errors|msg|message|log|exc|exc_info|exception|reason|cause|caused by|detail|details|status|stderr|stdout|"
    r"trace|traceback|stack|failed|failure|warn|warning|event|what\(\)|description|condition|raw|summary|"
    r"\w{1,40}(?:Error|Exception|_error|_msg|_message|_reason|Reason|Message))[\"']?\s{0,2}[:=]\s{0,2}$"
    r"|\b(?i:failed|fails|died|dies|crash(?:ed|es))\b[^|:.\n]{0,40}:\s{0,2}$"
    r"|[\"']line[\"']\s?:\s?$|\bErrorMessage $|panicked at $|\.go:\d{1,6}\] $"
)
_ROW_KEY = re.compile(rf"(?i){_CONTENT}|role|content|input_ids|messages")
_IN_ROW = re.compile(rf"(?i)[\"'](?:role|{_CONTENT})[\"']\s?:")
_MARKED = re.compile(
    r"\s{0,12}(?:(?:\+ )?#{1,6} ?(?:[A-Za-z]|\[[A-Za-z])|[-*] (?![\d\[])|\d{1,2}[.)] |//|/\*|<!--|[-+] {4,}|[│┃])"
    r"|[\w./-]{1,200}\.(?:md|mdx|rst|adoc|html|ya?ml|ipynb|txt):(?:\d{1,7}:)?"
)
"""A heading or comment, a list, a change of source, a cell of a drawn table; a document's line that grep found."""
_COMMENTED = re.compile(
    r"\s{0,40}(?:- |export |set |ENV )?[A-Za-z_][\w.-]{0,80}(?::|\s?=)\s?[^#\n]{0,240}\s#{1,2} |.{0,240}\S {2,8}# (?=\S)"
)
"""A comment behind a setting or behind a line of a program."""
_SENTENCE = re.compile(
    r"(?i)\b(?:(?<!did )you|your|i|if|when|whenever|should|would|often|sometimes|usually|e\.g|such as|like|means?|"
    r"fix(?:es|ed)?|work(?:s|ed)? around|handles?|avoids?|sees?|saw|says?|explains?|why|how|what does|asks?|alerts?|"
    r"unless|(?<![/.-])(?:some|many|other|several) (?:people|users)|retry when|was added|no longer|is it|possible|"
    r"we(?! are taking))\b|\bno $"
)
_SENTENCE_BEHIND = re.compile(
    r"(?i)\b(?:is (?:no longer|raised|shown|printed|retried|handled|caught|expected)|means|on purpose|"
    r"what (?:do|does|can|should)|how (?:do|can|to)|"
    r"when (?:you|the|a|an|two|labels)|if (?:you|the|a|an|its)|last (?:week|month|year))\b"
)
_BY_LOGGER = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL|SEVERE)\b|(?i:level[\"']?[=:]\s?[\"']?(?:error|fatal|crit))|\[?[EF]\d{3,4} \d\d:\d\d"
    r"|\.(?:cpp|cc|cu|h|hpp|go):\d{1,6}\]| NCCL WARN |slurmstepd: |srun: "
)
_EXCEPTION_BEFORE = re.compile(r"(?:[\w.]{1,80}(?:Error|Exception|error|failed): ?){1,3}$")


_SAID = re.compile(r"(?=(?:[A-Za-z\d][\w'’-]*,? ){7})[A-Z][^:=<>|/\[\]{}\\\"`]*[.?!]?\s*$|[^:=<>|\[\]{}]*\?\s*$")


def is_sentence(text: str) -> bool:
    """Whether a person wrote a line: seven words and none of the signs that a program puts around what it prints; a question."""
    return _SAID.match(text) is not None


def is_quoted(text: str, at: int) -> bool:
    """Whether the words at this place of a line are quoted or talked about, by what stands before and behind them."""
    before = text[max(0, at - LOOKED_AT) : at]
    if before[-1:].isalnum() and text[at : at + 1].isalnum():
        before = before[: len(before) - len(_WORD.search(before)[0])]  # type: ignore[index]
    if named := _EXCEPTION_BEFORE.search(before[-240:]):
        before = before[: len(before) - len(named[0])]
    if not before.strip() or before.lstrip().startswith('File "'):
        return False
    behind = text[at : at + SENTENCE].rstrip()
    if (
        _MARKED.match(before + behind[:1])
        or (" #" in before and _COMMENTED.match(before + behind[:1]))
        or _is_sampled(before, behind)
    ):
        return True
    if before.rstrip()[-1:] in "|│" and behind[-1:] in "|│" and not behind.lstrip().startswith("ERR!"):
        return True
    if _BY_LOGGER.search(before) or _open_quote(before) is not None:
        return False
    return _SENTENCE.search(before) is not None or _SENTENCE_BEHIND.search(behind.partition(". ")[0]) is not None


def is_sampled(text: str, at: int) -> bool:
    """Whether the words at this place are in what a model read or wrote, or in another string that is no message."""
    return _is_sampled(text[max(0, at - LOOKED_AT) : at], text[at : at + SENTENCE].rstrip())


def _is_sampled(before: str, behind: str) -> bool:
    if any(found.start() < HEADING_WITHIN for found in _HEADED.finditer(before[: 2 * HEADING_WITHIN])):
        return True
    opened = _open_quote(before)
    if opened is None:
        return False
    if before[: opened + 1].strip() == "`" and behind.find("`") in {-1, len(behind) - 1}:
        return False  # a line that a reporter marked as code
    return not _OF_MESSAGES.search(before[:opened][-80:]) or _IN_ROW.search(before[:opened]) is not None


def is_row(keys: Iterable[str]) -> bool:
    """Whether an object holds what a model read or wrote."""
    return any(_ROW_KEY.fullmatch(key) for key in keys)


def _open_quote(before: str) -> int | None:
    """Return where a string begins that has not ended; an apostrophe within a word begins none."""
    opened: int | None = None
    sign = ""
    for place, letter in enumerate(before):
        if letter not in "\"'`" or before[place - 1 : place] == "\\":
            continue
        if opened is not None:
            if letter == sign and not (sign == "'" and before[place + 1 : place + 2].isalnum()):
                opened = None
        elif letter != "'" or not before[place - 1 : place].isalnum():
            opened, sign = place, letter
    return opened


OPENERS = ("esponse:", "esponse]", "ompletion:", "ompletion]", "enerated:", "<|im_", "rompt]")
_OPENS = re.compile(rf"(?i)\s{{0,8}}(?:\[{_CONTENT}\]|(?:.{{0,80}}[\]:] )?{_CONTENT}{_NUMBERED}:\s*$|<\|im_start\|>)")
_CLOSES = re.compile(r"(?i)\s{0,8}\[(?:score|reward|ground_truth|extracted)\w{0,20}\]|<\|im_end\|>\s*$")
REGION_LINES = 64  # so far a text reaches below its heading


class Quotes:
    """Which lines of one process are quotations: by their own words, or below a heading of a model's text."""

    def __init__(self) -> None:
        self._until = 0  # the last line that the newest text may reach to

    def take(self, number: int, text: str, words: Iterable[str], *, stamped: bool) -> bool:
        """Whether a line quotes the words of trouble that it holds. ``stamped``: a logger wrote it."""
        marked = "[" in text or "<|" in text
        if stamped:
            self.end()
        elif (marked or text.rstrip().endswith(":")) and _OPENS.match(text):
            self._until = number + REGION_LINES
        within = number <= self._until
        if marked and _CLOSES.search(text):
            self.end()
        places = [place for word in words if word not in OPENERS and (place := text.find(word)) >= 0]
        return within or (bool(places) and is_quoted(text, min(places)))

    def end(self) -> None:
        """End the text: the process reports of itself again."""
        self._until = 0
