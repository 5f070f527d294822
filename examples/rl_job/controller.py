"""The controller: hands out questions to rollouts, keeps their trajectories, gives the trainers their batches, counts steps.

Everything that it accepts is in its journal before it answers, so that no trajectory is lost and no step is done twice, whichever
process is replaced. It takes a trajectory only under the epoch that a rollout has now (faulthound_roles).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import faulthound_roles
import wire

QUESTIONS, ANSWERS = 16, 16  # a step; and of each question
LEASE_SECONDS = 20.0


class Journal:
    """What was accepted, one JSON object a line, each written through to the disk."""

    def __init__(self, path: Path) -> None:
        self.past = (
            [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
            if path.exists()
            else []
        )
        self._file: BinaryIO = path.open("ab")

    def write(self, entry: dict[str, Any]) -> None:
        """Append an entry."""
        self._file.write(json.dumps(entry).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


class Controller:
    """The state of the job. All methods are called in the threads of the server."""

    def __init__(
        self, journal: Journal, peers: faulthound_roles.Directory, steps: int, off_policy: int, trainers: int,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:  # fmt: skip
        self._journal, self._peers = journal, peers
        self._steps, self._off_policy, self._trainers = steps, off_policy, trainers
        self._lease_seconds = lease_seconds
        self._changed = threading.Condition()
        self._given: dict[int, tuple[str, float]] = {}  # question → the rollout that has it, and when it was given
        self._done: dict[int, dict[str, Any]] = {}
        self._commits: dict[int, dict[int, str]] = {}  # step → rank → the fingerprint of its weights
        self.step = 0
        self.rewards: list[float] = []
        for entry in journal.past:
            self._apply(entry)

    @property
    def ready(self) -> int:
        """Return how many answered questions wait for the trainers."""
        return len(self._done)

    def answer(self, request: wire.Message, data: bytes) -> tuple[wire.Message, bytes]:
        """Answer a request of a rollout or a trainer."""
        with self._changed:
            return {"next": self._next, "done": self._take, "batch": self._batch, "commit": self._commit}[
                request["do"]
            ](request, data)

    def _next(self, request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        rollout = self._known("rollout", request)
        if self.step >= self._steps:
            return {"ended": True}, b""
        now = time.monotonic()
        last = min(self.step + self._off_policy, self._steps - 1)
        for question in range(self.step * QUESTIONS, (last + 1) * QUESTIONS):
            holder, at = self._given.get(question, ("", 0.0))
            if question not in self._done and (
                not holder or now > at + self._lease_seconds or not self._serves(holder)
            ):
                self._given[question] = rollout, now
                step = question // QUESTIONS
                return {"question": question, "answers": ANSWERS, "weights": max(0, step - self._off_policy)}, b""
        return {"wait": 0.05}, b""

    def _take(self, request: wire.Message, data: bytes) -> tuple[wire.Message, bytes]:
        self._known("rollout", request)
        question = request["question"]
        if question not in self._done and question // QUESTIONS >= self.step:  # else another was faster
            packed = base64.b64encode(data).decode()
            self._keep(
                {"question": question, "weights": request["weights"], "rewards": request["rewards"], "data": packed}
            )
        return {}, b""

    def _batch(self, request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        step, rank = request["step"], request["rank"]
        if step >= self._steps:
            return {"ended": True}, b""
        questions = range(step * QUESTIONS, (step + 1) * QUESTIONS)
        if step != self.step or not all(question in self._done for question in questions):
            self._changed.wait(1.0)
            return {"wait": 0.0}, b""
        mine = [self._done[question] for question in list(questions)[rank :: self._trainers]]
        parts = [base64.b64decode(one["data"]) for one in mine]
        about = {"questions": [one["question"] for one in mine], "rewards": [one["rewards"] for one in mine]}
        return {**about, "bytes": len(parts[0])}, b"".join(parts)

    def _commit(self, request: wire.Message, _data: bytes) -> tuple[wire.Message, bytes]:
        self._known("trainer", request)
        step, rank, fingerprint = request["step"], request["rank"], request["fingerprint"]
        if step < self.step:  # the trainers were replaced after the answer was lost: the weights must be the same
            if self._commits[step].get(rank, fingerprint) != fingerprint:
                raise wire.Denied(f"step {step} was done before with other weights")
            return {}, b""
        self._commits.setdefault(step, {})[rank] = fingerprint
        if len(self._commits[step]) == self._trainers:
            if len(set(self._commits[step].values())) > 1:
                raise wire.Denied(f"the trainers' weights differ after step {step}: {self._commits[step]}")
            self._keep({"commit": step, "fingerprints": {str(one): text for one, text in self._commits[step].items()}})
        return {}, b""

    def _known(self, role: str, request: wire.Message) -> str:
        instance, epoch = request["instance"], request["epoch"]
        if not self._peers.accepts(role, instance, epoch):
            raise wire.Fenced(f"{role} {instance} of epoch {epoch} was replaced")
        return f"{instance}:{epoch}"

    def _serves(self, holder: str) -> bool:
        instance, _, epoch = holder.partition(":")
        found = self._peers.get("rollout", instance)
        return found is None or found.epoch == int(epoch)

    def _keep(self, entry: dict[str, Any]) -> None:
        self._journal.write(entry)
        self._apply(entry)
        self._changed.notify_all()

    def _apply(self, entry: dict[str, Any]) -> None:
        if "commit" not in entry:
            self._done[entry["question"]] = entry
            return
        step = entry["commit"]
        self._commits[step] = {int(rank): text for rank, text in entry["fingerprints"].items()}
        of_step = range(step * QUESTIONS, (step + 1) * QUESTIONS)
        rewards = [value for question in of_step for value in self._done.pop(question)["rewards"]]
        self.rewards.append(sum(rewards) / len(rewards))
        self.step = step + 1


def main() -> None:
    """Run until the last step is committed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--off-policy", type=int, default=0, choices=(0, 1), help="steps that a trajectory may be behind"
    )
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument(
        "--lease-seconds", type=float, default=LEASE_SECONDS, help="then another rollout gets a question"
    )
    options = parser.parse_args()
    controller = Controller(
        Journal(options.folder / "journal.jsonl"),
        faulthound_roles.watch(),
        options.steps,
        options.off_policy,
        options.trainers,
        options.lease_seconds,
    )
    address, _server = wire.serve(controller.answer)
    me = faulthound_roles.join("controller", "0", {"queue": address}, lost=faulthound_roles.end_process)
    step = -1
    while controller.step < options.steps:
        me.progress(steps=controller.step, queue=controller.ready)
        if step != controller.step:
            step = controller.step
            me.phase(f"step {step}")
            if controller.rewards:
                print(f"step {step - 1} reward {controller.rewards[-1]:.3f}", flush=True)
        time.sleep(0.1)
    (options.folder / "rewards.json").write_text(json.dumps(controller.rewards))
    time.sleep(2.0)  # the others ask once more, and end
    me.leave()


if __name__ == "__main__":
    main()
