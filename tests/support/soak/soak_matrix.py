"""Play a schedule, or take what an earlier call has kept of it, and judge it."""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance
from tests.support.soak import answers, report, soak_judge
from tests.support.soak.play import Player
from tests.support.soak.schedule import Schedule
from tests.support.soak.site import running

KEPT = REPOSITORY / "out" / "soak"


def played(schedule: Schedule, folder: Path) -> None:
    """Play it; ``folder`` then has the truth, the answers and the logs of the service and the agents."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that still ends what was started
    with running(folder / "site", schedule.nodes) as site:
        Player(schedule, site, folder).play()
        (folder / "answers.json").write_text(json.dumps(answers.fetch(site.url)))
    shutil.rmtree(folder / "jobs", ignore_errors=True)


def result_of(folder: Path) -> dict[str, Any]:
    """Judge what was kept."""
    truth = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    return soak_judge.judge(truth, json.loads((folder / "answers.json").read_text()))


def measure(schedule: Schedule, target: Path, *, again: bool = False) -> bool:
    """Play it unless that is kept, write the document and the table beside it; return whether the aims are met."""
    folder = KEPT / schedule.name
    if again or not (folder / "answers.json").exists():
        said = provenance(" ".join([f"python -m tests.acceptance.{Path(sys.argv[0]).stem}", *sys.argv[1:]]))
        played(schedule, folder)
        (folder / "provenance.json").write_text(json.dumps(said))
    result = result_of(folder)
    said = json.loads((folder / "provenance.json").read_text())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(said | {"schedule": schedule.name, **result}, indent=1) + "\n")
    shown = report.table(result)
    target.with_suffix(".txt").write_text(shown)
    print(shown)
    print(f"whole: {target}")
    return soak_judge.holds(result)
