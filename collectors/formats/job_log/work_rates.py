"""The work a second that a line reports: ``12345 tok/s``, ``samples/s: 128.3``. A mean over many steps says nothing of one."""

from __future__ import annotations

import re

WORDS = ("/s", "per")
_WORK = r"(?:(?P<{0}>tok(?:en)?s?)|samples?|images?|imgs?|examples?)(?:/|[ _]per[ _])s(?:ec(?:ond)?)?"
_NUMBER = r"\d[\d.,]{0,17}(?<=\d)(?: ?(?-i:[kKM])(?![a-zA-Z]))?"
_OTHER_UNIT = r" ?(?:m?s|sec|it|iter|step|tok|token|%|[kKMGT]i?B)s?\b"
_TIMES = {"k": 1e3, "K": 1e3, "M": 1e6}
_RATE = re.compile(
    # A number after the name is the name's, unless it has a unit of its own: "loss 2.3 samples/s 128", "9 tok/s 1.2 s/it".
    rf"(?<![\w.,])(?P<before>{_NUMBER}) ?{_WORK.format('tokens')}\b(?! ?[:=])(?! \d[\d.]{{0,14}}(?![\d.]|{_OTHER_UNIT}))"
    rf"|(?<!avg )(?<!mean )(?<!average )(?<!running )\b{_WORK.format('of_tokens')} ?[:=]? ?(?P<after>{_NUMBER})",
    re.IGNORECASE,
)


def work_rates(text: str) -> dict[str, float]:
    """Return ``tokens_per_second`` and ``samples_per_second`` (of images, examples), as far as they are there; the first ones."""
    found: dict[str, float] = {}
    if any(word in text for word in WORDS):
        for rate in _RATE.finditer(text):
            name = "tokens_per_second" if rate["tokens"] or rate["of_tokens"] else "samples_per_second"
            number, times = (rate["before"] or rate["after"]).replace(",", ""), 1.0
            if number[-1] in _TIMES:
                number, times = number[:-1], _TIMES[number[-1]]
            try:
                found.setdefault(name, float(number) * times)
            except ValueError:  # "1.2.3"
                continue
    return found
