"""Labelled dumps of real hung jobs under everything that may befall their files: every one to three innocent dumps lost too.

FAULTHOUND_CORPUS=… python -m tests.acceptance.labelled_dumps [--smallest]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from rich.progress import track

from service.evaluation.proportions import interval
from tests.bench.measure import REPOSITORY, provenance
from tests.support.labelled_dumps import Outcome, cases, folders, outcomes

MOST, MOST_SMALLEST = 364, 4  # 364: every choice of three of the fourteen innocent ranks


def report(answered: list[Outcome]) -> dict[str, Any]:
    """Count exact, excusable and wrong answers by what befell the files; list the wrong ones."""
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for outcome in answered:
        word = "exact" if outcome.exact else "superset" if outcome.excusable else "wrong"
        by_kind[outcome.case.name][word] += 1
    evicted = sum(bool(outcome.innocent_evicted) for outcome in answered)
    low, high = interval(evicted, len(answered))
    return {
        "n": len(answered),
        "innocent_machines_evicted": {"count": evicted, "bound_95": [round(low, 5), round(high, 5)]},
        "by_kind": {kind: dict(sorted(counts.items())) for kind, counts in sorted(by_kind.items())},
        "wrong": [
            {
                "folder": o.case.folder.name,
                "case": o.case.name,
                "lost": o.case.lost,
                "cut": o.case.cut,
                "named": sorted(o.named),
            }
            for o in answered
            if not o.excusable and not o.exact
        ],
    }


def main() -> int:
    """Diagnose every variant, write the document; 0 only if no answer is wrong and no innocent machine evicted."""
    parser = argparse.ArgumentParser(description="Diagnose labelled dumps of real hung jobs.")
    parser.add_argument("--smallest", action="store_true", help="a few variants of each kind, written to out/")
    options = parser.parse_args()
    corpus = os.environ.get("FAULTHOUND_CORPUS")
    if not corpus:
        print("skipped: FAULTHOUND_CORPUS is not set, no labelled real dumps on this machine")
        return 0
    most = MOST_SMALLEST if options.smallest else MOST
    wanted = [case for folder in folders(Path(corpus)) for case in cases(folder, most=most)]
    with tempfile.TemporaryDirectory() as scratch:
        answered = list(track(outcomes(wanted, Path(scratch)), "labelled dumps", total=len(wanted)))
    document = report(answered)
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "labelled_dumps.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m tests.acceptance.labelled_dumps", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | document, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(document, indent=1))
    return 1 if document["wrong"] or document["innocent_machines_evicted"]["count"] else 0


if __name__ == "__main__":
    sys.exit(main())
