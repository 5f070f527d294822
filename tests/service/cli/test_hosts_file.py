"""A hosts file in the folder: the host of each rank, or left out where it has fewer lines than the job has ranks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from collectors.records import KernelEvent, Members, Placement, Unread
from service.cli import run
from service.cli.hosts import without_short_files

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "hung_job"


def job(folder: Path, hosts: str) -> Path:
    """Make the shipped incident with another hosts file; rank 3 of two ranks a node is the culprit."""
    shutil.copytree(EXAMPLE, folder)
    (folder / "hosts.txt").write_text(hosts)
    return folder


def test_a_line_a_node_places_no_rank_on_another_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four lines for eight ranks are nodes: rank 3 is not on the fourth, and no innocent node is named or evicted."""
    folder = job(tmp_path / "job", "gpu-0000\ngpu-0001\ngpu-0002\ngpu-0003\n")

    assert run(["diagnose", str(folder), "--json", "--quiet", "--workers", "1"]) == 0

    verdict = json.loads(capsys.readouterr().out)
    assert [(culprit["kind"], culprit["id"]) for culprit in verdict["culprits"]] == [("rank", "3")]
    assert verdict["action"]["nodes"] == []
    (unread,) = [line for line in verdict["coverage"]["unread"] if "hosts.txt" in line]
    assert "4 hosts" in unread
    assert "slots=" in unread


def test_slots_say_how_many_ranks_a_line_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the number of ranks on each line the same file names the node."""
    folder = job(tmp_path / "job", "".join(f"gpu-000{node} slots=2\n" for node in range(4)))

    assert run(["diagnose", str(folder), "--json", "--quiet", "--workers", "1"]) == 0

    assert json.loads(capsys.readouterr().out)["action"]["nodes"] == ["gpu-0001"]


def test_what_agents_report_and_whole_files_stay() -> None:
    """A placement of some ranks with their processes is an agent's, and a file with a line a rank is kept."""
    whole = Placement(source="a/hosts.txt", ranks=Members.of(range(4)), nodes=("x1", "x1", "x2", "x2"), world_size=4)
    agent = Placement(ranks=Members.of((0,)), nodes=("x1",), pids=(7,), world_size=8)
    seen = KernelEvent(source="", event="", rank=3)

    assert list(without_short_files([whole, agent, seen])) == [whole, agent, seen]
    (left_out, _) = without_short_files([whole, KernelEvent(source="", event="", rank=4)])
    assert isinstance(left_out, Unread)
    assert left_out.source == "a/hosts.txt"
