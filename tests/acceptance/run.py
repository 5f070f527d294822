"""Run every acceptance part in its own process, and say what each took.

A part is a module of this folder that has a `main`; it takes `--smallest`, keeps what it has finished (so that a second
call goes on where the first stopped) and exits 0 only if every claim held. The full form measures: one part at a time, and
one try. The smallest asks whether the parts still work, on a machine that may be busy: two at a time, because most of a
part is waiting for agents and engines, and a part that fails runs once more alone. The last lines name it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FOLDER = Path(__file__).parent
AT_ONCE = 2
LONGEST = "slow_jobs"  # its smallest takes as long as ten others, so it comes first where some run at once


def parts() -> list[str]:
    """Return the modules of this folder that can be run, this one left out."""
    modules = (path for path in FOLDER.glob("*.py") if path.name != Path(__file__).name)
    return sorted(path.stem for path in modules if '__name__ == "__main__"' in path.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Run the parts; a failed one does not stop the others, but fails the whole."""
    failed = at_once(arguments) if "--smallest" in arguments else one_by_one(parts(), arguments)
    if failed:
        print("failed:", *failed)
    if again := failed if "--smallest" in arguments else []:
        failed = [part for part in again if not passes(part, [*arguments, *anew(part)])]
        print("failed twice:", *failed or ["none"])
    print(f"\nacceptance: {len(parts()) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed or not parts() else 0


def at_once(arguments: list[str]) -> list[str]:
    """Run all parts, some at once, each printed whole when it has ended, and return the failed ones."""
    ordered = sorted(parts(), key=lambda part: part != LONGEST)
    with ThreadPoolExecutor(AT_ONCE) as runners:
        passed = list(runners.map(lambda part: passes(part, arguments, whole=True), ordered))
    return [part for part, well in zip(ordered, passed, strict=True) if not well]


def one_by_one(some: list[str], arguments: list[str]) -> list[str]:
    """Run these parts one after the other, with their output as it comes, and return the failed ones."""
    return [part for part in some if not passes(part, arguments)]


def anew(part: str) -> list[str]:
    """Return what makes a part that keeps its rows play the wrong ones again."""
    return ["--again"] if '"--again"' in (FOLDER / f"{part}.py").read_text(encoding="utf-8") else []


def passes(part: str, arguments: list[str], *, whole: bool = False) -> bool:
    """Run a part in its own process, print what it took, and return whether every claim held."""
    head = f"\n-- {part} {' '.join(arguments)}"
    if not whole:
        print(head, flush=True)
    started_at = time.perf_counter()
    outcome = subprocess.run(
        [sys.executable, "-m", f"tests.acceptance.{part}", *arguments],
        check=False, text=True, stdout=subprocess.PIPE if whole else None, stderr=subprocess.STDOUT if whole else None,
    )  # fmt: skip
    end = f"-- {part}: exit {outcome.returncode} after {time.perf_counter() - started_at:.1f} s"
    print(f"{head}\n{outcome.stdout}{end}" if whole else end, flush=True)
    return outcome.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
