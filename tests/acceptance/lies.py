"""Every lie in every voice in every scene: nobody innocent is proposed for replacement, and the job's verdict stays as it is.

Lies surround a fault of a simulated job, below the very intake and engine (``tests/attacks``). What a verdict is without
a liar is computed from the same scene. With --insiders the liar is one node of the job, or two that agree: no third node is
proposed for replacement, and none is named by what one liar says: only in a process group that holds ranks of the liar too, or
by what its own agent reads in an incident that the liar opened. What else they change is printed and kept.

    python -m tests.acceptance.lies [--smallest] [--insiders] [--workers 2] [--seeds 1] [--first 0]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rich.progress import track

from tests.acceptance.fleet_rows import Row, write
from tests.attacks.liars import INSIDERS, VOICES, matrix, run_one
from tests.attacks.lies import A_USER, LIES

NAME = "lies"
SEEDS = 1
SMALLEST_LIES = ("killed_and_ras", "moved_and_killed", "a_whole_job", "everything_at_once", "a_later_attempt")
AT_ONCE = 8


def run(one: tuple[str, str, str, int]) -> Row:
    """Tell one lie."""
    return run_one(*one)


def report(found: Sequence[Row]) -> dict[str, Any]:
    """Sum up, by voice, and list what succeeded."""
    voices = {
        voice: [row for row in found if row["voice"] == voice] for voice in dict.fromkeys(row["voice"] for row in found)
    }
    return {
        "lies": len(LIES), "of_them_by_users": len(A_USER), "rows": len(found),
        "voices": {voice: _of(rows) for voice, rows in voices.items()},
        "that_named_an_innocent": [_short(row) for row in found if row["innocent"]],
        "that_named_a_third": [_short(row) for row in found if row["third"]],
        "that_named_a_group_of_the_liars": [_short(row) for row in found if row["grouped"]],
        "that_opened_what_names_a_third": [_short(row) for row in found if row["by_itself"]],
        "that_changed_the_verdict": [_short(row) for row in found if row["changed"]],
    }  # fmt: skip


def _of(rows: Sequence[Row]) -> dict[str, Any]:
    return {
        "rows": len(rows),
        "innocent_named": sum(bool(row["innocent"]) for row in rows),
        "third_named": sum(bool(row["third"]) for row in rows),
        "in_a_group_of_the_liars": sum(bool(row["grouped"]) for row in rows),
        "by_its_own_readings": sum(bool(row["by_itself"]) for row in rows),
        "verdict_changed": sum(row["changed"] for row in rows),
        "liar_named": sum(row["replaces_the_liar"] for row in rows),
        "refused_by_the_intake": sum(row["refused"] > 0 for row in rows),
        "changed_by": dict(Counter(row["lie"] for row in rows if row["changed"])),
    }


def _short(row: Row) -> Row:
    names = ("lie", "voice", "scene", "seed", "innocent", "third", "by_itself", "grouped", "verdict", "honest")
    return {name: row[name] for name in names}


def holds(document: dict[str, Any], *, insiders: bool) -> bool:
    """Whether the claims hold."""
    if insiders:
        by_one = [row for row in document["that_named_a_third"] if row["voice"] == INSIDERS[0]]
        return not document["that_named_an_innocent"] and not by_one
    return not document["that_named_an_innocent"] and not document["that_changed_the_verdict"]


def main() -> int:
    """Tell all lies, write the document; 0 only if the claims hold."""
    parser = argparse.ArgumentParser(description="Tell lies about simulated jobs.")
    parser.add_argument("--smallest", action="store_true", help="five lies, written to out/")
    parser.add_argument("--insiders", action="store_true", help="liars are nodes of the job")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="processes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="scenes of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first scene of each kind")
    options = parser.parse_args()
    names = SMALLEST_LIES if options.smallest else tuple(LIES)
    seeds = range(options.first, options.first + (1 if options.smallest else options.seeds))
    wanted = list(matrix(seeds, names, INSIDERS if options.insiders else VOICES))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        found = list(track(pool.map(run, wanted, chunksize=AT_ONCE), NAME, total=len(wanted)))
    document = {"command": " ".join([f"python -m tests.acceptance.{NAME}", *sys.argv[1:]])} | report(found)
    full = not options.smallest and options.seeds == SEEDS
    target = write(f"{NAME}_insiders" if options.insiders else NAME, document, sys.argv[1:], full=full)
    print(json.dumps({name: document[name] for name in ("lies", "rows", "voices")}, indent=1))
    print(f"whole: {target}")
    return 0 if holds(document, insiders=options.insiders) else 1


if __name__ == "__main__":
    sys.exit(main())
