"""Ranks of small jobs as forks of one process that has imported torch: each import takes two seconds of a core.

As a program it reads one ``Rank`` a line, and answers a line with an empty list by the exit statuses of those begun.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 120


class Forks:
    """The process that forks."""

    def __init__(self) -> None:
        environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self.close)

    def run(self, ranks: Sequence[dict[str, Any]]) -> list[int]:
        """Run scripts side by side; return their exit statuses.

        Of each: its ``arguments``, ``folder`` and ``environment``, and the files that get its ``output`` and ``errors``.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for rank in [*ranks, {}]:
            self._process.stdin.write(json.dumps(rank) + "\n")
        self._process.stdin.flush()
        statuses: list[int] = json.loads(self._process.stdout.readline())
        return statuses

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@cache
def forks() -> Forks:
    """Return the process that forks; it is started once."""
    return Forks()


def main() -> dict[str, Any] | None:
    """Fork as asked; return what to run in a child, None in the parent at its end."""
    import torch._dynamo  # the first step of an optimizer would import it, in two seconds of every rank
    import torch.distributed
    import torch.nn.parallel  # noqa: F401

    children: list[int] = []
    while line := sys.stdin.readline():
        if not (rank := json.loads(line)):
            statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
            print(json.dumps(statuses), flush=True)
            children = []
        elif child := os.fork():
            children.append(child)
        else:
            _become(rank)
            return rank
    return None


def _become(rank: dict[str, Any]) -> None:
    """Be as if this interpreter had just been started with these arguments."""
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY), (1, rank["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, rank["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):  # fmt: skip
        file = os.open(name, flags, 0o600)
        os.dup2(file, number)
        os.close(file)
    signal.alarm(LIMIT_SECONDS)
    os.chdir(rank["folder"])
    os.environ.clear()
    os.environ.update(rank["environment"])
    sys.argv, sys.path[0] = rank["arguments"], rank["folder"]


if __name__ == "__main__" and (job := main()) is not None:
    # At the top, so that exceptions, exit functions and the interpreter's end are the script's own.
    exec(compile(Path(sys.argv[0]).read_text(), sys.argv[0], "exec"), {"__name__": "__main__", "__file__": sys.argv[0]})
