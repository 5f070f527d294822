"""docs/for-schedulers.md as written: each call is run by a shell against a real service, and answers what the page shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Verdict
from collectors.records import Members, Placement
from collectors.records.bundle import MAGIC
from service.store.models import Cursor
from tests.support.bounds import in_time
from tests.support.incident_rows import seed
from tests.support.remediation_rows import plan, propose
from tests.support.served import Client, served

PAGE = Path(__file__).resolve().parents[3] / "docs" / "for-schedulers.md"
JOB, NODE, ID, REMEDIATION = "llama-405b", "gpu-0413", "inc-0123456789ab", "rem-0123456789ab"
WHY = "rank 3304 never entered, and everybody else waits for it"
HOLDS_UP_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Example:
    """A call of the page and the answer that it shows."""

    heading: str
    call: str
    answer: str | None
    answer_kind: str


def examples() -> list[Example]:
    """Return the calls of the page, in order."""
    heading, found = "", []
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.compile(
        r"^## ([^\n]*)$|^```sh\n(.*?)^```\n(?:\s*^```(json|text)\n(.*?)^```)?", re.MULTILINE | re.DOTALL
    )
    for match in blocks.finditer(text):
        if match[1]:
            heading = match[1]
        elif heading:
            found.append(Example(heading, match[2], match[4], match[3] or ""))
    return found


def helper() -> str:
    """Return the page's shell function, which every call but the prolog uses."""
    (line,) = re.findall(r"^call\(\) .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return str(line)


def of_the_page() -> Verdict:
    """Return the verdict that the page shows."""
    return Verdict(
        symptom="hang", cause="machine", abstained=False, version="0.1.0", knowledge="sha256:00", job=JOB, attempt=1,
        culprits=(Culprit(root="r1", kind="node", id=NODE, ranks=(3304,), probability=0.97, why=WHY),),
        action=Action(kind="evict", nodes=(NODE,), why=WHY),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell whose variables are those that the page asks for."""

    client: Client
    folder: Path
    token: str
    operator: str

    def run(self, call: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a call as a scheduler's script would."""
        own = {
            "FAULTHOUND": self.client.url, "TOKEN": self.token, "OPERATOR": self.operator, "JOB": JOB, "NODE": NODE,
            "INCIDENT": ID, "REMEDIATION": REMEDIATION,
        }  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), **own, **variables}
        return subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", f"{helper()}\n{call}"],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=HOLDS_UP_SECONDS, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Yield a shell beside a service with the page's job, node and incident."""
    for program in ("bash", "curl", "jq"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the page's calls are not run")
    folder = tmp_path_factory.mktemp("schedulers")
    with served(folder) as open_client:
        for rank, node in enumerate(("gpu-0412", NODE)):
            placed = Placement(
                job=JOB, attempt=1, node=node, ranks=Members.of([rank]), nodes=(node,), world_size=2, pids=(1,)
            )  # fmt: skip
            assert open_client.ship(node, [placed]).status_code == 202
        open_client.eventually(f"/v1/jobs/{JOB}", lambda job: job["attempts"])
        with open_client.service.database.transaction() as session:
            session.add(Cursor(reader="engine", sequence=1))
        early = Verdict(symptom="hang", cause="unknown", abstained=True, version="0.1.0", job=JOB, attempt=1)
        seed(
            open_client.service.database, ID, at=time.time() - 30, job=JOB, nodes=["gpu-0412", NODE],
            verdicts=[early, of_the_page()], through=0,
        )  # fmt: skip
        propose(open_client.service.remedies, replace(plan(REMEDIATION, ID, JOB, (NODE,)), why=WHY))
        secret = open_client.service.tokens.make("slurm", ["execute"])[1]
        operator = open_client.service.tokens.make("ann", ["remediate"])[1]
        yield Shell(open_client.as_(secret), folder, secret, operator)


def shows(shown: Any, real: Any, place: str = "") -> None:
    """Check that the real answer has what is shown: the same fields, of the same types, as far as they are shown."""
    if isinstance(shown, dict):
        assert isinstance(real, dict), f"{place}: {real!r} is shown as {shown!r}"
        for name, value in shown.items():
            assert name in real, f"{place}.{name} is shown, and the answer has {sorted(real)}"
            shows(value, real[name], f"{place}.{name}")
    elif isinstance(shown, list):
        assert isinstance(real, list), f"{place}: {real!r} is shown as {shown!r}"
        for left, right in zip(shown, real, strict=False):
            shows(left, right, f"{place}[]")
        assert bool(shown) == bool(real), f"{place}: {real!r} is shown as {shown!r}"
    elif not isinstance(shown, float):  # instants and ratios are of the day
        exact = isinstance(shown, bool) or shown is None or (isinstance(shown, str) and "…" not in shown)
        assert type(shown) is type(real), f"{place}: {real!r} is shown as {shown!r}"
        assert shown == real or not exact, f"{place}: {real!r} is shown as {shown!r}"


def events(text: str) -> list[tuple[list[str], list[str]]]:
    """Return of each event of a stream the names of its fields, in order, and those of its data."""
    parts = [re.findall(r"^(\w+): (.*)$", event, re.MULTILINE) for event in text.strip().split("\n\n")]
    return [
        ([name for name, _ in part], [key for name, value in part if name == "data" for key in json.loads(value)])
        for part in parts
    ]


@pytest.mark.system
def test_the_page_is_what_happens(shell: Shell) -> None:
    """Each call of the page, run in the page's order by a shell, ends well and answers the fields that the page shows."""
    run = []
    for example in examples():
        done = shell.run(example.call)

        run.append(example.heading)
        if example.call.startswith("if "):  # the prolog, on a node that is to be taken out
            assert (done.returncode, "would be taken out" in done.stderr) == (1, True), done.stderr
            continue
        assert done.returncode == 0, f"{example.heading}: {example.call}\n{done.stdout}{done.stderr}"
        if example.answer_kind == "json":
            shows(json.loads(example.answer or ""), json.loads(done.stdout), example.heading)
        elif example.call.startswith("call $TOKEN -N"):
            assert events(example.answer or "") == events(done.stdout)[:3]
        elif example.answer_kind == "text":
            assert done.stdout == example.answer

    assert len(run) == 18
    assert (shell.folder / f"{ID}.fhz").read_bytes().startswith(MAGIC)


def prolog() -> str:
    """Return the page's prolog."""
    return next(example.call for example in examples() if example.call.startswith("if "))


@pytest.mark.parametrize(
    "variables", [{"NODE": "gpu-9999"}, {"TOKEN": "fh_wrong"}, {"FAULTHOUND": "http://127.0.0.1:9"}]
)
def test_the_prolog_fails_open(shell: Shell, variables: dict[str, str]) -> None:
    """On a node that nobody knows, with a wrong token and without a service the page's prolog lets the job go on."""
    began = time.monotonic()
    done = shell.run(prolog(), **variables)

    assert done.returncode == 0, done.stderr
    assert in_time(time.monotonic() - began, 5)


def test_every_action_is_explained(shell: Shell) -> None:
    """The page's list has every action that a verdict can propose."""
    description = get_type_hints(Action, include_extras=True)["kind"].__metadata__[0].description
    rows = " ".join(re.findall(r"^- (`.*?): ", PAGE.read_text(encoding="utf-8"), re.MULTILINE))

    assert set(re.findall(r"[a-z_]{3,}", description)) <= set(re.findall(r"`([a-z_]+)`", rows))
