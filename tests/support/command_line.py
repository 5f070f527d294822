"""The command line in this process: a fresh interpreter for each command costs a second that says nothing."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from service.cli import run


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended, and the bytes that it printed."""

    returncode: int
    out: bytes
    err: bytes

    @property
    def stdout(self) -> str:
        """What it printed, as text."""
        return self.out.decode()

    @property
    def stderr(self) -> str:
        """What it said beside that."""
        return self.err.decode()


def faulthound(*arguments: str | Path) -> Done:
    """Run a command as a pipe sees it: no terminal, UTF-8."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = run([str(argument) for argument in arguments])
    out.flush()
    return Done(code, out.buffer.getvalue(), err.buffer.getvalue())
