"""`faulthound learn`: labelled incidents in, a table out that `diagnose` takes; what cannot be learned from is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from analyzers.model.verdict import Culprit, Root, Verdict, to_json
from service import packaged_knowledge
from service.cli import run
from service.evaluation import learning
from tests.support.faulthound_process import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "hung_job"


def incident(folder: Path, number: int, judgement: str = "right", **verdict: Any) -> Path:
    """Write what `incidents show --json` prints of a closed incident, and return the file."""
    known = {
        "symptom": "hang", "cause": "code", "abstained": False,
        "roots": (Root(root="r1", cause="code", fault_class="deadlock", families=("waits",)),),
        "culprits": (Culprit(root="r1", kind="code", id="rank 1", ranks=(1,), probability=0.35, strength=0.9),),
        "suspects": (Culprit(root="r1", kind="code", id="rank 1", ranks=(1,), probability=0.35, strength=0.9),),
    }  # fmt: skip
    said = [{"judgement": judgement, "verdict_version": 2, "text": ""}] if judgement else []
    shown = {
        "incident": {"id": f"inc-{number:012x}", "verdict": {"version": 2}, "feedback": said},
        "versions": [],
        "verdict": json.loads(to_json(Verdict(**known | verdict))),
    }
    path = folder / f"inc-{number:012x}.json"
    path.write_text(json.dumps(shown), encoding="utf-8")
    return path


def closed(folder: Path, right: int, of: int) -> Path:
    """Write so many closed incidents into a new folder."""
    folder.mkdir()
    for number in range(of):
        incident(folder, number, "right" if number < right else "wrong")
    return folder


def test_a_sites_incidents_give_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Circles that are guilty at this site: the table says so, and judging and the next learning take it."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    folder, out = closed(tmp_path / "closed", 38, 40), tmp_path / "site" / "calibration.toml"
    out.parent.mkdir()

    assert run(["learn", str(folder), "--out", str(out), "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)

    (curve,) = learned["curves"]
    assert (curve["class"], curve["n"], curve["right"], learned["worse"]) == ("deadlock", 40, 38, "")
    assert learned["held_out"]["first"]["after"]["brier"] < learned["held_out"]["first"]["before"]["brier"]
    row = packaged_knowledge.load(out.parent).table("calibration")["curve"]["waits"]["deadlock"]["one"]
    assert row["learned_on"] == "site"
    assert row["points"][0][1] > 0.8

    assert run(["learn", str(folder), "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert run(["learn", str(folder), "--out", str(out), "--force"]) == 0
    assert "base rate" in capsys.readouterr().out


def test_a_table_that_makes_it_worse_is_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is stated comes true as it is: chance alone would be learned. Exit code 1, the score that rises, and no file."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    out = tmp_path / "calibration.toml"

    assert run(["learn", str(closed(tmp_path / "closed", 14, 40)), "--out", str(out)]) == 1

    assert f" on held-out cases: {out} was not written" in capsys.readouterr().err
    assert not out.exists()


def test_too_few_of_each_kind_give_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Enough cases, and of none of their fault classes ten: no empty table is written."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    out = tmp_path / "calibration.toml"
    for number in range(24):
        name = ("deadlock", "desync", "init")[number % 3]
        incident(tmp_path, number, roots=(Root(root="r1", cause="code", fault_class=name, families=("waits",)),))

    assert run(["learn", str(tmp_path), "--out", str(out)]) == 2
    assert "no kind of claim has the 10 cases" in capsys.readouterr().err
    assert not out.exists()


def test_what_teaches_nothing_is_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No feedback, feedback on an older version, a verdict of an older program, and a file of something else."""
    incident(tmp_path, 1, "")
    incident(tmp_path, 2, "unclear")
    incident(tmp_path, 3, roots=(Root(root="r1", cause="code", fault_class="deadlock"),))
    (tmp_path / "inc-4.json").write_text("[1, 2]", encoding="utf-8")
    (tmp_path / "inc-5.json").write_text("no JSON", encoding="utf-8")
    older = json.loads(incident(tmp_path, 6).read_text())
    older["incident"]["verdict"]["version"] = 3
    (tmp_path / "inc-000000000006.json").write_text(json.dumps(older), encoding="utf-8")
    incident(tmp_path, 7)

    assert run(["learn", str(tmp_path)]) == 2

    said = capsys.readouterr().err
    assert said.count("is left out:") == 6
    assert "inc-000000000001.json is left out: it has no feedback" in said
    assert "an older program wrote it" in said
    assert "its feedback is not on version 3" in said
    assert "cases that name a culprit and can be held against the truth: 1, and it takes 20" in said


@pytest.mark.parametrize(("more", "said"), [(0, "labelled cases: 1, and it takes 20"), (25, "real and simulator ones")])
def test_too_few_labelled_cases_are_refused_before_any_is_diagnosed(
    more: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound and the next step are stated at once; so are cases of both origins."""
    monkeypatch.setattr("service.cli.learn.judge_cases", lambda *_: pytest.fail("a case was diagnosed"))
    (tmp_path / "a.log").write_text("step 1\n", encoding="utf-8")
    case = '[[case]]\nfault = "hang"\ncause = "code"\nculprits = []\npath = "a.log"\norigin = "simulator"\n'
    (tmp_path / "labels.toml").write_text(case, encoding="utf-8")
    for number in range(more):
        incident(tmp_path, number)

    assert run(["learn", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["nowhere"], "nowhere is no folder"),
        (["."], "neither labels.toml nor inc-*.json at or below ."),
        ([".", "--out", "table.toml"], "call the file calibration.toml"),
        ([".", "--out", "nowhere/calibration.toml"], "does not exist: make it first"),
    ],
)
def test_what_is_given_wrong_is_named(
    given: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thing, its value and the next step."""
    monkeypatch.chdir(tmp_path)

    assert run(["learn", *given]) == 2
    assert said in capsys.readouterr().err


def test_labelled_cases_are_diagnosed_and_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A labelled folder is a case beside incidents; simulated and real ones are not learned from together."""
    closed(tmp_path / "closed", 20, 25)
    shutil.copytree(EXAMPLE, tmp_path / "hung")
    case = '[[case]]\npath = "hung"\nfault = "hang"\ncause = "machine"\nculprits = ["rank:3"]\norigin = "simulator"\n'
    (tmp_path / "labels.toml").write_text(case, encoding="utf-8")

    assert run(["learn", str(tmp_path)]) == 2
    assert "the cases are real and simulator ones" in capsys.readouterr().err


def test_without_scikit_learn_its_package_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation without the extra says which it needs."""
    monkeypatch.setattr(learning, "is_possible", lambda: False)

    assert run(["learn", str(closed(tmp_path / "closed", 20, 25))]) == 2
    assert "pip install 'faulthound[tables]'" in capsys.readouterr().err
