"""A bench whose job grows: each size is judged in a process of its own, and the largest holds the bounds."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.bench.measure import REPOSITORY, provenance, run


@dataclass(frozen=True)
class BySize:
    """One bench: its module below tests.bench, the document it writes, and its sizes in ranks."""

    module: str
    document: str
    description: str
    seconds_max: float
    peak_mb_max: float
    sizes: tuple[int, ...] = (128, 1_024, 4_096, 16_384)
    smallest_sizes: tuple[int, ...] = (128, 256)

    def main(self, judged: Callable[[int], dict[str, Any]]) -> None:
        """Measure each size, print it and write the document, into out/ in the smallest form, which has no bounds."""
        parser = argparse.ArgumentParser(
            description=self.description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("--smallest", action="store_true", help="small jobs, no bounds")
        parser.add_argument("--ranks", type=int, help="judge one job in this process, and print it")
        given = parser.parse_args()
        if given.ranks:
            print(json.dumps(judged(given.ranks)))
            return
        found = []
        for ranks in self.smallest_sizes if given.smallest else self.sizes:
            done = run([sys.executable, "-m", f"tests.bench.{self.module}", "--ranks", str(ranks)])
            assert done.exit_code == 0, done.errors
            found.append(json.loads(done.output))
            print(done.output.strip(), flush=True)
        folder = REPOSITORY / ("out" if given.smallest else "docs/measured")
        folder.mkdir(exist_ok=True)
        document = provenance(f"python -m tests.bench.{self.module}" + " --smallest" * given.smallest) | {
            "sizes": found
        }
        (folder / f"{self.document}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        assert all(one["right"] for one in found), "a verdict is wrong"
        if not given.smallest:
            assert found[-1]["processor_seconds"] <= self.seconds_max, found[-1]
            assert found[-1]["peak_mb"] <= self.peak_mb_max, found[-1]
