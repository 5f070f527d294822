"""The recipes of CONTRIBUTING.md work as written: their blocks, applied to a copy of the product, add a working part."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from analyzers.remediation.messages import Approve, AskUndo
from collectors.records import DeviceState, Members, Placement, block
from service.clock import now
from tests.support.remediation_rows import plan, propose
from tests.support.served import served

pytestmark = pytest.mark.system

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
PRODUCT = ("collectors", "analyzers", "service", "simulation", "faulthound", "migrations", "docs", "pyproject.toml")
FAULTHOUND = "from faulthound import main; main()"
AGENT = "from faulthound import agent; agent()"
FAULT_CLASS = "from analyzers.model.fault_classes import in_words; print(in_words('fan_failed'))"


def recipe(title: str) -> str:
    """Return the section of CONTRIBUTING.md under this heading."""
    found = re.search(rf"^### \S {title}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md has no recipe {title!r}"
    return found[1]


def apply(title: str, copy: Path) -> None:
    """Do in a copy of the product what the recipe says: write its files, apply its diffs."""
    for kind, content in re.findall(r"^```(\w+)\n(.*?)^```", recipe(title), re.MULTILINE | re.DOTALL):
        if kind == "diff":
            subprocess.run(["git", "apply", "--recount", "-"], cwd=copy, input=content, text=True, check=True)
        elif path := re.match(r"(?:# |\{#- )(\S+/\S+\.\w+)", content):
            (copy / path[1]).parent.mkdir(parents=True, exist_ok=True)
            (copy / path[1]).write_text(content, encoding="utf-8")


def follow(title: str, folder: Path) -> Path:
    """Copy the product into the folder and follow the recipe there; return the copy."""
    copy = folder / "checkout"
    copy.mkdir()
    for name in PRODUCT:
        origin = REPOSITORY / name
        if origin.is_dir():
            shutil.copytree(origin, copy / name, ignore=shutil.ignore_patterns("__pycache__", "measured"))
        else:
            shutil.copy(origin, copy / name)
    apply(title, copy)
    return copy


def environment(copy: Path, **variables: str) -> dict[str, str]:
    """Return the environment of a program of the copy."""
    return {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "100", "NO_COLOR": "1", **variables}


def run(copy: Path, program: str, *arguments: str | Path) -> str:
    """Run a Python program of the copy, and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=copy, capture_output=True, text=True, check=False, env=environment(copy),
    )  # fmt: skip
    assert done.returncode == 0, f"exit {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(copy: Path, *arguments: str | Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a verb of the copy that goes on, and end it."""
    with (copy / "stderr").open("w") as trouble:
        process = subprocess.Popen(
            [sys.executable, "-c", FAULTHOUND, *map(str, arguments)],
            cwd=copy, env=environment(copy, **variables), stdout=subprocess.PIPE, stderr=trouble, text=True,
        )  # fmt: skip
        with process:
            try:
                yield process
            finally:
                process.terminate()
                process.wait(timeout=30)


def test_every_file_of_a_recipe_has_a_place() -> None:
    """The folders and pages that the recipes name exist."""
    named = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("## Recipes")[2].partition("\n## ")[0], re.MULTILINE)

    assert named
    missing = [path for path in named if not (REPOSITORY / path.partition("NAME")[0].rpartition("/")[0]).is_dir()]
    assert missing == []
    assert [path for path in named if "NAME" not in path and not (REPOSITORY / path).exists()] == []


def test_a_reader(tmp_path: Path) -> None:
    """A reader is one file: its format is listed, recognised and judged."""
    copy, report = follow("A reader", tmp_path), tmp_path / "report.txt"
    report.write_text("LAUNCH REPORT\nrank=3 host=gpu-0007 signal=9\nrank=4 host=gpu-0008 signal=15\n")

    listed = run(copy, FAULTHOUND, "formats")
    read = run(copy, FAULTHOUND, "read", report)
    verdict = run(copy, FAULTHOUND, "diagnose", report, "--json")

    assert "our-launcher --report" in listed
    assert "exit" in read
    assert "gpu-0007" in read
    assert json.loads(verdict)["symptom"] == "crash"


def test_a_live_collector(tmp_path: Path) -> None:
    """A collector is one file: the agent runs it by its name."""
    copy = follow("A live collector", tmp_path)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("4711.5 9000.0\n")
    settings = ("--state", tmp_path / "state", "--path", f"proc={tmp_path / 'proc'}")

    printed = run(copy, AGENT, "once", "--collectors", "uptime", *settings)

    assert "up_seconds=4711.5" in printed


def test_an_analyzer_and_its_fault_class(tmp_path: Path) -> None:
    """An analyzer is a folder, its fault class a row: what it claims becomes the verdict, in the class's words."""
    copy, records = follow("An analyzer and its fault class", tmp_path), tmp_path / "records.fhb"
    state = DeviceState(device="GPU-7", state="fan_failed", node="gpu-0007", at=1_795_240_800.0, source="nvml")
    records.write_bytes(block.encode([state]))

    verdict = json.loads(run(copy, FAULTHOUND, "diagnose", records, "--json"))
    in_words = run(copy, FAULT_CLASS)

    assert [(root["class"], root["cause"]) for root in verdict["roots"]] == [("fan_failed", "machine")]
    assert [(culprit["kind"], culprit["id"]) for culprit in verdict["culprits"]] == [("node", "gpu-0007")]
    assert (verdict["symptom"], verdict["action"]["kind"]) == ("hardware", "probe")
    assert in_words.strip() == "a fan of its GPU failed"


def test_a_scheduler(tmp_path: Path) -> None:
    """A scheduler is one file: it is a verb, claims what was approved, does it, reports it, and takes it back."""
    copy, out = follow("A scheduler", tmp_path), tmp_path / "out"
    out.mkdir()
    with served(tmp_path / "served", engine=False) as client:
        for rank, node in enumerate(("gpu-0007", "gpu-0008")):
            ranks = Members.of([rank])
            placed = Placement(job="llama", attempt=1, node=node, ranks=ranks, nodes=(node,), world_size=2, pids=(1,))
            assert client.ship(node, [placed]).status_code == 202
        client.eventually("/v1/jobs/llama", lambda job: job["attempts"])
        propose(client.service.remedies, plan("rem-0123456789ab", "inc-0123456789ab", "llama", ("gpu-0007",)))
        client.service.remedies.handle(Approve(id="rem-0123456789ab", by="ann"), now())
        asked = ("adapter", "folder", "--folder", out, "--service", client.url)

        printed = run(copy, FAULTHOUND, *asked, "--dry-run")
        with running(copy, *asked):
            client.eventually("/v1/remediations/rem-0123456789ab", lambda found: found["status"] == "verifying")
            drained = (out / "gpu-0007").read_text()
            client.service.remedies.handle(AskUndo(id="rem-0123456789ab", by="ann", reason="a mistake"), now())
            client.eventually("/v1/remediations/rem-0123456789ab", lambda found: found["status"] == "undone")

    assert f"touch {out}/gpu-0007" in printed
    assert drained == "inc-0123456789ab"
    assert list(out.iterdir()) == []


def test_a_field_of_the_verdict(tmp_path: Path) -> None:
    """A field is its declaration and its value: `diagnose --json` has it."""
    copy = follow("A field of the verdict", tmp_path)

    verdict = json.loads(run(copy, FAULTHOUND, "diagnose", REPOSITORY / "examples" / "hung_job", "--json"))

    assert verdict["coverage"]["nodes_seen"] == 4


def test_a_rest_resource_and_a_page(tmp_path: Path) -> None:
    """A resource is one file, in the contract too; a page is its module, its template and its place in the routes."""
    copy = follow("A REST resource", tmp_path)
    apply("A page", copy)
    with running(
        copy, "serve", FAULTHOUND_DATA=str(tmp_path / "data"), FAULTHOUND_PORT="0", FAULTHOUND_ENGINE="false"
    ) as serving:
        assert serving.stdout is not None
        url = serving.stdout.readline().strip().rpartition(" ")[2]

        uptime = httpx.get(f"{url}/v1/uptime")
        contract = httpx.get(f"{url}/openapi.json").json()
        page = httpx.get(f"{url}/about")

    assert uptime.json()["seconds"] > 0
    assert contract["components"]["schemas"]["UptimeDocument"]["properties"]["seconds"]["description"]
    assert (page.status_code, "<h1>Faulthound" in page.text) == (200, True)
