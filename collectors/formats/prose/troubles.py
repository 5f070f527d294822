"""Whether a text as a whole may report a failure: a line of it does, and it is no program's source nor a change to one."""

from __future__ import annotations

import re

from collectors.formats.job_log.statements import is_lesser
from collectors.formats.prose.accounts import OURS, SENTENCES, is_change, is_prose
from collectors.formats.prose.advice import changed_lines, is_of_tests
from collectors.formats.prose.good_ends import is_running_pod
from collectors.formats.prose.lessons import is_lesson
from collectors.formats.prose.reports import TO_COME
from collectors.formats.prose.sound_logs import is_everyday, is_of_table, is_sound
from collectors.formats.prose.test_runs import is_test_run
from collectors.formats.prose.watch_rules import is_task, is_watch_rules

SOURCE_SHARE = 0.5  # of the lines that are not empty
_SOURCE = re.compile(
    r"[;{}]\s*$|^\s*(?:#!|#\s?(?:include|define|SBATCH)\b|import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+.*:\s*$"
    r"|try:\s*$|except\b.*:\s*$|raise \w|return\b|(?:if|for|while|with) .{1,100}:\s*$|elif |else:|//|/\*|(?:fi|then|done)\s*$"
    r"|export \w+=|echo )"
)
_TROUBLE = re.compile(
    r"(?i)fail|error|exception|(?<!de)fault|crash|\bh[au]ng|stuck|freez|frozen|(?<!b)lock(?:s|ed|up)?\b|blocked|"
    r"kill(?:s|ed|ing)|abort|\bdead|"
    r"\bdie[sd]?\b|broke|cannot|can'?t\b|can not|unable|couldn'?t\b|"
    r"(?:does|do|did|is|are|was|were|has|have|wo)n[o']?t (?:\w+ )?(?:be |been |being )?"
    r"(?:work|start|run|connect|respond|match|load|show|find|found|see|detect|finish|recogni|available|progress|converge|reach|"
    r"use|scale|able|initial|support|compat|seem|make|move|stop|\w+ed\b)|"
    r"(?:is|are|was|were) not\b|not (?:\w+ )?(?:work|found|match|load|respond|\w+ed\b|show)|"
    r"no (?:space|route|such|longer|module|CUDA|GPUs?|devices?|kernel)\b|slow|\bworse\b|\bwait|pending|unstable|unschedul|"
    r"delay|latency|regress|increas|drop|\blow(?:er)?\b|timed? ?out|lost|los(?:es|ing)\b|\bmiss(?:es|ed|ing)?\b|"
    r"\bsig[a-z]{3,4}\b|full\b|denied|refused|reject|exceed|insufficient|\boom|memory|corrupt|mismatch|wrong|incorrect|problem|"
    r"issue|bug\b|invalid|unhealthy|unreach|\bdown\b|nans?\b|\bstop|conflict|imbalanc|stale|pressure|evict|reboot|preempt|"
    r"disabled|trouble|NCCL WARN|vendor err|duplicate|100 ?%(?!\s?[|\[]| Completed)|bottleneck|"
    r"错|失败|卡|慢|异常|不足|死|无法|不能|问题|溢出|"
    r"hängt|bricht|abgebr|abgest|\bvoll\b|fehler|ausgefallen|defekt|unterbrochen|langsam|verweigert"
)
_FAILURE = re.compile(
    r"(?i)fail|error|exception|crash|\bh[au]ng|stuck|froze|dead ?lock|killed|abort|\bdied\b|timed out|\blost\b|cannot|unable|"
    r"\boom|out of memory|\bnans?\b|slow|corrupt|mismatch|\bis down\b|not (?:found|respond|success|enabled)|exceeded|"
    r"dropped|refused|\bsig(?:kill|segv|abrt|bus)|segmentation|错|失败|卡|异常|不足|无法|不能|溢出"
)
"""Of the words of trouble those that a document has of a failure alone."""
_STATED = re.compile(
    _FAILURE.pattern
    + r"|(?<!de)fault|\bdead\b|block|deni|invalid|insufficient|pending|evict|preempt|kill|terminat|unavail|unreach|"
    r"unschedul|unhealthy|time ?out|conflict|reject|exceed|broke|incorrect|wrong|warn|panic|full\b|\bbug\b|problem|"
    r"not (?:be )?\w+ed\b|"
    r"\bno (?:space|route|such|module|cuda|gpus?|devices?|kernel)\b|n't\b|\bsig[a-z]{3,4}\b|"
    r"死|溢出|问题|fehler|ausgefallen|defekt|abgebr|verweigert"
)
"""A word without which the lines of a program state no failure."""
_NEGATED = re.compile(
    r"(?i)\b(?:no|0|zero|without)\s(?:\w+\s)?(?:errors?|failures?|faults?|exceptions?|timeouts?|deadlocks?|warnings?|problems?)\b"
)
_HEALTHY_CONDITION = re.compile(
    r"\s{0,8}(?!(?:Ready|Initialized|ContainersReady|PodScheduled|Available|Progressing)\b)[A-Z]\w{2,60}\s{1,40}False(?:\s|$)"
)
"""A row of the conditions that ``kubectl describe`` lists: but for a few, the condition is what is wrong when it is true."""
_UNWELL_CONDITION = re.compile(
    r"\s{0,8}(?:(?:Ready|Initialized|ContainersReady|PodScheduled|Available)\s{1,40}(?:False|Unknown)"
    r"|\w{0,40}(?:Pressure|Unavailable|Deadlock|Error|Errors|Problem|Unhealthy|ReadonlyFilesystem)\s{1,40}True)(?:\s|$)"
)
_SETTING = re.compile(
    r"""\s*(?:[-*+]\s+)?["']?"""
    r"(?!(?i:[\w./-]{0,60}(?:error|failed|reason|message|msg|status|state|exit|code|cause|exception|signal|warning|result|event|phase|"
    r"""type)["']?\s?[:=]))"""
    r"""[\w./\[\]-]{1,60}["']?\s{0,40}(?:=|:=?)\s{0,8}"""
    r"""(?:[|>\[{]?|["']?[\w.,/@:+${}\[\]-]{0,120}["']?,?\s{0,8}(?:\#.*)?)$"""
)
"""A key and a value of one word, of a file of settings; no key under which programs report."""
_COMMAND = re.compile(
    r"\s*(?:[$#>%] )?(?:(?:sudo|export|pip3?|conda|apt|apt-get|docker|podman|kubectl|helm|torchrun|python3?|srun|sbatch|salloc|"
    r"git|cd|mkdir|wget|curl|ls|cat|echo|source|module|mpirun|deepspeed|accelerate|bash|sh|ray|vllm|make|cmake|set) [\w./\"'$-]"
    r"(?!.{0,400}(?:: |rror|ailed))|[A-Z_]{3,40}=\S{1,80} )"
)
_OPTION = re.compile(r"\s*(?:[-*+] )?[`*]{0,3}--?[a-zA-Z][\w-]{0,60}(?:[`*= <\[:,]|$)")
_MEANING = re.compile(
    r"\s*(?:[-*•+] +|\d{1,2}[.)] +)[`*]{0,3}(?!\w*(?:rror|xception))[\w.-]{3,40}[`*]{0,3}[:：] +"
    r"(?i:the|an?|if|when|how|whether|all|number|this|used?)\b"
)
"""An item of a list that says what a word means."""
_SUPPOSED = re.compile(
    r"(?i)\b(?:if|whenever|in case|unless|should|will|may|would|might|could(?!n)|e\.g|such as|for (?:example|instance)|your?|"
    r"prevent\w*|avoid\w*|fix(?:es|ed)?)\b"
)
_SUPPOSED_OF_OURS = re.compile(
    r"(?i)\b(?:would|might|e\.g|for (?:example|instance)|you (?:can|may)|prevent\w*|avoid\w*)\b"
)
_DIRECTED = re.compile(
    r"(?i)\W{0,8}(?:use|set|make|check|ensure|run|install|try|add|enable|disable|note|see|please|increase|reduce|lower|allow|support|"
    r"limit|monitor|consider|expose|require)\b"
)
"""A sentence that asks for a deed."""
_WELL = re.compile(
    r"(?i)^(?!.*\b(?:but|however|although|though|when|while|until|unless|except|only|if|then|yet|still|with|on)\b).*\b(?:"
    r"works? (?:now|again|fine|well|as (?:it should|expected))|without (?:any )?(?:errors?|problems?|issues?|crash\w*|hangs?)|"
    r"(?:does|did|do|has|have)(?: not|n't) (?:crash|hang|fail|happen|occur)\w*|"
    r"no (?:errors?|problems?|issues?|crash\w*) (?:at all|so far|since))\b"
)
"""A sentence that all is well, and in which nothing is set against it."""
_WISH = re.compile(
    r"(?i)\bwould be (?:very |really )?(?:great|nice|good|helpful|useful|cool|ideal)\b|\bplease (?:add|support|consider|expose)\b"
    r"|\b(?:I|we)(?:'d| would) (?:suggest|propose|(?:like|love) (?:an?|the|it|if|to (?:see|have))\b)|\bfeature request\b|\bRFC\b"
)
_ADVICE = re.compile(
    r"\S{1,300}\.py:\d{1,6}: (?!.{0,400}(?:rror\b|xception|ailed))|\s{0,8}warnings\.warn\("
    r"|`Trainer\.\w{1,40}` stopped: `max_\w{1,40}="
)
"""What Python's ``warnings`` writes of code that runs on, and the good end of a run below Lightning."""


def may_report(text: str) -> bool:
    """Whether a line of a text may report a failure, and the text does not mostly consist of source or describe a change."""
    of_no_job = (is_of_tests, is_test_run, is_watch_rules, is_task, is_lesson, is_running_pod, _is_source)
    return _reports(text) and not (is_change(text) or any(each(text) for each in of_no_job))


def _reports(text: str) -> bool:
    """Whether a program printed a word of trouble, or a sentence has one that wishes, plans and supposes nothing.

    Settings, commands, options and what explains them have such words in every how-to.
    """
    changed, wishes = changed_lines(text), _WISH.search(text) is not None
    by_us, by_document = (_TROUBLE, _SUPPOSED_OF_OURS), (_FAILURE, _SUPPOSED)
    is_ours, sound = OURS.search(text) is not None, is_sound(text)
    if any(map(_UNWELL_CONDITION.match, text.splitlines())):
        return True
    printed = False
    for number, line in enumerate(text.splitlines(), 1):
        if number in changed or not _TROUBLE.search(line) or _HEALTHY_CONDITION.match(line):
            continue
        if any(each.match(line) for each in (_SETTING, _COMMAND, _OPTION, _MEANING, _ADVICE)):
            continue
        if is_everyday(line) and not OURS.search(line):
            continue
        if not is_prose(line):
            printed = printed or not (sound or is_lesser(line) or is_of_table(line))
        elif not wishes and any(
            _is_complaint(said, *(by_us if is_ours or number == 1 else by_document)) for said in SENTENCES.split(line)
        ):
            return True
    return printed and _states_failure(text)


def _states_failure(text: str) -> bool:
    """Whether any line has a word of failure that it does not deny."""
    lines = (line for line in text.splitlines() if not (_HEALTHY_CONDITION.match(line) or is_everyday(line)))
    return any(_STATED.search(_NEGATED.sub("", line)) for line in lines)


def _is_complaint(said: str, words: re.Pattern[str], supposed: re.Pattern[str]) -> bool:
    leaves_open = (
        said.rstrip().endswith(("?", "？")) or _DIRECTED.match(said) or TO_COME.search(said) or _WELL.match(said)
    )
    return not leaves_open and words.search(said) is not None and not supposed.search(said)


def _is_source(text: str) -> bool:
    lines = [line for line in text.splitlines() if line.strip()]
    return sum(_SOURCE.search(line) is not None for line in lines) >= SOURCE_SHARE * len(lines)
