"""What a stronger test in `make test` proves already, proved once more: by hypothesis, and by breaking what it guards.

python -m tests.acceptance.second_proofs [--smallest]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from tests.bench.measure import REPOSITORY


def main() -> int:
    """Run the tests that are marked ``acceptance``; 0 only if all of them pass."""
    parser = argparse.ArgumentParser(description="Run the tests that are marked acceptance.")
    parser.add_argument("--smallest", action="store_true", help="without real jobs, which have parts of their own")
    smallest = parser.parse_args().smallest
    proofs = pytest("acceptance and not alone", "-n", "2")
    return proofs if smallest else max(proofs, pytest("acceptance and alone"))


def pytest(marked: str, *options: str) -> int:
    """Return the exit status of the tests with these marks; real jobs have the machine to themselves."""
    command = [sys.executable, "-m", "pytest", *options, "-m", marked, "tests"]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
