"""docs/runbook.md as written: each of its commands runs against a real service with the page's incident."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import Action, Culprit, Verdict
from collectors.records import Members, Placement
from tests.support.incident_rows import seed
from tests.support.remediation_rows import plan, propose
from tests.support.served import served

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[3] / "docs" / "runbook.md"
JOB, NODE, ID, REMEDIATION = "llama-405b", "gpu-0413", "inc-0123456789ab", "rem-0123456789ab"
NO_AGENT, ABSTAINED, REFUSED = 1, 3, 5
ENDS = {
    "jobs collect": NO_AGENT,
    "export llama": ABSTAINED,
    "remediations undo": REFUSED,
}  # of the fixture: the others end with 0
DECIDES = ("freeze off", "remediations approve", "remediations reject", "remediations undo")
FOREVER = ("faulthound watch",)


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell of an operator who may decide."""

    url: str
    token: str
    folder: Path

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the page; what would act is only checked."""
        dry = " --dry-run" if any(verb in command for verb in DECIDES) else ""
        program = f"PYTHONPATH={PAGE.parents[1]} {sys.executable} -m faulthound"
        own = {"FAULTHOUND_SERVICE": self.url, "FAULTHOUND_TOKEN": self.token, "COLUMNS": "110", "NO_COLOR": "1"}
        script = f'faulthound() {{ {program} "$@"; }}\n{command.partition("  #")[0].rstrip()}{dry}'
        return subprocess.run(
            ["bash", "-eu", "-c", script.replace("--wait 20", "--wait 1")], cwd=self.folder, env=os.environ | own,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Yield a shell beside a service that has the page's job, incident and proposal."""
    folder = tmp_path_factory.mktemp("runbook")
    why = "rank 3304 never entered, and all others wait for it"
    verdict = Verdict(
        symptom="hang", cause="machine", abstained=False, version="0.1.0", knowledge="sha256:00", job=JOB, attempt=1,
        culprits=(Culprit(root="r1", kind="node", id=NODE, ranks=(3304,), probability=0.97, why=why),),
        action=Action(kind="evict", nodes=(NODE,), why=why),
    )  # fmt: skip
    with served(folder) as client:
        for rank, node in enumerate(("gpu-0412", NODE)):
            ranks = Members.of([rank])
            placed = Placement(job=JOB, attempt=1, node=node, ranks=ranks, nodes=(node,), world_size=2, pids=(1,))
            assert client.ship(node, [placed]).status_code == 202
        client.eventually(f"/v1/jobs/{JOB}", lambda job: job["attempts"])
        seed(
            client.service.database, ID, at=time.time() - 30, job=JOB, nodes=["gpu-0412", NODE], verdicts=[verdict],
            through=0,
        )  # fmt: skip
        propose(client.service.remedies, replace(plan(REMEDIATION, ID, JOB, (NODE,)), why=why))
        yield Shell(client.url, client.service.tokens.make("ann", ["remediate"])[1], folder)


def commands() -> list[str]:
    """Return the commands of the page, in order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("faulthound ")]
    return [line for line in lines if not line.startswith(FOREVER)]


def test_every_command_of_the_runbook_works(shell: Shell) -> None:
    """Each command ends as the page says, in the page's order; what is listed is the page's incident and proposal."""
    printed = {}
    for command in commands():
        done = shell.run(command)
        expected = next((code for verb, code in ENDS.items() if f"faulthound {verb}" in command), 0)

        assert done.returncode == expected, f"{command}: {done.stdout}{done.stderr}"
        printed[command.partition("  #")[0].rstrip()] = done.stdout + done.stderr

    assert len(printed) == 14
    assert f"node {NODE} (rank 3304)" in printed["faulthound incidents list --status open"]
    assert f"Drain {NODE} and restart {JOB} (attempt 1)" in printed[f"faulthound remediations show {REMEDIATION}"]
    assert "faulthound holds expire" in printed[f"faulthound remediations show {REMEDIATION}"]
