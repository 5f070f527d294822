"""Notes, errors and progress on stderr, beside the answer on stdout."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_SECONDS = 1.0  # before a progress bar shows
Progress = Callable[[int, int], None]


class Speech:
    """Writes to stderr; ``quiet`` leaves only the errors."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet

    def note(self, text: str) -> None:
        """Print a note."""
        if not self.quiet:
            _say(text)

    def error(self, text: str) -> None:
        """Print an error."""
        _say(f"faulthound: {text}")

    @contextmanager
    def progress(self, what: str) -> Iterator[Progress | None]:
        """Give a callable for (done, total) that draws a bar once it takes long; None without a terminal."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        bar = _Bar(what)
        try:
            yield bar.report
        finally:
            bar.close()


class _Bar:
    """A bar that appears after ``PATIENCE_SECONDS`` and imports rich only then."""

    def __init__(self, what: str) -> None:
        self.what, self.started_at = what, time.monotonic()
        self.close: Callable[[], None] = lambda: None
        self._update: Callable[[int, int], None] | None = None

    def report(self, done: int, total: int) -> None:
        """Draw the progress."""
        if self._update is None:
            if time.monotonic() - self.started_at < PATIENCE_SECONDS:
                return
            self._update = self._opened()
        self._update(done, total)

    def _opened(self) -> Callable[[int, int], None]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        drawn = Progress(*columns, console=Console(stderr=True), transient=True)
        drawn.start()
        task = drawn.add_task(self.what, total=None)
        self.close = drawn.stop
        return lambda done, total: drawn.update(task, completed=done, total=total)


def _say(text: str) -> None:
    from collectors.records.printable import printable

    line = printable(text)
    encoding = sys.stderr.encoding or "ascii"
    print(line.encode(encoding, "replace").decode(encoding), file=sys.stderr)


def colored(no_color: bool = False) -> bool:
    """Return whether stdout wants colours: a terminal, and neither --no-color, NO_COLOR nor TERM=dumb."""
    return sys.stdout.isatty() and not no_color and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def speaks_unicode() -> bool:
    """Return whether stdout can show arrows and dashes."""
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "utf16", "utf8sig")


def terminal_width() -> int:
    """Return the columns of the terminal, or of COLUMNS; 100 where there is neither."""
    return shutil.get_terminal_size((100, 24)).columns
