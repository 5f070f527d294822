"""What a program's logger says right above a traceback of an error that it goes on after, and how it says goodbye.

``WARNING a bad row, skipping it`` and the traceback below it are one call of a logger. That the program went on as it said, only
its further steps or its good end show.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.job_lines import Line

STEPS_SAID = 2  # so many stamped steps of the same stream after it show that it went on

_GOES_ON = re.compile(
    r"(?i)\b(?:continu(?:e|es|ed|ing)|going on|goes on|carrying on|skip(?:s|ped|ping)?|retr(?:y|ies|ied|ying)|trying again|"
    r"ignor(?:ed|ing)|f(?:e|a)ll(?:s|ing)? back|recover(?:ed|ing)|caught)\b"
)
_GIVES_UP = re.compile(
    r"(?i)\b(?:not|cannot|can't|won't|never|unable|no more|giving up|gave up|exhausted|last|final|fatal|abort\w*|exit\w*|"
    r"fail(?:s|ed)? to)\b"
)
_BYE = re.compile(
    r"(?i)(?:^|[\]:|] |\b(?:INFO|NOTICE) )(?:(?:training|job|run|experiment) (?:is |has |was )?)?(?:finished|completed?|done)"
    r"(?: successfully)?(?:[.!]?\s*$|[,:;.]? (?:after |with )?\d{1,9} (?:steps?|epochs?|iterations?)\b)"
)
_TROUBLE = re.compile(r"(?i)\b(?:error|fail|exception|abort|incomplete|killed)")


def goes_on(above: Line, header: Line) -> bool:
    """Return whether the line above a traceback's header is its own logger's, and says that the program goes on."""
    if above.stream != header.stream or not above.is_stamped:
        return False
    return _GOES_ON.search(above.text) is not None and _GIVES_UP.search(above.text) is None


def says_goodbye(line: Line) -> bool:
    """Return whether a program says that it has finished: ``finished, 400 steps, bye``."""
    return _BYE.search(line.text) is not None and _TROUBLE.search(line.text) is None
