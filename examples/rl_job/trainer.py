"""A trainer: one rank of a DDP group over gloo that learns by GRPO, and offers its weights to the rollouts."""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import Any

import faulthound_roles
import faults
import torch
import torch.distributed as dist
import wire
from model import Policy, fingerprint, flat, load_flat, log_probabilities
from task import ANSWER_TOKENS, PROMPT_TOKENS
from torch.nn.parallel import DistributedDataParallel
from weights import sender

RATE, CLIP, MOST_NORM = 1e-3, 0.2, 10.0


class Trainer:
    """One rank."""

    def __init__(self, folder: Path) -> None:
        self._rank, self._size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._checkpoint = folder / "checkpoint.pt"
        self._peers = faulthound_roles.watch()
        self._offer = sender(f"trainer-{self._rank}-{os.getpid()}")
        self._me = faulthound_roles.join(
            "trainer",
            str(self._rank),
            {"weights": self._offer.address},
            phase="init",
            lost=faulthound_roles.end_process,
        )
        dist.init_process_group("gloo")
        self._policy = Policy()
        self._optimizer = torch.optim.Adam(self._policy.parameters(), lr=RATE)
        self.step = self._load()
        self._model = DistributedDataParallel(self._policy)

    def run(self) -> None:
        """Train until the job has ended."""
        if self.step:  # the answer to the last commit may have been lost with the process before
            self._commit()
        self._publish()
        while True:
            self._me.phase("wait")
            self._me.waiting("queue:experience")
            batch, data = self._ask({"do": "batch", "step": self.step, "rank": self._rank})
            if batch.get("ended"):
                break
            if "wait" in batch:
                continue
            began_at = time.monotonic()
            self._me.working()
            self._me.phase("train")
            faults.end()
            with faults.work():
                faults.block("dead")
                loss, norm = self._learn(batch, data)
            self._me.progress(steps=self.step)
            self._save()
            self._commit()
            self._me.phase("weight sync")
            self._publish()
            if self._rank == 0:
                seconds = time.monotonic() - began_at
                print(f"step {self.step - 1} loss {loss:.4f} grad_norm {norm:.4f} step_time {seconds:.3f}s", flush=True)
        self._me.leave()
        dist.destroy_process_group()

    def _learn(self, batch: dict[str, Any], data: bytes) -> tuple[float, float]:
        prompts, answers, old = _tensors(batch, data)
        rewards = torch.tensor(batch["rewards"])
        advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
        ratio = (log_probabilities(self._model, prompts, answers) - old).exp()
        each = advantages.reshape(-1, 1)
        loss = -torch.min(ratio * each, ratio.clamp(1 - CLIP, 1 + CLIP) * each).mean()
        self._optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._policy.parameters(), MOST_NORM)
        self._optimizer.step()
        self.step += 1
        return loss.item(), norm.item()

    def _commit(self) -> None:
        done = {"do": "commit", "step": self.step - 1, "rank": self._rank, "fingerprint": fingerprint(self._policy)}
        self._me.waiting("controller")
        self._ask(done)
        self._me.working()

    def _publish(self) -> None:
        if self._rank == 0:
            self._offer.publish(self.step, flat(self._policy))
        self._me.weights(self.step)

    def _save(self) -> None:
        """Rank 0 writes; the others go on only when it has, so that no commit is ahead of its checkpoint."""
        if self._rank == 0:
            temporary = self._checkpoint.with_suffix(".new")
            state = {"step": self.step, "policy": flat(self._policy), "optimizer": self._optimizer.state_dict()}
            torch.save(state, temporary)
            temporary.replace(self._checkpoint)
        self._me.waiting("trainer")
        dist.barrier()
        self._me.working()

    def _load(self) -> int:
        if not self._checkpoint.exists():
            return 0
        saved = torch.load(self._checkpoint, weights_only=True)
        load_flat(self._policy, saved["policy"])
        self._optimizer.load_state_dict(saved["optimizer"])
        return int(saved["step"])

    def _ask(self, request: wire.Message) -> tuple[wire.Message, bytes]:
        own = {"instance": str(self._rank), "epoch": self._me.epoch}
        while True:
            found = self._peers.get("controller", "0")
            try:
                if found is not None:
                    return wire.ask(found.endpoints["queue"], {**request, **own})
            except OSError:
                pass
            time.sleep(0.2)


def _tensors(batch: dict[str, Any], data: bytes) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the prompts, the answers and their log-probabilities when they were sampled."""
    prompts, answers, logs = [], [], []
    count = len(batch["rewards"][0])
    middle, end = 8 * count * PROMPT_TOKENS, 8 * count * (PROMPT_TOKENS + ANSWER_TOKENS)
    for begin in range(0, len(data), batch["bytes"]):
        one = bytearray(data[begin : begin + batch["bytes"]])
        prompts.append(torch.frombuffer(one[:middle], dtype=torch.int64).view(count, PROMPT_TOKENS))
        answers.append(torch.frombuffer(one[middle:end], dtype=torch.int64).view(count, ANSWER_TOKENS))
        logs.append(torch.frombuffer(one[end:], dtype=torch.float32).view(count, ANSWER_TOKENS))
    assert math.prod(prompts[0].shape) == count * PROMPT_TOKENS
    return torch.cat(prompts), torch.cat(answers), torch.cat(logs)


def main() -> None:
    """Run one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    torch.set_num_threads(1)
    Trainer(parser.parse_args().folder).run()


if __name__ == "__main__":
    main()
