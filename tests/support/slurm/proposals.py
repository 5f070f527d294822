"""Remediations of a real job in Slurm, as the engine would have proposed them; and a job that only sleeps on its nodes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from sqlalchemy import delete

from analyzers.remediation.messages import Approve, AskUndo, Proposed
from analyzers.remediation.types import Remediation
from service.adapters.scheduler import ClaimLoop
from service.adapters.slurm import slurm_output
from service.adapters.slurm.slurm_actions import SlurmScheduler
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_roles import SlurmRoles
from service.cli.speech import Speech
from service.client import Connection, connected
from service.clock import now
from service.store.models import Attempt, Incident, Job, Node, Placement
from service.store.models import remediation_tables as rows
from tests.support.served import Client
from tests.support.slurm.cluster import SlurmCluster

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={name}
echo "run ${{SLURM_RESTART_COUNT:-0}} on $SLURM_JOB_NODELIST"
srun --kill-on-bad-exit=1 --quiet {program}
"""
RUNS_SECONDS = 20.0
_numbers = count(1)


class Heard(Speech):
    """Keeps what the adapter says."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


@dataclass
class Shop:
    """A real Slurm, a real service, and what proposes to the one what the other is to do."""

    slurm: SlurmCluster
    client: Client
    folder: Path
    heard: Heard = field(default_factory=Heard)

    def submit(self, *options: str, nodes: int = 3, program: str = "sleep 300", name: str = "llama") -> tuple[str, str]:
        """Submit a job and wait until it runs; return its number and the name by which agents would know it."""
        script = self.folder / f"job{next(_numbers)}.sh"
        script.write_text(SCRIPT.format(name=name, program=program))
        number = self.slurm.submit(script, f"-N{nodes}", f"-n{nodes}", "--output=/dev/null", *options)
        self.slurm.wait("running job", RUNS_SECONDS, lambda: self.slurm.job(number)[0] == "RUNNING")
        return number, f"{name}-{number}"

    def nodes_of(self, number: str) -> tuple[str, ...]:
        """Return the nodes that a job runs on."""
        return slurm_output.expanded(self.slurm.job(number)[1])

    def restarts(self, number: str) -> int:
        """Return how often a job was put back into the queue."""
        return self.slurm.restarts(number)

    def propose(
        self,
        job: str,
        nodes: Sequence[str],
        *,
        ran_on: Sequence[str],
        kind: str = "evict",
        approve: bool = True,
        why: str = 'rank 1 is "stopped"\nand the others wait',
    ) -> str:
        """Have a remediation proposed, and approved; return its id."""
        at, number = now(), next(_numbers)
        incident, id = f"inc-{number:012x}", f"rem-{number:012x}"
        self._seen(job, ran_on, at)
        with self.client.service.database.transaction() as session:
            session.add(
                Incident(
                    id=incident, kind="hang", job=job, attempt=0, opened_at=at, onset_at=at, version=1, nodes=list(nodes),
                    verdict_version=1, state={},
                )
            )  # fmt: skip
        plan = Remediation(
            id=id, incident=incident, verdict_version=1, job=job, attempt=0, kind=kind, nodes=tuple(nodes),  # type: ignore[arg-type]
            fault_class="stopped", symptom="hang", probability=0.97, why=why,
            proposed_at=at,
        )  # fmt: skip
        self.client.service.remedies.handle(Proposed(incident=incident, plan=plan), at)
        if approve:
            self.client.service.remedies.handle(Approve(id=id, by="ann"), now())
        return id

    def ask_undo(self, id: str) -> None:
        """Have a person ask for it to be undone."""
        self.client.service.remedies.handle(AskUndo(id=id, by="ann", reason="the node is well"), now())

    def one(self, id: str) -> Any:
        """Return a remediation as the service has it."""
        return self.client.get(f"/v1/remediations/{id}").json()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """Give the adapter's connection."""
        with connected(self.client.url, None, None) as connection:
            yield connection

    def work(self, times: int = 1) -> None:
        """Let an adapter do what can be claimed now."""
        with self.connection() as connection:
            loop = ClaimLoop(connection, SlurmScheduler(Slurm()), self.heard.note, SlurmRoles(Slurm(), connection))
            for _ in range(times):
                loop.once()

    def clear(self) -> None:
        """Forget what was proposed and done before: it counts in the budget, and its jobs in who runs where."""
        self.heard.notes.clear()
        with self.client.service.database.transaction() as session:
            for model in (rows.Remediation, rows.Execution, rows.Hold, rows.Switch, Placement, Attempt, Job, Incident):
                session.execute(delete(model))

    @contextmanager
    def working(self) -> Iterator[Heard]:
        """Have an adapter at work, in a thread."""
        ended = threading.Event()
        with self.connection() as connection:
            loop = ClaimLoop(connection, SlurmScheduler(Slurm()), self.heard.note)
            thread = threading.Thread(target=loop.serve, args=(ended.is_set,), daemon=True)
            thread.start()
            try:
                yield self.heard
            finally:
                ended.set()
                thread.join(timeout=60)

    def _seen(self, job: str, nodes: Sequence[str], at: float) -> None:
        with self.client.service.database.transaction() as session:
            for node in nodes:
                session.merge(Node(name=node, first_seen_at=at, last_seen_at=at))
            session.merge(Job(name=job, first_seen_at=at, last_seen_at=at))
            session.flush()
            session.merge(Attempt(job=job, number=0, first_seen_at=at, last_seen_at=at, world_size=len(nodes)))
            session.flush()
            for rank, node in enumerate(nodes):
                session.merge(
                    Placement(job=job, attempt=0, rank=rank, node=node, first_seen_at=at, last_seen_at=at)
                )  # fmt: skip
