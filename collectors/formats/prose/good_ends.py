"""What a program, its launcher or its pod says at a good end, and what Python prints while it ends a program.

Formats: torch 1.13 to 2.13 (``elastic/agent/server/api.py``), transformers' and Lightning's trainers, ``kubectl describe``.
"""

from __future__ import annotations

import re

from collectors.formats.prose.accounts import OURS, is_prose
from collectors.formats.prose.sound_logs import has_trouble, is_everyday

_FINISHED = re.compile(
    r"(?i)worker group successfully finished|\bTraining completed\. Do not forget to share|"
    r"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d{1,12}` reached|^\s{2,12}Reason:\s{1,12}Completed\s*$|"
    r"\bsaved (?:the )?final (?:checkpoint|model|weights)\b(?!.{0,200}(?:fail|error))|"
    r"(?:^|[\]:|] )(?:training|job|run|experiment) (?:is |has |was )?(?:finished|completed?|done)"
    r"(?: successfully)?(?: in [\d.:hms ]{1,20})?(?:, exiting(?: with(?: code)?)? 0)?"
    r"(?:[.!]?\s*$|[.!;,] (?:final|best|total|saved)\b(?!.{0,200}(?:fail|error)))|^\[after training is done\]"
)
_TEARDOWN = re.compile(
    r"\bTCPStore\b|^Exception raised from (?:recv|send)\w{0,12} at |^frame #\d{1,3}: |"
    r"terminate called without an active exception|"
    r"(?:srun: error: \S{1,253}: tasks? [\d,-]{1,80}: |: line \d{1,6}: {1,4}\d{0,9} {0,4}|^)"
    r"(?:Aborted|Segmentation fault)(?: {1,4}\(core dumped\))?|: Exited with exit code 13[49]\s*$"
)
"""What a process says that its own end, or a peer's that was faster, met: the store that is gone, an abort."""
_IGNORED = re.compile(r"Exception ignored in\b")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*$")
_AT_EXIT = re.compile(r"in (?:_run_finalizers|_exit_function|_run_exitfuncs|__del__)\s*$")
_STATE = re.compile(r"(?P<margin>\s{2,12})(?P<last>Last )?State:\s{1,16}(?P<state>\w{4,12})\s*$")
_RUNNING = re.compile(
    r"(?m)^Status:\s{1,20}Running\s*$(?=[\s\S]{0,16000}^\s{2,12}State:\s{1,16}Running\s*$)"
    r"(?=[\s\S]{0,16000}^\s{2,12}Restart Count:\s{1,12}0\s*$)"
)
_NOT_READY = re.compile(
    r"(?m)^\s{2,12}(?:Ready:?|ContainersReady)\s{1,20}False\b|^\s{2,12}State:\s{1,16}(?!Running)\w|Unhealthy|Evict"
)


def is_running_pod(text: str) -> bool:
    """Whether ``kubectl describe`` shows a pod all of whose containers run, are ready and were never restarted."""
    return _RUNNING.search(text) is not None and _NOT_READY.search(text) is None


def finished_at(text: str, *, teardown: bool = False) -> int | None:
    """Return the line that says last that the job has finished, if none after it, and no person, reports a failure.

    ``teardown``: what processes meet, or die of, while they end is none.
    """
    earlier, lines = lines_of_earlier_attempts(text), text.splitlines()
    said = [(number, line) for number, line in enumerate(lines, 1) if number not in earlier]
    said = [(number, line) for number, line in said if not (teardown and _TEARDOWN.search(line))]
    found = [number for number, line in said if _FINISHED.search(line)]
    if not found or OURS.search(text) is not None or any(is_prose(line) and has_trouble(line) for _, line in said):
        return None
    after = _without_teardown([line for number, line in said if number > found[-1]])
    return None if any(has_trouble(line) and not is_everyday(line) for line in after) else found[-1]


def _without_teardown(lines: list[str]) -> list[str]:
    """Leave out the tracebacks that Python prints and ignores while a program ends."""
    kept: list[str] = []
    block: list[str] = []
    for line in lines:
        begins = _TRACEBACK.search(line) is not None
        if _IGNORED.search(line) is not None or (begins and not (block and _IGNORED.search(block[-1]))):
            kept += block
            block = [line]
        elif not block:
            kept.append(line)
        else:
            block.append(line)
            if not (begins or line.startswith(" ")):  # the exception's own line ends it
                ignored = _IGNORED.search(block[0]) or any(_AT_EXIT.search(each) for each in block)
                kept += [] if ignored else block
                block = []
    return kept + block


def lines_of_earlier_attempts(head: str) -> frozenset[int]:
    """Return the lines, counted from 1, in which ``kubectl describe`` shows how a container ended that has since ended well."""
    found: set[int] = set()
    margin: str | None = None  # of a container's last state
    state, well = "", False
    for number, line in enumerate(head.splitlines(), 1):
        if (heading := _STATE.match(line)) is not None:
            margin = heading["margin"] if heading["last"] and state == "Terminated" and well else None
            state, well = ("", False) if heading["last"] else (heading["state"], False)
        elif margin is not None and not line.startswith(margin + " "):
            margin = None
        elif re.match(r"\s{4,16}Exit Code:\s{1,12}0\s*$", line):
            well = True
        if margin is not None:
            found.add(number)
    return frozenset(found)
