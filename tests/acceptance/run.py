"""Run every acceptance part in its own process, one after the other, and say what each took.

A part is a module of this folder that has a `main`; it takes `--smallest`, keeps what it has finished (so that a second
call goes on where the first stopped) and exits 0 only if every claim held. A part that fails at its smallest, on a machine
that may be busy, runs once more; the last lines name it. The full form has one try.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent


def parts() -> list[str]:
    """Return the modules of this folder that can be run, this one left out."""
    modules = (path for path in FOLDER.glob("*.py") if path.name != Path(__file__).name)
    return sorted(path.stem for path in modules if '__name__ == "__main__"' in path.read_text(encoding="utf-8"))


def main(arguments: list[str]) -> int:
    """Run the parts; a failed one does not stop the others, but fails the whole."""
    failed = [part for part in parts() if not passes(part, arguments)]
    if failed:
        print("failed:", *failed)
    if again := failed if "--smallest" in arguments else []:
        failed = [part for part in again if not passes(part, arguments)]
        print("failed twice:", *failed or ["none"])
    print(f"\nacceptance: {len(parts()) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed or not parts() else 0


def passes(part: str, arguments: list[str]) -> bool:
    """Run a part in its own process, print what it took, and return whether every claim held."""
    print(f"\n-- {part} {' '.join(arguments)}", flush=True)
    started_at = time.perf_counter()
    outcome = subprocess.run([sys.executable, "-m", f"tests.acceptance.{part}", *arguments], check=False)
    print(f"-- {part}: exit {outcome.returncode} after {time.perf_counter() - started_at:.1f} s", flush=True)
    return outcome.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
