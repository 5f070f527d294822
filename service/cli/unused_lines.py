"""Lines with words of a fault that no rule used: before anything is said of files that gave nothing, they are looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

MOST_FILES, MOST_BYTES, MOST_CHARACTERS = 200, 1 << 20, 160
_WORDS = (
    b"abort", b"crash", b"dead", b"error", b"exception", b"fail", b"fatal", b"hang", b"hung", b"killed", b"lost", b"panic",
    b"stuck", b"time out", b"timed out", b"timeout", b"traceback", b"uncorrect", b"unreachable",
)  # fmt: skip
_WHOLE = re.compile(
    rb"\b(?:abort(?:ed|ing)?|crash(?:ed)?|dead(?:lock)?|\w*error|\w*exception|fail(?:ed|ure)|fatal|hangs?|hung|killed|lost"
    rb"|panic|stuck|timed? ?out|traceback|uncorrect(?:able|ed)|unreachable)\b"
)
_NONE = re.compile(rb"\b(?:no|0|zero|without)\s+(?:\w+\s+)?(?:errors?|failures?|exceptions?|timeouts?)\b|=\s?0\b")


def first_unused(paths: Sequence[Path]) -> str | None:
    """Return the first line with words of a fault, as ``FILE:LINE: text``; None where no file has one."""
    from collectors.files.documents import is_document

    for path in islice((file for file in _files(paths) if not is_document(str(file))), MOST_FILES):
        try:
            with path.open("rb") as stream:
                data = stream.read(MOST_BYTES)
        except OSError:
            continue
        lower = data.lower()
        if b"\0" in data[:4096] or not any(word in lower for word in _WORDS):
            continue
        for number, line in enumerate(lower.splitlines()):
            if _WHOLE.search(line[:4096]) and not _NONE.search(line[:4096]):
                shown = data.splitlines()[number].decode(errors="replace").strip()[:MOST_CHARACTERS]
                return f"{path}:{number + 1}: {shown}"
    return None


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.is_file())
        elif path.is_file():
            yield path
