"""Lines that no rule used: words of a fault, looked for before anything is said of files that gave nothing, and of a good end."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

MOST_FILES, MOST_BYTES, MOST_CHARACTERS = 200, 1 << 20, 160
_WORDS = (
    b"abort", b"core dumped", b"crash", b"critical", b"dead", b"error", b"exception", b"fail", b"fatal", b"hang", b"hung",
    b"killed", b"lost", b"panic", b"stuck", b"time out", b"timed out", b"timeout", b"traceback", b"uncorrect", b"unreachable",
    b"xid (",
)  # fmt: skip
_WHOLE = re.compile(
    rb"\b(?:abort(?:ed|ing)?|core dumped|crash(?:ed)?|dead(?:lock)?|\w*error|\w*exception|fail(?:ed|ure)|fatal|hangs?|hung"
    rb"|killed|lost|panic(?:ked)?|stuck|timed? ?out|traceback|uncorrect(?:able|ed)|unreachable)\b|\bxid \(pci:"
)
_CRITICAL = b"CRITICAL"  # a logger's level; in lower case it is a word of many subjects
_NAMED = re.compile(
    rb"\b\w*(?:error|exception): \S|\b(?:fatal|killed|panic|uncorrectable|abort(?:ed|ing)?)\b|failed[:.]? \S"
)
_LOGGED = re.compile(rb"\d\d:\d\d:\d\d|^\s{0,8}[\[<*]|\b[\w./-]{1,80}:\d{1,6}\b")
_SAID = re.compile(rb"^#|\b(?:i|we|you|my|our|is there|the following|this (?:is|error|happens)|how|why|when|if)\b")
_NONE = re.compile(rb"\b(?:no|0|zero|without)\s+(?:\w+\s+)?(?:errors?|failures?|exceptions?|timeouts?)\b|=\s?0\b")

_STEP = re.compile(rb"\b(?:steps?|iter|iteration)\b[ :=\[]{0,4}\d.{0,200}\bloss\b")
_MILD = re.compile(
    rb"\b(?:warn(?:ing)?|info|notice|caught|retrying|skipping|recovered)\b|^(?:\[rank\d+\]:)?\[?[wi]\d{3,4} \d\d:\d\d"
)
"""What a program itself calls less than an error: a step after it shows that the job went on, be it another rank's."""


def _weight(line: bytes) -> int:
    """Weigh a line in lower case: an error's name with what it says before a bare word, a person's sentence last."""
    return 2 * bool(_NAMED.search(line)) + bool(_LOGGED.search(line)) - bool(_SAID.search(line))


def first_unused(paths: Sequence[Path]) -> str | None:
    """Return the line with words of a fault that says most, as ``FILE:LINE: text``; None where no file has one."""
    from collectors.files.documents import is_document

    for path in islice((file for file in files(paths) if not is_document(str(file))), MOST_FILES):
        try:
            with path.open("rb") as stream:
                data = stream.read(MOST_BYTES)
        except OSError:
            continue
        lower = data.lower()
        if b"\0" in data[:4096] or not any(word in lower for word in _WORDS):
            continue
        lines, own = lower.splitlines(), data.splitlines()
        steps = [number for number, line in enumerate(lines) if _STEP.search(line[:400])]
        found = [
            (-_weight(line[:4096]), number)
            for number, line in enumerate(lines)
            if _WHOLE.search(line[:4096]) or _CRITICAL in own[number][:4096]
            if not _NONE.search(line[:4096])
            if not (_MILD.search(line[:400]) and bisect_right(steps, number) < len(steps))
        ]
        if found:
            _, number = min(found)
            text = " ".join(own[number].decode(errors="replace").split())[:MOST_CHARACTERS]
            return f"{path}:{number + 1}: {text}"
    return None


def finished(paths: Sequence[Path], *, teardown: bool = False) -> str | None:
    """Return where the first of the files says that the job has finished; None where one of them does not, or more were given.

    ``teardown``: what processes meet while they end may stand below that.
    """
    from collectors.formats.prose.good_ends import finished_at

    given = list(islice(files(paths), MOST_FILES + 1))
    said = [(file, _last_word(file, partial(finished_at, teardown=teardown))) for file in given[:MOST_FILES]]
    if not said or len(given) > MOST_FILES or any(number is None for _, number in said):
        return None
    return f"{said[0][0]}:{said[0][1]}"


def _last_word(file: Path, finished_at: Callable[[str], int | None]) -> int | None:
    try:
        with file.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError:
        return None
    return finished_at(data.decode("utf-8-sig", errors="replace")) if len(data) <= MOST_BYTES else None


def files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files at and below the paths."""
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.is_file())
        elif path.is_file():
            yield path
