"""A rollout: asks for a question, gets its second number from the tool, samples answers, has them scored, hands them in."""

from __future__ import annotations

import argparse
import os
import time
import urllib.request

import faulthound_roles
import faults
import task
import torch
import wire
from model import Policy, generate, load_flat
from weights import Receiver


class Rollout:
    """One instance, and what it knows of its peers."""

    def __init__(self, instance: str) -> None:
        self._instance = instance
        self._peers = faulthound_roles.watch()
        self._policy, self._receiver = Policy(), Receiver(f"rollout-{instance}-{os.getpid()}")
        self._random = torch.Generator().manual_seed(hash((instance, os.getpid())) % (1 << 31))
        self._version = -1
        self._answered, self._tokens = 0, 0
        self._me = faulthound_roles.join("rollout", instance, lost=faulthound_roles.end_process)

    def run(self) -> None:
        """Work until the job has ended."""
        while True:
            faults.end()
            given = self._ask("controller", "queue", {"do": "next"})
            if given.get("ended"):
                self._me.leave()
                return
            if "wait" in given:
                self._now("wait", "queue:questions")
                time.sleep(given["wait"])
                continue
            self._me.progress(running=1)
            self._sync(given["weights"])
            self._answer(given["question"], given["answers"])
            self._answered += 1
            self._me.progress(running=0, steps=self._answered)

    def _now(self, phase: str, whom: str = "") -> None:
        self._me.phase(phase)
        self._me.waiting(whom)

    def _answer(self, question: int, count: int) -> None:
        with faults.work():
            self._now("tool", "tool")
            prompt = task.prompt(task.question(question)[0], self._tool(question))
            self._now("generate")
            faults.block("dead")
            prompts = torch.tensor([prompt] * count)
            answers, logs = generate(self._policy, prompts, self._random)
        self._tokens += answers.numel()
        self._me.progress(tokens=self._tokens)
        self._now("reward", "reward")
        scored = self._ask("reward", "score", {"prompt": prompt, "answers": answers.tolist()})
        self._now("hand in", "controller")
        data = prompts.numpy().tobytes() + answers.numpy().tobytes() + logs.numpy().tobytes()
        done = {"do": "done", "question": question, "weights": self._version, "rewards": scored["rewards"]}
        self._ask("controller", "queue", done, data)

    def _sync(self, least: int) -> None:
        while self._version < least:
            self._now("weight sync", "trainer 0")
            trainer = self._peers.get("trainer", "0")
            try:
                if trainer is not None:
                    self._version, values = self._receiver.fetch(trainer.endpoints["weights"])
                    load_flat(self._policy, values)
                    self._me.weights(self._version)
            except (OSError, wire.Denied):
                pass  # it is being replaced
            if self._version < least:
                time.sleep(0.05)

    def _tool(self, question: int) -> int:
        while True:
            found = self._peers.get("tool", "0")
            try:
                if found is not None:
                    url = f"{found.endpoints['http']}/second/{question}"
                    with urllib.request.urlopen(url, timeout=600) as answer:  # noqa: S310
                        return int(answer.read())
            except OSError:
                pass
            time.sleep(0.2)

    def _ask(self, role: str, endpoint: str, request: wire.Message, data: bytes = b"") -> wire.Message:
        """Return the answer of a role, whichever instance of it serves by then."""
        own = {"instance": self._instance, "epoch": self._me.epoch}
        while True:
            found = self._peers.get(role, "0")
            try:
                if found is not None:
                    return wire.ask(found.endpoints[endpoint], {**request, **own}, data)[0]
            except OSError:
                pass
            time.sleep(0.2)


def main() -> None:
    """Run one rollout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", required=True)
    torch.set_num_threads(1)
    Rollout(parser.parse_args().instance).run()


if __name__ == "__main__":
    main()
