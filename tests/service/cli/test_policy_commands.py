"""`faulthound policy`: what is in force, and what is checked before it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

from analyzers.remediation.guards import GUARDS
from analyzers.remediation.policy import explain_lock, parse_policy, rule_for
from analyzers.remediation.types import Remediation, Rule, Tally
from tests.support import command_line
from tests.support.incident_rows import AT

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_policy_is_checked(tmp_path: Path) -> None:
    """The example of the help is a policy; a wrong one leaves with 1 and says what is wrong, no file at all with 2."""
    example = command_line.faulthound("policy", "check", "--help").stdout
    lines = example.partition("unless it says more:")[2].partition("Examples:")[0]
    right, wrong = tmp_path / "right.toml", tmp_path / "wrong.toml"
    right.write_text(lines)
    wrong.write_text('[[rules]]\nname = "x"\nmode = "sometimes"\n')

    good, bad = command_line.faulthound("policy", "check", right), command_line.faulthound("policy", "check", wrong)
    reported = json.loads(command_line.faulthound("policy", "check", wrong, "--json").stdout)
    none = command_line.faulthound("policy", "check", tmp_path / "none.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")

    assert good.returncode == 0, good.stderr
    assert good.stdout.splitlines()[1].split()[:2] == ["stopped-process", "shadow"]
    assert (bad.returncode, "sometimes" in bad.stderr, bad.stdout) == (1, True, "")
    assert (reported["policy"], "sometimes" in reported["problem"]) == (None, True)
    assert (none.returncode, "cannot be read" in none.stderr) == (2, True)
    assert command_line.faulthound("policy", "check", binary).returncode == 2


def test_the_page_says_what_opens_a_rule() -> None:
    """docs/remediation.md has for each precision how many closed incidents open a rule, and what to do of each hindrance."""
    page = (REPOSITORY / "docs" / "remediation.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| (0\.\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)

    def least(precision: float, wrong: int) -> int:
        rule = Rule(name="x", mode="automatic", least_precision=precision)
        return next(
            seen for seen in range(1_000) if explain_lock(rule, Tally(seen=seen, right=max(0, seen - wrong))) is None
        )

    assert [tuple(map(int, row[1:])) for row in stated] == [
        tuple(least(float(row[0]), wrong) for wrong in range(3)) for row in stated
    ]
    assert len(stated) == 4
    assert [code for code in GUARDS if f"- `{code}`: " not in page] == []


def test_what_is_left_to_a_person_is_so_for_any_number_of_nodes() -> None:
    """A rule that proposes holds for a plan of two nodes as well: it does not pass by to a bolder rule below it."""
    policy = parse_policy(
        '[[rules]]\nname = "release"\njob = "rc-*"\n'
        '[[rules]]\nname = "bold"\nmode = "automatic"\nmost_nodes = 4\nleast_precision = 0.8\n'
    )
    plan = Remediation(
        id="rem-1", incident="inc-1", verdict_version=1, job="rc-7", attempt=1, kind="evict", nodes=("n1", "n2"),
        fault_class="stopped", symptom="hang", probability=0.97, why="", proposed_at=AT,
    )  # fmt: skip

    assert rule_for(policy, plan).name == "release"


def test_no_policy_proposes(tmp_path: Path) -> None:
    """An empty file is a policy: everything is proposed to a person."""
    file = tmp_path / "policy.toml"
    file.touch()

    assert "proposed to a person" in command_line.faulthound("policy", "check", file).stdout
