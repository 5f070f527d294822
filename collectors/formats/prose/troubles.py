"""Whether a text as a whole may report a failure: it has a word of trouble, and is no program's source nor a change to one."""

from __future__ import annotations

import re

from collectors.formats.prose.accounts import CHANGES
from collectors.formats.prose.advice import is_of_tests

SOURCE_SHARE = 0.5  # of the lines that are not empty
_SOURCE = re.compile(
    r"[;{}]\s*$|^\s*(?:#!|#\s?(?:include|define|SBATCH)\b|import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+.*:\s*$"
    r"|try:\s*$|except\b.*:\s*$|raise \w|return\b|(?:if|for|while|with) .{1,100}:\s*$|elif |else:|//|/\*|(?:fi|then|done)\s*$"
    r"|export \w+=|echo )"
)
_TROUBLE = re.compile(
    r"(?i)fail|error|exception|fault|crash|\bh[au]ng|stuck|freez|frozen|lock(?:s|ed|up)?\b|kill|abort|\bdead|"
    r"\bdie[sd]?\b|broke|cannot|can'?t\b|can not|unable|n't\b|"
    r"not (?:\w+ )?(?:work|found|match|load|respond|\w+ed\b|show)|no (?:space|route|such|longer)|slow|\bwait|"
    r"delay|latency|regress|increas|drop|\blow(?:er)?\b|timed? ?out|lost|los(?:es|ing)\b|\bmiss(?:es|ed|ing)?\b|"
    r"full\b|denied|refused|reject|exceed|insufficient|\boom|memory|corrupt|mismatch|wrong|incorrect|problem|"
    r"issue|bug\b|invalid|unhealthy|unreach|nans?\b|\bstop|conflict|imbalanc|stale|pressure|evict|reboot|preempt|"
    r"disabled|warn|trouble|错|失败|卡|慢|异常|不足|死|无法|不能|问题"
)


def may_report(text: str) -> bool:
    """Whether a text has a word of trouble, and does not mostly consist of source or describe a change."""
    return _TROUBLE.search(text) is not None and not (CHANGES.search(text) or is_of_tests(text) or _is_source(text))


def _is_source(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(_SOURCE.search(line) is not None for line in lines) >= SOURCE_SHARE * len(lines)
