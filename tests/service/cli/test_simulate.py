"""`faulthound simulate`: what it writes is evaluated as labelled, and nothing is overwritten; a job reports to a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.cli import run
from service.cli.simulated_job import Feed
from service.client import connected
from service.clock import now
from simulation.live.fleet import Fleet
from simulation.live.scene_list import BEGAN_AT, FAULTS, PAUSES, play
from tests.support.served import serving


def test_what_is_written_is_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Hangs and slow jobs, each with labels; `evaluate` counts all of them, and none of them as real."""
    out = tmp_path / "cases"
    assert run(["simulate", "--out", str(out), "--cases", "3", "--ranks", "16", "--seed", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"3 cases of {name} in {out / name}" for name in ("hang", "slow")]

    assert run(["evaluate", str(out), "--json"]) == 0

    document = json.loads(capsys.readouterr().out)
    assert [(row["origin"], row["n"], row["innocent_machines"]) for row in document["total"]] == [("simulator", 6, 0)]


def test_one_case_is_diagnosed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case's folder is what `diagnose` reads; --family writes that family alone."""
    assert run(["simulate", "--out", str(tmp_path), "--family", "slow", "--cases", "1", "--ranks", "16"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["slow"]
    capsys.readouterr()

    assert run(["diagnose", str(tmp_path / "slow"), "--json"]) in (0, 3)
    assert json.loads(capsys.readouterr().out)["coverage"]["sources"]


@pytest.mark.parametrize("ranks", ["8", "1000", "32768", "0", "-16"])
def test_a_size_that_no_job_has_is_named(ranks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message has the value and those that are allowed; nothing is written."""
    assert run(["simulate", "--out", str(tmp_path / "cases"), "--ranks", ranks]) == 2

    assert f"--ranks {ranks} is no power of two that can be simulated; allowed: 16, 32, 64" in capsys.readouterr().err
    assert not (tmp_path / "cases").exists()


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that holds anything is refused, and so is a file."""
    kept = tmp_path / "kept.txt"
    kept.write_text("mine", encoding="utf-8")

    assert run(["simulate", "--out", str(tmp_path)]) == 2
    assert run(["simulate", "--out", str(kept)]) == 2

    assert "is not empty: name a new folder" in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give either --out DIR, to write files, or --to URL"),
        (["--out", "cases", "--to", "http://127.0.0.1:1"], "give either --out DIR"),
        (["--to", "http://127.0.0.1:1", "--ranks", "16"], "--ranks is of --out: leave it out"),
        (["--out", "cases", "--scene", "spin"], "--scene is of --to: leave it out"),
        (["--to", "nonsense"], "--to 'nonsense' is no address: write http://nonsense"),
        (["--to", "http://127.0.0.1:1", "--scene", "fire"], "--scene 'fire' is none: choose spin, sigstop"),
        (["--to", "http://127.0.0.1:1"], "does not answer"),
    ],
)
def test_what_cannot_be_simulated_is_named(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is written or sent."""
    assert run(["simulate", *given]) in (2, 4)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("scene", [*FAULTS, *PAUSES])
def test_a_scene_begins_when_it_is_wanted_under_another_name(scene: str) -> None:
    """What happens is the same, later."""
    usual, later = play(scene, 3), play(scene, 3, began_at=BEGAN_AT + 500.0, label="mine")
    assert (later.truth.at, later.until) == pytest.approx((usual.truth.at + 500.0, usual.until + 500.0))
    assert (later.job.name, later.job.world) == ("mine", usual.job.world)
    assert all(node.startswith("mine-n") for node in later.job.nodes)


def test_a_service_that_is_gone_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute after the end the simulation is over."""
    clock = [1000.0]
    monkeypatch.setattr("service.cli.simulated_job.now", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda seconds: clock.append(clock.pop() + seconds))
    said: list[str] = []
    scene = play("spin", 0, began_at=1000.0)
    with connected("http://127.0.0.1:1", None, None) as connection:
        Feed(Fleet([scene.job], 0, 1000.0), connection, said.append).until(1010.0, lambda _at: None)
    assert 1010.0 <= clock[0] < 1080.0
    assert len(said) == 1


@pytest.mark.system
def test_a_simulated_job_reports_to_a_service_and_answers(tmp_path: Path) -> None:
    """Its nodes and steps are known; a command is taken and its outcome comes back."""
    begun = now() - 90.0
    scene = play("sigstop", 0, began_at=begun, label="shown")
    with serving(tmp_path, {"FAULTHOUND_ENGINE": "false"}) as (url, _process), connected(url, None, None) as connection:
        feed = Feed(Fleet([scene.job], 0, begun), connection, print)
        feed.until(now(), lambda _at: None)  # what is of the past is sent at once
        (asked,) = connection.post("/v1/nodes/shown-n00/commands", {"verb": "stacks"})["items"]
        until = now() + 60.0
        while feed.commands < 1 or connection.get(f"/v1/commands/{asked['id']}")["outcome"] is None:
            assert now() < until
            feed.until(now() + 1.0, lambda _at: None)
        assert connection.get(f"/v1/commands/{asked['id']}")["outcome"] == "done"
        assert {row["name"] for row in connection.all("/v1/nodes")} == set(scene.job.nodes)
        assert connection.get("/v1/jobs/shown")["steps"]["step"] > 10
