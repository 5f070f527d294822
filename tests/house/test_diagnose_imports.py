"""What a diagnosis loads of the product: what the evidence at hand needs, and nothing of incidents or remediation."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hung_job"
OURS = ("faulthound", "collectors", "analyzers", "service", "simulation")
MODULES_MAX = 115
DIAGNOSE = """
import json, sys
from service.cli import main
sys.argv = ["faulthound", "diagnose", "--json", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert end.code in (None, 0, 3), end.code
print("\\n" + json.dumps(sorted(sys.modules)))
"""


def modules_loaded(*paths: Path) -> set[str]:
    """The modules of the product that a diagnosis of these files has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", DIAGNOSE, *map(str, paths)],
        cwd=EXAMPLE.parents[1], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name for name in json.loads(done.stdout.splitlines()[-1]) if name.partition(".")[0] in OURS}


def of_analyzers(loaded: set[str]) -> set[str]:
    """The analyzers among these modules."""
    return {name.split(".")[2] for name in loaded if name.startswith("analyzers.diagnosis.") and name.count(".") > 2}


def test_one_dump_loads_little() -> None:
    """The diagnosis of one flight-recorder dump loads one analyzer, and no more modules than are allowed."""
    loaded = modules_loaded(EXAMPLE / "fr_rank3.json")

    assert of_analyzers(loaded) == {"hang"}
    assert len(loaded) <= MODULES_MAX, sorted(loaded)


@pytest.mark.parametrize("files", ["fr_rank3.json", "*"])
def test_diagnosing_loads_no_engine(files: str) -> None:
    """Neither one file nor a folder makes `diagnose` import the incident engine, remediation or the simulator."""
    loaded = modules_loaded(*EXAMPLE.glob(files))

    assert not {
        name for name in loaded if name.startswith(("analyzers.incidents", "analyzers.remediation", "simulation"))
    }
