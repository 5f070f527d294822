"""The work a second that a line reports: ``12345 tok/s``, ``samples/s: 128.3``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

WORDS = ("/s", "per")
BEFORE = 24  # characters before a rate, in which a word says what it is of
TOKENS, SAMPLES = r"tok(?:en)?s?", r"(?:samples?|seq(?:uence)?s?|images?|imgs?|examples?)"
A_SECOND = r"(?:/|[ _]per[ _])s(?:ec(?:ond)?)?"
_OF_ONE = r"(?:(?:/|[ _]per[ _])(?:gpu|device|chip|rank|node))?"
_WORK = rf"(?:(?P<{{0}}>{TOKENS})|{SAMPLES}){A_SECOND}{_OF_ONE}"
_NUMBER = r"\d[\d.,]{0,17}(?<=\d)(?: ?(?-i:[kKM])(?![a-zA-Z]))?"
_OTHER_UNIT = r" ?(?:m?s|sec|it|iter|step|tok|token|%|[kKMGT]i?B)s?\b"
_OF_OTHERS = re.compile(  # a mean says nothing of one step, and what a loader or a generation does nothing of training
    r"\b(?:avg|average|mean|running|smooth\w*|data|load\w*|read\w*|gen\w*|infer\w*|decod\w*|val\w*|eval\w*)\W{1,3}$",
    re.IGNORECASE,
)
_MEAN = re.compile(r"\W{1,3}(?:avg|average|mean|running)\b", re.IGNORECASE)
_TIMES = {"k": 1e3, "K": 1e3, "M": 1e6}
_RATE = re.compile(
    # A number after the name is the name's, unless it has a unit of its own: "loss 2.3 samples/s 128", "9 tok/s 1.2 s/it".
    rf"(?<![\w.,])(?P<before>{_NUMBER}) ?{_WORK.format('tokens')}\b(?! ?[:=])(?! \d[\d.]{{0,14}}(?![\d.]|{_OTHER_UNIT}))"
    rf"|\b{_WORK.format('of_tokens')} ?[:=]? ?(?P<after>{_NUMBER})",
    re.IGNORECASE,
)


def work_rates(text: str) -> dict[str, float]:
    """Return ``tokens_per_second`` and ``samples_per_second`` (of images, examples), as far as they are there; the first ones."""
    found: dict[str, float] = {}
    if any(word in text for word in WORDS):
        for rate in _RATE.finditer(text):
            if _OF_OTHERS.search(text, max(0, rate.start() - BEFORE), rate.start()) or _MEAN.match(text, rate.end()):
                continue
            name = "tokens_per_second" if rate["tokens"] or rate["of_tokens"] else "samples_per_second"
            number, times = (rate["before"] or rate["after"]).replace(",", ""), 1.0
            if number[-1] in _TIMES:
                number, times = number[:-1], _TIMES[number[-1]]
            try:
                found.setdefault(name, float(number) * times)
            except ValueError:  # "1.2.3"
                continue
    return found


_ACCUMULATED = ("gradient_accumulation_steps", "grad_accum", "accumulation_steps", "accumulate_grad_batches")
_LENGTHS = ("seq_len", "sequence_length", "seqlen", "context_length")


def rate_by_size(given: Mapping[str, Any], seconds: float) -> dict[str, float]:
    """Return the samples a second of a JSON line by its batch, tokens where it has the length of sequences; empty: no batch."""
    size = _number(given, ("global_batch_size",)) or _number(given, ("batch_size",)) * (
        _number(given, _ACCUMULATED) or 1.0
    )
    if not size or not seconds > 0:
        return {}
    length = _number(given, _LENGTHS)
    return {"tokens_per_second": size * length / seconds} if length else {"samples_per_second": size / seconds}


def _number(given: Mapping[str, Any], names: Iterable[str]) -> float:
    return next(
        (float(given[name]) for name in names if type(given.get(name)) in (int, float) and 0 < given[name] < 1e12), 0.0
    )
