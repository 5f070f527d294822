"""Every parser on every input that its own patterns suggest, at 16 KiB against 64, and at 256 KiB against 1 MiB.

Processor time must grow as the input does: 4 times; 8 times is wrong, and so is more than 16 s for a megabyte. Sizes below
64 KiB matter because the readers cut longer lines. Recognition is given 64 KiB at most. Finished parsers are kept in
out/adversarial_lines, so that a second call goes on.

    python -m tests.acceptance.adversarial_lines [--smallest] [--most N] [--only PARSER…]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.adversarial import cases, is_quadratic, scan
from tests.support.parsers import Parser, parsers

KEPT = REPOSITORY / "out" / "adversarial_lines.kept.json"
SIZES = (1 << 14, 1 << 18)
SMALLEST_EVERY = 40  # every so many-th input
ALL = 1 << 20


def measured(parser: Parser, smallest: bool, most: int) -> dict[str, Any]:
    """Measure one parser on all of its inputs, or on a spread of them."""
    began_at = time.monotonic()
    every = cases(parser.modules)
    sizes = [size for size in SIZES[: 1 if smallest else None] if 4 * size <= parser.most_bytes]
    found = scan(parser.parse, every[:: SMALLEST_EVERY if smallest else -(-len(every) // most)], sizes)
    slowest = max(found, key=lambda one: one.of_four / one.size, default=None)
    return {
        "inputs": len(found),
        "of": len(every) * len(sizes),
        "quadratic": [f"{one.case}: {one.seconds:.2f} s, {one.of_four:.2f} s" for one in found if is_quadratic(one)],
        "slowest_seconds_a_megabyte": round(slowest.of_four / (4 * slowest.size) * (1 << 20), 2) if slowest else 0.0,
        "slowest": slowest.case if slowest else "",
        "seconds": round(time.monotonic() - began_at, 1),
    }


def main() -> int:
    """Measure what is missing, print a line a parser, write the document; 1 if any input is not linear."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--smallest", action="store_true", help="every 40th input at the smaller sizes, written to out/"
    )
    parser.add_argument("--most", type=int, default=ALL, help="inputs of each parser, spread over all of them")
    parser.add_argument("--only", nargs="*", default=[], choices=sorted(parsers()), help="only these parsers, anew")
    options = parser.parse_args()
    KEPT.parent.mkdir(exist_ok=True)
    partial = options.smallest or bool(options.only)
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() and not partial else {}
    for name, one in parsers().items():
        if name in kept or (options.only and name not in options.only):
            continue
        kept[name] = measured(one, options.smallest, options.most)
        print(f"{'wrong' if kept[name]['quadratic'] else 'right'}  {name}: {json.dumps(kept[name])}", flush=True)
        if not partial and not kept[name]["quadratic"]:
            KEPT.write_text(json.dumps({each: found for each, found in kept.items() if not found["quadratic"]}))
    target = REPOSITORY / ("out" if partial else "docs/measured") / "adversarial_lines.json"
    totals = {"parsers": len(kept), "inputs": sum(one["inputs"] for one in kept.values()),
              "not_linear": sum(len(one["quadratic"]) for one in kept.values())}  # fmt: skip
    command = " ".join(["python -m tests.acceptance.adversarial_lines", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | totals | {"by_parser": kept}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(totals))
    return 1 if totals["not_linear"] else 0


if __name__ == "__main__":
    sys.exit(main())
