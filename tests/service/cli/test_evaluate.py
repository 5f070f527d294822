"""`faulthound evaluate`: labelled incidents in, counts out; what is wrong with a label is named exactly."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzers.model.topology import Topology
from analyzers.model.verdict import Action, Culprit, Verdict
from analyzers.model.window import Window
from analyzers.verdict import judge as judging
from collectors.records import FlightRecorderDump
from service.cli import run, speech
from tests.support.baselines import CONTROLS
from tests.support.faulthound_process import REPOSITORY

CASE = '[[case]]\nfault = "hang"\ncause = "machine"\nculprits = ["rank:3"]\n'
EXAMPLE = REPOSITORY / "examples" / "hung_job"


@pytest.fixture
def labelled(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the recorded incident, writes labels beside it, and returns the folder."""

    def write(labels: str) -> Path:
        shutil.copytree(EXAMPLE, tmp_path / "hung", dirs_exist_ok=True)
        (tmp_path / "labels.toml").write_text(labels, encoding="utf-8")
        return tmp_path

    return write


def evaluated(folder: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    """Return the document of an evaluation."""
    assert run(["evaluate", str(folder), "--json", *more]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_the_packaged_example_is_answered_as_labelled(capsys: pytest.CaptureFixture[str]) -> None:
    """The recorded incident names its rank and node, evicts no other, and says so in a table and as JSON."""
    (row,) = evaluated(EXAMPLE.parent, capsys)["by_fault"]
    assert (row["fault"], row["n"], row["exact"]["count"], row["class_right"]["count"]) == ("data_loader", 1, 1, 1)
    assert row["innocent_machines"] == 0

    assert run(["evaluate", str(EXAMPLE.parent)]) == 0
    said = capsys.readouterr()
    assert "data_loader" in said.out
    assert "Brier" in said.out
    assert said.err == ""


def test_an_eviction_where_no_machine_is_at_fault_is_counted(
    labelled: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A label that calls a machine innocent whose process was stopped: it is evicted, and counted."""
    folder = labelled(CASE.replace('"rank:3"', "").replace("machine", "code") + 'path = "hung"\n')
    table = folder / "hung" / "ps.txt"
    table.write_text(re.sub(r"( 1012) Ssl  hrtimer_nanosleep", r"\1 Tsl  do_signal_stop    ", table.read_text()))

    (row,) = evaluated(folder, capsys)["total"]

    assert (row["wrong"]["count"], row["false_evictions"]["count"], row["innocent_machines"]) == (1, 1, 1)


@pytest.mark.parametrize("control", ["flag_all", "lowest_number"])
def test_a_naive_rule_loses(
    control: str, labelled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of the judge, a rule that names all waiting ranks or all that are behind evicts innocent machines."""

    def naive(window: Window, topology: Topology, knowledge: object) -> Verdict:
        ranks = sorted(CONTROLS[control](list(window.records_of(FlightRecorderDump))))
        named = tuple(Culprit(root="r1", kind="rank", id=str(rank), ranks=(rank,)) for rank in ranks)
        return Verdict(
            symptom="hang", cause="machine", abstained=False, culprits=named,
            action=Action(kind="evict", ranks=tuple(ranks)),
        )  # fmt: skip

    folder = labelled(CASE + 'path = "hung"\n')
    (ours,) = evaluated(folder, capsys)["total"]
    monkeypatch.setattr(judging, "judge", naive)
    (theirs,) = evaluated(folder, capsys)["total"]

    assert (ours["exact"]["count"], theirs["exact"]["count"]) == (1, 0)
    assert ours["innocent_machines"] == 0 < theirs["innocent_machines"]


def test_the_bar_counts_the_cases(
    labelled: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a terminal the progress reaches the number of cases; --quiet shows none."""
    seen: list[tuple[int, int]] = []
    folder = labelled(CASE + 'path = "hung"\n' + CASE + 'path = "hung"\n')
    monkeypatch.setattr(speech._Bar, "report", lambda self, done, total: seen.append((done, total)))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)

    assert run(["evaluate", str(folder), "--quiet"]) == 0
    assert seen == []
    assert run(["evaluate", str(folder)]) == 0
    assert seen == [(1, 2), (2, 2)]


def test_a_label_is_no_evidence(labelled: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Neither labels.toml within a case nor what it leaves out is read, and a case whose files show nothing abstains."""
    folder = labelled(CASE + 'path = "hung"\n')
    (folder / "labels.toml").rename(folder / "hung" / "labels.toml")
    names = sorted(path.name for path in EXAMPLE.iterdir())
    text = CASE + f"leave_out = {json.dumps(names)}\n"
    (folder / "hung" / "answer.txt").write_text("nothing of a fault\n", encoding="utf-8")
    (folder / "hung" / "labels.toml").write_text(text, encoding="utf-8")

    (case,) = evaluated(folder, capsys)["cases"]

    assert (case["case"], case["result"], case["named"]) == ("hung", "abstained", [])
    assert "labels.toml" not in case["why"]


def test_a_right_culprit_of_a_wrong_class_is_listed(
    labelled: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With the class that was stated and those of the label; what abstained is listed too, and --json has both."""
    silent = CASE + 'path = "silent"\n'
    folder = labelled(CASE + 'class = "xid_48"\npath = "hung"\nmasked = ["node:gpu-0001"]\n' + silent)
    (folder / "silent").mkdir()
    (folder / "silent" / "train.log").write_text("nothing of a fault\n", encoding="utf-8")

    document = evaluated(folder, capsys)
    (first, _) = document["cases"]
    assert (document["class_wrong"], document["abstained"]) == (["hung"], ["silent"])
    assert (first["result"], first["labelled"]) == ("exact", ["machine", "xid_48"])

    assert run(["evaluate", str(folder)]) == 0
    said = capsys.readouterr().out
    assert (
        f"The culprit is right, the class is not:\n  hung: {', '.join(first['stated'])}; labelled machine, xid_48"
        in said
    )
    assert "Abstained:\n  silent: abstained: nothing in" in said
    assert "Not exactly as labelled" not in said


def test_labels_may_lie_apart_from_the_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--labels: the paths of the file begin at the folder, which may be read-only."""
    labels = tmp_path / "ours.toml"
    labels.write_text(CASE + 'path = "hung_job"\nmasked = ["node:gpu-0001"]\n', encoding="utf-8")

    document = evaluated(EXAMPLE.parent, capsys, "--labels", str(labels))

    assert [case["result"] for case in document["cases"]] == ["exact"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"cause": '"magic"'}, "cause 'magic' is unknown; allowed: machine, network, code, data"),
        ({"cause": '["machine", "magic"]'}, "cause 'magic' is unknown"),
        ({"class": '"never_enter"'}, "class 'never_enter' is unknown; allowed: never_entered"),
        ({"culprits": '["gpu-7"]'}, "culprits 'gpu-7' is not KIND:ID; allowed kinds: rank, node"),
        ({"culprits": '["rank:x"]'}, "culprits 'rank:x': 'x' is no rank"),
        ({"masked": '["rank:"]'}, "masked 'rank:' is not KIND:ID"),
        ({"culprits": '"rank:3"'}, "culprits 'rank:3' is not allowed; allowed: a list of texts"),
        ({"decidable": '"yes"'}, "decidable 'yes' is not allowed; allowed: true or false"),
        ({"origin": '"lab"'}, "origin 'lab' is unknown; allowed: real, simulator"),
        ({"decideable": "true"}, "'decideable' is no key of a case; allowed: cause, class, culprits, decidable"),
        ({"path": '"elsewhere"'}, "path 'elsewhere': there is no"),
        ({"leave_out": '["none.txt"]'}, "leave_out 'none.txt': there is no such file"),
        ({"fault": '""'}, "fault and cause are empty"),
        ({"culprits": None}, "missing required field `culprits`; a case needs fault, cause and culprits"),
        ({"ranks_per_node": "8\nhosts = 'x/hosts.txt'"}, "case hung: --hosts x/hosts.txt is neither"),
    ],
)
def test_a_bad_label_is_named(
    changed: dict[str, str | None], said: str, labelled: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the file, the case, the value and what is allowed; the exit code is 2 and stdout is empty."""
    right = {"fault": '"hang"', "cause": '"machine"', "culprits": '["rank:3"]', "path": '"hung"'}
    lines = [f"{key} = {value}" for key, value in (right | changed).items() if value is not None]
    folder = labelled("[[case]]\n" + "\n".join(lines) + "\n")

    assert run(["evaluate", str(folder)]) == 2

    shown = capsys.readouterr()
    assert said in shown.err
    assert "labels.toml, case 1: " in shown.err or "case hung: " in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds nothing; allowed are one or more [[case]] tables"),
        ('[[cases]]\nfault = "hang"\n', "holds cases; allowed"),
        ("case = 3\n", "holds case; allowed"),
        ("[[case]\n", "is no TOML"),
        (None, "there is no labels.toml at or below"),
    ],
)
def test_a_file_that_holds_no_labels_is_named(
    text: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing or empty file, another table, and what is no TOML."""
    if text is not None:
        (tmp_path / "labels.toml").write_text(text, encoding="utf-8")

    assert run(["evaluate", str(tmp_path)]) == 2

    assert said in capsys.readouterr().err


def test_the_folder_must_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """A path that is no folder is named."""
    assert run(["evaluate", "/nowhere/at/all"]) == 2

    assert "/nowhere/at/all is no folder" in capsys.readouterr().err
