"""``-`` among the paths of a verb is standard input: what is pasted or piped there is saved, and read as a file is."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from service.cli.speech import Speech

STANDARD_INPUT = Path("-")
NAME = "standard input"


@contextmanager
def saved(paths: Sequence[Path], speech: Speech) -> Iterator[list[Path]]:
    """Give the paths with standard input as a file; the file lives as long as the context."""
    if STANDARD_INPUT not in paths:
        yield list(paths)
        return
    if sys.stdin.isatty():
        speech.note("reading standard input: paste the lines, then press Ctrl-D")
    with tempfile.TemporaryDirectory(prefix="faulthound-") as folder:
        file = Path(folder) / NAME
        with file.open("wb") as target:
            shutil.copyfileobj(sys.stdin.buffer, target)
        yield [file if path == STANDARD_INPUT else path for path in paths]


def named(source: str) -> str:
    """Return a source, or a message that holds one, without the folder in which standard input was saved."""
    before, found, after = source.partition(f"/{NAME}")
    return before.rpartition(" ")[0] + (" " if " " in before else "") + NAME + after if found else source
