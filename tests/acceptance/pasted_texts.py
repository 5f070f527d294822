"""Judge labelled texts of public threads as `faulthound diagnose FILE` does, rules first and words where no rule decides.

FAULTHOUND_EXCERPTS=FOLDER python -m tests.acceptance.pasted_texts [--smallest] [--sets NAME ...]

The texts are laid out as ``tests.acceptance.text_class`` says. Only sets that neither the rules nor the table of words were made
with say how well other people's texts are answered; the document names the sets.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from analyzers.knowledge import Knowledge
from service.cli.diagnose import judged
from service.cli.hosts import Hosts
from service.cli.speech import Speech
from service.client import UserError
from service.packaged_knowledge import load
from tests.acceptance.text_class import FOLDER, Excerpt, read_sets
from tests.bench.measure import REPOSITORY, provenance

SMALLEST = 20  # texts of each set
STRONG = frozenset({"restart_role", "restart_job", "rollback", "reset_gpu", "reboot_node", "evict"})


def outcome(one: Excerpt, knowledge: Knowledge) -> tuple[str, str]:
    """Return how a text is answered, and the action."""
    try:
        verdict, _, _ = judged([one.path], knowledge, Hosts.given(None, None), Speech(quiet=True), workers=1)
    except UserError:
        return "unanswered", "none"
    if not verdict.culprits or verdict.cause in {"none", "unknown"}:
        return ("unanswered" if not verdict.culprits else "named"), verdict.action.kind
    return ("right" if verdict.cause in one.accepted else "wrong"), verdict.action.kind


def counted(excerpts: list[Excerpt], knowledge: Knowledge) -> dict[str, Any]:
    """Return the counts of a set: decidable texts by outcome, the others by whether anything is named, strong actions of all."""
    found: dict[str, Counter[str]] = {kind: Counter() for kind in ("decidable", "undecidable", "negative")}
    for one in excerpts:
        kind = "decidable" if one.decidable else "negative" if one.negative else "undecidable"
        how, action = outcome(one, knowledge)
        found[kind]["texts"] += 1
        found[kind][how] += 1
        found[kind]["strong_actions"] += action in STRONG
        found[kind]["evictions"] += action == "evict"
    return {kind: dict(sorted(counts.items())) for kind, counts in found.items()}


def main() -> int:
    """Judge every text of the sets and write what was counted; 1 where a harmless text has a machine evicted."""
    parser = argparse.ArgumentParser(description="Judge labelled texts of public threads.")
    parser.add_argument("--smallest", action="store_true", help=f"{SMALLEST} texts of each set, written to out/")
    parser.add_argument("--sets", nargs="*", default=[], help="only these sets")
    options = parser.parse_args()
    if not (folder := os.environ.get(FOLDER)):
        print(f"skipped: {FOLDER} is not set, no labelled texts on this machine")
        return 0
    knowledge = load()
    sets = {name: own for name, own in read_sets(Path(folder)).items() if not options.sets or name in options.sets}
    document = {
        **provenance(" ".join(["python -m tests.acceptance.pasted_texts", *sys.argv[1:]])),
        "sets": {name: counted(own[: SMALLEST if options.smallest else None], knowledge) for name, own in sets.items()},
    }
    path = REPOSITORY / ("out" if options.smallest else "docs/measured") / "pasted_texts.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(path.read_text(encoding="utf-8"))
    return int(any(own["negative"].get("evictions", 0) for own in document["sets"].values()))


if __name__ == "__main__":
    sys.exit(main())
