"""The two programs that are compared: how each is called, and whom it names in what it prints."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.measure import Run, beside_python

PREFIX = "_dump_"
WARMED_SECONDS = "seconds without imports: "

# Each warmed program first answers for a small folder, so that whatever it imports late is imported; then it times the
# folder that counts.
_WARMED = f"""
import sys, time
small, folder = sys.argv[1:]
{{define}}
answer(small)
started_at = time.perf_counter()
answer(folder)
print("{WARMED_SECONDS}" + str(time.perf_counter() - started_at), file=sys.stderr)
"""
_OURS = """
from service.cli import main
def answer(folder):
    sys.argv = ["faulthound", "diagnose", folder, "--json"]
    try:
        main()
    except SystemExit:
        pass
"""
_THEIRS = f"""
from torch.distributed.flight_recorder.fr_trace import main
def answer(folder):
    main([folder, "--prefix", "{PREFIX}", "--allow-incomplete-ranks"])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One analyzer: its command, the definition of ``answer`` for the warmed one, and whom its output names."""

    name: str
    command: tuple[str, ...]
    after_folder: tuple[str, ...]
    define: str
    named: Callable[[Run], frozenset[int]]

    def whole(self, folder: Path) -> list[str]:
        """Return the command as a user types it."""
        return [beside_python(self.command[0]), *self.command[1:], str(folder), *self.after_folder]

    def warmed(self, small: Path, folder: Path) -> list[str]:
        """Return a command that prints the seconds that the folder took once everything was imported."""
        return [sys.executable, "-c", _WARMED.format(define=self.define), str(small), str(folder)]


def warmed_seconds(done: Run) -> float | None:
    """Return the seconds that a warmed program printed; None: it crashed on the folder."""
    _, found, seconds = done.errors.rpartition(WARMED_SECONDS)
    return float(seconds.split()[0]) if found else None


def _named_by_verdict(done: Run) -> frozenset[int]:
    if not done.output:
        raise RuntimeError(f"no verdict, exit {done.exit_code}: {done.errors[-2000:]}")
    culprits = json.loads(done.output)["culprits"]
    return frozenset(rank for culprit in culprits for rank in culprit["ranks"])


def _named_by_torchfrtrace(done: Run) -> frozenset[int]:
    """Every rank it calls missing or culprit, wherever it does: it has no summary, a reader takes what is printed."""
    missing = re.findall(r"missing ranks: \{([\d, ]+)\}", done.errors)
    named = [rank for ranks in missing for rank in ranks.split(",")]
    named += re.findall(r"Culprit rank (\d+)", done.errors)
    return frozenset(int(rank) for rank in named)


OURS = Side(
    name="faulthound",
    command=("faulthound", "diagnose"),
    after_folder=("--json",),
    define=_OURS,
    named=_named_by_verdict,
)
THEIRS = Side(
    name="torchfrtrace",
    command=("torchfrtrace",),
    # Without the flag it stops at the first rank that left no dump and names nobody.
    after_folder=("--prefix", PREFIX, "--allow-incomplete-ranks"),
    define=_THEIRS,
    named=_named_by_torchfrtrace,
)
